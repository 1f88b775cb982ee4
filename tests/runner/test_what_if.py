"""What-ifs: a step with a change, and the slack of nodes."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import coll, comp, makespan, recv, send, workload

from chakrascope.converter import CollectiveType, NodeType
from chakrascope.errors import BackendError, ConfigError, UsageError
from chakrascope.runner import NetworkConfig, critical_path, get_backend, prepare, simulate, slack
from chakrascope.runner.analysis import Target, simulate_faster, targets, what_if
from chakrascope.runner.analysis._what_if._changed import with_faster_network, with_less_latency
from chakrascope.runner.config import fabric_of

SIZE = 1 << 22


def model():
    def rank(number):
        return [
            comp(0, 1_000_000 + 1000 * number, operator="aten::addmm"),
            coll(1, SIZE, (0,)),
            comp(2, 500_000, (0,), stream=2),
            coll(3, SIZE // 8, (1,), CollectiveType.ALL_GATHER),
            comp(4, 250_000, (2, 3)),
        ]

    return workload(*map(rank, range(4)))


def network(**more):
    data = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [10.0], "latency": [500.0]}
    return NetworkConfig.from_mapping(data | more, "here")


def experiment(backend="analytical-unaware", **more):
    return prepare(model(), "default", network(**more), backend=backend, semantics="trace")


def test_a_faster_operator_saves_its_part():
    asked = experiment()
    assert makespan(asked) - simulate_faster(asked, Target("operator", "aten::addmm"), 2.0) == 501_500


def test_less_data_in_a_collective_takes_less_time():
    asked = experiment()
    every = simulate_faster(asked, Target("collective", "all_reduce"), 4.0)
    one = simulate_faster(asked, Target("collective", "all_reduce of 4.00 MiB, all ranks"), 4.0)
    assert one == every < makespan(asked)
    assert simulate_faster(asked, Target("collective", "all_gather"), 0.5) > makespan(asked)


SLOW_LINKS = [[rank, 4, 10.0, 500_000] for rank in range(4)]


@pytest.mark.parametrize(
    ("backend", "more"),
    [
        ("analytical-unaware", {"latency": [500_000]}),
        ("analytical-aware", {"links": SLOW_LINKS}),
    ],
)
def test_speeding_up_communication_divides_latency(backend, more):
    asked = experiment(backend, **more)
    computed_ns = 1_753_000
    messages_ns = makespan(asked) - computed_ns
    assert messages_ns > 2_000_000
    halved_ns = simulate_faster(asked, Target("kind", "communication"), 2.0) - computed_ns
    assert halved_ns == pytest.approx(messages_ns / 2, rel=0.02)
    assert simulate_faster(asked, Target("kind", "communication"), float("inf")) - computed_ns < 10_000


def test_less_latency_of_a_packet_level_topology_is_that_of_its_links():
    links = [[rank, 4, "80Gbps", "2us", 0] for rank in range(4)]
    slow = network(packet={"nodes": 5, "switches": [4], "links": links})
    assert {link.delay_ps for link in with_less_latency(slow, 4.0).packet.topology.links} == {500_000}


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 1 << 24), st.floats(1.01, 100))
def test_less_data_never_takes_longer(size, times):
    asked = prepare(workload(*[[coll(0, size * 16)] for _ in range(4)]), "default", network())
    assert simulate_faster(asked, Target("collective", "all_reduce"), times) <= makespan(asked)


def test_without_a_dependency_a_node_starts_earlier():
    asked = experiment()
    changed = what_if(asked, [(Target.parse("edge:0/0-2"), 1.0)])
    free = changed.nodes[(changed.nodes["rank"] == 0) & (changed.nodes["node_id"] == 2)]
    assert free["start_ns"].item() == 0
    with pytest.raises(UsageError, match="it depends on the nodes 1"):
        what_if(asked, [(Target.parse("edge:0/2-3"), 1.0)])
    with pytest.raises(UsageError, match="ranks 0 to 3"):
        what_if(asked, [(Target.parse("edge:4/1-3"), 1.0)])


def test_changes_add_up():
    asked = experiment()
    both = [(Target("operator", "aten::addmm"), 2.0), (Target("bandwidth", "0"), 2.0)]
    assert what_if(asked, both).makespan_ns < min(simulate_faster(asked, *change) for change in both)


def test_a_single_link_of_a_graph_can_change():
    links = [[rank, 4, 10.0, 500.0] for rank in range(4)]
    asked = experiment("analytical-aware", links=links)
    assert simulate_faster(asked, Target("link", "4-2"), 1.0) == makespan(asked)
    assert simulate_faster(asked, Target("link", "2-4"), 0.5) > makespan(asked)
    with pytest.raises(UsageError, match="no link between 0 and 1"):
        simulate_faster(asked, Target("link", "0-1"), 2.0)
    with pytest.raises(UsageError, match="list of links"):
        simulate_faster(asked, Target("bandwidth", "0"), 2.0)


def test_a_network_of_dimensions_has_no_single_links():
    for backend in ("analytical-unaware", "analytical-aware"):
        with pytest.raises(UsageError, match="bandwidth:0"):
            simulate_faster(experiment(backend), Target("link", "0-4"), 2.0)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([{}, {"packet": {"fabric": {"hosts_per_leaf": 2}}}, {"packet": {"CC_MODE": 1}}]))
def test_a_packet_network_with_a_changed_link_is_otherwise_the_same(unknown):
    asked = experiment("packet", **unknown)
    before = fabric_of(asked.network)
    changed = with_faster_network(asked.network, "packet", Target("link", "0-4"), 0.5)
    after = fabric_of(NetworkConfig.from_mapping(changed.to_dict(), "here"))
    assert after.settings == before.settings
    assert (after.nodes, after.switches) == (before.nodes, before.switches)
    slower = [link for link, old in zip(after.links, before.links, strict=True) if link != old]
    assert [(link.a, link.b) for link in slower] == [(0, 4)]
    assert slower[0]._replace(rate_bps=2 * slower[0].rate_bps) in before.links


FABRIC = {"packet": {"fabric": {"hosts_per_leaf": 2}}}
GRID = {"topology": ["Switch"] * 2, "npus_count": [2, 2], "bandwidth": [10.0] * 2, "latency": [500.0] * 2}
MOMENTS = [{}, {"at": "1100us"}, {"at": "1100us", "until": "1400us"}]


@pytest.mark.parametrize("moment", MOMENTS, ids=["start", "from", "between"])
@pytest.mark.parametrize(
    ("backend", "more", "failure", "link"),
    [
        ("packet", FABRIC, {"link": [4, 6], "rate": 0.1}, "0-4"),
        ("packet", {}, {"device": 0, "rate": 0.1}, "1-4"),
        ("packet", GRID, {"device": 1, "rate": 0.1}, "4-8"),
        ("packet", GRID, {"device": 1, "rate": 0.1, "count": 1}, "4-8"),
        ("packet", GRID, {"link": [0, 6], "rate": 0.1}, "4-8"),
        ("packet", GRID, {"device": 6, "rate": 0.1}, "4-8"),
        ("analytical-aware", FABRIC, {"device": 0, "rate": 0.1}, "1-4"),
    ],
)
def test_failed_job_remains_failed(backend, more, failure, link, moment):
    whole = makespan(experiment(backend, **more))
    asked = experiment(backend, **more, failures=[failure | moment])
    failed = makespan(asked)
    assert failed > whole
    assert simulate_faster(asked, Target("link", link), 1.0) == failed
    assert simulate_faster(asked, Target("link", link), 0.02) > failed


def test_a_link_that_is_down_cannot_be_faster():
    asked = experiment("packet", **FABRIC, failures=[{"link": [4, 6]}])
    with pytest.raises(UsageError, match="no link between 4 and 6"):
        simulate_faster(asked, Target("link", "4-6"), 2.0)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("operator:aten::adddmm", "aten::addmm"),
        ("operator:", "cannot be changed"),
        ("shape:1", "cannot be changed"),
        ("", "cannot be changed"),
        ("operator", "cannot be changed"),
        ("__class__:x", "cannot be changed"),
        ("bandwidth", "cannot be changed"),
        ("edge:1-2", "0/17-23"),
        ("collective:all_redcue", "all_reduce"),
        ("link:zero", "link:0-8"),
        ("bandwidth:3", "no dimension.*from bandwidth:0\\."),
        ("bandwidth:-1", "no dimension"),
        ("bandwidth:x", "no dimension"),
        *(
            pytest.param(f"{key}{'9' * 5_000}", message, id=f"{key}9...")
            for key, message in (
                ("skew:", "not a rank"),
                ("edge:0/1-", "not an edge"),
                ("link:0-", "not a link"),
            )
        ),
    ],
)
def test_missing_target_of_a_change_is_an_error(key, message):
    with pytest.raises(UsageError, match=message):
        what_if(
            experiment("analytical-aware", links=[[r, 4, 1.0, 1.0] for r in range(4)]),
            [(Target.parse(key), 2.0)],
        )


def test_a_measurement_has_no_network_and_measured_collectives():
    asked = experiment("replay")
    with pytest.raises(UsageError, match="no network"):
        simulate_faster(asked, Target("latency", "0"), 2.0)
    assert simulate_faster(asked, Target("collective", "all_reduce"), 2.0) <= makespan(asked)


def test_communication_by_its_operator_is_up_to_the_network():
    job = workload(*[[coll(0, SIZE, operator="c10d::allreduce_")] for _ in range(4)])
    asked = prepare(job, "default", network(), semantics="trace")
    with pytest.raises(UsageError, match="depends on the network"):
        simulate_faster(asked, Target("operator", "c10d::allreduce_"), 2.0)


def test_the_gpu_model_offers_its_machine_and_refuses_the_network():
    asked = prepare(workload(*[[coll(0, SIZE >> 6)]] * 8), "default", "hgx-h100-8", backend="gpu")
    result = get_backend(asked.backend).run(asked)
    path = critical_path(result, asked.workload.model)
    chosen = targets(path, asked.backend, 1)
    assert {target.what for target in chosen} == {"collective", "machine"}
    assert not any("between nodes" in target.label for target in chosen)
    assert any("between nodes" in target.label for target in targets(path, asked.backend, 1, nodes=2))
    for key in ("scale_up.bytes_per_ns", "scale_up.latency_ns", "compute.launch_ns"):
        target = Target.parse(f"machine:{key}")
        assert simulate_faster(asked, target, 2.0) < result.makespan_ns < simulate_faster(asked, target, 0.5)
    for target in chosen:
        assert simulate_faster(asked, target, 1.0) == result.makespan_ns
    with pytest.raises(UsageError, match=r"machine:scale_up\.latency_ns"):
        simulate_faster(asked, Target("bandwidth", "0"), 2.0)
    with pytest.raises(ConfigError, match=r"did you mean 'scale_up\.latency_ns'"):
        simulate_faster(asked, Target("machine", "scale_up.latency"), 2.0)
    with pytest.raises(UsageError, match="has no GPU machine"):
        simulate_faster(experiment(), Target("machine", "scale_up.latency_ns"), 2.0)


def test_every_target_of_a_path_can_be_simulated():
    asked = experiment()
    path = critical_path(get_backend(asked.backend).run(asked), model())
    chosen = targets(path, asked.backend, 1)
    assert {target.what for target in chosen} >= {"operator", "collective", "bandwidth", "latency"}
    for target in chosen:
        assert Target.parse(target.key) == target
        assert simulate_faster(asked, target, 1.0) == path.makespan_ns


# The slack of nodes.

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


def slack_makespan(nodes, node=-1, later_ns=0):
    changed = [
        item | {"duration_ns": item["duration_ns"] + (later_ns if item["node_id"] == node else 0)}
        for item in nodes
    ]
    return replayed(workload(changed, changed)).makespan_ns


def replayed(job):
    return simulate(job, "default", None, backend="replay", semantics="trace")


@settings(max_examples=12, deadline=None)
@given(scheduled())
def test_slack_is_the_largest_harmless_delay(nodes):
    job = workload(nodes, nodes)
    result = replayed(job)
    for row in slack(result, job).head(len(nodes)).itertuples():
        assert slack_makespan(nodes, row.node_id, row.slack_ns) == result.makespan_ns
        assert slack_makespan(nodes, row.node_id, row.slack_ns + 1) == result.makespan_ns + 1


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
    facts = {"duration_ns": 100, "comm_tag": turn, "stream": 2}
    return [
        send(4 * turn + 1, rank, (rank + 1) % size, 1 << 14, after, **facts),
        recv(4 * turn + 2, (rank - 1) % size, rank, 1 << 14, after, **facts),
    ]


def ring(job):
    return NetworkConfig(("Ring",), (job.num_ranks,), (10.0,), (100.0,))


@settings(max_examples=15, deadline=None)
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


@settings(max_examples=15, deadline=None)
@given(jobs(), st.sampled_from(["analytical-unaware", "replay"]))
def test_latest_schedule_preserves_all_waits(job, backend):
    result = simulate(job, "default", ring(job), backend=backend, semantics="trace")
    times = result.nodes.merge(slack(result, job), on=["rank", "node_id"]).set_index(["rank", "node_id"])
    latest_end = times["end_ns"] + times["slack_ns"]
    for rank, program in enumerate(job.program_of_rank):
        for source, target in job.graphs[program].edges[["src", "dst"]].itertuples(index=False):
            computes = job.graphs[program].nodes.set_index("node_id")["type"][target] == NodeType.COMP
            taken = times["end_ns"] - times["start_ns"] if computes else times["end_ns"] * 0
            assert latest_end[rank, source] <= latest_end[rank, target] - taken[rank, target]


def test_a_measured_receive_has_the_slack_of_its_wait():
    """The path crosses to the rank that sent last, whose own step ends 1 ns before that of the receiver."""

    def rank(own, works_ns, tail_ns):
        sends, receives = messages(own, 2, 0, [])
        first = comp(9, works_ns)
        return [first, sends | {"after": [9]}, receives | {"after": [9]}, comp(10, tail_ns, [2])]

    job = workload(rank(0, 4, 1), rank(1, 3, 3))
    result = replayed(job)
    assert (result.makespan_ns, critical_path(result, job).segments["rank"].tolist()) == (106, [0, 1, 1])
    slacks = slack(result, job).set_index(["rank", "node_id"])["slack_ns"]
    assert slacks[[(0, 9), (1, 2), (1, 10)]].tolist() == [0, 0, 0]
    assert slacks[1, 9] == 1


def test_early_member_has_slack_until_the_last():
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


def test_a_function_without_nodes_is_not_suggested():
    """Samples show functions whose work has no node."""
    metadata = {"callers": {"log (a.py)": ["main (a.py)"], "load (a.py)": ["main (a.py)"]}}
    program = workload([comp(0, 1000, place="load (a.py:3)")], metadata=metadata)
    experiment = prepare(program, "default", None, backend="replay", semantics="trace")
    with pytest.raises(UsageError, match=r"no function 'log \(a.py\)'.* Allowed: load \(a.py\)\.$"):
        what_if(experiment, [(Target("function", "log (a.py)"), 2.0)])
    assert what_if(experiment, [(Target("function", "load (a.py)"), 2.0)]).makespan_ns == 500
