"""Split the time of each device stream into computation, communication, copies and idle time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...converter import NodeType
from ...converter.chakra import DEVICE_LANE, KINDS
from ...support.table import Ints
from ._lanes import is_communication, lane_table

if TYPE_CHECKING:
    from ._run import RunAnalysis

BUSY_KINDS = ("compute", "communication", "copy")
"""The kinds of work that keep a device busy; where kinds overlap, the first counts."""


def busy_kinds(nodes: pd.DataFrame) -> pd.Series:
    """Return each node's kind, one of `BUSY_KINDS`, or "" if it occupies no device.

    *nodes* has ``type``, ``kind`` and ``is_cpu_op``.
    """
    comm = is_communication(nodes["type"])
    kind = nodes["kind"].astype(object)
    kind = kind.where(kind.isin(KINDS), "compute").mask(comm, "communication")
    on_device = comm | ((nodes["type"] == NodeType.COMP) & ~nodes["is_cpu_op"].astype(bool))
    busy: pd.Series = kind.where(on_device & kind.isin(BUSY_KINDS), "")
    return busy


def exclusive_ns(start: Ints, end: Ints, kind: npt.ArrayLike) -> Ints:
    """Return each interval's own length; together they are the length of the union.

    Where intervals overlap, the time goes to the first kind in `BUSY_KINDS`, and within a *kind* to
    the first interval.
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
    """Return the order by start, and the part of each interval that no earlier one covers."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    first = np.maximum(start, np.append(start[:1], np.maximum.accumulate(end)[:-1]))
    return order, first, np.maximum(first, end)


def _length_before(covered: tuple[Ints, Ints], times: Ints) -> Ints:
    """Return the total length of the sorted, disjoint *covered* pieces before each time."""
    first, last = covered
    place = np.searchsorted(first, times, side="right")
    sums = np.append(0, np.cumsum(last - first))
    beyond = np.maximum(np.append(0, last)[place] - times, 0)
    return sums[place] - np.where(place > 0, beyond, 0)


_NODES = ("type", "kind", "is_cpu_op", "stream", "start_ns", "end_ns")
_KEYS = ["comm", "stream"]
_TIMES = ("compute_ns", "comm_ns", "copy_ns")  # the columns for `BUSY_KINDS`
_COLUMNS = (
    "rank",
    "device",
    "stream",
    "nodes",
    "start_ns",
    "span_ns",
    *_TIMES,
    "idle_ns",
)


def stream_table(run: RunAnalysis) -> pd.DataFrame:
    """Return a row per rank and device stream, and per rank and communication lane.

    ``compute_ns``, ``comm_ns``, ``copy_ns`` and ``idle_ns`` add up to ``span_ns``, the time from
    the start of the first node to the end of the last. Overlapping nodes count as computation or,
    without it, as communication. ``device`` is -1 for lanes without a device.
    """
    ranks = run.result.columns("ranks")["rank"].tolist()
    rows = [row for rank in ranks for row in _streams_of(rank, run.coded_nodes_of(rank, _NODES))]
    table: pd.DataFrame = pd.DataFrame(rows, columns=[*_COLUMNS])
    return table


def _streams_of(rank: int, nodes: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of `stream_table` for one rank."""
    kind = busy_kinds(nodes)
    works = nodes.assign(comm=is_communication(nodes["type"]), kind=kind)[kind != ""]
    groups = list(works.groupby(_KEYS, sort=True))
    if not groups:
        return []
    keys = pd.DataFrame([key for key, _ in groups], columns=_KEYS)
    labels = lane_table(keys.assign(rank=rank))["label"]
    devices = (keys["stream"] // DEVICE_LANE - 1).mask(keys["comm"], -1)
    return [
        {"rank": rank, "device": device, "stream": label} | _times(own)
        for device, label, (_, own) in zip(devices.tolist(), labels, groups, strict=True)
    ]


def _times(works: pd.DataFrame) -> dict[str, int]:
    """Return a stream's number of nodes, start, span, and time by kind of work, in ns."""
    start, end = works["start_ns"].to_numpy(np.int64), works["end_ns"].to_numpy(np.int64)
    first_ns, span_ns = int(start.min()), int(end.max() - start.min())
    own = exclusive_ns(start, end, works["kind"])
    times = {
        name: int(own[works["kind"] == kind].sum()) for kind, name in zip(BUSY_KINDS, _TIMES, strict=True)
    }
    return {"nodes": len(works), "start_ns": first_ns, "span_ns": span_ns, **times,
            "idle_ns": span_ns - sum(times.values())}  # fmt: skip
