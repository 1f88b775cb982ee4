"""Messages that wait for their receivers' requests, behind what the receivers send themselves."""

from __future__ import annotations

import numpy as np
import pytest

from chakrascope.converter import EdgeKind, Graph, NodeType, Workload
from chakrascope.runner import NetworkConfig, simulate
from chakrascope.runner.config import GIB

SIZE, NS_PER_BYTE, LATENCY_NS = 1_000_000, 10, 1000
HOP_NS = 2 * LATENCY_NS
REQUEST_NS = HOP_NS + 64 * NS_PER_BYTE
DATA_NS = HOP_NS + SIZE * NS_PER_BYTE


def network(**efficiency):
    plain = {"topology": ["Switch"], "npus_count": [2], "latency": [LATENCY_NS]}
    bandwidth = [1e9 / GIB / NS_PER_BYTE]
    more = {"efficiency": efficiency} if efficiency else {}
    return NetworkConfig.from_mapping(plain | {"bandwidth": bandwidth} | more, "here")


def rank(number, late_ns, kinds):
    """Return a graph that computes for *late_ns* and then posts *kinds*, one right after the other."""
    nodes = [{"node_id": 0, "name": "compute", "type": NodeType.COMP, "duration_ns": late_ns}]
    for kind in kinds:
        peer = {"comm_dst": 1 - number} if kind is NodeType.COMM_SEND else {"comm_src": 1 - number}
        place = len(nodes)
        nodes.append({"node_id": place, "name": kind.name, "type": kind, "comm_size_bytes": SIZE,
                      "comm_tag": 0, "stream": 500 + place} | peer)  # fmt: skip
    edges = [(0, place, int(EdgeKind.DATA)) for place in range(1, len(nodes))]
    return Graph.build(number, nodes, edges)


def ends(*graphs, **efficiency):
    made = Workload(tuple(graphs), np.arange(2, dtype=np.int32), {}, {})
    result = simulate(made, "default", network(**efficiency), semantics="trace")
    nodes = result.nodes[result.nodes["node_id"] > 0]
    return {(row.rank, row.node_id): row.end_ns for row in nodes.itertuples()}


BOTH = (NodeType.COMM_SEND, NodeType.COMM_RECV)
IN_ORDER = {"handshake": "in-order"}


def test_a_message_waits_for_its_receiver():
    send, receive = rank(0, 1, BOTH[:1]), rank(1, 50_000, BOTH[1:])
    assert ends(send, receive)[1, 1] == pytest.approx(DATA_NS, abs=2)
    assert ends(send, receive, **IN_ORDER)[1, 1] == pytest.approx(50_000 + REQUEST_NS + DATA_NS, abs=2)


def test_one_that_was_asked_for_before_leaves_at_once():
    send, receive = rank(0, 50_000, BOTH[:1]), rank(1, 1, BOTH[1:])
    assert ends(send, receive, **IN_ORDER)[1, 1] == pytest.approx(50_000 + DATA_NS, abs=2)


def test_of_two_both_ways_that_of_the_rank_that_came_last_goes_first():
    early, late = rank(0, 1, BOTH), rank(1, 50_000, BOTH)
    free = ends(early, late)
    assert free[0, 2] == pytest.approx(50_000 + DATA_NS, abs=2)
    assert free[1, 2] == pytest.approx(DATA_NS, abs=2)
    found = ends(early, late, **IN_ORDER)
    assert found[0, 2] == pytest.approx(50_000 + DATA_NS, abs=2)
    assert found[1, 2] == pytest.approx(50_000 + 2 * DATA_NS, abs=2)


@pytest.mark.parametrize("late_ns", [0, HOP_NS // 2, HOP_NS])
def test_ranks_that_come_within_a_latency_use_both_directions_at_once(late_ns):
    """Each has asked for the other's message before its own leaves, which the other's request lets go."""
    found = ends(rank(0, 1, BOTH), rank(1, 1 + late_ns, BOTH), **IN_ORDER)
    assert found[0, 2] == pytest.approx(REQUEST_NS + DATA_NS, abs=2)
    assert found[1, 2] == pytest.approx(late_ns + REQUEST_NS + DATA_NS, abs=2)


def test_a_rank_that_comes_more_than_a_latency_later_takes_turns():
    late_ns = REQUEST_NS + 10
    found = ends(rank(0, 1, BOTH), rank(1, 1 + late_ns, BOTH), **IN_ORDER)
    assert found[0, 2] == pytest.approx(late_ns + DATA_NS, abs=2)
    assert found[1, 2] == pytest.approx(late_ns + 2 * DATA_NS, abs=2)


def test_who_asks_before_it_sends_shares_the_way():
    early, late = rank(0, 1, BOTH), rank(1, 50_000, BOTH[::-1])
    found = ends(early, late, **IN_ORDER)
    assert found[1, 1] == pytest.approx(50_000 + REQUEST_NS + DATA_NS, abs=2)
    assert found[0, 2] == pytest.approx(50_000 + DATA_NS, abs=2)


def test_messages_have_a_cost_of_their_own():
    send, receive = rank(0, 1, BOTH[:1]), rank(1, 1, BOTH[1:])
    curve = [[1, "0us"], [SIZE, "70us"]]
    assert ends(send, receive, messages=curve)[1, 1] == pytest.approx(DATA_NS + 70_000, abs=2)
