"""Walk the critical path back through a result's records; one rank's columns at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import errors
from ...support.table import Columns, Table
from .._result import Result
from ..engine import PathWalk

__all__ = ["Steps", "path_steps"]

Steps = dict[str, npt.NDArray[np.int64]]
"""Columns of the path's pieces in order of time: ``rank, node_id, start_ns, end_ns``, node -1 for idle time;
``origin_rank, origin_node``, whose start began what ended the node; ``own_start_ns``, when it started itself;
``cause``, the node of the origin's rank whose end let that start, and ``cause_is_dependency``."""
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


RankColumns = tuple[npt.NDArray[Any], ...]


class _Records:
    """The columns of a result's nodes by rank, in ascending order of node id."""

    def __init__(self, nodes: Columns) -> None:
        ranks = nodes["rank"]
        self._columns = {name: nodes[name] for name in _COLUMNS}
        if (ranks[1:] < ranks[:-1]).any():
            order = np.argsort(ranks, kind="stable")
            ranks = ranks[order]
            self._columns = {name: column[order] for name, column in self._columns.items()}
        self._ranks = ranks

    def last(self) -> tuple[int, int]:
        """Return rank and node of the last end; of several, the node of the first rank that starts last."""
        ends, starts = self._columns["end_ns"], self._columns["start_ns"]
        tied = np.flatnonzero(ends == ends.max())
        ids = self._columns["node_id"]
        row = tied[np.lexsort((ids[tied], -starts[tied], self._ranks[tied]))[0]]
        return int(self._ranks[row]), int(ids[row])

    def of(self, rank: int) -> RankColumns:
        """Return the columns of *rank*, with no row for a rank that the result does not have."""
        own = slice(*np.searchsorted(self._ranks, [rank, rank + 1]))
        ids = self._columns["node_id"][own]
        order = slice(None) if (ids[1:] > ids[:-1]).all() else np.argsort(ids, kind="stable")
        return tuple(
            np.ascontiguousarray(self._columns[name][own][order], dtype) for name, dtype in _COLUMNS.items()
        )


class _SavedRecords:
    """The records of a saved result, of which only the ranks on the path are read."""

    def __init__(self, saved: Table, ranks: Sequence[tuple[int, int]]) -> None:
        self._saved = saved
        self._ranks = ranks
        self._piece = lru_cache(_KEPT_PIECES)(self._read)

    def last(self) -> tuple[int, int]:
        """Return the node that ends last, as `_Records.last` does."""
        ends = self._saved.bounds("end_ns") or []
        latest = max(most for _, most in ends)
        first = next(piece for piece, (_, most) in enumerate(ends) if most == latest)
        rank, _ = self._piece((first,)).last()
        return self._piece(self._pieces_of(rank)).last()

    def of(self, rank: int) -> RankColumns:
        """Return the columns of *rank*."""
        return self._piece(self._pieces_of(rank)).of(rank)

    def _pieces_of(self, rank: int) -> tuple[int, ...]:
        return tuple(piece for piece, (least, most) in enumerate(self._ranks) if least <= rank <= most)

    def _read(self, pieces: tuple[int, ...]) -> _Records:
        return _Records(self._saved.read(["rank", *_COLUMNS], pieces))


def _records(result: Result) -> _Records | _SavedRecords:
    """Return the records of *result*; a saved one is read from its file if its ranks are in order."""
    nodes = result.table("nodes").distinct
    ranks = None if nodes.in_memory else nodes.bounds("rank")
    if ranks is None or nodes.bounds("end_ns") is None or sorted(ranks) != ranks:
        return _Records(nodes.columns())
    return _SavedRecords(nodes, ranks)


def path_steps(result: Result) -> Steps:
    """Return the pieces of the path through the nodes of *result*, from 0 to the makespan without a gap.

    Raises `BackendError` if the records refer to nodes they lack, or form a cycle.
    """
    records = _records(result)
    walk = PathWalk(*records.last(), result.makespan_ns, 4 * result.num_nodes + 4)
    columns = lru_cache(_KEPT_RANKS)(records.of)
    while not walk.done:
        walk.advance(errors, *columns(walk.rank))
    return walk.steps()
