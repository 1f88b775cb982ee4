"""Simulating equal ranks only once changes nothing but the duration of the simulation."""

from __future__ import annotations

import itertools

import et
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import build
from chakrascope.errors import ConfigError
from chakrascope.runner import engine

ALGORITHMS = ["ring", "direct", "direct2", "halvingDoubling", "doubleBinaryTree"]
KINDS = ["ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL"]
COLUMNS = ["rank_finish_ns", "rank_exposed_comm_ns", "rank_compute_ns", "rank_comm_ns", "rank_overlap_ns"]


@st.composite
def networks(draw):
    """Draw a small network with round times, so that events often coincide."""
    counts = draw(st.lists(st.sampled_from([2, 4]), min_size=1, max_size=3))
    dimensions = len(counts)
    names = [draw(st.sampled_from(ALGORITHMS)) for _ in counts]
    exchange = [name if name not in {"halvingDoubling", "doubleBinaryTree"} else "ring" for name in names]
    whole = draw(st.sampled_from([None, None, "oneRing", "oneDirect", "oneHalvingDoubling"]))
    return build.config(
        topology=[draw(st.sampled_from(["Ring", "Switch", "FullyConnected"])) for _ in counts],
        npus_count=counts,
        bandwidth=[draw(st.sampled_from([0.9313225746154785, 93.13225746154785])) for _ in counts],
        latency=[draw(st.sampled_from([0.0, 10.0, 500.0])) for _ in counts],
        endpoint_delay=draw(st.sampled_from([0, 1, 10, 100])),
        local_mem_bw=draw(st.sampled_from([0.0, 50.0])),
        preferred_dataset_splits=draw(st.integers(1, 5)),
        active_chunks_per_dimension=draw(st.integers(1, 4)),
        num_queues_per_dim=draw(st.integers(1, 4)),
        inter_dimension_policy=draw(st.sampled_from(["ascending", "round-robin", "greedy"])),
        intra_dimension_policy=draw(
            st.sampled_from(["FIFO", "smallest-first", "less-remaining-phase-first"])
        ),
        collective_optimization=draw(st.sampled_from(["baseline", "localBWAware"])),
        all_reduce_implementation=[whole] if whole else names,
        all_gather_implementation=exchange,
        reduce_scatter_implementation=exchange,
        all_to_all_implementation=exchange,
        semantics=draw(st.sampled_from(["astra-sim", "trace"])),
        native_collectives=draw(st.booleans()),
        groups=_groups_along(draw(st.integers(0, dimensions - 1)), counts),
        replay_only=draw(st.sampled_from([False, False, True])),
    )


def _coordinates(counts):
    return [
        tuple(reversed(place)) for place in itertools.product(*(range(count) for count in reversed(counts)))
    ]


def _groups_along(dimension, counts):
    """Return the groups of ranks that differ in one dimension only."""
    members: dict = {}
    for rank, place in enumerate(_coordinates(counts)):
        members.setdefault(place[:dimension] + place[dimension + 1 :], []).append(rank)
    return dict(enumerate(members.values(), start=1))


@st.composite
def programs(draw, config):
    """Draw a program per rank: the same steps on its own group and neighbours, some ranks slower."""
    places = _coordinates(config.npus_count)
    skewed = draw(st.sampled_from([None, None, 0, 1]))
    group_of = {rank: group for group, members in config.groups.items() for rank in members}
    steps = draw(
        st.lists(st.sampled_from(["comp", "coll", "group", "shift", "broadcast"]), min_size=1, max_size=6)
    )
    facts = [
        (draw(st.integers(0, 3)), draw(st.sampled_from([1, 4096, 65536])), draw(st.sampled_from(KINDS)),
         draw(st.booleans()), draw(st.integers(0, 2)))
        for _ in steps
    ]  # fmt: skip
    ranks = []
    for rank, place in enumerate(places):
        nodes = []
        for i, (step, (micros, size, kind, chained, stream)) in enumerate(zip(steps, facts, strict=True)):
            after = (nodes[-1]["id"],) if chained and nodes else ()
            slow = micros + (place[0] if skewed == 0 else rank if skewed == 1 else 0)
            lane = {"stream": stream}
            if step == "comp":
                nodes.append(build.comp(3 * i, slow, after, **lane))
            elif step == "shift":
                count = config.npus_count[0]
                right = rank - place[0] + (place[0] + 1) % count
                left = rank - place[0] + (place[0] - 1) % count
                nodes.append(build.send(3 * i, rank, right, size, after=after, tag=i))
                nodes.append(build.recv(3 * i + 1, left, rank, size, after=after, tag=i))
            else:
                chosen = "BROADCAST" if step == "broadcast" else kind
                extra = {"pg_name": str(group_of[rank])} if step == "group" else {}
                nodes.append(build.coll(3 * i, size, after, chosen, **extra, **lane))
        ranks.append(nodes)
    return ranks


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_fold_is_exact(data):
    config = data.draw(networks())
    ranks = data.draw(programs(config))
    folded = build.run(ranks, config)
    config.fold = False
    plain = build.run(ranks, config)
    event(f"folded: {folded.folded}")
    for name in COLUMNS:
        assert getattr(folded, name).tolist() == getattr(plain, name).tolist(), name
    assert folded.nodes_executed == plain.nodes_executed
    assert sorted(folded.finish_order.tolist()) == sorted(plain.finish_order.tolist())


