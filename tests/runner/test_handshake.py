"""Messages that wait for their receivers' requests, behind what the receivers send themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chakrascope.converter import CollectiveType, EdgeKind, Graph, NodeType, Workload
from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig, simulate
from chakrascope.runner.config import GIB, EfficiencyPart

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


GATHER, EXCHANGE_ALL = CollectiveType.ALL_GATHER, CollectiveType.ALL_TO_ALL


def collective_ends(
    kind, late_ns, *, ranks=2, backend="analytical-unaware", semantics="astra-sim", **efficiency
):
    """Return when *kind* ends on each rank, for which the last rank comes so late."""
    compute = {"node_id": 0, "name": "compute", "type": NodeType.COMP}
    node = {"node_id": 1, "name": kind.name, "type": NodeType.COMM_COLL, "comm_type": int(kind),
            "comm_size_bytes": SIZE, "stream": 100}  # fmt: skip
    edges = [(0, 1, int(EdgeKind.DATA))]
    graphs = tuple(Graph.build(n, [compute | {"duration_ns": duration}, node], edges)
                   for n, duration in enumerate((1, 1 + late_ns)))  # fmt: skip
    programs = np.zeros(ranks, dtype=np.int32)
    programs[-1] = 1
    plain = {"topology": ["Switch"], "npus_count": [ranks], "latency": [LATENCY_NS],
             "bandwidth": [1e9 / GIB / NS_PER_BYTE], "efficiency": efficiency}  # fmt: skip
    made = Workload(graphs, programs, {}, {})
    found = simulate(
        made, "default", NetworkConfig.from_mapping(plain, "here"), backend=backend, semantics=semantics
    )
    return found.nodes[found.nodes["node_id"] == 1].sort_values("rank")["end_ns"].tolist()


@pytest.mark.parametrize("semantics", ["astra-sim", "trace"])
@pytest.mark.parametrize(
    ("kind", "pieces", "share", "turns"), [(GATHER, 2, 1.0, 1.5), (EXCHANGE_ALL, 1, 0.5, 2)]
)
def test_collectives_that_send_first_take_turns_where_a_rank_comes_late(
    kind, pieces, share, turns, semantics
):
    """Of an all-gather in halves the second half of the late rank goes beside the first of the other."""
    efficiency = IN_ORDER | {"sends-first": {kind.name.lower(): pieces}}
    moved_ns, late_ns = share * SIZE * NS_PER_BYTE, 5_000_000
    early, late = collective_ends(kind, late_ns, semantics=semantics, **efficiency)
    assert early == pytest.approx(late_ns + moved_ns, rel=2e-3)
    assert late == pytest.approx(late_ns + turns * moved_ns, rel=2e-3)


@pytest.mark.parametrize(("kind", "pieces", "share"), [(GATHER, 2, 1.0), (EXCHANGE_ALL, 1, 0.5)])
def test_collectives_of_ranks_that_come_together_use_both_directions(kind, pieces, share):
    efficiency = IN_ORDER | {"sends-first": {kind.name.lower(): pieces}}
    for end in collective_ends(kind, 0, **efficiency):
        assert end == pytest.approx(share * SIZE * NS_PER_BYTE, rel=2e-3)


def test_other_collectives_take_no_turns():
    efficiency = IN_ORDER | {"sends-first": {"all_gather": 2}}
    assert collective_ends(EXCHANGE_ALL, 50_000, **efficiency) == collective_ends(EXCHANGE_ALL, 50_000)


def test_rings_of_more_than_two_ranks_have_no_turns_to_take():
    """A rank asks the one before it, and sends to the one behind it: these share no connection."""
    efficiency = IN_ORDER | {"sends-first": {"all_gather": 2}}
    late = collective_ends(GATHER, 5_000_000, ranks=4, **efficiency)
    assert max(late) == pytest.approx(5_000_000 + 3 * SIZE * NS_PER_BYTE, rel=2e-3)


@pytest.mark.parametrize("backend", ["analytical-aware", "packet", "flow"])
def test_turns_are_taken_on_networks_with_queues_too(backend):
    efficiency = IN_ORDER | {"sends-first": {"all_to_all": 1}}
    early, late = collective_ends(EXCHANGE_ALL, 5_000_000, backend=backend, **efficiency)
    assert late - 5_000_000 == pytest.approx(2 * (early - 5_000_000), rel=0.02)
    assert max(collective_ends(EXCHANGE_ALL, 0, backend=backend, **efficiency)) < 0.75 * (late - 5_000_000)


@pytest.mark.parametrize(("part", "told"), [
    ({"sends-first": {"all_gather": 2}}, "needs handshake: in-order"),
    (IN_ORDER | {"sends-first": {"all_gather": 0}}, "1 to 64 pieces of all_gather, not 0"),
    (IN_ORDER | {"sends-first": {"all_gather": True}}, "not True"),
    (IN_ORDER | {"sends-first": {"allgather": 2}}, "did you mean"),
    (IN_ORDER | {"sends-first": ["all_gather"]}, "must map operations"),
])  # fmt: skip
def test_what_is_wrong_with_sends_first_is_said(part, told):
    with pytest.raises(ConfigError, match=told):
        network(**part)


def test_sends_first_is_written_as_it_was_read():
    part = IN_ORDER | {"sends-first": {"all_gather": 2}}
    read = EfficiencyPart.from_mapping(part)
    assert read.sends_first == {"all_gather": 2}
    assert replace(read, written={}).to_dict() == part
