"""The backend gpu: collectives and computation on the same compute units."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from workloads import coll, comp, recv, send, workload

from chakrascope.converter import CollectiveType
from chakrascope.converter.chakra import KINDS, with_splits
from chakrascope.errors import ConfigError
from chakrascope.runner import Study, get_backend, gpu, prepare, simulate
from chakrascope.runner.gpu import find_machine, simulate_program
from chakrascope.runner.programs import all_pairs_program, nccl_program

NETWORK = "hgx-h100-8"
SIZE = 1 << 18


def run(*nodes, backend="gpu", **options):
    return simulate(workload(*[list(nodes)] * 8), "default", NETWORK, backend=backend, **options)


def times(result, node):
    rows = result.nodes[result.nodes["node_id"] == node]
    return int(rows["start_ns"].min()), int(rows["end_ns"].max())


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("nccl-ring:Simple:4", nccl_program("ring", "reduce-scatter", 8, "Simple", 4)),
        ("all-pairs-get:8", all_pairs_program("get", "reduce-scatter", 8, 8)),
    ],
)
def test_uncontended_collective_takes_the_time_of_its_program(name, program):
    alone = simulate_program(program, SIZE, find_machine("h100"), record_ops=False)
    result = run(
        coll(0, SIZE, comm_type=CollectiveType.REDUCE_SCATTER), algorithms={"reduce-scatter": [name]}
    )
    assert result.makespan_ns == alone.time_ns


def test_uncontended_computation_takes_its_duration():
    result = run(comp(0, 12_000), comp(1, 1000, (0,)), comp(2, 54_000, (1,)))
    assert result.makespan_ns == 12_000 + 1000 + 54_000
    assert result.provenance["gpu"] == {"machine": "h100", "compute_slowdown": 1.0}


def test_computation_beside_a_collective_slows_down():
    together = run(comp(0, 40_000), coll(1, 2 << 20))
    alone = run(coll(1, 2 << 20))
    slowdown = together.provenance["gpu"]["compute_slowdown"]
    start, end = times(together, 0)
    assert slowdown == pytest.approx((end - start) / 40_000, rel=1e-3)
    # 16 of 132 units are taken by the ring while it runs.
    assert 1.02 < slowdown < 1.5
    assert (together.ranks["compute_slowdown"] > 1).all()
    assert times(together, 1)[1] >= times(alone, 1)[1]


@pytest.mark.parametrize("backend", ["gpu", "analytical-unaware", "analytical-aware", "flow", "packet"])
@pytest.mark.parametrize("kind", KINDS)
def test_only_kernels_take_turns(kind, backend):
    # On every backend, hosts, copy engines and waits run in parallel with a kernel.
    kernel, other = comp(0, 1_000_000, stream=0), comp(1, 1_000_000, stream=1, kind=kind)
    turns = 2 if (kind, backend) == ("compute", "gpu") else 1
    result = run(kernel, other, backend=backend, semantics="trace")
    assert result.makespan_ns == turns * 1_000_000


def test_what_was_taken_for_granted_is_named():
    result = run(coll(0, SIZE), coll(1, 1000, (0,), CollectiveType.ALL_TO_ALL), backend="gpu:generic")
    told = " ".join(result.provenance["assumptions"])
    for words in ("machine is 'generic'", "NCCL's ring", "ran 'direct'", "compute_waves", "proxies"):
        assert words in told
    assert any("number of ranks" in line for line in result.provenance["ignored_keys"])
    assert result.provenance["options"]["machine"]["compute"]["units"] == 128


def test_collectives_of_one_kind_may_differ_in_size():
    # As the buckets of DistributedDataParallel do.
    result = run(coll(0, SIZE), coll(1, 3 * SIZE, (0,)), coll(2, 2 * SIZE, (1,)))
    took = [times(result, node)[1] - times(result, node)[0] for node in range(3)]
    assert took[0] < took[2] < took[1]


def test_each_process_group_runs_its_own_program():
    half = [[coll(0, SIZE, group=1 + rank // 4)] for rank in range(8)]
    groups = {1: (0, 1, 2, 3), 2: (4, 5, 6, 7)}
    result = simulate(workload(*half, groups=groups), "default", NETWORK, backend="gpu")
    assert set(result.collectives["group"]) == {1, 2}
    ends = result.nodes.groupby("rank")["end_ns"].max()
    assert ends.max() < 1.05 * ends.min()


@pytest.mark.parametrize(("network", "ranks"), [(NETWORK, 8), ("hgx-h100-2x8", 16)])
def test_one_of_the_ranks_in_step_is_simulated(network, ranks):
    def result(*last):
        nodes = [[comp(0, 40_000), coll(1, 2 << 20), coll(2, SIZE, (0, 1))] for _ in range(ranks)]
        nodes[-1] += last
        return simulate(workload(*nodes), "default", network, backend="gpu")

    # The last rank differs from the others at its own node, so all ranks are simulated from the start.
    one_gpu, all_gpus = result(), result(comp(3, 1000, (2,)))
    assert one_gpu.provenance["events"] < 0.6 * all_gpus.provenance["events"]
    for node in range(3):
        assert times(one_gpu, node) == times(all_gpus, node)
    origins = [
        result.nodes[result.nodes["node_id"] < 3]["origin_rank"].tolist() for result in (one_gpu, all_gpus)
    ]
    assert origins[0] == origins[1]
    # An arrival at the very end is counted only if the simulation continues.
    up = [result.links[result.links["src"] < ranks] for result in (one_gpu, all_gpus)]
    assert up[0].equals(up[1])
    assert one_gpu.ranks["compute_slowdown"].tolist()[:-1] == all_gpus.ranks["compute_slowdown"].tolist()[:-1]


def test_a_collective_of_any_size_keeps_ranks_in_step():
    small = 4  # bytes, as of a gradient norm
    even, mixed = (run(coll(0, SIZE), coll(1, size, (0,))) for size in (2 * SIZE, small))
    assert mixed.provenance["events"] < even.provenance["events"]
    assert times(mixed, 0) == times(even, 0)
    # A chunk is at least one unit of 16 bytes.
    assert times(mixed, 1) == times(run(coll(0, SIZE), coll(1, 16 * 8, (0,))), 1)


def test_a_message_goes_over_the_links_between_two_ranks():
    nodes = [[send(0, 0, 1, SIZE)], [recv(0, 0, 1, SIZE)], *[[comp(0, 1)] for _ in range(6)]]
    result = simulate(workload(*nodes), "default", NETWORK, backend="gpu")
    up = find_machine("h100").scale_up
    wire = SIZE / up.bytes_per_ns
    assert wire + up.latency_ns < result.makespan_ns < 2 * wire + 20_000
    links = result.links.set_index(["src", "dst"])["bytes"]
    assert links[0, 8] >= SIZE
    assert links[8, 1] >= SIZE


def test_nodes_of_a_machine_are_joined_by_nics():
    nodes = [[coll(0, SIZE), coll(1, SIZE, (0,), CollectiveType.ALL_TO_ALL)] for _ in range(16)]
    result = simulate(workload(*nodes), "default", "hgx-h100-2x8", backend="gpu")
    outside = result.links[result.links["dst"] == 18]  # after 16 ranks and the switches of both nodes
    assert outside["bytes"].sum() >= SIZE


def h100():
    return yaml.safe_load(Path(gpu.__file__).with_name("machines.yml").read_text(encoding="utf-8"))["h100"]


def test_a_machine_is_a_file_too_and_decides_the_hash(tmp_path):
    data = h100()
    mine = tmp_path / "mine.yml"
    hashes = []
    for latency, why in ((700, "a guess"), (9000, "a guess"), (9000, "measured")):
        data["scale_up"]["latency_ns"] = latency
        data["sources"]["scale_up.latency_ns"] = data["title"] = why
        mine.write_text(yaml.safe_dump(data), encoding="utf-8")
        model = workload(*[[coll(0, SIZE)] for _ in range(8)])
        hashes.append(prepare(model, "default", NETWORK, backend=f"gpu:{mine}").content_hash)
    # Sources of figures have no effect.
    assert hashes[0] != hashes[1] == hashes[2]
    assert run(coll(0, SIZE), backend=f"gpu:{mine}").makespan_ns > run(coll(0, SIZE)).makespan_ns
    assert prepare(model, "default", NETWORK, backend="flow").gpu_machine is None


def test_a_kept_run_keeps_its_machine_and_programs(tmp_path):
    mine = tmp_path / "mine.yml"
    mine.write_text(yaml.safe_dump(h100()), encoding="utf-8")
    study = Study.create(tmp_path / "study")
    study.add_workload(workload(*[[coll(0, SIZE)] for _ in range(8)]), "job")
    algorithms = {"all-reduce": ["nccl"]}
    prefix = study.workload_prefix("job")
    asked = prepare(prefix, "default", NETWORK, backend=f"gpu:{mine}", algorithms=algorithms)
    result = get_backend(asked.backend).run(asked)
    kept = study.add_run(asked, result, workload="job")
    mine.unlink()
    again = study.experiment(kept)
    assert again.content_hash == kept
    assert {demand.size_bytes for demand in again.programs.programs} == {SIZE}
    assert get_backend(again.backend).run(again).makespan_ns == result.makespan_ns


def test_machines_that_there_are_not_are_named():
    with pytest.raises(ConfigError, match=r"h1000.*h100"):
        run(coll(0, SIZE), backend="gpu:h1000")


def test_unsupported_program_names_the_step():
    with pytest.raises(ConfigError, match=r"rank 0, thread block \d+, op .*multicast"):
        run(coll(0, 1 << 24), backend="gpu:generic", algorithms={"all-reduce": ["nccl-nvls"]})


@pytest.mark.parametrize("kind", ["ALL_TO_ALL", "ALL_GATHER", "REDUCE_SCATTER"])
def test_collectives_of_other_amounts_on_other_ranks_are_refused(kind):
    even = workload(*[[coll(0, 8 * SIZE, comm_type=CollectiveType[kind])]] * 8)
    rows = [[SIZE * (1 + (rank + peer) % 8) for peer in range(8)] for rank in range(8)]
    if kind != "ALL_TO_ALL":
        rows = rows[:1] * 8
    told = [with_splits(graph, {0: row}) for graph, row in zip(even.graphs, rows, strict=True)]
    uneven = replace(even, graphs=tuple(told))
    with pytest.raises(ConfigError, match=r"Node 0 .* of rank 0 has other amounts .* another backend"):
        simulate(uneven, "default", NETWORK, backend="gpu", semantics="trace")


def test_equal_amounts_for_all_are_an_even_collective():
    even = workload(*[[coll(0, 8 * SIZE, comm_type=CollectiveType.ALL_TO_ALL)]] * 8)
    told = replace(even, graphs=tuple(with_splits(graph, {0: [SIZE] * 8}) for graph in even.graphs))
    first, second = (
        simulate(job, "default", NETWORK, backend="gpu", semantics="trace").makespan_ns
        for job in (even, told)
    )
    assert first == second
