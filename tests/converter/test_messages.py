"""Sends and receives of real gloo captures: which ranks wait for them."""

from __future__ import annotations

import numpy as np
import pytest
from gloo_thread import Thread, write_trace_set

from chakrascope.converter import (
    CollectiveType,
    EdgeKind,
    Graph,
    NodeType,
    Workload,
    convert,
    convert_files,
    doctor,
    replay,
)
from chakrascope.converter.building._rank_graph import RankGraph, with_uneven_splits
from chakrascope.converter.readers import HostOp, parameters
from chakrascope.converter.readers._host_comms import shared_out, split_bytes
from chakrascope.runner import NetworkConfig, SystemConfig, simulate


@pytest.fixture(scope="module")
def interleaved(data_dir):
    """Two ranks with two stages each, which wait for all their sends at the end of the step."""
    return convert(data_dir / "converter" / "interleaved_2")


@pytest.fixture(scope="module")
def ring(data_dir):
    """Two ranks that post a receive, then a send to the other rank, and wait for both."""
    return convert(data_dir / "converter" / "ring_2")


def of_type(graph, *types):
    return graph.nodes[graph.nodes["type"].isin(types)]


@pytest.mark.parametrize("name", ["interleaved", "ring"])
def test_messages_under_way_together_replay_as_they_were_measured(request, name):
    workload = request.getfixturevalue(name)
    for graph in workload.graphs:
        accounting = workload.metadata["accounting"][str(graph.rank)]
        assert accounting["unexplained_ns"] <= len(of_type(graph, NodeType.COMM_SEND))


def test_a_send_that_was_awaited_late_does_not_last_until_then(interleaved):
    for graph in interleaved.graphs:
        sends = of_type(graph, NodeType.COMM_SEND)
        assert len(sends) == 12
        assert sends["duration_ns"].sum() < 0.05 * interleaved.metadata["measured_step_ns"][str(graph.rank)]


def test_the_thread_waits_for_its_sends_where_the_script_did(interleaved):
    for graph in interleaved.graphs:
        sends = of_type(graph, NodeType.COMM_SEND)["node_id"]
        edges = graph.edges[graph.edges["kind"] == EdgeKind.COMM_WAIT]
        waits = edges[edges["src"].isin(sends)]
        assert set(waits["src"]) == set(sends)
        last_receive = of_type(graph, NodeType.COMM_RECV)["node_id"].max()
        assert (waits["dst"] > last_receive).sum() >= len(sends) - 2


def test_receives_posted_before_the_sends_they_wait_for_hold_nobody_up(ring):
    assert [len(of_type(graph, NodeType.COMM_RECV)) for graph in ring.graphs] == [2, 2]
    result = simulate(ring, SystemConfig(), NetworkConfig.preset("ring-2"))
    assert set(result.nodes["node_id"]) == set(ring.graphs[0].nodes["node_id"])


def test_messages_in_one_direction_keep_their_order(ring):
    for graph in ring.graphs:
        sends = of_type(graph, NodeType.COMM_SEND)
        assert sends["stream"].nunique() == 1
        order = graph.edges[graph.edges["kind"] == EdgeKind.STREAM_ORDER]
        assert set(zip(order["src"], order["dst"], strict=True)) == set(
            zip(sends["node_id"][:-1], sends["node_id"][1:], strict=True)
        )
        assert sends["stream"].iloc[0] not in set(of_type(graph, NodeType.COMM_RECV)["stream"])


def test_receives_need_no_lane_of_their_own_in_a_replay(ring):
    for graph in ring.graphs:
        together = graph.with_columns(stream=graph.node_columns["stream"].clip(max=500))
        assert replay(together).makespan_ns == replay(graph).makespan_ns


