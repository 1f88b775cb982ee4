"""Which rank is slow, by how much, and whether the others wait for it."""

from __future__ import annotations

import numpy as np
import pytest

from chakrascope.runner.analysis import slowest_rank


class Recorded:
    """The columns of a result that the answer reads."""

    makespan_ns = 10_000

    def __init__(self, works, arrivals):
        count = len(works)
        self.tables = {
            "ranks": {
                "rank": np.arange(count),
                "finish_ns": np.full(count, 10_000),
                "exposed_comm_ns": 10_000 - np.asarray(works),
            },
            "collectives": {
                "collective": np.repeat(np.arange(len(arrivals)), count),
                "rank": np.tile(np.arange(count), len(arrivals)),
                "start_ns": np.asarray(arrivals, np.int64).reshape(-1),
            },
        }

    def columns(self, name):
        return self.tables[name]


def test_the_rank_that_the_others_wait_for_is_the_slowest():
    found = slowest_rank(Recorded([8_000, 9_000, 8_200], [[10, 300, 20], [700, 900, 710]]))
    assert (found.rank, found.work_ns, found.median_ns) == (1, 9_000, 8_100)
    assert (found.last_at, found.collectives, found.waited_ns) == (2, 2, 280 + 190)
    assert "rank 1 works 9.00 µs, 11.1 % more" in found.sentence
    assert found.sentence.endswith("4.7 % of the step.")


def test_equal_replicas_of_the_slowest_rank_count_as_last_together():
    found = slowest_rank(Recorded([8_000, 9_000] * 2 + [8_000], [[10, 300, 10, 300, 10]]))
    assert (found.rank, found.last_at, found.waited_ns) == (1, 1, 290)


def test_a_slow_rank_that_nobody_waits_for_does_not_matter():
    found = slowest_rank(Recorded([8_000, 8_400], [[10, 10]]))
    assert found.rank == 1
    assert found.sentence.endswith("too little to matter.")
    assert slowest_rank(Recorded([8_000], [[1]])) is None


@pytest.mark.parametrize("ranks", [2, 5])
def test_ranks_without_a_collective_are_compared_by_their_work(ranks):
    found = slowest_rank(Recorded([5_000] * (ranks - 1) + [6_000], []))
    assert found.rank == ranks - 1
    assert "share no collective" in found.sentence
