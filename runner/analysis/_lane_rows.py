"""The rows above the slices of a lane (phases, modules, operators), and tracks for overlapping slices."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...support.table import Ints
from .._framed import changed_rows

Names = Any  # an index or an array of texts
SLICES = "slice"
"""The level of a lane of nodes; the lanes above it are phases, modules and operators."""
CALLS = "call"
"""The level of a lane of host calls."""
_MAX_TRACKS = 8
# Traces round times: an overlap of less than this, and of less than half a slice, needs no second track.
_ROUNDING_NS = 2_000
_MAX_MODULE_LEVELS = 4
# Host time between operators belongs to no module, but does not split a module's slice.
_BETWEEN = ("host", "idle")


@dataclass(frozen=True)
class Groups:
    """Slices drawn above the nodes, such as phases and modules.

    *lane* is the lane of the nodes, *depth* the position above it, and *row* the longest node
    inside. *levels* names each depth, and *label* is an index into *labels*.
    """

    lane: Ints
    depth: Ints
    row: Ints
    start_ns: Ints
    end_ns: Ints
    label: Ints
    labels: list[str]
    levels: list[str]


def tracks(stream: Ints, start_ns: Ints, end_ns: Ints) -> Ints:
    """Assign slices, sorted by *stream* and start, to the first track without an overlapping slice.

    If more than eight slices overlap, the last slices share a track.
    """
    track = np.zeros(len(stream), np.int64)
    if not len(stream):
        return track
    edges = np.append(np.flatnonzero(np.append(True, np.diff(stream) != 0)), len(stream))
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        reach = np.maximum.accumulate(end_ns[low:high])
        if (start_ns[low + 1 : high] < reach[:-1]).any():
            track[low:high] = _tracks_of_one(start_ns[low:high].tolist(), end_ns[low:high].tolist())
    return track


def _tracks_of_one(starts: list[int], ends: list[int]) -> list[int]:
    busy: list[tuple[int, int]] = []
    free = list(range(_MAX_TRACKS))
    result = []
    for start, end in zip(starts, ends, strict=True):
        follows = start + min(_ROUNDING_NS, (end - start) // 2)
        while busy and (busy[0][0] <= follows or not free):
            heapq.heappush(free, heapq.heappop(busy)[1])
        track = heapq.heappop(free)
        heapq.heappush(busy, (end, track))
        result.append(track)
    return result


def nested_groups(nodes: pd.DataFrame, lanes: Any, alone: npt.NDArray[np.bool_]) -> Groups:
    """Return the slices above *lanes*; each covers adjacent *nodes* of one module, phase or operator.

    Lanes that *alone* marks get no such slices. Operators named like their node are left out.
    """
    row, lane = lanes.row, lanes.lane
    kept = ~alone[lane]
    kept &= ~nodes["kind"].isin(_BETWEEN).to_numpy()[row]
    of = _Column(lane[kept], row[kept], lanes.start_ns[kept], lanes.end_ns[kept])
    broken = changed_rows([of.lane])
    groups: list[tuple[str, Ints, Ints, Ints, Names]] = []
    codes, names = _words(nodes["phase"])
    names = np.where(names == "other", "", names)
    broken = broken | changed_rows([codes[of.row]])
    groups.append(("phase", *of.runs(codes, names, broken), names))
    module, modules = _words(nodes["module"])
    for depth in range(1, _MAX_MODULE_LEVELS + 1):
        place, names = pd.factorize(np.array([_cut(str(name), depth) for name in modules], dtype=object))
        codes = place[module]
        broken = broken | changed_rows([codes[of.row]])
        groups.append(("module", *of.runs(codes, names, broken), names))
    codes, names = _words(nodes["operator"])
    own = _differ(nodes["operator"], nodes["name"])
    starts, ends, labels = of.runs(codes, names, broken | changed_rows([codes[of.row]]))
    useful = np.unique(of.lane[own[of.row] & (names[codes[of.row]] != "")])
    wanted = np.isin(of.lane[starts], useful)
    groups.append(("operator", starts[wanted], ends[wanted], labels[wanted], names))
    return of.gathered(groups)


@dataclass(frozen=True)
class _Column:
    """Nodes with slices above them, sorted by lane and time."""

    lane: Ints
    row: Ints
    start_ns: Ints
    end_ns: Ints

    def runs(self, codes: Ints, names: Names, broken: npt.NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
        """Return the first index, the last index and the code of each range of equal names between breaks."""
        first = np.flatnonzero(broken)
        last = np.append(first[1:], len(self.row)) - 1
        code = codes[self.row[first]]
        named = (np.asarray(names, dtype=object)[code] != "") if len(names) else np.zeros(len(code), bool)
        return first[named], last[named], code[named]

    def gathered(self, found: list[tuple[str, Ints, Ints, Ints, Names]]) -> Groups:
        """Return all ranges as slices, without module levels that equal the next lower level."""
        length = self.end_ns - self.start_ns + 1
        parts, labels, levels = [], list[str](), list[str]()
        for (level, first, last, code, names), below in zip(found, [*found[1:], None], strict=True):
            repeated = (
                below is not None
                and (level, below[0]) == ("module", "module")
                and np.array_equal(below[1], first)
                and np.array_equal(below[2], last)
            )
            if not len(first) or repeated:
                continue
            depth = np.full(len(first), len(levels))
            longest, ends = self.row[_longest(length, first, last)], _most(self.end_ns, first, last)
            parts.append((self.lane[first], depth, longest, self.start_ns[first], ends, code + len(labels)))
            labels += [str(name) for name in names]
            levels.append(level)
        none = (np.zeros(0, np.int64),) * 6
        lane, depth, row, start, end, label = (
            np.concatenate(column).astype(np.int64) for column in zip(none, *parts, strict=True)
        )
        return Groups(lane, depth, row, start, end, label, labels, levels)


def _words(texts: pd.Series) -> tuple[Ints, Names]:
    """Return each text's index, and the distinct texts followed by ""."""
    codes, names = pd.factorize(texts)
    every = np.array([*(str(name) for name in names), ""], dtype=object)
    return np.where(codes < 0, len(names), codes), every


def _differ(one: pd.Series, other: pd.Series) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows in which two columns of texts or categories differ."""
    (codes, names), (others, theirs) = pd.factorize(one), pd.factorize(other)
    place = {name: number for number, name in enumerate(names)}
    known = np.array([place.get(name, -2) for name in theirs] or [-2], np.int64)
    differ: npt.NDArray[np.bool_] = known[others] != codes
    return differ


def _most(values: Ints, first: Ints, last: Ints) -> Ints:
    """Return the maximum of *values* in each range from *first* to *last*; the ranges are consecutive."""
    edges = np.column_stack([first, last + 1]).ravel()
    return np.maximum.reduceat(np.append(values, 0), edges)[::2]


def _longest(length: Ints, first: Ints, last: Ints) -> Ints:
    """Return the first index of the largest (positive) *length* in each range."""
    places = np.arange(len(length))
    stretch = np.maximum(np.searchsorted(first, places, side="right") - 1, 0)
    is_most = (length == _most(length, first, last)[stretch]) & (places >= first[stretch])
    is_most &= places <= last[stretch]
    _, where = np.unique(stretch[is_most], return_index=True)
    longest: Ints = places[is_most][where]
    return longest


def _cut(name: str, depth: int) -> str:
    """Return the module *name* cut at *depth*: whole at the last level, "" for a shallower module."""
    parts = name.split(".")
    if depth == _MAX_MODULE_LEVELS:
        return name if len(parts) >= depth else ""
    return ".".join(parts[:depth]) if name and len(parts) >= depth else ""