def test_equal_ranks_are_simulated_once():
    output = build.run([[build.coll(0)]] * 64)
    assert output.folded
    assert set(output.rank_representative.tolist()) == {0}
    assert set(output.nodes(0, 64)["rank"].tolist()) == {0}


def test_skewed_ranks_are_all_simulated():
    output = build.run([[build.comp(0, rank + 1), build.coll(1, after=(0,))] for rank in range(8)])
    assert not output.folded


def test_two_kinds_of_ranks_are_two_classes():
    ranks = [[build.comp(0, 1 + rank % 2), build.coll(1, after=(0,))] for rank in range(8)]
    output = build.run(ranks)
    assert output.folded
    assert output.rank_representative.tolist() == [0, 1] * 4


def test_a_replay_of_equal_ranks_is_one_of_one_rank():
    together = [build.comp(node, 5, stream=node) for node in range(3)]
    root = build.coll(4, 64, (2,), "BROADCAST")
    ranks = [[*together, build.send(3, rank, (rank + 1) % 4, 8, after=(0, 1)), root] for rank in range(4)]
    output = build.run(ranks, build.config(semantics="trace", replay_only=True))
    assert output.folded
    assert set(output.rank_representative.tolist()) == {0}


def test_groups_with_other_numbers_are_alike():
    config = build.config(npus_count=[8], groups={7: [0, 1, 2, 3], 9: [4, 5, 6, 7]}, topology=["Switch"])
    output = build.run([[build.coll(0, pg_name="7" if rank < 4 else "9")] for rank in range(8)], config)
    assert set(output.rank_representative.tolist()) == {0}


def test_a_stalled_fold_names_every_rank():
    ranks = [[build.recv(0, (rank + 1) % 4, rank)] for rank in range(4)]
    assert sorted(item["rank"] for item in build.run(ranks).unfinished) == [0, 1, 2, 3]


@pytest.mark.parametrize("backend_setting", [{"aware": True}, {"rendezvous": True}])
def test_contention_and_rendezvous_are_not_folded(backend_setting):
    assert not build.run([[build.coll(0)]] * 4, build.config(**backend_setting)).folded


def test_many_ranks():
    config = build.config(
        topology=["Switch", "Switch", "Ring"],
        npus_count=[8, 64, 128],
        bandwidth=[400.0, 50.0, 25.0],
        latency=[300.0, 1000.0, 2000.0],
        all_reduce_implementation=["direct", "halvingDoubling", "ring"],
    )
    steps = [build.comp(0, 20), build.coll(1, after=(0,)), build.comp(2, 30, (1,)), build.coll(3, after=(2,))]
    output = build.engine.simulate(config, [et.program(steps)], [0] * 65536)
    assert output.folded
    assert len(output.rank_finish_ns) == 65536
    assert len(set(output.rank_finish_ns.tolist())) == 1


def test_given_representatives_match_all_ranks():
    groups = {1: [0, 1], 2: [2, 3]}
    config = build.config(npus_count=[4], topology=["Ring"], groups=groups)
    ranks = [
        [build.comp(0, 3), build.coll(1, after=(0,), pg_name="1" if rank < 2 else "2")] for rank in range(4)
    ]
    every = build.run(ranks, config)
    config.representative_of_rank = [0, 0, 0, 0]
    config.groups = {1: [0, 1]}
    few = engine.simulate(config, [et.program(ranks[0])], [0] * 4)
    assert few.rank_finish_ns.tolist() == every.rank_finish_ns.tolist()
    assert set(few.nodes(0, 4)["rank"].tolist()) == {0}


