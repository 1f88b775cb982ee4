"""Read the nodes of one rank of a run with their properties from the workload, for large runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...converter import NODE_COLUMNS, Graph, Workload
from ...converter.chakra import TextColumn
from .._result import COLUMNS, Result

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("rank", "node_id")


class RankReader:
    """A reader of the nodes of *result*, a simulation or replay of *workload*, one rank at a time."""

    def __init__(self, result: Result, workload: Workload) -> None:
        self._result = result
        self._workload = workload
        self._lock = threading.Lock()

    def nodes(self, rank: int, names: Iterable[str] | None = None, *, coded: bool = False) -> pd.DataFrame:
        """Return the executed nodes of *rank* as in `RunAnalysis.nodes`, with all columns or only *names*.

        With *coded*, texts are categories of one or two bytes per node. A rank without nodes has no rows.
        """
        wanted = [*COLUMNS["nodes"], *NODE_COLUMNS] if names is None else [*names]
        simulated = [name for name in COLUMNS["nodes"] if name in wanted and name not in _KEYS]
        with self._lock:
            nodes = self._result.table("nodes").of_rank(rank, simulated)
        table = {"rank": np.full(len(nodes["node_id"]), rank, COLUMNS["nodes"]["rank"])}
        table |= {name: nodes[name] for name in ("node_id", *simulated)}
        described = [name for name in NODE_COLUMNS if name in wanted and name not in _KEYS]
        return _frame(table | _said(_graph(self._workload, rank), nodes["node_id"], described, coded=coded))


def program_of_rank(workload: Workload, rank: int) -> pd.DataFrame:
    """Return the program of *rank* as a table like `Graph.nodes`, without caching."""
    graph = _graph(workload, rank)
    ids = np.asarray(graph.node_columns["node_id"])
    return _frame(_said(graph, ids, [*NODE_COLUMNS], coded=False))


def edges_of_rank(workload: Workload, rank: int) -> pd.DataFrame:
    """Return the edges of the program of *rank* as a table like `Graph.edges`, without caching."""
    return _frame(dict(_graph(workload, rank).edge_columns))


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - analyses of all ranks do not need pandas

    table: pd.DataFrame = pd.DataFrame(columns)
    return table


def _graph(workload: Workload, rank: int) -> Graph:
    return workload.graphs[int(workload.program_of_rank[rank])]


def _said(graph: Graph, node_ids: Any, names: Iterable[str], *, coded: bool) -> dict[str, Any]:
    """Return the columns *names* of the existing nodes *node_ids* of *graph*."""
    ids = np.asarray(graph.node_columns["node_id"])
    rows = None if np.array_equal(ids, node_ids) else np.searchsorted(ids, node_ids)
    columns = {}
    for name in names:
        column = graph.node_columns[name] if rows is None else graph.column_rows(name, rows)
        columns[name] = column if not isinstance(column, TextColumn) else _texts(column, coded=coded)
    return columns


def _texts(column: TextColumn, *, coded: bool) -> Any:
    if coded and len(set(column.texts)) == len(column.texts):
        import pandas as pd  # noqa: PLC0415 - most callers do not need pandas

        codes: Any = column.numbers
        return pd.Categorical.from_codes(codes, categories=pd.Index(column.texts))
    return column.to_series()
