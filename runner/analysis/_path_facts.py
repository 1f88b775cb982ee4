"""Look up the workload's columns for nodes on a critical path or of one rank."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ...converter import NODE_COLUMNS, CollectiveType, Graph, NodeType, Workload
from ...converter.building import group_name
from ...converter.chakra import TextColumn
from ...errors import BackendError
from ...support import bytes_text
from ...support.table import Ints, positions
from .._framed import coded
from .._result import COLUMNS, Result

if TYPE_CHECKING:
    import pandas as pd


class NodeFacts:
    """The rows of given nodes in the graphs of a workload."""

    def __init__(self, workload: Workload, ranks: Ints, node_ids: Ints) -> None:
        """Locate the nodes; raises `BackendError` if one is missing, as in another workload."""
        programs = np.full(len(ranks), -1, np.int64)
        inside = ranks < workload.num_ranks
        programs[inside] = np.asarray(workload.program_of_rank)[ranks[inside]]
        order = np.argsort(programs, kind="stable")
        self._parts: list[tuple[Graph, Ints, Ints]] = []
        for places in np.split(order, np.flatnonzero(np.diff(programs[order])) + 1) if len(order) else []:
            program = int(programs[places[0]])
            graph = workload.graphs[program] if program >= 0 else None
            ids = np.empty(0, np.int64) if graph is None else np.asarray(graph.node_columns["node_id"])
            rows = positions(ids, node_ids[places])
            if graph is None or (rows < 0).any():
                missing = places[np.argmin(rows)]
                raise BackendError(
                    f"The result holds node {node_ids[missing]} of rank {ranks[missing]}, but the workload "
                    "does not, so the result belongs to another workload. Next: pass the workload that was "
                    "simulated."
                )
            self._parts.append((graph, places, rows))
        self._count = len(ranks)

    def numbers(self, name: str) -> Ints:
        """Return the number column *name* of the nodes."""
        values = np.empty(self._count, np.int64)
        for graph, places, rows in self._parts:
            values[places] = np.asarray(graph.column_rows(name, rows))
        return values

    def texts(self, name: str) -> TextColumn:
        """Return the text column *name* of the nodes."""
        columns = [TextColumn.of([])]
        for graph, _, rows in self._parts:
            column = graph.column_rows(name, rows)
            assert isinstance(column, TextColumn)
            columns.append(column.compact())
        joined = TextColumn.joined(columns)
        numbers = np.empty_like(joined.numbers)
        if self._parts:
            numbers[np.concatenate([places for _, places, _ in self._parts])] = joined.numbers
        return TextColumn(numbers, joined.texts)


def facts_of_nodes(workload: Workload, places: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Return ``rank, node_id`` of *places* with the workload's columns *names*."""
    table: pd.DataFrame = places[["rank", "node_id"]].reset_index(drop=True)
    facts = NodeFacts(workload, table["rank"].to_numpy(np.int64), table["node_id"].to_numpy())
    for name in names:
        is_text = NODE_COLUMNS[name][0] == "str"
        table[name] = np.asarray(facts.texts(name)) if is_text else facts.numbers(name)
    return table


def coded_facts(
    workload: Workload, ranks: Ints, node_ids: Ints, names: Sequence[str]
) -> dict[str, TextColumn]:
    """Return the text columns *names* of many nodes, 4 bytes per node and column; *ranks* ascend."""
    parts = {name: [TextColumn.of([])] for name in names}
    ends = [*(np.flatnonzero(ranks[1:] != ranks[:-1]) + 1).tolist(), len(ranks)]
    for start, end in pairwise([0, *ends]):
        facts = NodeFacts(workload, ranks[start:end], node_ids[start:end])
        for name in names:
            parts[name].append(facts.texts(name))
    return {name: TextColumn.joined(columns) for name, columns in parts.items()}


