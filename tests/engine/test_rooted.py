"""Broadcast, reduce, gather, scatter and barrier, which the reference simulator replays or refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from chakrascope.errors import WorkloadFormatError

UNIT = 1e9 / 1073741824


def settings(ranks, **more):
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
    return build.finish([[build.coll(0, size, comm_type=kind, **facts)]] * ranks, settings(ranks, **more))


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
        build.run([[node], [node], [build.comp(0)], [build.comp(0)]], settings(4, groups={1: [0, 1]}))


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
def test_chunks_take_as_long_as_the_whole(kind):
    """Who sends waits for nobody, but its chunks share its link."""
    whole = max(finish(kind, 2, 4_000_000))
    assert max(finish(kind, 2, 4_000_000, preferred_dataset_splits=4)) == pytest.approx(whole, rel=1e-3)
