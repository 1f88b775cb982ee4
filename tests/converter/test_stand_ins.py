"""A rank of the same data-parallel group stands in for one that left no usable traces, or is refused."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.converter import CollectiveType, Graph, NodeType, Workload, convert, doctor
from chakrascope.converter.building import stand_in_of
from chakrascope.converter.building._rank_graph import RankGraph
from chakrascope.converter.building._stand_ins import pose_for_all, with_stand_ins
from chakrascope.errors import TraceError
from chakrascope.runner import NetworkConfig, simulate

KILLED = "rank 1 died while it was recorded"
STANDS_IN = "there is no usable trace of rank 1: rank 0, of the same data-parallel group, stands in for it"


@pytest.fixture
def killed(data_dir, tmp_path):
    """Return a function that copies a trace set as if rank 1 had been killed, then applies *how*."""

    def make(name, how):
        folder = tmp_path / name
        shutil.copytree(data_dir / "converter" / name, folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest.update(partial=True, reasons=[KILLED])
        how(folder, manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    return make


def nothing_left(folder, manifest):
    manifest["ranks"].pop(1)


def host_trace_left(folder, manifest):
    manifest["ranks"][1].update(device_trace=None, complete=False)


def truncated(folder, manifest):
    path = folder / "rank1.device.json.gz"
    path.write_bytes(path.read_bytes()[:2000])


def makespan(workload):
    network = NetworkConfig(("Switch",), (workload.num_ranks,), (1.0,), (500.0,))
    return simulate(workload, "default", network).makespan_ns


@pytest.mark.parametrize("how", [nothing_left, host_trace_left, truncated])
def test_other_sharded_rank_stands_in_with_a_note(killed, data_dir, how):
    folder = killed("fsdp2_2", how)
    workload, whole = convert(folder), convert(data_dir / "converter" / "fsdp2_2")
    assert [graph.rank for graph in workload.graphs] == [0, 1]
    assert workload.metadata["stand_in_of"] == {"1": 0}
    assert [stand_in_of(workload.metadata, rank) for rank in (0, 1)] == [None, 0]
    assert set(workload.metadata["accounting"]) == {"0"}  # nothing was measured on the other rank
    assert STANDS_IN in " ".join(workload.metadata["assumptions"])
    assert KILLED in " ".join(workload.metadata["assumptions"])
    twice = Workload((whole.graphs[0], whole.graphs[0].as_rank(1)), whole.program_of_rank, whole.groups, {})
    assert makespan(workload) == pytest.approx(makespan(twice), rel=1e-3)  # the last rank shifts waits
    findings = doctor(folder)
    assert {finding.severity for finding in findings} == {"warning"}
    assert STANDS_IN.capitalize() in " ".join(finding.cause for finding in findings)


def test_a_stage_of_a_pipeline_has_no_replica(killed):
    folder = killed("interleaved_2", nothing_left)
    message = f"no usable trace of rank 1 .{KILLED}.. No other rank can stand in for rank 1: no rank with"
    with pytest.raises(TraceError, match=message):
        convert(folder)
    assert "No other rank can stand in for rank 1" in " ".join(finding.cause for finding in doctor(folder))


def test_uneven_sizes_are_a_rank_s_own(killed):
    with pytest.raises(TraceError, match="its data-parallel group exchanges uneven amounts"):
        convert(killed("experts_2", nothing_left))


def test_damage_in_a_capture_that_ended_well_is_an_error(killed):
    def copied_badly(folder, manifest):
        truncated(folder, manifest)
        manifest.update(partial=False, reasons=[])

    with pytest.raises(TraceError, match=r"rank1\.device\.json\.gz is truncated"):
        convert(killed("fsdp2_2", copied_badly))


# Eight ranks: two stages of a pipeline, in each two replicas of two tensor-parallel ranks.
TENSOR = [(0, 1), (2, 3), (4, 5), (6, 7)]
DATA = [(0, 2), (1, 3), (4, 6), (5, 7)]
PIPES = [(0, 4), (1, 5), (2, 6), (3, 7)]
GROUPS = dict(enumerate([*TENSOR, *DATA, *PIPES], start=1))


def rank_of_eight(rank, gradient=1000, messages=1):
    """Return the graph of *rank*: activations in its tensor group, messages to the other stage, gradients."""
    tensor, data, pipe = (
        next(key for key, ranks in GROUPS.items() if rank in ranks and ranks in axis)
        for axis in (TENSOR, DATA, PIPES)
    )
    kind, end, partner = (
        (NodeType.COMM_SEND, "comm_dst", rank + 4) if rank < 4 else (NodeType.COMM_RECV, "comm_src", rank - 4)
    )
    shared = {"comm_type": CollectiveType.ALL_REDUCE, "stream": 100}
    message = {"type": kind, end: partner, "group": pipe, "comm_size_bytes": 64, "comm_tag": 0, "stream": 500}
    nodes = [
        {"type": NodeType.COMP, "duration_ns": 10, "phase": "forward"},
        {"type": NodeType.COMM_COLL, "group": tensor, "comm_size_bytes": 500, "phase": "forward", **shared},
        {"type": NodeType.COMM_COLL, "group": tensor, "comm_size_bytes": 500, "phase": "forward", **shared},
        *[message] * messages,
        {"type": NodeType.COMP, "duration_ns": 10, "phase": "backward"},
        {
            "type": NodeType.COMM_COLL,
            "group": data,
            "comm_size_bytes": gradient,
            "phase": "backward",
            **shared,
        },
    ]
    times = [0, 10, 20, *[30] * messages, 40, 50]
    rows = [
        {**node, "node_id": number, "name": "n", "step": 0, "measured_start_ns": times[number]}
        for number, node in enumerate(nodes)
    ]
    backward = len(rows) - 2
    edges = [(0, 1, 1), (0, 2, 1), (backward, backward + 1, 1)]
    return RankGraph(Graph.build(rank, rows, edges))


@pytest.mark.parametrize("lost", [[0], [3], [6], [0, 1], [2, 5], [0, 5, 6]])
def test_groups_and_partners_are_those_of_the_missing_rank(lost):
    ranks = [rank_of_eight(rank) for rank in range(8)]
    left = [one for one in ranks if one.rank not in lost]
    used = {int(number) for one in left for number in np.unique(one.graph.node_columns["group"])} - {0}
    known = {number: ranks for number, ranks in GROUPS.items() if number in used}
    completed, groups, stand_ins = with_stand_ins(left, known, 8, "why")
    made, graphs = ([one.graph for one in own] for own in (completed, ranks))
    assert stand_ins == {rank: rank ^ 2 for rank in lost}
    for graph, whole in zip(made, graphs, strict=True):
        for column in ("type", "comm_src", "comm_dst", "comm_size_bytes"):
            assert (graph.node_columns[column] == whole.node_columns[column]).all()
        used_groups = [groups.get(number) for number in graph.node_columns["group"].tolist()]
        assert used_groups == [GROUPS.get(number) for number in whole.node_columns["group"].tolist()]
    workload = Workload(tuple(made), np.arange(8, dtype=np.int32), groups, {})
    whole = Workload(tuple(graphs), np.arange(8, dtype=np.int32), GROUPS, {})
    assert makespan(workload) == makespan(whole)


@pytest.mark.parametrize(
    ("lost", "different", "why"),
    [
        ([0, 2], {}, "no rank with traces exchanges gradients with this rank"),
        ([0], {"messages": 2}, "rank 4 exchanges different messages with this rank than with its replica"),
    ],
)
def test_rank_without_replica_is_refused(lost, different, why):
    graphs = [
        rank_of_eight(rank, **(different if rank == 2 else {})) for rank in range(8) if rank not in lost
    ]
    with pytest.raises(TraceError, match=f"why. No other rank can stand in for rank 0: {why}"):
        with_stand_ins(graphs, GROUPS, 8, "why")


def test_replicas_that_do_different_things_are_refused():
    groups = {1: (0, 1, 2, 3)}
    graphs = []
    for rank in range(3):  # no tensor-parallel groups here
        graph = rank_of_eight(rank, gradient=1000 + rank, messages=0).graph
        numbers, types = graph.node_columns["group"], graph.node_columns["type"]
        own = np.where((numbers > 0) & (numbers < 5), NodeType.COMP, types)
        graphs.append(RankGraph(graph.with_columns(group=np.where(numbers > 4, 1, 0), type=own)))
    with pytest.raises(
        TraceError, match=r"the ranks of its data-parallel group \(.*\) communicate differently"
    ):
        with_stand_ins(graphs, groups, 4, "why")


# Graphs for all ranks from the graph that rank 0 recorded in a fake world.


def recorded(groups, kind=NodeType.COMM_COLL):
    nodes = pd.DataFrame(
        {"node_id": range(len(groups)), "type": int(kind), "group": range(1, len(groups) + 1)}
    )
    graph = Graph.of_tables(0, nodes, pd.DataFrame({"src": [], "dst": [], "kind": []}))
    return Workload((graph,), np.zeros(1, np.int32), dict(enumerate(groups, start=1)), {"steps": [1]})


@settings(max_examples=12, deadline=None)
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_every_rank_of_a_mesh_gets_its_own_groups(sizes):
    mesh = np.arange(np.prod(sizes)).reshape(sizes)
    made = [
        [sorted(line.tolist()) for line in np.moveaxis(mesh, axis, -1).reshape(-1, size)]
        for axis, size in enumerate(sizes)
    ]
    workload = recorded([tuple(family[0]) for family in made])
    posed = pose_for_all(workload, mesh.size, [group for family in made for group in family], "here")
    assert posed.num_ranks == mesh.size
    for rank in range(mesh.size):
        used = posed.graphs[posed.program_of_rank[rank]].nodes["group"]
        for family, number in zip(made, used, strict=True):
            (expected,) = (tuple(group) for group in family if rank in group)
            assert posed.groups.get(number, tuple(range(mesh.size))) == expected


def test_the_group_of_all_ranks_needs_one_graph():
    posed = pose_for_all(recorded([tuple(range(6))]), 6, [], "here")
    assert (len(posed.graphs), posed.groups, posed.program_of_rank.tolist()) == (1, {}, [0] * 6)


@pytest.mark.parametrize("made", [[], [[0, 1]], [[0, 1], [1, 2], [2, 3]]])
def test_groups_that_leave_ranks_out_are_refused(made):
    with pytest.raises(
        TraceError, match=r"here: the script created the group 0, 1 but no corresponding groups"
    ):
        pose_for_all(recorded([(0, 1)]), 4, made, "here")


def test_messages_to_single_ranks_are_refused():
    with pytest.raises(TraceError, match="exchanges messages with individual ranks"):
        pose_for_all(recorded([(0, 1, 2, 3)], NodeType.COMM_SEND), 4, [], "here")


def test_more_graphs_than_can_be_kept_are_refused():
    pairs = [[rank, rank + 1] for rank in range(0, 4096, 2)]
    with pytest.raises(TraceError, match="fewer ranks"):
        pose_for_all(recorded([(0, 1)]), 4096, pairs, "here")
