"""Whether an answer of flows hangs on what flows do not know: shake their messages a little and look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

__all__ = ["MOVED", "in_step", "may_drift", "moved_by_shaking"]

# By how many packets' times messages are early or late: a little, and as much as many steps add up to.
_SHAKES = (2.0, 8.0)
# A makespan that moves by this share hangs on it.
MOVED = 0.002
# Messages of one size whose times differ by a larger share are not in step: long ones by little.
_IN_STEP = 0.001
# Fewer steps than this, one after the other, do not add up.
_FEW_STEPS = 6


def may_drift(flows: pd.DataFrame, makespan_ns: int) -> bool:
    """Return whether the messages of the table ``flows`` are many steps that are not all alike.

    Ranks in lock-step meet the same delays and stay so; of a few steps, delays do not add up.
    """
    if not len(flows):
        return False
    times = flows["end_ns"] - flows["start_ns"]
    return bool(makespan_ns > _FEW_STEPS * times.mean()) and not in_step(flows)


def in_step(flows: pd.DataFrame) -> bool:
    """Return whether messages of one size take the same time, whoever sends them."""
    times = (flows["end_ns"] - flows["start_ns"]).groupby(flows["bytes"]).agg(["min", "max"])
    return bool((times["max"] - times["min"] <= _IN_STEP * times["max"]).all())


def moved_by_shaking(makespan_ns: int, packet_ns: float, shaken: Callable[[float], Any]) -> float:
    """Return by what share of itself the makespan moves when messages are a few packets early or late.

    *shaken* simulates with that many packets of noise; what the last message itself is late by, of packets
    that take *packet_ns*, does not count.
    """
    most = 0.0
    for packets in _SHAKES:
        output = shaken(packets)
        if output.unfinished:
            return 1.0
        apart = max(abs(output.makespan_ns - makespan_ns) - packets * packet_ns, 0.0)
        most = max(most, apart / makespan_ns)
        if most > MOVED:
            break
    return most
