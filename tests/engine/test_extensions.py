"""Cases in which the reference simulator aborts, hangs or replays: a result, or a diagnosis."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import build
from chakrascope.errors import Cancelled, ConfigError, WorkloadFormatError


def test_a_group_before_all_ranks_does_not_hang():
    member = [build.coll(0, pg_name="1"), build.coll(1, after=(0,))]
    other = [build.coll(1)]
    times = build.finish([member, member, other, other], build.config(groups={1: [0, 1]}))
    assert min(times) > 0


def test_events_at_time_zero_are_fine():
    assert min(build.finish([[build.coll(0)]] * 4, build.config(endpoint_delay=0))) > 0


def test_a_congested_ring_of_two_works():
    both = [[build.coll(0)]] * 2
    assert build.finish(both, aware=True) == build.finish(both)


def test_metadata_takes_no_time_and_frees_its_children():
    nodes = [{"id": 0, "type": "METADATA"}, build.comp(1, 2, after=(0,))]
    assert build.finish([nodes, nodes]) == [2000, 2000]


def test_invalid_nodes_do_not_strand_their_children():
    nodes = [
        {"id": 0, "type": "INVALID"},
        {"id": 1, "type": "INVALID", "data_deps": [0]},
        build.comp(2, 2, (1,)),
    ]
    assert build.finish([nodes, nodes]) == [2000, 2000]


@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize("comm_type", ["ALL_GATHER", "ALL_REDUCE", "ALL_TO_ALL", "REDUCE_SCATTER"])
def test_sizes_below_the_number_of_chunks(comm_type, size):
    times = build.finish(
        [[build.coll(0, size, comm_type=comm_type)]] * 4, build.config(preferred_dataset_splits=4)
    )
    assert min(times) >= 0


def test_a_group_of_one_is_done_at_once():
    nodes = [build.coll(0, pg_name="1"), build.comp(1, 3, after=(0,))]
    assert build.finish([nodes, [build.comp(0)]], build.config(npus_count=[2], groups={1: [0]}))[0] == 3000


def test_a_barrier_waits_for_the_last_rank():
    ranks = [[build.comp(0, 1 + 9 * rank), build.coll(1, 0, (0,), "BARRIER")] for rank in range(4)]
    assert min(build.finish(ranks)) > 28_000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"all_reduce_implementation": ["halvingDoubling"], "npus_count": [6]}, "power of two"),
        ({"all_reduce_implementation": ["doubleBinaryTree"], "npus_count": [6]}, "power of two"),
        ({"all_reduce_implementation": ["spiral"]}, "spiral"),
        ({"all_reduce_implementation": ["direct0"]}, "window"),
        ({"all_reduce_implementation": ["ring", "ring"]}, "2 entries"),
        ({"all_reduce_implementation": []}, "all-reduce-implementation"),
        ({"all_reduce_implementation_custom": ["nowhere"]}, r"nowhere\.0\.et"),
        ({"topology": ["Torus"]}, "Torus"),
        ({"npus_count": [0]}, "npus_count"),
        ({"bandwidth": [0.0]}, "bandwidth"),
        ({"latency": [float("nan")]}, "latency"),
        ({"bandwidth": []}, "equally long"),
        ({"preferred_dataset_splits": 0}, "preferred-dataset-splits"),
        ({"groups": {0: [0]}}, "group 0"),
        ({"groups": {1: [0, 0]}}, "twice"),
        ({"groups": {1: [9]}}, "rank 9"),
        ({"aware": True, "links": [(0, 1, 1, 1)]}, "no path from device"),
        ({"aware": True, "links": [(0, 0, 1, 1)]}, "two different nodes"),
        ({"aware": True, "links": [(0, 1, 0, 1)]}, "rate above 0"),
    ],
)
def test_impossible_configurations_are_refused(settings, message):
    chosen = build.config(**settings)
    ranks = 1
    for count in chosen.npus_count:
        ranks *= count
    with pytest.raises(ConfigError, match=message):
        build.run([[build.coll(0)]] * ranks, chosen)


def test_wrong_number_of_ranks_is_refused():
    with pytest.raises(ConfigError, match="3 ranks, but the network has 4"):
        build.run([[build.comp(0)]] * 3, build.config())


def simulate_for_seconds(progress):
    settings = build.config(npus_count=[512], preferred_dataset_splits=256, fold=False)
    return build.engine.simulate(settings, [build.et.program([build.coll(0, 1 << 30)])], [0] * 512, progress)


def test_progress_cancels():
    with pytest.raises(Cancelled):
        simulate_for_seconds(lambda now, finished: False)


def test_an_error_in_the_progress_callback_comes_through():
    def fail(now, finished):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        simulate_for_seconds(fail)


def test_equal_simulations_are_equal():
    ranks = [[build.comp(0, rank + 1), build.coll(1, 1 << 22, (0,))] for rank in range(8)]
    first, second = build.run(ranks), build.run(ranks)
    ends = [output.nodes(0, 8)["end_ns"].tolist() for output in (first, second)]
    assert ends[0] == ends[1]
    assert first.events == second.events


# Broadcast, reduce, gather, scatter and barrier, which the reference simulator replays or refuses.

UNIT = 1e9 / 1073741824


def rooted_settings(ranks, **more):
    defaults = {
        "topology": ["FullyConnected"],
        "bandwidth": [UNIT],
        "latency": [100.0],
        "endpoint_delay": 10,
        "native_collectives": True,
    }
    return build.config(npus_count=[ranks], **(defaults | more))


def finish(kind, ranks, size=1000, root=None, **more):
    facts = {} if root is None else {"comm_src": root}
    return build.finish(
        [[build.coll(0, size, comm_type=kind, **facts)]] * ranks, rooted_settings(ranks, **more)
    )


def test_a_broadcast_goes_down_a_binomial_tree():
    # A hop is 1100 ns and every end adds 10 ns; rank 7 is three hops away.
    assert finish("BROADCAST", 8) == [10, 1120, 1120, 2230, 1120, 2230, 2230, 3340]


def test_a_reduce_comes_up_the_same_tree():
    times = finish("REDUCE", 8)
    assert times[0] == 3 * 1110 + 10
    assert [times[rank] for rank in (1, 3, 5, 7)] == [10] * 4


def test_scatter_and_gather_are_direct():
    assert finish("SCATTER", 4) == [10, 1120, 1120, 1120]
    assert finish("GATHER", 4) == [1120, 10, 10, 10]


def test_the_root_may_be_any_member():
    assert finish("BROADCAST", 4, root=2) == [1120, 2230, 10, 1120]


def test_without_them_a_broadcast_takes_its_recorded_time():
    node = build.coll(0, 1000, comm_type="BROADCAST", duration_micros=7)
    assert build.finish([[node]] * 4) == [7000] * 4


def test_a_root_outside_the_group_is_refused():
    node = build.coll(0, 1000, comm_type="BROADCAST", comm_src=3, pg_name="1")
    with pytest.raises(WorkloadFormatError, match="not a member of its group"):
        build.run([[node], [node], [build.comp(0)], [build.comp(0)]], rooted_settings(4, groups={1: [0, 1]}))


@given(
    st.sampled_from(["BROADCAST", "REDUCE", "GATHER", "SCATTER"]),
    st.integers(2, 9),
    st.integers(0, 1 << 20),
    st.integers(1, 4),
    st.data(),
)
def test_they_always_end(kind, ranks, size, splits, data):
    root = data.draw(st.integers(0, ranks - 1))
    times = finish(kind, ranks, size, root, preferred_dataset_splits=splits)
    assert min(times) >= 0


@pytest.mark.parametrize("kind", ["BROADCAST", "REDUCE", "GATHER", "SCATTER"])
def test_chunks_take_the_time_of_the_whole_message(kind):
    """The sender waits for no rank, but its chunks share its link."""
    whole = max(finish(kind, 2, 4_000_000))
    assert max(finish(kind, 2, 4_000_000, preferred_dataset_splits=4)) == pytest.approx(whole, rel=1e-3)


# Computation, exposed communication, exposed copies and idle time of a rank add up.

KINDS = ["compute", "communication", "copy", "idle", "host", "sync", "", "something else"]
_COUNTS_AS = {"": "compute", "something else": "compute"}


@st.composite
def streams(draw):
    """Draw nodes on up to 4 streams: kind, duration and dependencies at random."""
    count = draw(st.integers(1, 25))
    nodes = []
    for number in range(1, count + 1):
        after = draw(st.lists(st.integers(1, number - 1), max_size=2, unique=True)) if number > 1 else []
        facts = {"stream": draw(st.integers(1000, 1003)), "duration_ns": draw(st.integers(1, 9))}
        facts |= {"kind": draw(st.sampled_from(KINDS)), "is_cpu_op": draw(st.booleans())}
        nodes.append(build.comp(number, 1, tuple(after), **facts))
    return nodes


def figures(nodes, output):
    """Return the figures of a rank, nanosecond by nanosecond."""
    times = output.nodes(0, 1)
    doing = [set() for _ in range(int(output.makespan_ns))]
    for number, start, end in zip(times["node_id"], times["start_ns"], times["end_ns"], strict=True):
        node = nodes[number - 1]
        kind = "host" if node["is_cpu_op"] else _COUNTS_AS.get(node["kind"], node["kind"])
        for moment in range(start, end):
            doing[moment].add(kind)
    at_work = [kinds & {"compute", "communication", "copy"} for kinds in doing]
    return {
        "compute": sum("compute" in kinds for kinds in at_work),
        "comm": sum("communication" in kinds for kinds in at_work),
        "overlap": sum({"compute", "communication"} <= kinds for kinds in at_work),
        "exposed_comm": sum("communication" in kinds and "compute" not in kinds for kinds in at_work),
        "copy": sum("copy" in kinds for kinds in at_work),
        "exposed_copy": sum(kinds == {"copy"} for kinds in at_work),
        "idle": sum(not kinds for kinds in at_work),
    }


@settings(deadline=None)
@given(streams())
def test_every_moment_of_a_rank_is_one_of_four(nodes):
    output = build.run([nodes], semantics="trace", record_nodes=True)
    expected = figures(nodes, output)
    idle = expected.pop("idle")
    got = {name: int(getattr(output, f"rank_{name}_ns")[0]) for name in expected}
    assert got == expected
    assert got["compute"] + got["exposed_comm"] + got["exposed_copy"] + idle == output.makespan_ns


@pytest.mark.parametrize("semantics", ["astra-sim", "trace"])
def test_communication_of_unknown_size_takes_its_measured_time_on_any_machine(semantics):
    facts = {"num_ops": 10**9, "tensor_size": 10**6, "duration_ns": 7000, "stream": 1000}
    machine = {"roofline_enabled": True, "peak_perf": 1000.0, "local_mem_bw": 100.0, "semantics": semantics}
    times = {
        kind: int(build.run([[build.comp(1, 7, kind=kind, **facts)]], **machine).makespan_ns)
        for kind in ("compute", "communication")
    }
    assert times == {"compute": 10_000, "communication": 7_000}