def describe_collectives(
    metadata: Mapping[str, Any], types: Ints, comm_types: Ints, sizes: Ints, groups: Ints
) -> TextColumn:
    """Describe communications, for example ``all_reduce of 12.3 MiB, all ranks``; "" for other nodes."""
    rows = np.flatnonzero(types >= NodeType.COMM_SEND)
    numbers, facts = coded(*(column[rows] for column in (types, comm_types, sizes, groups)))
    labels = TextColumn(numbers.astype(np.int32), [_label(metadata, *fact) for fact in facts])
    return labels.placed(rows, len(types))


def _label(metadata: Mapping[str, Any], node_type: int, comm_type: int, size: int, group: int) -> str:
    if node_type == NodeType.COMM_COLL:
        return collective_label(metadata, CollectiveType(comm_type).name.lower(), size, group)
    return f"{'send' if node_type == NodeType.COMM_SEND else 'recv'} of {bytes_text(max(size, 0))}"


def collective_label(metadata: Mapping[str, Any], operation: str, size_bytes: int, group: int) -> str:
    """Return the name of a collective on the path, for example ``all_reduce of 12.3 MiB, all ranks``."""
    return f"{operation} of {bytes_text(max(size_bytes, 0))}, {group_name(metadata, group)}"


def copy_direction(name: str) -> str:
    """Return the direction of a copy, such as ``HtoD``, or ``Memset``; the *name* if unrecognised."""
    words = name.split()
    if words[:1] == ["Memcpy"] and len(words) > 1:
        return words[1]
    return words[0] if words[:1] == ["Memset"] else name


_KEYS = ("rank", "node_id")


class RankReader:
    """Reads the nodes of *result*, a simulation or replay of *workload*, rank by rank."""

    def __init__(self, result: Result, workload: Workload) -> None:
        self._result = result
        self._workload = workload
        self._lock = threading.Lock()

    def nodes(self, rank: int, names: Iterable[str] | None = None, *, coded: bool = False) -> pd.DataFrame:
        """Return the executed nodes of *rank* as `RunAnalysis.nodes` does, with all columns or *names*.

        With *coded*, texts are categories, one or two bytes per node. A rank without nodes has no
        rows.
        """
        wanted = [*COLUMNS["nodes"], *NODE_COLUMNS] if names is None else [*names]
        simulated = [name for name in COLUMNS["nodes"] if name in wanted and name not in _KEYS]
        with self._lock:
            nodes = self._result.table("nodes").of_rank(rank, simulated)
        table = {"rank": np.full(len(nodes["node_id"]), rank, COLUMNS["nodes"]["rank"])}
        table |= {name: nodes[name] for name in ("node_id", *simulated)}
        described = [name for name in NODE_COLUMNS if name in wanted and name not in _KEYS]
        return _frame(
            table | _columns_of(_graph(self._workload, rank), nodes["node_id"], described, coded=coded)
        )


def program_of_rank(workload: Workload, rank: int) -> pd.DataFrame:
    """Return the program of *rank* as a table like `Graph.nodes`, uncached."""
    graph = _graph(workload, rank)
    ids = np.asarray(graph.node_columns["node_id"])
    return _frame(_columns_of(graph, ids, [*NODE_COLUMNS], coded=False))


def edges_of_rank(workload: Workload, rank: int) -> pd.DataFrame:
    """Return the edges of the program of *rank* as a table like `Graph.edges`, uncached."""
    return _frame(dict(_graph(workload, rank).edge_columns))


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - analyses of all ranks do not need pandas

    table: pd.DataFrame = pd.DataFrame(columns)
    return table


def _graph(workload: Workload, rank: int) -> Graph:
    return workload.graphs[int(workload.program_of_rank[rank])]


def _columns_of(graph: Graph, node_ids: Any, names: Iterable[str], *, coded: bool) -> dict[str, Any]:
    """Return the columns *names* of *node_ids*, all of which exist in *graph*."""
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