def test_blocking_send_lasts_until_it_returns(shared):
    """Rank 0 of a 1F1B pipeline waits for each send; once it works for 1.5 ms before its next operator."""
    folder = shared / "traces" / "pp_2"
    first = convert_files(f"{folder}/et_{{rank}}.json.gz", f"{folder}/kineto_{{rank}}.json.gz").graphs[0]
    sends = of_type(first, NodeType.COMM_SEND)
    assert (sends["duration_ns"] // 10_000).tolist() == [637, 455, 687, 178]
    assert set(sends["node_id"]) <= set(first.edges[first.edges["kind"] == EdgeKind.COMM_WAIT]["src"])


# Process groups that gloo traces do not name: the number of ranks follows from collective sizes.


class Sharded(Thread):
    """A rank that gathers and sums over groups that only the sizes of the data identify."""

    def gather(self, start, output_bytes, input_bytes):
        self.collective("c10d::_allgather_base_", start, output_bytes, input_bytes)

    def scatter(self, start, output_bytes, input_bytes):
        self.collective("c10d::_reduce_scatter_base_", start, output_bytes, input_bytes)

    def collective(self, name, start, *sizes):
        self.op(name, start, start + 10, 5)
        tensors = [[number, 100 + number, 0, size, 1, "cpu"] for number, size in enumerate(sizes)]
        self.nodes[-1]["inputs"]["values"] = tensors


def converted(folder, groups_of, program):
    """Return the workload of four ranks that run *program*; *groups_of* lists the groups of each."""
    ranks = []
    for rank in range(4):
        thread = Sharded(rank)
        thread.op("aten::empty", 1010 + rank, 1020 + 2 * rank, 5)  # measurements of ranks always differ
        program(thread)
        entry = thread.write(folder, [(1000, 2000)])
        entry["process_groups"] = [
            {"name": str(number), "ranks": list(ranks)} for number, ranks in enumerate(groups_of(rank))
        ]
        ranks.append({key: value for key, value in entry.items() if key != "flight_record"})
    write_trace_set(folder, ranks)
    return convert(folder)


def members(workload):
    """Return the ranks of each collective of rank 0 in the graph."""
    nodes = workload.graphs[0].nodes
    used = nodes.loc[nodes["type"] == NodeType.COMM_COLL, "group"]
    return [workload.groups.get(group, "all") for group in used]


def halves(thread):
    thread.gather(1100, 4096, 2048)
    thread.scatter(1200, 2048, 4096)
    thread.gather(1300, 4096, 1024)


def test_the_listed_group_of_the_right_size_is_taken_and_said(tmp_path):
    workload = converted(tmp_path, lambda rank: [(0, 1, 2, 3), (rank % 2, rank % 2 + 2)], halves)
    assert members(workload) == [(0, 2), (0, 2), "all"]
    (said,) = workload.metadata["assumptions"]
    assert "the listed group with as many ranks as output size over input size is assumed" in said
    assert "of several such groups" not in said


def test_of_several_groups_of_that_size_every_rank_takes_the_same(tmp_path):
    def of_mesh(rank):
        return [(rank % 2, rank % 2 + 2), (rank // 2 * 2, rank // 2 * 2 + 1)]

    workload = converted(tmp_path, of_mesh, halves)
    assert members(workload) == [(0, 1), (0, 1), "all"]
    assert set(workload.groups.values()) == {(0, 1), (2, 3)}
    assert "of several such groups" in workload.metadata["assumptions"][0]


@pytest.mark.parametrize("listed", [[], [(0, 1, 2, 3)]])
def test_sizes_without_a_listed_group_are_noted(tmp_path, listed):
    workload = converted(tmp_path, lambda rank: listed, halves)
    assert members(workload) == [(0, 1), (0, 1), "all"]
    (said,) = [note for note in workload.metadata["assumptions"] if "2 of 4 ranks take part" in note]
    assert "consecutive ranks are assumed" in said


def test_uninformative_sizes_assume_all_ranks_with_a_note(tmp_path):
    workload = converted(tmp_path, lambda rank: [], lambda thread: thread.gather(1100, 4096, 3000))
    assert members(workload) == ["all"]
    assert workload.metadata["assumptions"] == [
        "the traces list no process groups: collectives are assumed to span all ranks unless their "
        "sizes contradict this"
    ]


def test_a_captured_mesh_gets_the_groups_it_had(shared):
    """Tensor parallelism in (0, 1) and (2, 3), which is named, and sharding in (0, 2) and (1, 3)."""
    folder = f"{shared}/traces/tpdp_4"
    workload = convert_files(f"{folder}/et_{{rank}}.json.gz", f"{folder}/kineto_{{rank}}.json.gz")
    assert set(workload.groups.values()) == {(0, 1), (2, 3), (0, 2), (1, 3)}
    assert members(workload).count((0, 2)) == 6 + 3
    ring = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [500.0]}
    network = NetworkConfig.from_mapping(ring, "test")
    result = simulate(workload, SystemConfig.preset("default"), network)
    assert len(result.nodes) == sum(len(graph.nodes) for graph in workload.graphs)


# Flight records are matched with operators by order, because the clocks differ.


STARTS_US = [1_100, 1_160, 1_900, 1_960, 3_000, 3_060, 4_000]


def groups_of(folder, *, ahead_us, lost=0):
    """Return the groups of alternating collectives of two groups, as converted and as issued.

    The recorder's clock is ahead of the profiler's, and the recorder *lost* the first collectives.
    """
    thread = Thread(0)
    for number, start in enumerate(STARTS_US):
        thread.all_reduce(start, start + 10, 5 + number, closes=start + 40, entered=start + 5 + ahead_us)
        thread.flights[-1]["process_group"] = [str(number % 2), ""]
    thread.flights = thread.flights[lost:]
    peer = Thread(1)
    peer.op("aten::add", 1_010, 1_020, 3)
    ranks = [rank.write(folder, ((1_000, 5_000),)) for rank in (thread, peer)]
    for rank in ranks:
        rank["process_groups"] = [{"name": "0", "ranks": [0, 1]}, {"name": "1", "ranks": [rank["rank"]]}]
    write_trace_set(folder, ranks)
    workload = convert(folder, step=0)
    nodes = workload.graphs[0].nodes
    groups = nodes.loc[nodes["type"] == NodeType.COMM_COLL, "group"].tolist()
    found = [workload.groups.get(group, (0, 1)) for group in groups]
    return found, [(0, 1) if number % 2 == 0 else (0,) for number in range(len(STARTS_US))]


@pytest.mark.parametrize("ahead_us", [-250, -80, -30, 0, 30, 80, 250])
def test_order_determines_the_group_despite_clock_offsets(tmp_path, ahead_us):
    found, expected = groups_of(tmp_path, ahead_us=ahead_us)
    assert found == expected


def test_times_locate_a_lost_record(tmp_path):
    found, expected = groups_of(tmp_path, ahead_us=0, lost=1)
    assert found[1:] == expected[1:]


PAIR = NetworkConfig(("Switch",), (2,), (1.164,), (5000.0,))
# Bytes of the step's all-to-alls by rank: those it keeps and those it sends, in the order of the ranks.
MOE = {
    0: [(105_472, 25_600), (105_472, 102_912)] * 2,
    1: [(102_912, 28_160), (25_600, 28_160)] * 2,
}


def tensor(elements, width=4):
    return [1, 1, 0, elements, width, "cpu"]


# Uneven collectives: the sizes for each pair of ranks are read from the traces and stored in the graphs.


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
    """Compared with the job without all-to-alls, four uneven all-to-alls exchange these bytes."""
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
