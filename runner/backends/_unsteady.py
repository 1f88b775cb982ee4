"""Test the stability of a flow result: add small delays to messages and compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...support.table import Columns

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Moved", "in_step", "may_drift", "moved_by_shaking"]

# The delays in times of a packet: a small one, and the sum over many steps.
_SHAKES = (2.0, 8.0)
# A makespan that noise shortens by this fraction depends on which message happens to be first.
_SHORTER = 0.002
# Noise in every step of a chain makes it longer: by this fraction of the total noise where late ranks catch
# up, as in those of 205 random experiments that were within 1 % of packets.
_PASSED_ON = 0.15
# Messages of one size whose times differ by a larger fraction are not in step, unless they are long.
_IN_STEP = 0.001
# Fewer sequential steps than this do not add up.
_FEW_STEPS = 6
_NEVER = np.int64((1 << 63) - 1)


def may_drift(flows: pd.DataFrame | Columns, makespan_ns: int) -> bool:
    """Return whether the messages of the table ``flows`` are many steps that are not all alike.

    Ranks in lock-step meet the same delays and stay in step; with few steps, delays do not add up.
    """
    times = flows["end_ns"] - flows["start_ns"]
    if not len(times):
        return False
    return bool(makespan_ns > _FEW_STEPS * times.mean()) and not in_step(flows)


def in_step(flows: pd.DataFrame | Columns) -> bool:
    """Return whether messages of one size take the same time for every sender."""
    sizes, kinds = np.unique(flows["bytes"], return_inverse=True)
    times = np.asarray(flows["end_ns"] - flows["start_ns"])
    shortest, longest = np.full(len(sizes), _NEVER), np.zeros(len(sizes), np.int64)
    np.minimum.at(shortest, kinds, times)
    np.maximum.at(longest, kinds, times)
    return bool((longest - shortest <= _IN_STEP * longest).all())


class Moved(NamedTuple):
    """The relative change of a makespan by noise, and whether it is more than the noise itself."""

    share: float
    hangs: bool


def moved_by_shaking(
    makespan_ns: int, message_ns: float, packet_ns: float, shaken: Callable[[float], Any]
) -> Moved:
    """Return the change of the makespan when messages are a few packets early or late.

    *shaken* simulates with noise of that many packets; the lateness of the last message itself does not
    count. A packet takes *packet_ns*, and a message *message_ns* on average.
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
