"""Build a graph from single nodes or columns of nodes, with edges added per node or separately."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...support.table import TextColumn
from ._graph import NODE_COLUMNS, CollectiveType, Column, EdgeKind, Graph, NodeType

# Number of nodes added one by one that are converted to columns together.
_BLOCK_NODES = 1 << 12


class GraphBuilder:
    """A graph under construction; nodes are numbered from 0 in the order of their addition.

    Whole columns contain numbers instead of texts (see `texts`).
    """

    def __init__(self) -> None:
        self.size = 0
        self._rows: list[Mapping[str, Any]] = []  # nodes added one at a time, not yet converted to columns
        self._ties: list[tuple[int, int, int]] = []  # edges of nodes added one at a time
        self._blocks: list[tuple[int, dict[str, np.ndarray]]] = []
        self._edges: list[np.ndarray] = []
        self._numbers: dict[str, int] = {}

    def add(self, columns: Mapping[str, Any], waits: Mapping[int, EdgeKind] | None = None) -> int:
        """Append a node with some columns of `NODE_COLUMNS`; return its id.

        *waits* maps the nodes on which the new node depends to the reasons.
        """
        if len(self._rows) == _BLOCK_NODES:
            self._gather()
        number = self.size
        self._rows.append(columns)
        if waits:
            self._ties += [(source, number, kind) for source, kind in waits.items()]
        self.size += 1
        return number

    def add_columns(self, count: int, **columns: Any) -> int:
        """Append *count* nodes; return the id of the first node. A scalar applies to all nodes."""
        self._gather()
        first = self.size
        block = {name: _typed(name, value, count) for name, value in columns.items()}
        self._blocks.append((count, block))
        self.size += count
        return first

    def tie(
        self, sources: np.ndarray | Sequence[int], targets: np.ndarray | Sequence[int], kind: Any
    ) -> None:
        """Make each target wait for the source at the same index; *kind* is one reason, or one per edge."""
        ends = np.asarray(sources, np.int64), np.asarray(targets, np.int64)
        kinds = np.broadcast_to(np.asarray(kind, np.int64), len(ends[0]))
        self._edges.append(np.column_stack([*ends, kinds]))

    def text(self, text: str) -> int:
        """Return the number that represents *text* in whole columns."""
        return self._numbers.setdefault(text, len(self._numbers))

    def numbers_of(self, texts: Sequence[str]) -> list[int]:
        """Return the number of each of *texts*, of which many are equal."""
        numbers = {text: self.text(text) for text in dict.fromkeys(texts)}
        return [numbers[text] for text in texts]

    def texts(
        self, numbers: np.ndarray, source: Sequence[str], spelled: Callable[[str], str] = str
    ) -> np.ndarray:
        """Return this graph's numbers for texts with *numbers* in *source*, converted by *spelled*."""
        different, place = np.unique(numbers, return_inverse=True)
        own = [self.text(spelled(source[number])) for number in different.tolist()]
        return np.array(own, dtype=np.int32)[place.ravel()]

    def column(self, name: str) -> np.ndarray:
        """Return the column *name* of the nodes that have been added so far."""
        self._gather()
        dtype, default = NODE_COLUMNS[name]
        missing = self.text(default) if dtype == "str" else default
        parts = [_typed(name, block.get(name, missing), count) for count, block in self._blocks]
        return np.concatenate([_typed(name, missing, 0), *parts])

    def edges(self) -> np.ndarray:
        """Return the edges that have been added so far as rows of source, target and kind."""
        self._gather()
        return np.concatenate([np.empty((0, 3), np.int64), *self._edges])

    def graph(
        self,
        rank: int,
        *,
        edges: np.ndarray | None = None,
        order: np.ndarray | None = None,
        **changed: np.ndarray,
    ) -> Graph:
        """Return the graph of *rank*; given *edges* and *changed* columns replace those of the builder.

        With an *order*, nodes get new numbers in this order.
        """
        self._gather()
        columns: dict[str, Column] = {"node_id": np.arange(self.size)}
        for name in dict.fromkeys([*(name for _, block in self._blocks for name in block), *changed]):
            column = changed[name] if name in changed else self.column(name)
            column = column if order is None else column[order]
            is_text = NODE_COLUMNS[name][0] == "str"
            columns[name] = TextColumn(column, list(self._numbers)).compact() if is_text else column
        ends = self.edges() if edges is None else edges
        if order is not None:
            ends = np.column_stack([np.argsort(order)[ends[:, :2]], ends[:, 2]])
        return Graph.of_columns(rank, columns, ends)

    def _gather(self) -> None:
        """Convert the nodes that were added one by one to columns."""
        if not self._rows:
            return
        rows, self._rows, ties, self._ties = self._rows, [], self._ties, []
        self._edges.append(np.array(ties, dtype=np.int64).reshape(-1, 3))
        block: dict[str, np.ndarray] = {}
        same: dict[tuple[str, ...], list[int]] = {}  # rows by their columns
        for place, row in enumerate(rows):
            same.setdefault(tuple(row), []).append(place)
        for names, places in same.items():
            columns = zip(*(rows[place].values() for place in places), strict=True)
            for name, values in zip(names, columns, strict=True):
                dtype, default = NODE_COLUMNS[name]
                numbers: dict[Any, Any] = {}  # of texts
                if dtype == "str":
                    numbers = {text: self.text(text) for text in dict.fromkeys((default, *values))}
                if name not in block:
                    block[name] = _typed(name, numbers.get(default, default), len(rows)).copy()
                block[name][places] = [numbers[text] for text in values] if numbers else values
        self._blocks.append((len(rows), block))


def _typed(name: str, value: Any, count: int) -> np.ndarray:
    """Return *value*, a scalar or an array with a value per node, as *count* rows of column *name*."""
    dtype = NODE_COLUMNS[name][0]
    return np.broadcast_to(np.asarray(value, "int32" if dtype == "str" else dtype), count)


def communication(
    node_type: NodeType,
    collective: CollectiveType | None,
    size_bytes: int,
    *,
    group: int = 0,
    peer: int = -1,
    tag: int = -1,
) -> dict[str, Any]:
    """Return the columns of a communication: type, size, and members.

    *size_bytes* is the size as ASTRA-sim defines it. *peer* and *tag* describe a message, for which
    *collective* is None.
    """
    columns: dict[str, Any] = {
        "type": node_type,
        "comm_size_bytes": size_bytes,
        "group": group,
        "kind": "communication",
        "phase": "communication",
    }
    if collective is not None:
        return columns | {"name": collective.operation, "comm_type": int(collective)}
    if node_type is NodeType.COMM_SEND:
        return columns | {"name": "send", "comm_dst": peer, "comm_tag": tag}
    return columns | {"name": "recv", "comm_src": peer, "comm_tag": tag}
