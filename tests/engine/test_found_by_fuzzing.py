"""Answers of the reference simulator to experiments that random comparison found."""

from __future__ import annotations

import pytest

import build


@pytest.mark.parametrize(
    ("ranks", "congestion_aware", "expected"),
    [(6, False, 7617), (6, True, 11341), (12, False, 18077), (12, True, 34837)],
)
def test_halving_doubling_gathers_among_three_times_a_power_of_two(ranks, congestion_aware, expected):
    settings = build.config(
        npus_count=[ranks],
        all_gather_implementation=["halvingDoubling"],
        local_mem_bw=50.0,
        congestion_aware=congestion_aware,
    )
    programs = [[build.coll(0, 100_003, comm_type="ALL_GATHER")]] * ranks
    assert set(build.finish(programs, settings)) == {expected}
