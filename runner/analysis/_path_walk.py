"""Walk the critical path back through a result's records; the engine steps, one rank's columns at a time."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pandas as pd

from ... import errors
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


class _Records:
    """The columns of a result's nodes by rank, in ascending order of node id."""

    def __init__(self, nodes: pd.DataFrame) -> None:
        ranks = nodes["rank"].to_numpy()
        self._columns = {name: nodes[name].to_numpy() for name in _COLUMNS}
        if (ranks[1:] < ranks[:-1]).any():
            order = np.argsort(ranks, kind="stable")
            ranks = ranks[order]
            self._columns = {name: column[order] for name, column in self._columns.items()}
        self._ranks = ranks
        self._bounds = np.searchsorted(ranks, np.arange(int(ranks[-1]) + 2))
        self.of = lru_cache(_KEPT_RANKS)(self._of)

    def __len__(self) -> int:
        return len(self._ranks)

    def last(self) -> tuple[int, int]:
        """Return rank and node of the one that ends last: of several the first rank's that starts last."""
        ends, starts = self._columns["end_ns"], self._columns["start_ns"]
        tied = np.flatnonzero(ends == ends.max())
        ids = self._columns["node_id"]
        row = tied[np.lexsort((ids[tied], -starts[tied], self._ranks[tied]))[0]]
        return int(self._ranks[row]), int(ids[row])

    def _of(self, rank: int) -> tuple[np.ndarray, ...]:
        """Return the columns of *rank*, with no row for a rank that the result does not have."""
        known = 0 <= rank < len(self._bounds) - 1
        own = slice(self._bounds[rank], self._bounds[rank + 1]) if known else slice(0, 0)
        ids = self._columns["node_id"][own]
        order = slice(None) if (ids[1:] > ids[:-1]).all() else np.argsort(ids, kind="stable")
        return tuple(
            np.ascontiguousarray(self._columns[name][own][order], dtype) for name, dtype in _COLUMNS.items()
        )


def path_steps(nodes: pd.DataFrame, makespan_ns: int) -> Steps:
    """Return the pieces of the path through *nodes*, from 0 to *makespan_ns* without a gap.

    Raises `BackendError` if the records refer to nodes they lack, or form a cycle.
    """
    records = _Records(nodes)
    walk = PathWalk(*records.last(), makespan_ns, 4 * len(records) + 4)
    while not walk.done:
        walk.advance(errors, *records.of(walk.rank))
    return walk.steps()
