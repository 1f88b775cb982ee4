"""Clocks of hosts: offset and drift from messages that go back and forth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.runner.emulation import ClockEstimate, HostClock, estimate

SECOND = 1_000_000_000


def trips(offset_ns, ways):
    """Return round trips with the given (there, back) times, to a host whose clock is *offset_ns* ahead."""
    now, found = 5 * SECOND, []
    for there, back in ways:
        found.append((now, now + there + offset_ns, now + there + back))
        now += there + back + 1000
    return found


@given(
    st.integers(-(10**15), 10**15),
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=20),
)
def test_the_offset_is_known_to_half_of_the_fastest_round_trip(offset_ns, ways):
    found = estimate(trips(offset_ns, ways))
    assert abs(found.offset_ns - offset_ns) <= found.error_ns + 1
    assert found.error_ns == min(there + back + 1 for there, back in ways) // 2


@given(st.integers(-(10**12), 10**12), st.floats(-200, 200), st.integers(SECOND, 100 * SECOND))
def test_times_of_a_drifting_clock_are_corrected(offset_ns, drift_ppm, at_ns):
    start_ns, before_ns, after_ns = 10 * SECOND, 9 * SECOND, 120 * SECOND

    def shown(coordinator_ns):
        return round(coordinator_ns + offset_ns + (coordinator_ns - before_ns) * drift_ppm / 1e6)

    clock = HostClock(
        ClockEstimate(before_ns, shown(before_ns) - before_ns, 100),
        ClockEstimate(after_ns, shown(after_ns) - after_ns, 200),
    )
    assert clock.drift_ppm == pytest.approx(drift_ppm, abs=1e-3)
    begun = clock.local(start_ns)
    measured = np.array([shown(start_ns + at_ns) - begun, -1])
    corrected = clock.corrected(measured, start_ns)
    assert abs(int(corrected[0]) - at_ns) <= 3
    assert corrected[1] == -1
    assert clock.error_ns == 200


def test_a_clock_that_is_shared_needs_no_correction():
    apart = ClockEstimate(0, 5000, 3000)
    clock = HostClock(apart, apart, shared=True)
    assert (clock.local(7), clock.drift_ppm, clock.error_ns) == (7, 0.0, 0)
    times = np.array([1, 2, -1])
    assert clock.corrected(times, 0) is times
    assert clock.to_json()["clock_offset_ns"] == 0
