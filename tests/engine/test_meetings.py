"""Working phases out as a whole changes nothing but the time the simulation takes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import build

KINDS = ["ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL"]
OF_RANKS = ["rank_finish_ns", "rank_exposed_comm_ns", "rank_compute_ns", "rank_comm_ns", "rank_overlap_ns"]


@st.composite
def networks(draw):
    """Draw a small network; of some all times are round, so that events coincide often."""
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
    """Return the groups of ranks that lie as far apart as the first dimension is wide."""
    return {1 + first: list(range(first, _count(counts), counts[0])) for first in range(counts[0])}


def _scattered(draw, counts, powers):
    """Return two groups in any order that have each rank in one of them; of *powers* of two."""
    order = draw(st.permutations(range(_count(counts))))
    cut = draw(st.sampled_from([len(order) // 2, len(order)] if powers else range(1, len(order) + 1)))
    return {1: order[:cut]} | ({2: order[cut:]} if cut < len(order) else {})


@st.composite
def programs(draw, config):
    """Draw a program per rank: the same steps in lanes of their own, each rank's durations its own."""
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
    """Return all that an output says of ranks and nodes."""
    said = {name: getattr(output, name).tolist() for name in OF_RANKS}
    said["unfinished"], said["deadlock"] = output.unfinished, output.deadlock
    said["nodes"] = {
        name: column.tolist() for name, column in output.nodes(0, len(output.node_counts)).items()
    }
    said["finished"] = sorted(output.finish_order.tolist())
    said["executed"], said["overtaking"] = output.nodes_executed, output.overtaking
    return said


def both(ranks, config):
    """Return the output with phases worked out, and that with every message simulated."""
    config.fold = False
    config.meeting_ranks = 1
    met = build.run(ranks, config)
    config.meeting_ranks = 0
    return met, build.run(ranks, config)


def late(rank, *nodes):
    """Return a program that begins its *nodes* at a time of the *rank*'s own."""
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


def test_members_that_do_not_agree_are_told_of_as_ever():
    ranks = [late(rank, build.coll(1, (1 << 20) + 4096 * (rank == 3))) for rank in range(4)]
    met, plain = both(ranks, build.config())
    assert len(plain.unfinished) == 4
    assert answers(met) == answers(plain)


def test_a_rank_that_never_comes_is_told_of_as_ever():
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
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_meetings_are_exact(data):
    config = data.draw(networks())
    ranks = data.draw(programs(config))
    met, plain = both(ranks, config)
    event(f"worked out: {met.events < plain.events}")
    assert answers(met) == answers(plain)
