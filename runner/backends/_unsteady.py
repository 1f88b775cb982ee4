"""Whether an answer of flows hangs on what flows do not know: shake their messages a little and look."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...support.table import Columns

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Moved", "in_step", "may_drift", "moved_by_shaking"]

# By how many packets' times messages are early or late: a little, and as much as many steps add up to.
_SHAKES = (2.0, 8.0)
# A makespan that noise shortens by this share hangs on which message happens to be first.
_SHORTER = 0.002
# Noise in every step of a chain makes it longer: by this share of what all the noise adds up to where ranks
# that are late catch up, as those of 205 drawn experiments that were within 1 % of packets did.
_PASSED_ON = 0.15
# Messages of one size whose times differ by a larger share are not in step: long ones by little.
_IN_STEP = 0.001
# Fewer steps than this, one after the other, do not add up.
_FEW_STEPS = 6
_NEVER = np.int64((1 << 63) - 1)


def may_drift(flows: pd.DataFrame | Columns, makespan_ns: int) -> bool:
    """Return whether the messages of the table ``flows`` are many steps that are not all alike.

    Ranks in lock-step meet the same delays and stay so; of a few steps, delays do not add up.
    """
    times = flows["end_ns"] - flows["start_ns"]
    if not len(times):
        return False
    return bool(makespan_ns > _FEW_STEPS * times.mean()) and not in_step(flows)


def in_step(flows: pd.DataFrame | Columns) -> bool:
    """Return whether messages of one size take the same time, whoever sends them."""
    sizes, kinds = np.unique(flows["bytes"], return_inverse=True)
    times = np.asarray(flows["end_ns"] - flows["start_ns"])
    shortest, longest = np.full(len(sizes), _NEVER), np.zeros(len(sizes), np.int64)
    np.minimum.at(shortest, kinds, times)
    np.maximum.at(longest, kinds, times)
    return bool((longest - shortest <= _IN_STEP * longest).all())


class Moved(NamedTuple):
    """By what share of itself noise moved a makespan, and whether that is more than noise does."""

    share: float
    hangs: bool


def moved_by_shaking(
    makespan_ns: int, message_ns: float, packet_ns: float, shaken: Callable[[float], Any]
) -> Moved:
    """Return how the makespan moves when messages are a few packets early or late.

    *shaken* simulates with that many packets of noise; what the last message itself is late by, of packets
    that take *packet_ns*, does not count. Messages take *message_ns* in the mean.
    """
    most = Moved(0.0, hangs=False)
    for packets in _SHAKES:
        output = shaken(packets)
        if output.unfinished:
            return Moved(1.0, hangs=True)
        noise_ns = packets * packet_ns
        longer = output.makespan_ns - makespan_ns
        share = max(abs(longer) - noise_ns, 0.0) / makespan_ns
        steps = makespan_ns / message_ns
        hangs = share > (_PASSED_ON * steps * noise_ns / makespan_ns if longer > 0 else _SHORTER)
        most = Moved(max(share, most.share), hangs)
        if hangs:
            break
    return most
