"""Walk the critical path back through a result's records, one rank's columns at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import errors
from ...converter import Workload
from ...support.table import Columns, Ints, Table
from .._result import Result
from .._sync_points import SyncPoints
from .._traits import about_backend
from ..engine import PathWalk

Steps = dict[str, npt.NDArray[np.int64]]
"""Columns of the path's pieces in order of time.

``rank, node_id, start_ns, end_ns`` are the piece; node -1 is idle time. ``origin_rank`` and ``origin_node``
are the node whose start triggered the piece's end. ``own_start_ns`` is when the piece's node started.
``cause`` is the node of the origin's rank whose end let the origin start. ``cause_is_dependency`` states
whether the origin depends on this node. ``shift_ns`` is the time on the path minus the time in the result.
"""
_COLUMNS = {
    "node_id": np.int64,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "cause_node": np.int64,
    "cause_is_dependency": np.bool_,
    "origin_rank": np.int32,
    "origin_node": np.int64,
}
_KEPT_RANKS = 64
_KEPT_PIECES = 4
_MAX_REPEATS = 4  # maximum number of earlier steps that a path enters


RankColumns = tuple[npt.NDArray[Any], ...]


class _Records:
    """The columns of a result's nodes by rank, in order of node id."""

    def __init__(self, nodes: Columns) -> None:
        ranks = nodes["rank"]
        self._columns = {name: nodes[name] for name in _COLUMNS}
        if (ranks[1:] < ranks[:-1]).any():
            order = np.argsort(ranks, kind="stable")
            ranks = ranks[order]
            self._columns = {name: column[order] for name, column in self._columns.items()}
        self._ranks = ranks

    def last(self) -> tuple[int, int]:
        """Return the rank and id of the node that ends last.

        On a tie, the node of the lowest rank is returned, and on this rank the node that starts last.
        """
        ends, starts = self._columns["end_ns"], self._columns["start_ns"]
        tied = np.flatnonzero(ends == ends.max())
        ids = self._columns["node_id"]
        row = tied[np.lexsort((ids[tied], -starts[tied], self._ranks[tied]))[0]]
        return int(self._ranks[row]), int(ids[row])

    def of(self, rank: int) -> RankColumns:
        """Return the columns of *rank*, empty for a rank that the result lacks."""
        own = slice(*np.searchsorted(self._ranks, [rank, rank + 1]))
        ids = self._columns["node_id"][own]
        order = slice(None) if (ids[1:] > ids[:-1]).all() else np.argsort(ids, kind="stable")
        return tuple(
            np.ascontiguousarray(self._columns[name][own][order], dtype) for name, dtype in _COLUMNS.items()
        )


class _SavedRecords:
    """The records of a saved result; only ranks on the path are read."""

    def __init__(self, saved: Table, ranks: Sequence[tuple[int, int]]) -> None:
        self._saved = saved
        self._ranks = ranks
        self._piece = lru_cache(_KEPT_PIECES)(self._read)

    def last(self) -> tuple[int, int]:
        """Return the rank and id of the node that ends last (see `_Records.last`)."""
        ends = self._saved.bounds("end_ns") or []
        latest = max(most for _, most in ends)
        first = next(piece for piece, (_, most) in enumerate(ends) if most == latest)
        rank, _ = self._piece((first,)).last()
        return self._piece(self._pieces_of(rank)).last()

    def of(self, rank: int) -> RankColumns:
        """Return the columns of *rank*, read from the file of the saved result."""
        return self._piece(self._pieces_of(rank)).of(rank)

    def _pieces_of(self, rank: int) -> tuple[int, ...]:
        return tuple(piece for piece, (least, most) in enumerate(self._ranks) if least <= rank <= most)

    def _read(self, pieces: tuple[int, ...]) -> _Records:
        return _Records(self._saved.read(["rank", *_COLUMNS], pieces))


