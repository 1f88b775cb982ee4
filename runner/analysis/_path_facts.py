"""What a workload knows about the nodes on a path: a column at a time, of the rows that are on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...converter import NODE_COLUMNS, CollectiveType, Graph, NodeType, Workload
from ...converter.chakra import TextColumn
from ...errors import BackendError
from ...support import bytes_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "NodeFacts",
    "coded_facts",
    "collective_label",
    "copy_direction",
    "describe_collectives",
    "said_of",
]

Ints = npt.NDArray[np.int64]


class NodeFacts:
    """The rows of some nodes, each of a rank, in the graphs of a workload."""

    def __init__(self, workload: Workload, ranks: Ints, node_ids: Ints) -> None:
        """Find the nodes; raises `BackendError` for one that the workload lacks: it is another one then."""
        programs = np.full(len(ranks), -1, np.int64)
        inside = ranks < workload.num_ranks
        programs[inside] = np.asarray(workload.program_of_rank)[ranks[inside]]
        self._parts: list[tuple[Graph | None, Ints, Ints]] = []
        for program in np.unique(programs).tolist():
            places = np.flatnonzero(programs == program)
            graph = workload.graphs[program] if program >= 0 else None
            rows, known = _rows(graph, node_ids[places])
            if not known.all():
                missing = places[np.argmin(known)]
                raise BackendError(
                    f"The result holds node {node_ids[missing]} of rank {ranks[missing]}, but the workload "
                    "does not: they do not belong together; pass the workload that was simulated."
                )
            self._parts.append((graph, places, rows))
        self._count = len(ranks)

    def numbers(self, name: str) -> Ints:
        """Return a column of numbers."""
        found = np.empty(self._count, np.int64)
        for graph, places, rows in self._parts:
            if graph is not None:
                found[places] = np.asarray(graph.column_rows(name, rows))
        return found

    def coded(self, name: str) -> tuple[Ints, list[str]]:
        """Return a column of texts as numbers of texts; one program has to have all of the nodes."""
        ((graph, _, rows),) = self._parts
        if graph is None:
            return np.zeros(self._count, np.int64), [""]
        column = graph.column_rows(name, rows)
        assert isinstance(column, TextColumn)
        return column.numbers.astype(np.int64), column.texts

    def texts(self, name: str) -> npt.NDArray[np.object_]:
        """Return a column of texts."""
        found = np.empty(self._count, object)
        for graph, places, rows in self._parts:
            if graph is not None:
                column = graph.column_rows(name, rows)
                assert isinstance(column, TextColumn)
                numbers = column.numbers
                own = np.empty(len(column.texts), object)
                for number in set(numbers.tolist()):
                    own[number] = column.texts[number]
                found[places] = own[numbers]
        return found


def said_of(workload: Workload, places: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Return ``rank, node_id`` of *places* and what *workload* says of these nodes in the columns *names*."""
    table: pd.DataFrame = places[["rank", "node_id"]].reset_index(drop=True)
    facts = NodeFacts(workload, table["rank"].to_numpy(np.int64), table["node_id"].to_numpy())
    for name in names:
        is_text = NODE_COLUMNS[name][0] == "str"
        table[name] = facts.texts(name) if is_text else facts.numbers(name)
    return table


def coded_facts(
    workload: Workload, ranks: Ints, node_ids: Ints, names: Sequence[str]
) -> dict[str, TextColumn]:
    """Return the text columns *names* of many nodes (*ranks* ascend): 4 bytes per node and column."""
    known: dict[str, dict[str, int]] = {name: {} for name in names}
    parts: dict[str, list[npt.NDArray[np.int32]]] = {name: [np.empty(0, np.int32)] for name in names}
    ends = [*(np.flatnonzero(ranks[1:] != ranks[:-1]) + 1).tolist(), len(ranks)]
    for start, end in pairwise([0, *ends]):
        if start == end:
            continue
        facts = NodeFacts(workload, ranks[start:end], node_ids[start:end])
        for name in names:
            numbers, texts = facts.coded(name)
            used = np.unique(numbers)
            numbered = np.zeros(len(texts), np.int32)
            numbered[used] = [known[name].setdefault(texts[code], len(known[name])) for code in used.tolist()]
            parts[name].append(numbered[numbers])
    return {name: TextColumn(np.concatenate(parts[name]), [*known[name]]) for name in names}


def _rows(graph: Graph | None, node_ids: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the row of each node in *graph*, and whether it is there."""
    ids = np.asarray(graph.node_columns["node_id"]) if graph is not None else np.empty(0, np.int64)
    if not len(ids):
        return np.zeros(len(node_ids), np.int64), np.zeros(len(node_ids), bool)
    rows = np.minimum(np.searchsorted(ids, node_ids), len(ids) - 1)
    return rows, ids[rows] == node_ids


def describe_collectives(types: Ints, comm_types: Ints, sizes: Ints, groups: Ints) -> npt.NDArray[np.object_]:
    """Return e.g. ``all_reduce of 12.3 MiB, all ranks`` of each node, or "" for those that are no message."""
    found = np.full(len(types), "", object)
    rows = np.flatnonzero(types >= NodeType.COMM_SEND)
    label = cache(_label)
    facts = (column[rows].tolist() for column in (types, comm_types, sizes, groups))
    found[rows] = [label(*fact) for fact in zip(*facts, strict=True)]
    return found


def _label(node_type: int, comm_type: int, size: int, group: int) -> str:
    if node_type == NodeType.COMM_COLL:
        return collective_label(CollectiveType(comm_type).name.lower(), size, group)
    return f"{'send' if node_type == NodeType.COMM_SEND else 'recv'} of {bytes_text(max(size, 0))}"


def collective_label(operation: str, size_bytes: int, group: int) -> str:
    """Return e.g. ``all_reduce of 12.3 MiB, all ranks``, as the path names a collective."""
    where = "all ranks" if group == 0 else f"group {group}"
    return f"{operation} of {bytes_text(max(size_bytes, 0))}, {where}"


def copy_direction(name: str) -> str:
    """Return e.g. ``HtoD`` of ``Memcpy HtoD (Pinned -> Device)``, or ``Memset``, or else the whole name."""
    words = name.split()
    if words[:1] == ["Memcpy"] and len(words) > 1:
        return words[1]
    return words[0] if words[:1] == ["Memset"] else name
