"""Uneven collectives: what each rank has for each other comes from the traces, and goes into the graphs."""

from __future__ import annotations

import numpy as np
import pytest

from chakrascope.converter import CollectiveType, Graph, NodeType, Workload, convert_files, doctor
from chakrascope.converter.building._rank_graph import RankGraph, with_uneven_splits
from chakrascope.converter.readers import HostOp, parameters
from chakrascope.converter.readers._host_comms import shared_out, split_bytes
from chakrascope.runner import NetworkConfig, simulate

PAIR = NetworkConfig(("Switch",), (2,), (1.164,), (5000.0,))
# Bytes of the step's all-to-alls, by rank: what it keeps and what it sends, in the order of the ranks.
MOE = {
    0: [(105_472, 25_600), (105_472, 102_912)] * 2,
    1: [(102_912, 28_160), (25_600, 28_160)] * 2,
}


def tensor(elements, width=4):
    return [1, 1, 0, elements, width, "cpu"]


def uneven(size, splits=None, kind=CollectiveType.ALL_TO_ALL, group=0):
    node = {"node_id": 3, "name": "c", "type": NodeType.COMM_COLL, "comm_type": kind, "group": group}
    graph = Graph.build(0, [node | {"comm_size_bytes": size}], [])
    return RankGraph(graph, splits={3: splits} if splits else {})


@pytest.fixture(scope="module", params=["with host traces", "alone"])
def moe(request, data_dir):
    folder = f"{data_dir}/converter/moe_2"
    host = f"{folder}/rank{{rank}}.host.json.gz" if request.param == "with host traces" else None
    return convert_files(host, f"{folder}/rank{{rank}}.device.json.gz")


def test_expert_exchange_sends_the_captured_bytes(moe):
    for rank, graph in enumerate(moe.graphs):
        listed = [_splits(graph.extra[node]) for node in sorted(graph.extra)]
        assert listed == MOE[rank]


def test_astra_sim_gets_one_size_with_a_note(moe):
    sizes = [graph.nodes.query("comm_type == 6")["comm_size_bytes"].tolist() for graph in moe.graphs]
    assert sizes == [[16, 131_072, 208_384, 131_072, 208_384]] * 2
    assert any("uneven (4 on a rank at most)" in note for note in moe.metadata["assumptions"])


@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware"])
def test_an_experts_exchange_runs(moe, backend, tmp_path):
    moe.save(tmp_path / "w")
    assert [finding for finding in doctor(tmp_path / "w") if finding.severity == "error"] == []
    result = simulate(tmp_path / "w", "default", PAIR, backend=backend)
    assert result.makespan_ns == simulate(moe, "default", PAIR, backend=backend).makespan_ns
    reloaded = Workload.load(tmp_path / "w")
    assert [dict(graph.extra) for graph in reloaded.graphs] == [dict(graph.extra) for graph in moe.graphs]


def test_bytes_on_the_links_are_those_of_the_job(data_dir):
    """Four uneven all-to-alls more than the same without: two ranks exchange what each has for the other."""
    folder = f"{data_dir}/converter/moe_2"
    moe = convert_files(f"{folder}/rank{{rank}}.host.json.gz", f"{folder}/rank{{rank}}.device.json.gz")
    graphs = []
    for graph in moe.graphs:
        column = graph.node_columns
        keep = np.where(np.isin(column["node_id"], list(graph.extra)), int(NodeType.COMP), column["type"])
        graphs.append(graph.with_columns(type=keep))
    less = Workload(tuple(graphs), moe.program_of_rank, moe.groups, moe.metadata)
    sent = [simulate(job, "default", PAIR, backend="analytical-aware").links for job in (moe, less)]
    more = (sent[0]["bytes"] - sent[1]["bytes"]).tolist()
    from_0 = sum(splits[1] for splits in MOE[0])
    from_1 = sum(splits[0] for splits in MOE[1])
    assert dict(zip(zip(sent[0]["src"], sent[0]["dst"], strict=True), more, strict=True)) == {
        (0, 2): from_0,
        (1, 2): from_1,
        (2, 0): from_1,
        (2, 1): from_0,
    }