def _records(result: Result) -> _Records | _SavedRecords:
    """Return the records of *result*; those of a saved result with sorted ranks are read lazily."""
    nodes = result.table("nodes").distinct
    ranks = None if nodes.in_memory else nodes.bounds("rank")
    if ranks is None or nodes.bounds("end_ns") is None or sorted(ranks) != ranks:
        return _Records(nodes.columns())
    return _SavedRecords(nodes, ranks)


def measured_waits(result: Result, workload: Workload) -> tuple[SyncPoints | None, bool]:
    """Return the points where ranks of a measured *result* waited, and whether the step repeats.

    The points are None for a single rank, and for a result that records waits.
    """
    records_waits = not about_backend(result.backend).replays or result.provenance.get("waits_for_peers")
    if records_waits or len(result.columns("ranks")["finish_ns"]) < 2:
        return None, False
    captured = workload.metadata.get("steps")
    return SyncPoints.of(result, workload), isinstance(captured, list) and len(captured) == 1


def path_steps(result: Result, sync: SyncPoints | None = None, *, repeats: bool = False) -> Steps:
    """Return the pieces of the path through the nodes of *result*, from 0 to the makespan without gaps.

    Ranks of a measured result have separate clocks, and record no waits for each other; *sync* contains the
    clock offsets and the waits. Times are on the clock of the rank that ends last. If the measured step
    *repeats*, a rank that begins the step late is assumed to have run the previous step until then. Raises
    `BackendError` if records refer to missing nodes or form a cycle.
    """
    records, most_steps = _records(result), 4 * result.num_nodes + 4
    if sync is None:
        steps = _walk(records.of, *records.last(), result.makespan_ns, most_steps)
        return steps | {"shift_ns": np.zeros(len(steps["rank"]), np.int64)}
    rank, node = records.last()
    until_ns, shifts_ns = result.makespan_ns, sync.begin_ns - sync.begin_ns[rank]
    parts: list[Steps] = []
    while True:
        of = partial(_measured, records, sync, shifts_ns)
        part = _walk(of, rank, node, until_ns, most_steps)
        parts.append(part | {"shift_ns": shifts_ns[part["rank"]]})
        rank, late_ns = int(part["rank"][0]), int(part["end_ns"][0])
        if not (repeats and part["node_id"][0] < 0 and 0 < late_ns < until_ns) or len(parts) > _MAX_REPEATS:
            break
        parts[-1] = {name: column[1:] for name, column in parts[-1].items()}
        node, until_ns, shifts_ns = _last_of(records.of(rank)), late_ns, shifts_ns - sync.finish_ns
    steps = {name: np.concatenate([part[name] for part in reversed(parts)]) for name in parts[0]}
    return steps | {name: np.maximum(steps[name], 0) for name in ("start_ns", "end_ns")}


def _walk(of: Callable[[int], RankColumns], rank: int, node: int, until_ns: int, most_steps: int) -> Steps:
    """Return the pieces of the path to *node* of *rank*, from 0 to *until_ns*."""
    walk = PathWalk(rank, node, until_ns, most_steps)
    columns = lru_cache(_KEPT_RANKS)(of)
    while not walk.done:
        walk.advance(errors, *columns(walk.rank))
    return walk.steps()


def _measured(records: _Records | _SavedRecords, sync: SyncPoints, shifts_ns: Ints, rank: int) -> RankColumns:
    """Return the columns of *rank* shifted by *shifts_ns*; nodes that waited get their origin from *sync*."""
    columns = dict(zip(_COLUMNS, records.of(rank), strict=True))
    places, ranks, nodes = sync.awaited_by(rank, columns["node_id"])
    columns |= {name: columns[name] + shifts_ns[rank] for name in ("start_ns", "end_ns")}
    for name, origins in (("origin_rank", ranks), ("origin_node", nodes)):
        columns[name] = columns[name].copy()
        columns[name][places] = origins
    return tuple(columns.values())


def _last_of(columns: RankColumns) -> int:
    """Return the id of the node that ends last; of several, the one that starts last."""
    nodes, starts, ends = columns[:3]
    return int(nodes[np.lexsort((-nodes, starts, ends))[-1]])
