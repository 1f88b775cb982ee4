"""Scaling out repeats data parallelism, and nothing else."""

import numpy as np
import pytest
from gloo_thread import Thread, write_trace_set

from chakrascope.converter import CollectiveType, EdgeKind, Graph, NodeType, Workload, convert, convert_files
from chakrascope.converter.building import group_name
from chakrascope.converter.readers import group_labels
from chakrascope.errors import WorkloadError
from chakrascope.runner import (
    REPLAY,
    NetworkConfig,
    SystemConfig,
    check_setup,
    communication_of,
    get_backend,
    prepare,
    simulate,
)
from chakrascope.runner.analysis import critical_path

ALL_REDUCE, ALL_GATHER = CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER
REDUCE_SCATTER, ALL_TO_ALL = CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_TO_ALL


def program(rank, *items):
    """Return a chain of passes and communications: names, (kind, group, bytes), (to or from, rank)."""
    nodes, phase = [], "forward"
    for number, item in enumerate(items):
        node = {"node_id": number, "name": str(item), "type": NodeType.COMP, "duration_ns": 1000, "step": 1}
        if isinstance(item, str):
            phase = item
            nodes.append(node | {"phase": phase})
            continue
        kind, target, *size = item
        about = {
            "phase": "communication",
            "kind": "communication",
            "comm_size_bytes": size[0] if size else 4096,
        }
        if kind == "send":
            about |= {"type": NodeType.COMM_SEND, "comm_dst": target, "comm_tag": 1}
        elif kind == "recv":
            about |= {"type": NodeType.COMM_RECV, "comm_src": target, "comm_tag": 1}
        else:
            about |= {"type": NodeType.COMM_COLL, "comm_type": kind, "group": target}
        nodes.append(node | about)
    edges = [(number, number + 1, EdgeKind.DATA) for number in range(len(nodes) - 1)]
    return Graph.build(rank, nodes, edges)


def job(programs, groups=None):
    graphs = tuple(program(rank, *items) for rank, items in enumerate(programs))
    metadata = {"measured_step_ns": {"0": 1}}
    return Workload(graphs, np.arange(len(graphs), dtype=np.int32), groups or {}, metadata)


def tensor_parallel(group):
    layers = ["forward", (ALL_REDUCE, group), "forward", (ALL_REDUCE, group)]
    return [*layers, "backward", (ALL_REDUCE, group), "backward"]


