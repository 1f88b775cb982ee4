"""Sends and receives of real gloo captures: who waits for them, and who does not."""

import pytest

from chakrascope.converter import EdgeKind, NodeType, convert, convert_files, replay
from chakrascope.runner import NetworkConfig, SystemConfig, simulate


@pytest.fixture(scope="module")
def interleaved(data_dir):
    """Two ranks with two stages each, which wait for all their sends at the end of the step."""
    return convert(data_dir / "converter" / "interleaved_2")


@pytest.fixture(scope="module")
def ring(data_dir):
    """Two ranks that post a receive, then the send that the other one's receive is for, and wait for both."""
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


def test_a_send_that_held_the_thread_up_lasts_until_it_let_go(shared):
    """Rank 0 of a 1F1B pipeline waits for each send; once it works for 1.5 ms before its next operator."""
    folder = shared / "traces" / "pp_2"
    first = convert_files(f"{folder}/et_{{rank}}.json.gz", f"{folder}/kineto_{{rank}}.json.gz").graphs[0]
    sends = of_type(first, NodeType.COMM_SEND)
    assert (sends["duration_ns"] // 10_000).tolist() == [637, 455, 687, 178]
    assert set(sends["node_id"]) <= set(first.edges[first.edges["kind"] == EdgeKind.COMM_WAIT]["src"])
