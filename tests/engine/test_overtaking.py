"""Messages of one tag between two ranks that overtake each other on a network outside the engine."""

from __future__ import annotations

import pytest

import build

LATER, SOONER = 5000, 2000


class Overtaking:
    """Delivers every message at the time that *arrivals* names for its place in the order of sending."""

    def __init__(self, *arrivals: int) -> None:
        self.arrivals = arrivals
        self.under_way: list[tuple[int, int]] = []

    def advance(self, messages, limit):
        self.under_way += [(self.arrivals[number], number) for number, *_ in messages]
        self.under_way.sort()
        if not self.under_way or 0 <= limit < self.under_way[0][0]:
            return []
        time, number = self.under_way.pop(0)
        return [(number, time)]


def ends(sends, receives, network, semantics):
    """Return when the receives of rank 1 end, by node id, if rank 0 sends."""
    # Ranks send one message at a time in ASTRA-sim; lanes of their own let both be under way.
    settings = build.config(npus_count=[2], semantics=semantics, external_network=network.advance)
    output = build.run([sends, receives], settings)
    assert len(output.unfinished) == 0
    mine = output.nodes(1, 2)
    return dict(zip(mine["node_id"].tolist(), mine["end_ns"].tolist(), strict=True))


def lanes(*sizes):
    """Return sends of rank 0 to rank 1 under one tag, each of which waits for none of the others."""
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
    """One receive takes two messages, and the next what is left of them, whenever it is posted."""
    sends = [build.send(0, 0, 1, 600), build.send(1, 0, 1, 424)]
    receives = [build.comp(0, late_ns // 1000), build.recv(1, 0, 1, 1000, after=(0,))]
    receives.append(build.recv(2, 0, 1, 24, after=(1,)))
    arrival = max(SOONER + 3000, late_ns)
    found = ends(sends, receives, Overtaking(SOONER, SOONER + 3000), "astra-sim")
    assert found[1] == found[2] == arrival