@pytest.mark.parametrize(
    ("representatives", "words"),
    [([0, 0], "a representative for each rank"), ([0, 2, 1, 0], "has a representative that is none")],
)
def test_representatives_that_are_none_are_refused(representatives, words):
    config = build.config(npus_count=[4], topology=["Ring"])
    config.representative_of_rank = representatives
    with pytest.raises(ConfigError, match=words):
        build.run([[build.coll(0)]] * 4, config)


def test_representatives_know_no_congestion():
    config = build.config(npus_count=[4], topology=["Ring"], aware=True)
    config.representative_of_rank = [0, 0, 0, 0]
    with pytest.raises(ConfigError, match="every rank"):
        engine.simulate(config, [et.program([build.coll(0)])], [0] * 4)


# Computing phases by a formula changes nothing but the duration of the simulation.


OF_RANKS = ["rank_finish_ns", "rank_exposed_comm_ns", "rank_compute_ns", "rank_comm_ns", "rank_overlap_ns"]


@st.composite
def large_networks(draw):
    """Draw a small network, sometimes with round times, so that events often coincide."""
    counts = draw(st.sampled_from([[2], [3], [5], [8], [2, 2], [3, 2], [4, 4], [2, 5], [2, 2, 3], [4, 2, 2]]))
    powers = all(count & (count - 1) == 0 for count in counts)
    names = [draw(st.sampled_from(["ring", "halvingDoubling"] if powers else ["ring"])) for _ in counts]
    whole = draw(st.sampled_from([None, None, None, "oneRing"]))
    return build.config(
        topology=[draw(st.sampled_from(["Ring", "Switch", "FullyConnected"])) for _ in counts],
        npus_count=counts,
        bandwidth=[draw(st.sampled_from([0.9313225746154785, 93.13225746154785, 37.0])) for _ in counts],
        latency=[draw(st.sampled_from([0.0, 10.0, 500.0, 333.3])) for _ in counts],
        endpoint_delay=draw(st.sampled_from([0, 1, 10, 10, 100])),
        local_mem_bw=draw(st.sampled_from([0.0, 0.0, 50.0, 1.7])),
        preferred_dataset_splits=draw(st.integers(1, 5)),
        active_chunks_per_dimension=draw(st.sampled_from([1, 1, 1, 2, 3])),
        num_queues_per_dim=draw(st.sampled_from([1, 1, 1, 2, 4])),
        scheduling_policy=draw(st.sampled_from(["LIFO", "FIFO"])),
        collective_optimization=draw(st.sampled_from(["baseline", "localBWAware"])),
        all_reduce_implementation=[whole] if whole else names,
        all_gather_implementation=names,
        reduce_scatter_implementation=names,
        all_to_all_implementation=["ring" for _ in counts],
        semantics=draw(st.sampled_from(["astra-sim", "trace", "trace"])),
        groups=_strided(counts) if draw(st.booleans()) else _scattered(draw, counts, powers),
    )


def _count(counts):
    ranks = 1
    for count in counts:
        ranks *= count
    return ranks


def _strided(counts):
    """Return the groups of ranks with a distance of the size of the first dimension."""
    return {1 + first: list(range(first, _count(counts), counts[0])) for first in range(counts[0])}


