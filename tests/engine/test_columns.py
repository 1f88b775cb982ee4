"""Programs and records are held in few bytes, and say the same of nodes that do not fit into these."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from chakrascope import errors
from chakrascope.errors import BackendError
from chakrascope.runner import engine

DAY_NS = 24 * 3600 * 10**9
EACH = st.sampled_from([0, 1, 255, 2**32 // 1000 - 1, 2**32 // 1000, 2**32 // 1000 + 1, DAY_NS // 1000])


def alone(nodes, **settings):
    """Return what one rank does with *nodes*, by node id: start and end."""
    columns = build.run([nodes], build.config(npus_count=[1], **settings)).nodes(0, 1)
    names = ("node_id", "start_ns", "end_ns")
    return {
        node: (start, end) for node, start, end in zip(*(columns[n].tolist() for n in names), strict=True)
    }


@given(st.lists(EACH, min_size=1, max_size=6))
def test_nodes_of_any_length_follow_each_other_for_days(micros):
    found = alone([build.comp(place, each, (place - 1,) * (place > 0)) for place, each in enumerate(micros)])
    now = 0
    for place, each in enumerate(micros):
        length = 1000 * each or 1
        assert found[place] == (now, now + length)
        now += length


@pytest.mark.parametrize("parents", [1, 254, 255, 256, 600])
def test_a_node_waits_for_any_number_of_others(parents):
    nodes = [build.comp(place, 1, is_cpu_op=place % 2 == 0) for place in range(parents)]
    found = alone([*nodes, build.comp(parents, 1, range(parents))])
    assert found[parents][0] == max(end for node, (_, end) in found.items() if node < parents)


@pytest.mark.parametrize("ids", [(0, 1, 2), (7, 8, 9), (3, 10, 11), (5, 900, 1 << 40), (9, 4, 6)])
def test_ids_may_begin_anywhere_leave_gaps_and_stand_in_any_order(ids):
    first, second, third = ids
    found = alone([build.comp(first, 1), build.comp(second, 2, (first,)), build.comp(third, 3, (second,))])
    assert found == {first: (0, 1000), second: (1000, 3000), third: (3000, 6000)}


@given(st.integers(1, 40), st.randoms(use_true_random=False), st.booleans())
def test_room_is_the_least_that_any_way_to_the_end_allows(events, draw, in_order):
    waits = sorted(
        (event, draw.randrange(event + 1, events), draw.randrange(9))
        for event in range(events - 1)
        for _ in range(draw.randrange(3))
    )
    first = np.searchsorted([event for event, *_ in waits], np.arange(events + 1))
    room = np.array([draw.randrange(100) for _ in range(events)])
    expected = room.tolist()
    for event, waiting, gap in reversed(waits):
        expected[event] = min(expected[event], expected[waiting] + gap)
    order = np.arange(events, dtype=np.int32)
    if not in_order:
        draw.shuffle(order)
    waiting, gap = (np.array([wait[i] for wait in waits], kind) for i, kind in ((1, np.int32), (2, np.int64)))
    engine.lower_room(errors, room, order, first, waiting, gap)
    assert room.tolist() == expected


@pytest.mark.parametrize(
    ("order", "first", "waiting"),
    [
        *(([0, 1], first, place) for first in ([0, 1, 2], [0, 2, 1], [1, 1, 1], [0, 1]) for place in (2, -1)),
        ([0, 1], [0, 1, 1], 2),
        ([0, 2], [0, 1, 1], 1),
        ([0], [0, 1, 1], 1),
    ],
)
def test_waits_for_events_that_there_are_not_are_refused(order, first, waiting):
    room, gap = np.zeros(2, np.int64), np.zeros(1, np.int64)
    columns = np.array(order, np.int32), np.array(first), np.array([waiting], np.int32)
    with pytest.raises(BackendError, match="run it again"):
        engine.lower_room(errors, room, *columns, gap)
