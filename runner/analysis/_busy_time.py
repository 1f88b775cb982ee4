"""What a rank's device does at each moment: computation first, then communication, then copies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...converter import NodeType
from ...converter.chakra import KINDS
from ._lanes import is_communication

__all__ = ["BUSY_KINDS", "busy_kinds", "exclusive_ns"]

BUSY_KINDS = ("compute", "communication", "copy")
"""The kinds of work that keep a device busy, in the order in which overlapping time is counted."""
Ints = npt.NDArray[np.int64]


def busy_kinds(nodes: pd.DataFrame) -> pd.Series:
    """Return the kind of each of *nodes*, one of `BUSY_KINDS`, or "" where it keeps no device busy.

    *nodes* has ``type``, ``kind`` and ``is_cpu_op``.
    """
    comm = is_communication(nodes["type"])
    kind = nodes["kind"].astype(object)
    kind = kind.where(kind.isin(KINDS), "compute").mask(comm, "communication")
    on_device = comm | ((nodes["type"] == NodeType.COMP) & ~nodes["is_cpu_op"].astype(bool))
    busy: pd.Series = kind.where(on_device & kind.isin(BUSY_KINDS), "")
    return busy


def exclusive_ns(start: Ints, end: Ints, kind: npt.ArrayLike) -> Ints:
    """Return how much of each interval counts as its own: the sum is the length of their union.

    Where intervals overlap, the earlier one of `BUSY_KINDS` counts, and of one *kind* that which began first.
    """
    kinds, own = np.asarray(kind), np.zeros(len(start), np.int64)
    so_far = np.zeros(len(start), bool)
    covered: tuple[Ints, Ints] = np.empty(0, np.int64), np.empty(0, np.int64)
    for name in BUSY_KINDS:
        rows = np.flatnonzero(kinds == name)
        order, first, last = _pieces(start[rows], end[rows])
        own[rows[order]] = last - first - _length_before(covered, last) + _length_before(covered, first)
        so_far[rows] = True
        covered = _pieces(start[so_far], end[so_far])[1:]
    return own


def _pieces(start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the order of the intervals by start, and the piece of each that no earlier one covers."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    first = np.maximum(start, np.append(start[:1], np.maximum.accumulate(end)[:-1]))
    return order, first, np.maximum(first, end)


def _length_before(covered: tuple[Ints, Ints], times: Ints) -> Ints:
    """Return the length of the *covered* pieces, disjoint and in order, before each of *times*."""
    first, last = covered
    place = np.searchsorted(first, times, side="right")
    sums = np.append(0, np.cumsum(last - first))
    beyond = np.maximum(np.append(0, last)[place] - times, 0)
    length: Ints = sums[place] - np.where(place > 0, beyond, 0)
    return length
