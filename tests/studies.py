"""Build a small study with two runs of one hand-made training step, through the runner's own interfaces."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from chakrascope.converter import CollectiveType, EdgeKind, Graph, NodeType, Workload
from chakrascope.runner import Study, find_items, get_backend, prepare
from chakrascope.runner._result import COLUMNS
from chakrascope.runner.analysis import RunAnalysis
from chakrascope.runner.study import import_item

HOSTILE = '<img src=x onerror="alert(1)"> \u202eevil & ' + "x" * 10_000
LAYERS = 6


def _rows(late_ns: int) -> list[dict]:
    rows = []

    def add(name, kind, phase, duration_ns, module, **facts):
        start = rows[-1]["measured_start_ns"] + rows[-1]["duration_ns"] if rows else 0
        rows.append(
            {
                "node_id": len(rows),
                "name": name,
                "type": NodeType.COMP,
                "kind": kind,
                "phase": phase,
                "duration_ns": duration_ns,
                "module": module,
                "operator": name,
                "measured_start_ns": start,
                "step": 0,
            }
            | facts
        )

    for layer in range(LAYERS):
        add(f"host before aten::mm {layer}", "host", "forward", 20_000, f"layers.{layer}")
        add("aten::mm", "compute", "forward", 400_000 + late_ns, f"layers.{layer}")
        add(
            "c10d::allreduce_",
            "communication",
            "backward",
            300_000,
            f"layers.{layer}",
            type=NodeType.COMM_COLL,
            comm_type=CollectiveType.ALL_REDUCE,
            comm_size_bytes=(layer + 1) << 20,
            stream=1,
        )
    rows[0] |= {"name": HOSTILE}
    return rows


def make_workload(ranks: int = 2) -> Workload:
    """Make a data-parallel step whose last rank computes longer; its first node has a hostile name."""
    graphs = []
    for rank in range(ranks):
        rows = _rows(100_000 * (rank == ranks - 1))
        edges = [(node, node + 1, kind % len(EdgeKind)) for kind, node in enumerate(range(len(rows) - 1))]
        graphs.append(Graph.build(rank, rows, edges))
    return Workload(
        tuple(graphs),
        np.arange(ranks, dtype=np.int32),
        metadata={"source": "hand-made", "measured_step_ns": {str(r): 4_920_000 for r in range(ranks)}},
    )


def ring_links(ranks: int) -> pd.DataFrame:
    """Make the links of a ring, the second one busiest."""
    table = pd.DataFrame(
        {
            "src": range(ranks),
            "dst": [(rank + 1) % ranks for rank in range(ranks)],
            "bytes": 10 << 20,
            "busy_ns": [2_000_000 if rank == 1 else 1_000_000 for rank in range(ranks)],
            "queue_ns": 5_000,
            "messages": 12,
        }
    )
    return table.astype(COLUMNS["links"])


@dataclass(frozen=True)
class Made:
    """A study and the ids of its two runs, by label."""

    study: Study
    run_a: str
    run_b: str


def run_in(study, program, network=None, *, workload="job", label="", system="default", **options) -> str:
    """Add *program* and a run of it to *study*, as measured unless on a *network*; return the run's id."""
    if network is None:
        options = {"backend": "replay"} | options
    experiment = prepare(study.add_workload(program, workload), system, network, **options)
    result = get_backend(experiment.backend).run(experiment)
    return study.add_run(experiment, result, label=label, workload=workload)


def study_of(folder, program, network=None, **options) -> Study:
    """Return a study at *folder*/study with one run, as :func:`run_in` makes it."""
    study = Study.create(folder / "study")
    run_in(study, program, network, **options)
    return study


class _Nowhere:
    """Replaces a study of one run, without files."""

    def __init__(self, experiment) -> None:
        self._experiment = experiment

    def experiment(self, _run):
        return self._experiment

    def cache_file(self, _run, name):
        return Path(os.devnull, name)  # it can be neither read nor written

    def run_file(self, _run):
        return Path(os.devnull)

    def workload_files(self, _workload):
        return []


def analysis_of(program, network=None, **options) -> RunAnalysis:
    """Return the analysis of a run of *program* that is in no study, as measured unless on a *network*."""
    if network is None:
        options = {"backend": "replay"} | options
    experiment = prepare(program, "default", network, **options)
    result = get_backend(experiment.backend).run(experiment)
    info = SimpleNamespace(
        id="", workload="job", backend=experiment.backend, num_ranks=program.num_ranks, label=""
    )
    return RunAnalysis(_Nowhere(experiment), info, result, program)


def make_study(folder) -> Made:
    """Make a study at *folder*: run-a replays 2 ranks as measured, run-b simulates 8 of them."""
    study = Study.create(folder)
    as_measured = run_in(study, make_workload(), label="run-a", workload="hand-made")
    network = {"network": "cpu-cluster-8", "backend": "analytical-aware"}
    return Made(
        study, as_measured, run_in(study, make_workload(), label="run-b", workload="hand-made", **network)
    )


def make_captured_study(folder, data_dir):
    """Make a study at *folder*/study of a small capture with its traces; return it and its replay's id."""
    shutil.copytree(data_dir / "converter" / "mlp_2", folder / "from" / "mlp")
    study = Study.create(folder / "study")
    (item,) = find_items(folder / "from")
    import_item(study, folder / "from", item.id, "mlp", lambda _done, _total: None)
    experiment = prepare(study.workload("mlp"), "default", None, backend="replay")
    return study, study.add_run(experiment, get_backend("replay").run(experiment), workload="mlp")


def as_version_0_2(folder: Path) -> None:
    """Change the saved result in *folder* to one of version 0.2, which has no checksums."""
    (folder / "SHA256SUMS").unlink()
    file = folder / "result.json"
    head = json.loads(file.read_text(encoding="utf-8"))
    head["provenance"]["versions"] = {"chakrascope": "0.2.0"}
    file.write_text(json.dumps(head), encoding="utf-8")