def _scattered(draw, counts, powers):
    """Return two groups, in any order, that together contain each rank once; of sizes in *powers* of two."""
    order = draw(st.permutations(range(_count(counts))))
    cut = draw(st.sampled_from([len(order) // 2, len(order)] if powers else range(1, len(order) + 1)))
    return {1: order[:cut]} | ({2: order[cut:]} if cut < len(order) else {})


@st.composite
def lane_programs(draw, config):
    """Draw a program per rank: the same steps on separate lanes, with different durations per rank."""
    count = _count(config.npus_count)
    group_of = {rank: group for group, members in config.groups.items() for rank in members}
    times = draw(
        st.sampled_from([[0, 1, 10], [0, 7, 1_003, 20_011], [12_345, 98_765, 43_211, 71_007, 5_003]])
    )
    skews = draw(st.sampled_from([0, 3, 1_000, 50_021]))
    kinds = ["comp", "host", "coll", "coll", "coll", "group", "shift"]
    steps = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=8))
    sizes = st.sampled_from([1, 4096, 65_536, 1_000_003])
    facts = [(draw(sizes), draw(st.sampled_from(KINDS)), draw(st.booleans()), draw(st.integers(0, 2)))
             for _ in steps]  # fmt: skip
    durations = draw(
        st.lists(st.sampled_from(times), min_size=len(steps) * count, max_size=len(steps) * count)
    )
    late = draw(st.lists(st.integers(0, skews), min_size=count, max_size=count))
    ranks = []
    for rank in range(count):
        nodes = [build.comp(0, 0, duration_ns=late[rank])]
        for i, (step, (size, kind, chained, lane)) in enumerate(zip(steps, facts, strict=True), start=1):
            after = (nodes[-1]["id"],) if chained or i == 1 else ()
            took = durations[(i - 1) * count + rank]
            extra = {"stream": lane}
            if step in {"comp", "host"}:
                extra |= {"duration_ns": took, "is_cpu_op": step == "host"}
                nodes.append(build.comp(3 * i, took // 1000, after, **extra))
            elif step == "shift":
                nodes.append(build.send(3 * i, rank, (rank + 1) % count, size, after=after, tag=i))
                nodes.append(build.recv(3 * i + 1, (rank - 1) % count, rank, size, after=after, tag=i))
            else:
                extra |= {"pg_name": str(group_of[rank])} if step == "group" else {}
                nodes.append(build.coll(3 * i, size, after, kind, **extra))
        ranks.append(nodes)
    return ranks


def answers(output):
    """Return the facts on ranks and nodes in an output."""
    said = {name: getattr(output, name).tolist() for name in OF_RANKS}
    said["unfinished"], said["deadlock"] = output.unfinished, output.deadlock
    said["nodes"] = {
        name: column.tolist() for name, column in output.nodes(0, len(output.node_counts)).items()
    }
    said["finished"] = sorted(output.finish_order.tolist())
    said["executed"], said["overtaking"] = output.nodes_executed, output.overtaking
    return said


def both(ranks, config):
    """Return the output with computed phases, and the output with all messages simulated."""
    config.fold = False
    config.meeting_ranks = 1
    met = build.run(ranks, config)
    config.meeting_ranks = 0
    return met, build.run(ranks, config)


def late(rank, *nodes):
    """Return a program whose *nodes* begin at a time that depends on the *rank*."""
    start = build.comp(0, 0, duration_ns=1 + 7_919 * rank * rank % 5_003)
    return [start, *(node | {"data_deps": node["data_deps"] or (0,)} for node in nodes)]


@pytest.mark.parametrize("algorithm", ["ring", "halvingDoubling", "oneRing"])
def test_large_rings_are_worked_out(algorithm):
    counts = [8, 16]
    names = [algorithm] if algorithm == "oneRing" else [algorithm, algorithm]
    config = build.config(
        topology=["Ring", "Switch"],
        npus_count=counts,
        bandwidth=[100.0, 12.5],
        latency=[500.0, 1_000.0],
        preferred_dataset_splits=3,
        all_reduce_implementation=names,
        semantics="trace",
    )
    met, plain = both(
        [
            late(rank, build.coll(1), build.comp(2, 0, (1,), duration_ns=rank), build.coll(3, after=(2,)))
            for rank in range(128)
        ],
        config,
    )
    assert met.events < plain.events / 8
    assert answers(met) == answers(plain)


def test_disagreeing_members_are_reported_with_and_without_fold():
    ranks = [late(rank, build.coll(1, (1 << 20) + 4096 * (rank == 3))) for rank in range(4)]
    met, plain = both(ranks, build.config())
    assert len(plain.unfinished) == 4
    assert answers(met) == answers(plain)


def test_missing_rank_is_reported_with_and_without_fold():
    ranks = [late(rank, *([build.coll(1)] if rank else [])) for rank in range(4)]
    met, plain = both(ranks, build.config(semantics="trace"))
    assert len(plain.unfinished) == 3
    assert answers(met) == answers(plain)


def test_other_algorithms_leave_every_message_to_be_simulated():
    ranks = [
        late(rank, build.coll(1), build.coll(2, after=(1,), comm_type="ALL_TO_ALL")) for rank in range(4)
    ]
    met, plain = both(ranks, build.config(all_to_all_implementation=["direct"]))
    assert met.events == plain.events
    assert answers(met) == answers(plain)


@given(st.data())
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_meetings_are_exact(data):
    config = data.draw(large_networks())
    ranks = data.draw(lane_programs(config))
    met, plain = both(ranks, config)
    event(f"worked out: {met.events < plain.events}")
    assert answers(met) == answers(plain)
