"""Ranks that deadlock are found before a simulation stalls."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.converter import CollectiveType, EdgeKind, Graph, NodeType, Workload, doctor
from chakrascope.converter.checks._circular_waits import circular_wait
from chakrascope.errors import SimulationStalled
from chakrascope.runner import NetworkConfig, simulate


def message(node_id, source, target, rank, tag=0):
    kind, end, peer = (
        (NodeType.COMM_SEND, "comm_dst", target)
        if rank == source
        else (NodeType.COMM_RECV, "comm_src", source)
    )
    name = "send" if rank == source else "recv"
    node = {"node_id": node_id, "name": name, "type": kind, "comm_size_bytes": 8, "comm_tag": tag, end: peer}
    return node | {"stream": node_id, "duration_ns": 1}


def collective(node_id, group=0):
    node = {"node_id": node_id, "name": "all_reduce", "type": NodeType.COMM_COLL, "comm_size_bytes": 8}
    return node | {
        "comm_type": CollectiveType.ALL_REDUCE,
        "group": group,
        "stream": node_id,
        "duration_ns": 1,
    }


def workload(*programs, groups=None):
    graphs = tuple(Graph.build(rank, nodes, edges) for rank, (nodes, edges) in enumerate(programs))
    return Workload(graphs, np.arange(len(graphs), dtype=np.int32), groups or {})


def before(*ids):
    return [(one, other, EdgeKind.STREAM_ORDER) for one, other in itertools.pairwise(ids)]


def test_receives_that_come_before_the_sends_they_need_are_told(tmp_path):
    first = [message(0, 1, 0, 0), message(1, 0, 1, 0)]
    second = [message(0, 0, 1, 1), message(1, 1, 0, 1)]
    workload((first, before(0, 1)), (second, before(0, 1))).save(tmp_path / "w")
    (finding,) = doctor(tmp_path / "w")
    assert finding.severity == "error"
    for wait in (
        "rank 0's node 1 'send' waits for rank 0's node 0 'recv' (stream order)",
        "rank 1's node 0 'recv' waits for rank 0's node 1 'send' (message)",
    ):
        assert wait in finding.cause
    assert circular_wait(workload((first, []), (second, []))) is None


def test_collectives_of_two_groups_in_opposite_orders_are_told():
    nodes = [collective(0, 1), collective(1, 2)]
    groups = {1: (0, 1), 2: (0, 1)}
    found = circular_wait(workload((nodes, before(0, 1)), (nodes, before(1, 0)), groups=groups))
    assert found is not None
    assert found.count("waits for") == 2
    assert circular_wait(workload((nodes, before(0, 1)), (nodes, []), groups=groups)) is None


def test_ids_in_another_order_than_the_nodes_run_in_are_no_cycle():
    forward, backward = [collective(0), collective(1)], [collective(1), collective(0)]
    assert circular_wait(workload((forward, before(0, 1)), (backward, before(1, 0)))) is None


@st.composite
def programs(draw):
    """Two or three ranks that exchange messages, and all-reduce twice, with dependencies at random."""
    ranks = draw(st.integers(2, 3))
    pair = st.permutations(range(ranks)).map(lambda order: order[:2])
    sent = draw(st.lists(pair, min_size=1, max_size=5))
    made = []
    for rank in range(ranks):
        own = [(source, target, tag) for tag, (source, target) in enumerate(sent) if rank in (source, target)]
        order = draw(st.permutations([*own, None, None]))
        nodes = [
            collective(at) if what is None else message(at, *what[:2], rank, what[2])
            for at, what in enumerate(order)
        ]
        ends = st.tuples(st.integers(0, len(nodes) - 1), st.integers(0, len(nodes) - 1))
        pairs = {(min(edge), max(edge)) for edge in draw(st.lists(ends, max_size=6)) if edge[0] != edge[1]}
        first, second = (at for at, what in enumerate(order) if what is None)
        made.append((nodes, [(*edge, EdgeKind.CTRL) for edge in sorted(pairs | {(first, second)})]))
    return workload(*made)


@settings(max_examples=25)
@given(programs())
def test_what_is_found_is_what_stalls(job):
    network = NetworkConfig(("Ring",), (job.num_ranks,), (50.0,), (500.0,))
    if circular_wait(job) is None:
        simulate(job, "default", network, semantics="trace")
    else:
        with pytest.raises(SimulationStalled):
            simulate(job, "default", network, semantics="trace")
