"""Put the ranks of a measured run on one clock, by when they leave their collectives."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..support.table import Columns
from ._framed import rows_coded

__all__ = ["arrivals_on_one_clock", "waits_of", "with_measured_waits"]

Ints = npt.NDArray[np.int64]
_ROUNDS = 8


def arrivals_on_one_clock(calls: Columns) -> Ints:
    """Return when each of *calls*, the measured collectives of all ranks, started, on one clock.

    All ranks leave a collective together, so that a rank's clock is ahead by the median of what its
    collectives end later there than on the median rank.
    """
    starts: Ints = calls["start_ns"].astype(np.int64)
    if not len(starts):
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


def with_measured_waits(calls: Columns) -> Columns:
    """Return *calls* with the time from a rank's arrival to the last one's as wait, not as transfer."""
    if not len(calls["start_ns"]):
        return calls
    arrivals = arrivals_on_one_clock(calls)
    _, numbers = np.unique(calls["collective"], return_inverse=True)
    last = np.full(int(numbers.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(last, numbers, arrivals)
    lasted = calls["end_ns"] - calls["start_ns"]
    wait_ns = np.minimum(last[numbers] - arrivals, lasted)
    return calls | {"wait_ns": wait_ns, "transfer_ns": lasted - wait_ns}


def waits_of(calls: Columns, ranks: Ints, node_ids: Ints) -> tuple[Ints, Ints, Ints]:
    """Return how long each node waited in its collective, for which rank and for which node of that rank.

    *calls* are the measured collectives of all ranks; nodes that are none of them waited 0 ns for rank -1.
    """
    count = len(calls["rank"])
    if not count:
        return np.zeros(len(ranks), np.int64), np.full(len(ranks), -1), np.full(len(ranks), -1)
    numbers, firsts = rows_coded(
        np.append(calls["rank"].astype(np.int64), ranks), np.append(calls["node_id"], node_ids)
    )
    call_of = np.full(len(firsts), -1)
    call_of[numbers[:count]] = np.arange(count)
    own = call_of[numbers[count:]]
    order = np.lexsort([-calls["rank"].astype(np.int64), arrivals_on_one_clock(calls)])
    last_of = np.zeros(int(calls["collective"].max()) + 1, np.int64)
    last_of[calls["collective"][order]] = order  # of a collective the row written last: the last arrival
    last = last_of[calls["collective"][own]]
    return (
        np.where(own >= 0, calls["wait_ns"][own], 0),
        np.where(own >= 0, calls["rank"][last], -1),
        np.where(own >= 0, calls["node_id"][last], -1),
    )


def _medians(values: Ints, keys: Ints) -> Ints:
    """Return the (lower) median of the values of each key; keys count from 0."""
    order = np.lexsort((values, keys))
    counts = np.bincount(keys)
    firsts = np.cumsum(counts) - counts
    middle: Ints = values[order][firsts + (counts - 1) // 2]
    return middle
