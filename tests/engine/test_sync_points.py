"""Replays in which ranks wait for each other: for whom, how long, from when on, and what never ends."""

from __future__ import annotations

import numpy as np
import pytest

import build

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
