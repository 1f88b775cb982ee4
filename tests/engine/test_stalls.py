"""Messages and collectives that wait for each other: errors, no errors, and overtaking."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import build


def stalls(ranks, **settings):
    return {item["rank"]: item for item in build.run(ranks, build.config(**settings)).unfinished}


def test_a_receive_of_another_size():
    found = stalls([[build.send(0, 0, 1, 100)], [build.recv(0, 0, 1, 200)]], npus_count=[2])
    assert list(found) == [1]
    assert "send of 200 bytes with tag 1 by rank 0 (already finished)" in found[1]["waits_for"]


def test_a_collective_that_one_rank_never_issues():
    blocked = [build.recv(0, 0, 3), build.coll(1, after=(0,))]
    found = stalls([[build.coll(1)]] * 3 + [blocked])
    assert sorted(found) == [0, 1, 2, 3]
    assert "rank 3 (blocked in recv (node 0)) to issue it" in found[0]["waits_for"]
    assert found[3]["operation"] == "recv"


def test_members_that_disagree():
    found = stalls([[build.coll(0, 1024)], [build.coll(0, 4096)]], npus_count=[2])
    assert "rank 1, which is in all_reduce (node 0) of 4096 bytes instead" in found[0]["waits_for"]


def test_a_rendezvous_without_a_receiver():
    found = stalls([[build.send(0, 0, 1)], [build.comp(0)]], npus_count=[2], rendezvous=True)
    assert "recv of 1024 bytes" in found[0]["waits_for"]


def test_nodes_in_a_cycle_are_counted_as_not_executed():
    output = build.run([[build.comp(0), build.comp(1, after=(2,)), build.comp(2, after=(1,))]] * 2)
    assert (output.nodes_total, output.nodes_executed) == (6, 2)
    assert output.unfinished == []


# Collectives of overlapping groups, started in different orders, do not deadlock.

GROUPS = {1: [0, 1], 2: [2, 3], 3: [0, 2], 4: [1, 3], 5: [0, 2], 6: [1, 3]}
DEFAULT = {
    "groups": GROUPS,
    "semantics": "trace",
    "preferred_dataset_splits": 4,
    "topology": ["Switch"],
    "all_to_all_implementation": ["direct"],
}


def step(rank, delays):
    """Return the nodes of *rank*, which launches its collectives one by one without waiting."""
    row, column, parity = 1 + rank // 2, 3 + rank % 2, 5 + rank % 2
    launched = [
        (0, "ALL_REDUCE", 1 << 20),
        *[(row, "ALL_REDUCE", 1 << 18)] * 4,
        (column, "REDUCE_SCATTER", 1 << 18),
        (0, "ALL_TO_ALL", 1 << 18),
        (parity, "ALL_GATHER", 1 << 16),
    ]
    nodes, last = [], {}
    for place, ((group, kind, size), delay) in enumerate(zip(launched, delays, strict=True)):
        before = (2 * place - 2,) if place else ()
        nodes.append(build.comp(2 * place, delay, before, stream=1, is_cpu_op=True))
        after = (2 * place, *last.get(group, ()))
        number = 2 * place + 1
        nodes.append(build.coll(number, size, after, kind, pg_name=str(group), stream=10 + group))
        last[group] = (number,)
    return nodes


def skewed():
    """Return a step whose ranks arrive at its collectives at different times."""
    return [step(rank, [1 + 40 * (rank == place % 4) for place in range(8)]) for rank in range(4)]


def stalled_without():
    """Return two ranks and three groups: each rank uses its one active chunk for a separate collective."""
    first, second = build.coll(0, pg_name="1", stream=1), build.coll(1, pg_name="2", stream=2)
    early = [first, build.comp(2, 5, stream=9), second | {"data_deps": [2]}]
    late = [second, build.comp(2, 5, stream=9), first | {"data_deps": [2]}]
    return [early, late], {"npus_count": [2], "groups": {1: [0, 1], 2: [0, 1]}, "semantics": "trace"}


@pytest.mark.parametrize("aware", [False, True])
@pytest.mark.parametrize("policy", ["LIFO", "FIFO"])
@pytest.mark.parametrize("splits", [1, 4])
def test_overlapping_groups_in_flight_all_end(aware, policy, splits):
    settings = DEFAULT | {
        "aware": aware,
        "scheduling_policy": policy,
        "preferred_dataset_splits": splits,
    }
    ranks = skewed()
    output = build.run(ranks, build.config(**settings))
    assert output.unfinished == []
    assert output.nodes_executed == sum(map(len, ranks))
    unfolded = build.run(ranks, build.config(**settings, fold=False))
    assert unfolded.rank_finish_ns.tolist() == output.rank_finish_ns.tolist()


def test_a_simulation_that_ends_without_is_left_as_it_is():
    alike = [step(rank, [1] * 8) for rank in range(4)]
    plenty = build.config(**DEFAULT, active_chunks_per_dimension=64)
    for settings in (build.config(**DEFAULT), plenty):
        output = build.run(skewed(), settings)
        assert bool(output.overtaken) == bool(output.overtaking)
    assert build.run(skewed(), plenty).overtaking == 0
    assert build.run(alike, plenty).overtaking == 0


def test_a_chunk_passes_one_that_waits_for_a_peer():
    ranks, settings = stalled_without()
    output = build.run(ranks, build.config(**settings))
    assert (output.overtaking, output.overtaken) == (1, 1)
    # Both end one all-reduce of 1 MiB after the last rank started them.
    alone = build.finish([[build.coll(0)]] * 2, build.config(npus_count=[2]))[0]
    assert 5000 + alone <= output.makespan_ns <= 5000 + 2 * alone


def test_operations_of_one_lane_may_begin_in_any_order():
    """Without edges between them, a lane that one rank gave to the first must not block the second."""
    ranks, settings = stalled_without()
    ranks = [[node | {"stream": 1} if "coll" in node["name"] else node for node in nodes] for nodes in ranks]
    output = build.run(ranks, build.config(**settings))
    assert output.unfinished == []
    assert output.overtaking == 2


def test_astra_sim_semantics_are_unchanged():
    ranks, settings = stalled_without()
    output = build.run(ranks, build.config(**settings | {"semantics": "astra-sim"}))
    assert len(output.unfinished) == 2
    assert output.overtaking == 0
    assert [step["rank"] for step in output.deadlock] in ([0, 1, 1, 0], [0, 1, 1, 1, 0, 0], [0, 0, 1, 1])


def test_a_network_outside_the_engine_is_not_asked_to_begin_again():
    class Direct:
        """Delivers every message a microsecond after it was sent."""

        def __init__(self):
            self.in_flight = []

        def advance(self, messages, limit):
            self.in_flight += [(sent + 1000, number) for number, _, _, _, sent in messages]
            self.in_flight.sort()
            if not self.in_flight or 0 <= limit < self.in_flight[0][0]:
                return []
            time, number = self.in_flight.pop(0)
            return [(number, time)]

    ranks, settings = stalled_without()
    outputs = []
    for overtaking in (0, 1):
        network = Direct()
        outputs.append(
            build.run(
                ranks, build.config(**settings, external_network=network.advance, overtaking=overtaking)
            )
        )
    assert [bool(output.unfinished) for output in outputs] == [True, False]


def test_queues_of_several_groups_agree_on_the_direction():
    settings = DEFAULT | {"num_queues_per_dim": 2}
    for order in itertools.islice(itertools.permutations(range(4)), 6):
        ranks = [step(rank, [1 + 40 * (order[rank] == place % 4) for place in range(8)]) for rank in range(4)]
        assert build.run(ranks, build.config(**settings)).unfinished == []


def test_deadlock_of_programs_names_a_cycle():
    """Each rank waits for its first collective before it starts the other one."""
    one, other = build.coll(0, pg_name="1", stream=1), build.coll(1, pg_name="2", stream=2)
    ranks = [[one, other | {"data_deps": [0]}], [other, one | {"data_deps": [1]}]]
    settings = stalled_without()[1]
    output = build.run(ranks, build.config(**settings))
    assert [(item["rank"], item["node_id"], item["begun"]) for item in output.deadlock] == [
        (0, 0, True),
        (1, 0, False),
        (1, 1, True),
        (0, 1, False),
    ]


def test_unsent_message_is_not_a_cycle():
    output = build.run([[build.recv(0, 1, 0)], [build.comp(0)]], build.config(npus_count=[2]))
    assert len(output.unfinished) == 1
    assert output.deadlock == []


# Messages with one tag between two ranks that overtake each other on a network outside the engine.

LATER, SOONER = 5000, 2000


class Overtaking:
    """Delivers every message at the time in *arrivals*, in the order of sending."""

    def __init__(self, *arrivals: int) -> None:
        self.arrivals = arrivals
        self.in_flight: list[tuple[int, int]] = []

    def advance(self, messages, limit):
        self.in_flight += [(self.arrivals[number], number) for number, *_ in messages]
        self.in_flight.sort()
        if not self.in_flight or 0 <= limit < self.in_flight[0][0]:
            return []
        time, number = self.in_flight.pop(0)
        return [(number, time)]


def ends(sends, receives, network, semantics):
    """Return when the receives of rank 1 end, by node id, if rank 0 sends."""
    # In ASTRA-sim, ranks send one message at a time; with separate lanes, both are in flight.
    settings = build.config(npus_count=[2], semantics=semantics, external_network=network.advance)
    output = build.run([sends, receives], settings)
    assert len(output.unfinished) == 0
    mine = output.nodes(1, 2)
    return dict(zip(mine["node_id"].tolist(), mine["end_ns"].tolist(), strict=True))


def lanes(*sizes):
    """Return independent sends of rank 0 to rank 1 with one tag."""
    return [build.send(place, 0, 1, size) | {"stream": place} for place, size in enumerate(sizes)]


def test_a_captured_receive_gets_the_message_that_was_sent_for_it():
    receives = [build.recv(0, 0, 1), build.recv(1, 0, 1)]
    network = Overtaking(LATER, SOONER)
    assert ends(lanes(1024, 1024), receives, network, "trace") == {0: LATER, 1: SOONER}


def test_a_receive_in_astra_sim_gets_the_message_that_arrives_first():
    """A collective of two ranks sends its second message when its first receive ends."""
    collective = [build.coll(0, 4096, comm_type="ALL_REDUCE")]
    finish = {}
    for semantics in ("astra-sim", "trace"):
        network = Overtaking(1000, LATER, SOONER, 3000)
        settings = build.config(npus_count=[2], semantics=semantics, external_network=network.advance)
        finish[semantics] = build.finish([collective, collective], settings)
    assert finish["astra-sim"] < finish["trace"]


@pytest.mark.parametrize("late_ns", [0, 4000, 9000])
def test_astra_sim_counts_bytes_not_messages(late_ns):
    """One receive takes two messages, and the next receive the rest of them, whenever it is posted."""
    sends = [build.send(0, 0, 1, 600), build.send(1, 0, 1, 424)]
    receives = [build.comp(0, late_ns // 1000), build.recv(1, 0, 1, 1000, after=(0,))]
    receives.append(build.recv(2, 0, 1, 24, after=(1,)))
    arrival = max(SOONER + 3000, late_ns)
    found = ends(sends, receives, Overtaking(SOONER, SOONER + 3000), "astra-sim")
    assert found[1] == found[2] == arrival


# Replays in which ranks wait for each other: the peer, the duration, the start, and deadlocks.

SLOW, FAST, TOOK = 9_000, 2_000, 1_000


def replayed(members, begin_ns=(), ranks=None):
    """Return the output of a replay of two ranks that compute and then reach a collective."""
    ranks = ranks or [
        [build.comp(0, SLOW // 1000), build.coll(1, after=(0,), duration_ns=TOOK)],
        [build.comp(0, FAST // 1000), build.coll(1, after=(0,), duration_ns=TOOK + SLOW - FAST)],
    ]
    config = build.config(npus_count=[2], semantics="trace", replay_only=True)
    config.set_sync_points(*(list(column) for column in zip(*members, strict=True)), list(begin_ns))
    return build.run(ranks, config)


WAITS = [(0, 1, 0, 0), (1, 1, 0, SLOW - FAST)]


def test_all_leave_after_the_last_arrival():
    output = replayed(WAITS)
    assert output.rank_finish_ns.tolist() == [SLOW + TOOK] * 2
    nodes = output.nodes(0, 2)
    waited = np.flatnonzero((nodes["rank"] == 1) & (nodes["node_id"] == 1))
    assert (nodes["origin_rank"][waited], nodes["origin_node"][waited]) == (0, 1)


def test_another_last_arrival_is_waited_for():
    output = replayed(WAITS, begin_ns=[0, 20_000])
    assert output.rank_finish_ns.tolist() == [20_000 + FAST + TOOK] * 2


def test_rank_without_wait_arrives():
    output = replayed([(0, 1, 0, -1), (1, 1, 0, SLOW - FAST)])
    assert output.rank_finish_ns.tolist() == [SLOW + TOOK] * 2
    assert replayed([(0, 1, 0, 0), (1, 1, 0, -1)]).rank_finish_ns.tolist() == [SLOW + TOOK] * 2


def test_missing_member_is_reported():
    ranks = [[build.coll(0, duration_ns=TOOK)], [build.comp(0, FAST // 1000)]]
    output = replayed([(0, 0, 0, 0), (1, 7, 0, 0)], ranks=ranks)
    assert [item["rank"] for item in output.unfinished] == [0]


def test_other_ranks_and_columns_are_refused():
    with pytest.raises(Exception, match="rank 2, which does not exist"):
        replayed([(2, 1, 0, 0)])
    with pytest.raises(Exception, match="no time at which they begin"):
        replayed(WAITS, begin_ns=[1])
    with pytest.raises(ValueError, match="differ in length"):
        build.config().set_sync_points([0], [1], [], [0], [])
