"""Every trace that is at hand is converted and runs on the default system."""

from __future__ import annotations

import tarfile

import pytest

from chakrascope.converter import convert_files
from chakrascope.runner import NetworkConfig, simulate

CPU_SETS = (
    "mlp_2",
    "transformer_2",
    "fsdp2_2",
    "tp_2",
    "pp_2",
    "moe_2",
    "tpdp_4",
    "twoopt",
    "noann",
)
# folder -> patterns of its host and device traces
SETS = dict.fromkeys(CPU_SETS, ("et_{rank}.json.gz", "kineto_{rank}.json.gz"))
SETS["gpu_resnet50_ddp2"] = ("et103_{rank}.json.gz", "kineto_{rank}.json.gz")
SETS["."] = ("linear_1gpu_host_et.json.gz", "linear_1gpu_kineto.json.gz")


def ends(workload, backend):
    network = NetworkConfig(("Switch",), (workload.num_ranks,), (1.164,), (5000.0,))
    result = simulate(workload, "default", network, backend=backend)
    assert result.makespan_ns > 0
    assert (result.ranks["finish_ns"] > 0).all()
    assert result.provenance["nodes_executed"] == result.provenance["nodes_total"]


@pytest.mark.parametrize("name", sorted(SETS))
@pytest.mark.parametrize("with_host", [True, False])
def test_every_trace_set_runs(shared, name, with_host):
    host, device = (str(shared / "traces" / name / pattern) for pattern in SETS[name])
    workload = convert_files(host if with_host else None, device)
    for backend in ("analytical-unaware", "analytical-aware"):
        ends(workload, backend)


def test_eight_ranks_of_dlrm_run(shared, tmp_path):
    for archive in ("dlrm_8gpu_host_et.tar.gz", "dlrm_8gpu_kineto.tar.gz"):
        with tarfile.open(shared / "traces" / archive) as file:
            file.extractall(tmp_path, filter="data")
    folders = sorted({path.parent for path in tmp_path.rglob("*.json*")})
    host = next(folder for folder in folders if folder.name.endswith("_et"))
    device = next(folder for folder in folders if folder != host)
    workload = convert_files(str(host), str(device))
    assert workload.num_ranks == 8
    for backend in ("analytical-unaware", "analytical-aware"):
        ends(workload, backend)