PIPELINE = [
    ["forward", ("send", 1), "backward", ("recv", 1)],
    ["forward", ("recv", 0), "backward", ("send", 0)],
]
REFUSED = {
    "pipeline": (PIPELINE, {}, r"ranks send to each other \(pipeline stages\)"),
    "pipeline that reduces its loss": (
        [[*items, (ALL_REDUCE, 0, 4)] for items in PIPELINE],
        {},
        r"pipeline stages.*no group reduces gradients",
    ),
    "tensor": ([tensor_parallel(0)] * 2, {}, r"all 2 ranks reduce activations in the forward pass"),
    "sequence": (
        [["forward", (ALL_GATHER, 0), "forward", (REDUCE_SCATTER, 0), "backward", (ALL_GATHER, 0)]] * 2,
        {},
        r"tensor parallelism",
    ),
    "inference": ([["forward", (ALL_REDUCE, 0), "forward", (ALL_REDUCE, 0), "forward"]] * 2, {}, "tensor"),
    "experts alone": (
        [["forward", (ALL_TO_ALL, 0), "backward", (ALL_TO_ALL, 0)]] * 2,
        {},
        "expert parallelism",
    ),
    "tensor in groups": (
        [tensor_parallel(1)] * 2 + [tensor_parallel(2)] * 2,
        {1: (0, 1), 2: (2, 3)},
        r"the ranks of group 1 \(0, 1\) and 1 more groups reduce activations",
    ),
    "one stage is not replicated": (
        [["backward", (ALL_REDUCE, 1)]] * 2 + [["backward"]],
        {1: (0, 1)},
        r"no group of rank 2 reduces gradients",
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_other_parallelism_is_refused_by_check_and_run(name):
    programs, groups, cause = REFUSED[name]
    workload = job(programs, groups)
    with pytest.raises(WorkloadError, match=cause) as refused:
        workload.scale_out(4 * workload.num_ranks)
    assert "at least two data-parallel replicas" in refused.value.message
    network = NetworkConfig(("Switch",), (4 * workload.num_ranks,), (50.0,), (500.0,))
    found = check_setup(
        network, SystemConfig.preset("default", 1), communication_of(workload), ["analytical-unaware"]
    )
    assert found[0].severity == "error"
    assert refused.value.message in found[0].cause
    assert workload.scale_out(workload.num_ranks) is workload


def grown(programs, groups, ranks):
    workload = job(programs, groups).scale_out(ranks)
    network = NetworkConfig(("Switch",), (ranks,), (50.0,), (500.0,))
    assert simulate(workload, "default", network).makespan_ns > 0
    system = SystemConfig.preset("default", 1)
    found = check_setup(network, system, communication_of(job(programs, groups)), ["analytical-unaware"])
    assert found[0].severity != "error"
    return workload


def test_data_parallel_groups_grow_and_tensor_parallel_ones_are_copied():
    programs = [[*tensor_parallel(1 + rank // 2), (ALL_REDUCE, 3 + rank % 2)] for rank in range(4)]
    groups = {1: (0, 1), 2: (2, 3), 3: (0, 2), 4: (1, 3)}
    workload = grown(programs, groups, 8)
    assert {workload.groups[3], workload.groups[4]} == {(0, 2, 4, 6), (1, 3, 5, 7)}
    assert sorted(ranks for ranks in workload.groups.values() if len(ranks) == 2) == [
        (0, 1),
        (2, 3),
        (4, 5),
        (6, 7),
    ]
    used = workload.graph_of(6).nodes.query("comm_type >= 0")["group"].unique().tolist()
    assert {workload.groups[group] for group in used} == {(6, 7), (0, 2, 4, 6)}


def test_replicas_of_pipelines_get_more_replicas():
    programs = [
        [("recv", rank - 2) if rank > 1 else ("send", rank + 2), "backward", (ALL_REDUCE, 1 + rank // 2)]
        for rank in range(4)
    ]
    workload = grown(programs, {1: (0, 1), 2: (2, 3)}, 8)
    assert sorted(workload.groups.values()) == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert workload.graph_of(5).nodes["comm_dst"].max() == 7


def test_where_parameters_are_sharded_the_replicas_grow():
    shard = [
        (ALL_GATHER, "shard"),
        "forward",
        "backward",
        (REDUCE_SCATTER, "shard"),
        (ALL_REDUCE, "replica", 2048),
    ]
    groups = {1: (0, 1), 2: (2, 3), 3: (0, 2), 4: (1, 3)}
    programs = []
    for rank in range(4):
        own = {"shard": 1 + rank // 2, "replica": 3 + rank % 2}
        programs.append(
            [item if isinstance(item, str) else (item[0], own[item[1]], *item[2:]) for item in shard]
        )
    workload = grown(programs, groups, 8)
    assert {workload.groups[3], workload.groups[4]} == {(0, 2, 4, 6), (1, 3, 5, 7)}
    assert workload.groups[1] == (0, 1)


def test_a_logged_loss_and_batch_statistics_are_no_tensor_parallelism():
    step = [
        "forward",
        (ALL_REDUCE, 0, 64),
        "forward",
        (ALL_REDUCE, 0, 4),
        "backward",
        (ALL_REDUCE, 0, 1 << 20),
    ]
    assert grown([step] * 2, {}, 8).groups == {}


def test_gradients_that_are_accumulated_are_no_activations():
    turn = ["forward", "backward", "forward", (REDUCE_SCATTER, 0)]
    assert grown([turn * 2] * 2, {}, 4).groups == {}


def test_ranks_without_communication_are_repeated_with_a_note():
    notes = grown([["forward"]], {}, 4).metadata["assumptions"]
    assert any("never communicate" in note for note in notes)


@pytest.mark.parametrize("name", ["tp_2", "pp_2"])
@pytest.mark.parametrize("with_host", [True, False])
def test_captures_of_tensor_and_pipeline_parallelism_are_refused(shared, name, with_host):
    folder = f"{shared}/traces/{name}"
    host = f"{folder}/et_{{rank}}.json.gz" if with_host else None
    with pytest.raises(WorkloadError, match="cannot be repeated as data parallelism"):
        convert_files(host, f"{folder}/kineto_{{rank}}.json.gz").scale_out(16)


@pytest.mark.parametrize("name", ["interleaved_2", "ring_2"])
def test_captured_pipelines_are_refused(data_dir, name):
    with pytest.raises(WorkloadError, match="pipeline stages"):
        convert(data_dir / "converter" / name).scale_out(16)


@pytest.mark.parametrize("name", ["mlp_2", "fsdp2_2"])
def test_data_parallel_captures_span_all_ranks(data_dir, name):
    workload = convert(data_dir / "converter" / name)
    large = workload.scale_out(16)
    assert large.groups == {}
    assert len(large.graphs) == len(workload.graphs)


# Process groups of the same ranks stay separate, and have the names that the script gives them.


STEP = (1_000, 41_000)  # microseconds
EVERYONE = [0, 1, 2, 3]
MESH = [
    ("0", "default_pg", EVERYONE), ("1", "mesh_dp", EVERYONE), ("2", "mesh_tp", [0, 1]),
    ("3", "mesh_cp", [0, 1]), ("4", "mesh_tp", [2, 3]), ("5", "mesh_cp", [2, 3]),
]  # fmt: skip


def converted(folder, groups, used):
    """Return the workload of four ranks that reduce in the groups named in *used*."""
    entries = []
    for rank in EVERYONE:
        thread, own = Thread(rank), [group for group in groups if rank in group[2]]
        names = [name for name, *_ in own if name in used]
        for number, name in enumerate(names):
            start = STEP[0] + 2_000 * number
            thread.op("aten::mm", start + rank, start + 500, 10 * number + 1)
            thread.all_reduce(start + 500, start + 600, 10 * number + 2, start + 1_500, group=name)
        thread.op("aten::add_", STEP[1] - 1_000, STEP[1], 900)
        listed = [{"name": name, "description": text, "ranks": ranks} for name, text, ranks in own]
        entries.append(thread.write(folder, [STEP]) | {"process_groups": listed})
    write_trace_set(folder, entries)
    return convert(folder)


def names_of(workload, rank):
    """Return the groups of the collectives of *rank*, in order, as text."""
    nodes = workload.graphs[rank].nodes
    issued = nodes[nodes["comm_size_bytes"] > 0].sort_values("measured_start_ns")
    return [group_name(workload.metadata, number) for number in issued["group"]]


def test_groups_of_the_same_ranks_have_numbers_and_names_of_their_own(tmp_path):
    workload = converted(tmp_path, MESH, "012345")
    assert names_of(workload, 1) == ["all ranks", "group 3 (dp)", "group 2 (tp)", "group 1 (cp)"]
    assert names_of(workload, 3) == ["all ranks", "group 3 (dp)", "group 5 (tp)", "group 4 (cp)"]
    assert workload.groups == {1: (0, 1), 2: (0, 1), 3: (0, 1, 2, 3), 4: (2, 3), 5: (2, 3)}


def test_the_critical_path_names_groups(tmp_path):
    workload = converted(tmp_path, MESH, "2345")
    experiment = prepare(workload, "default", None, backend=REPLAY)
    path = critical_path(get_backend(REPLAY).run(experiment), workload)
    named = {text for text in path.segments["collective"] if text}
    assert named
    names = ("1 (cp)", "2 (tp)", "4 (cp)", "5 (tp)")
    assert named <= {f"all_reduce of 4.00 KiB, group {name}" for name in names}


@pytest.mark.parametrize("used", ["0", "1"])
def test_the_only_group_of_all_ranks_is_that_of_all_ranks(tmp_path, used):
    workload = converted(tmp_path, MESH, used)
    assert workload.groups == {}
    assert names_of(workload, 0) == ["all ranks"]


def test_groups_without_a_description_are_numbered():
    listed = [("0", "default_pg", (0, 1)), ("7", "undefined", (0, 1)), ("9", "", (0,)), ("12", "", (0, 1))]
    assert group_labels(listed) == {"0": "", "7": "no. 2", "9": "", "12": "no. 3"}
    assert group_labels([("a", "mesh_dp", (0, 1)), ("b", "mesh_dp", (0, 1))]) == {"a": "dp", "b": "dp no. 2"}