def _splits(encoded: bytes) -> tuple[int, ...]:
    """Return the numbers of the packed list at the end of an encoded attribute."""
    values, shift, value = [], 0, 0
    packed = encoded[encoded.index(b"comm_splits") + len(b"comm_splits") + 4 :]
    for byte in packed:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            shift = value = 0
    return tuple(values)


def test_rows_for_each_member_are_bytes():
    record = HostOp("c10d::alltoall_base_", [tensor(10), tensor(12), "", [5, 5], [1, 2, 0], False], [], "")
    assert split_bytes(record) == (16, 32, 0)
    assert split_bytes(HostOp("c10d::alltoall_base_", [tensor(4), tensor(4), "", [], []], [], "")) == ()
    listed = HostOp("c10d::alltoall_", [[tensor(9)], [tensor(1), tensor(8)]], [], "")
    assert split_bytes(listed) == (4, 32)
    assert split_bytes(HostOp("c10d::allreduce_", [[tensor(1), tensor(8)]], [], "")) == ()
    assert shared_out(7, [1, 1]) == ()
    assert shared_out(0, [0, 0]) == (0, 0)
    assert shared_out(8, ["1", 1]) == shared_out(8, [-1, 2]) == shared_out(8, 3) == ()


def test_the_librarys_record_lists_its_input_first():
    record = HostOp("record_param_comms", [tensor(6), 148, 9, 0, "all_to_allv", [2, 4], [3, 3]], [], "")
    stated = parameters(record)
    assert stated is not None
    assert stated.input_splits == [2, 4]


def test_bare_totals_are_divided_evenly_with_a_note():
    graphs, notes = with_uneven_splits([uneven(10), uneven(7)], {}, 2)
    assert [_splits(graph.extra[3]) for graph in graphs] == [(5, 5), (4, 3)]
    assert [graph.nodes["comm_size_bytes"].tolist() for graph in graphs] == [[10], [10]]
    assert "of 1 uneven collectives the traces only have the total of each rank" in notes[1]


def test_shards_of_an_all_gather_are_each_ranks_own():
    kind = CollectiveType.ALL_GATHER
    graphs, notes = with_uneven_splits([uneven(10, kind=kind), uneven(7, kind=kind)], {}, 2)
    assert [_splits(graph.extra[3]) for graph in graphs] == [(10, 10), (7, 7)]
    assert len(notes) == 1


@pytest.mark.parametrize(
    "graphs",
    [
        [uneven(8), uneven(8)],
        [uneven(8, (4, 4)), uneven(8)],
        [uneven(8, kind=CollectiveType.ALL_REDUCE), uneven(4, kind=CollectiveType.ALL_REDUCE)],
    ],
)
def test_even_and_wrong_collectives_are_left_alone(graphs):
    made, notes = with_uneven_splits(graphs, {}, 2)
    assert notes == []
    assert all(not graph.extra for graph in made)


def test_some_of_the_ranks_stand_for_all_with_equal_amounts():
    (graph,), (note,) = with_uneven_splits([uneven(8, (1, 7))], {}, 2)
    assert not graph.extra
    assert "some ranks are missing" in note


def test_scaled_out_experts_exchange_what_they_did_within_each_repetition(moe):
    grown = moe.scale_out(4)
    assert sorted(grown.groups.values()) == [(0, 1), (2, 3)]
    assert any("and point-to-point messages stay" in note for note in grown.metadata["assumptions"])
    assert any("(experts, embedding tables) has a copy" in note for note in grown.metadata["assumptions"])
    for rank in range(4):
        nodes = grown.graph_of(rank).nodes.query("kind == 'communication'")
        to_all = nodes["comm_type"] == CollectiveType.ALL_TO_ALL
        assert {grown.groups[group] for group in nodes["group"][to_all]} == {(0, 1) if rank < 2 else (2, 3)}
        assert set(nodes["group"][~to_all]) == {0}
        extra = grown.graph_of(rank).extra
        assert [_splits(extra[node]) for node in sorted(extra)] == MOE[rank % 2]
    network = NetworkConfig(("Switch",), (4,), (1.164,), (5000.0,))
    assert simulate(grown, "default", network).makespan_ns > 0
