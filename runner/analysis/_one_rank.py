"""The nodes of one rank of a run with what the workload says of them: of a large run, not those of all."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ...converter import NODE_COLUMNS, Graph, Workload
from ...converter.chakra import TextColumn
from .._recorded_nodes import Columns
from .._result import COLUMNS, Result
from ._by_rank import ranks_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RankReader", "edges_of_rank", "program_of_rank"]

_KEYS = ("rank", "node_id")


class RankReader:
    """The nodes of *result*, whose programs are *workload*'s, one rank at a time."""

    def __init__(self, result: Result, workload: Workload) -> None:
        self._result = result
        self._workload = workload
        self._piece: tuple[int, tuple[str, ...], dict[int, Columns]] = (-1, (), {})
        self._lock = threading.Lock()
        saved = result.nodes_by_rank
        bounds = saved.bounds("rank") if saved is not None else None
        # No rank may go on in the next piece.
        if bounds is not None and any(low <= most for (_, most), (low, _) in pairwise(bounds)):
            bounds = None
        self._firsts = None if bounds is None else [least for least, _ in bounds]

    def nodes(self, rank: int, names: Iterable[str] | None = None, *, coded: bool = False) -> pd.DataFrame:
        """Return the executed nodes of *rank* as `RunAnalysis.nodes` has them; all columns, or some *names*.

        With *coded*, texts are categories: a byte or two per node. A rank that executed nothing has no rows.
        """
        wanted = [*COLUMNS["nodes"], *NODE_COLUMNS] if names is None else [*names]
        simulated = [name for name in COLUMNS["nodes"] if name in wanted and name not in _KEYS]
        nodes = self._read(rank, tuple(simulated))
        table = {"rank": np.full(len(nodes["node_id"]), rank, COLUMNS["nodes"]["rank"])}
        table |= {name: nodes[name] for name in ("node_id", *simulated)}
        described = [name for name in NODE_COLUMNS if name in wanted and name not in _KEYS]
        return _frame(table | _said(_graph(self._workload, rank), nodes["node_id"], described, coded=coded))

    def _read(self, rank: int, names: tuple[str, ...]) -> Columns:
        """Return what was simulated of *rank*; the piece of the file that was read last is kept."""
        none = {name: np.empty(0, COLUMNS["nodes"][name]) for name in ("node_id", *names)}
        if self._firsts is None:
            return self._of_table(rank, names)
        place = bisect_right(self._firsts, rank) - 1
        saved = self._result.nodes_by_rank
        if place < 0:
            return none
        # Somebody asked for the table of all.
        if saved is None:
            return self._of_table(rank, names)
        with self._lock:
            if self._piece[:2] != (place, names):
                self._piece = place, names, dict(ranks_of(saved.read([place], ["rank", "node_id", *names])))
            return self._piece[2].get(rank, none)

    def _of_table(self, rank: int, names: tuple[str, ...]) -> Columns:
        nodes = self._result.columns("nodes")
        rows = np.flatnonzero(nodes["rank"] == rank)
        rows = rows[np.argsort(nodes["node_id"][rows], kind="stable")]
        return {name: nodes[name][rows] for name in ("node_id", *names)}


def program_of_rank(workload: Workload, rank: int) -> pd.DataFrame:
    """Return what *rank* is to execute, as `Graph.nodes`; nothing of it is kept."""
    graph = _graph(workload, rank)
    ids = np.asarray(graph.node_columns["node_id"])
    return _frame(_said(graph, ids, [*NODE_COLUMNS], coded=False))


def edges_of_rank(workload: Workload, rank: int) -> pd.DataFrame:
    """Return the edges of the program of *rank*, as `Graph.edges`; nothing of them is kept."""
    return _frame(dict(_graph(workload, rank).edge_columns))


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - the answers that tell of no single rank do without

    table: pd.DataFrame = pd.DataFrame(columns)
    return table


def _graph(workload: Workload, rank: int) -> Graph:
    return workload.graphs[int(workload.program_of_rank[rank])]


def _said(graph: Graph, node_ids: Any, names: Iterable[str], *, coded: bool) -> dict[str, Any]:
    """Return columns of the nodes of *graph* that *node_ids* names, all of which it has."""
    known = np.asarray(graph.node_columns["node_id"])
    rows = None if np.array_equal(known, node_ids) else np.searchsorted(known, node_ids)
    columns = {}
    for name in names:
        column = graph.node_columns[name] if rows is None else graph.column_rows(name, rows)
        columns[name] = column if not isinstance(column, TextColumn) else _texts(column, coded=coded)
    return columns


def _texts(column: TextColumn, *, coded: bool) -> Any:
    if coded and len(set(column.texts)) == len(column.texts):
        import pandas as pd  # noqa: PLC0415 - as above

        codes: Any = column.numbers
        return pd.Categorical.from_codes(codes, categories=pd.Index(column.texts))
    return column.to_series()
