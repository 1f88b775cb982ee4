"""Put the ranks of a replay on one clock: each begins at 0, whenever its step began."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...support.table import Columns
from .._result import Result
from .._traits import about_backend

__all__ = ["arrivals_on_one_clock"]

Ints = npt.NDArray[np.int64]
_ROUNDS = 8


def arrivals_on_one_clock(result: Result, calls: Columns) -> Ints:
    """Return when each of *calls*, collectives of *result*, started; in a replay on a clock of all ranks.

    All ranks leave a collective together, so that a rank's clock is ahead by the median of what its
    collectives end later there than on the median rank. Other runs have one clock.
    """
    starts: Ints = calls["start_ns"].astype(np.int64)
    if about_backend(result.backend).network or not len(starts):
        return starts
    ends = calls["end_ns"].astype(np.int64)
    _, ranks = np.unique(calls["rank"], return_inverse=True)
    _, numbers = np.unique(calls["collective"], return_inverse=True)
    ahead = np.zeros(int(ranks.max()) + 1, np.int64)
    for _ in range(_ROUNDS):  # one would do, were all collectives of all ranks
        left = ends - ahead[ranks]
        change = _medians(left - _medians(left, numbers)[numbers], ranks)
        ahead += change
        if not change.any():
            break
    return starts - ahead[ranks]


def _medians(values: Ints, keys: Ints) -> Ints:
    """Return the median of the values of each key, which count from 0; of an even number the lower one."""
    order = np.lexsort((values, keys))
    counts = np.bincount(keys)
    firsts = np.cumsum(counts) - counts
    middle: Ints = values[order][firsts + (counts - 1) // 2]
    return middle
