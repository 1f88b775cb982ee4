"""How much later nodes could end."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import coll, comp, workload

from chakrascope.converter import CollectiveType, NodeType
from chakrascope.errors import BackendError
from chakrascope.runner import NetworkConfig, critical_path, simulate, slack

LANES = 3


@st.composite
def scheduled(draw):
    """One rank of computations on lanes whose order the edges fix, so that no change can reorder them."""
    count = draw(st.integers(1, 12))
    last: dict[int, int] = {}
    nodes = []
    for node in range(count):
        stream = draw(st.integers(0, LANES - 1))
        after = draw(st.sets(st.integers(0, node - 1), max_size=3)) if node else set()
        after |= {last[stream]} if stream in last else set()
        last[stream] = node
        nodes.append(comp(node, draw(st.integers(0, 50)), sorted(after), stream=stream))
    return nodes


def makespan(nodes, node=-1, later_ns=0):
    changed = [
        item | {"duration_ns": item["duration_ns"] + (later_ns if item["node_id"] == node else 0)}
        for item in nodes
    ]
    return replayed(workload(changed, changed)).makespan_ns


def replayed(job):
    return simulate(job, "default", None, backend="replay", semantics="trace")


@settings(max_examples=12, deadline=None)
@given(scheduled())
def test_a_node_may_take_longer_by_its_slack_and_not_by_more(nodes):
    job = workload(nodes, nodes)
    result = replayed(job)
    for row in slack(result, job).head(len(nodes)).itertuples():
        assert makespan(nodes, row.node_id, row.slack_ns) == result.makespan_ns
        assert makespan(nodes, row.node_id, row.slack_ns + 1) == result.makespan_ns + 1


@st.composite
def jobs(draw):
    """Ranks that compute, meet in collectives, and send to their neighbours, all in one order."""
    size = draw(st.sampled_from([2, 4]))
    rounds = draw(st.lists(st.sampled_from(["compute", "reduce", "gather", "send"]), min_size=1, max_size=5))
    chained = [draw(st.booleans()) for _ in rounds]
    return workload(*[program(draw, rank, size, rounds, chained) for rank in range(size)])


def program(draw, rank, size, rounds, chained):
    nodes: list[dict[str, object]] = []
    said = -1
    for turn, kind in enumerate(rounds):
        before = [nodes[-1]["node_id"]] if nodes and chained[turn] else []
        nodes.append(comp(4 * turn, draw(st.integers(1, 5000)), before))
        after = [4 * turn] + ([said] if said >= 0 else [])
        said = said if kind == "compute" else 4 * turn + 1
        if kind == "reduce":
            nodes.append(coll(said, 1 << 16, after))
        elif kind == "gather":
            nodes.append(coll(said, 1 << 12, after, CollectiveType.ALL_GATHER))
        elif kind == "send":
            nodes += messages(rank, size, turn, after)
    return nodes


def messages(rank, size, turn, after):
    common = {
        "duration_ns": 100,
        "kind": "communication",
        "after": after,
        "comm_size_bytes": 1 << 14,
        "comm_tag": turn,
        "stream": 2,
    }
    there = {"comm_src": rank, "comm_dst": (rank + 1) % size}
    back = {"comm_src": (rank - 1) % size, "comm_dst": rank}
    return [
        {"node_id": 4 * turn + 1, "name": "send", "type": NodeType.COMM_SEND, **common, **there},
        {"node_id": 4 * turn + 2, "name": "recv", "type": NodeType.COMM_RECV, **common, **back},
    ]


def ring(job):
    return NetworkConfig(("Ring",), (job.num_ranks,), (10.0,), (100.0,))


@settings(max_examples=30, deadline=None)
@given(
    jobs(),
    st.sampled_from(["analytical-unaware", "analytical-aware", "replay"]),
    st.sampled_from(["trace", "astra-sim"]),
)
def test_nodes_of_the_critical_path_have_no_slack(job, backend, semantics):
    result = simulate(job, "default", ring(job), backend=backend, semantics=semantics)
    table = slack(result, job)
    assert table[["rank", "node_id"]].equals(result.nodes[["rank", "node_id"]])
    room = result.nodes["end_ns"].max() - result.nodes["end_ns"]
    assert ((table["slack_ns"] >= 0) & (table["slack_ns"] <= room)).all()
    path = critical_path(result, job).segments.merge(table, on=["rank", "node_id"])
    assert len(path)
    assert (path["slack_ns"] == 0).all()


@settings(max_examples=30, deadline=None)
@given(jobs(), st.sampled_from(["analytical-unaware", "replay"]))
def test_no_wait_of_the_schedule_is_broken_when_all_come_as_late_as_they_may(job, backend):
    result = simulate(job, "default", ring(job), backend=backend, semantics="trace")
    times = result.nodes.merge(slack(result, job), on=["rank", "node_id"]).set_index(["rank", "node_id"])
    latest_end = times["end_ns"] + times["slack_ns"]
    for rank, program in enumerate(job.program_of_rank):
        for source, target in job.graphs[program].edges[["src", "dst"]].itertuples(index=False):
            computes = job.graphs[program].nodes.set_index("node_id")["type"][target] == NodeType.COMP
            taken = times["end_ns"] - times["start_ns"] if computes else times["end_ns"] * 0
            assert latest_end[rank, source] <= latest_end[rank, target] - taken[rank, target]


def test_who_comes_early_to_a_collective_has_the_time_until_the_last_one():
    ranks = [[comp(0, 1000 * (rank + 1)), coll(1, 1 << 20, (0,)), comp(2, 500, (1,))] for rank in range(8)]
    job = workload(*ranks)
    result = simulate(job, "default", "ring-8", semantics="trace")
    table = slack(result, job)
    assert table[table["node_id"] == 0].sort_values("rank")["slack_ns"].tolist() == [
        7000 - 1000 * rank for rank in range(8)
    ]
    assert (table.groupby("node_id")["slack_ns"].min() == 0).all()


@settings(max_examples=10, deadline=None)
@given(jobs(), st.randoms(use_true_random=False))
def test_rows_in_any_order_have_the_same_slack(job, draw):
    result = simulate(job, "default", ring(job), semantics="trace")
    order = draw.sample(range(len(result.nodes)), len(result.nodes))
    mixed = dataclasses.replace(result, nodes=result.nodes.iloc[order].reset_index(drop=True))
    expected = slack(result, job).iloc[order].reset_index(drop=True)
    assert slack(mixed, job).equals(expected)


def test_a_replicated_program_has_the_slack_of_each_rank():
    job = workload([comp(0, 1000), coll(1, 1 << 20, (0,)), comp(2, 500, (0,))]).scale_out(8)
    result = simulate(job, "default", "ring-8", semantics="trace")
    table = slack(result, job)
    assert len(table) == 24
    assert table[table["node_id"] == 2]["slack_ns"].tolist() == [result.makespan_ns - 1500 for _ in range(8)]


def test_a_result_without_node_times_says_so():
    job = workload([comp(0, 1)], [comp(0, 1)])
    result = dataclasses.replace(replayed(job), nodes=replayed(job).nodes.head(0))
    with pytest.raises(BackendError, match="no node times"):
        slack(result, job)


def test_a_result_of_another_workload_names_the_node():
    result = replayed(workload([comp(0, 1)], [comp(7, 1)]))
    with pytest.raises(BackendError, match="node 7 of rank 1"):
        slack(result, workload([comp(0, 1)]))
