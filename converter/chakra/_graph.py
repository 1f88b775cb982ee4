"""The Chakra graph of one program: nodes and edges as tables, with the numbers of the format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "EDGE_COLUMNS",
    "FILE_METADATA",
    "NODE_COLUMNS",
    "CollectiveType",
    "Column",
    "EdgeKind",
    "Graph",
    "NodeType",
    "TextColumn",
    "byte_table",
]


class NodeType(IntEnum):
    """What a node does, with the numbers of the Chakra schema."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class CollectiveType(IntEnum):
    """Which collective a ``COMM_COLL`` node is, with the numbers of the Chakra schema."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


class EdgeKind(IntEnum):
    """Why a node waits for another; ``DATA`` is a data dependency in the file, the others are control."""

    DATA = 0
    PROGRAM_ORDER = 1
    STREAM_ORDER = 2
    LAUNCH = 3
    EVENT_SYNC = 4
    COMM_ISSUE = 5
    COMM_WAIT = 6
    AUTOGRAD = 7
    CTRL = 8


# column -> (dtype, value of a node that does not say)
NODE_COLUMNS: dict[str, tuple[str, Any]] = {
    "node_id": ("int64", 0),
    "name": ("str", ""),
    "type": ("uint8", 0),
    "duration_ns": ("int64", 0),
    "is_cpu_op": ("bool", False),
    "comm_type": ("int16", -1),
    "comm_size_bytes": ("int64", -1),
    "group": ("int64", 0),
    "comm_src": ("int64", -1),
    "comm_dst": ("int64", -1),
    "comm_tag": ("int64", -1),
    "num_ops": ("int64", -1),
    "tensor_size_bytes": ("int64", -1),
    "stream": ("int64", 0),
    "operator": ("str", ""),
    "module": ("str", ""),
    "phase": ("str", "other"),
    "kind": ("str", "compute"),
    "step": ("int64", -1),
    "measured_start_ns": ("int64", -1),
}
# The key under which `Graph.extra` keeps the metadata of a read file.
FILE_METADATA = -1
EDGE_COLUMNS: dict[str, str] = {"src": "int64", "dst": "int64", "kind": "uint8"}


@dataclass(frozen=True)
class TextColumn:
    """A column of texts: row i is ``texts[numbers[i]]``; few texts occur often."""

    numbers: np.ndarray
    texts: list[str]

    def __len__(self) -> int:
        return len(self.numbers)

    @classmethod
    def of(cls, values: Iterable[str]) -> TextColumn:
        """Return the column of *values*."""
        known: dict[str, int] = {}
        numbers = [known.setdefault(value, len(known)) for value in values]
        return cls(np.array(numbers, dtype=np.int32), list(known))

    def take(self, rows: np.ndarray) -> TextColumn:
        """Return the column of *rows*."""
        return TextColumn(self.numbers[rows], self.texts)

    def encoded(self) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Return the column as compiled code takes it: numbers, and the texts as `byte_table` has them."""
        texts = [text.encode("utf-8", "replace") for text in self.texts]
        return np.ascontiguousarray(self.numbers, dtype=np.int32), byte_table(texts)

    def to_series(self) -> pd.Series[Any]:
        """Return the column for a table."""
        import pandas as pd  # noqa: PLC0415 - converting and saving do without

        texts: pd.Series[Any] = pd.Series(self.texts, dtype="str").take(self.numbers)
        return texts.reset_index(drop=True)


Column = np.ndarray | TextColumn


@dataclass(frozen=True)
class Graph:
    """One program: what one rank (or several identical ones) executes.

    *nodes* has the columns of `NODE_COLUMNS`, sorted by ``node_id``; *edges* has ``src``, ``dst``, ``kind``:
    ``src`` finishes before ``dst`` starts. *extra* keeps, by node id, the encoded parts of a read file that
    have no column, and under `FILE_METADATA` its own metadata, so that they survive being written again.

    A graph is made of tables or of columns (`of_columns`); each is made from the other when it is first asked
    for, as *node_columns* and *edge_columns*.
    """

    rank: int
    nodes: pd.DataFrame
    edges: pd.DataFrame
    metadata: dict[str, Any] = field(default_factory=dict)
    extra: Mapping[int, bytes] = field(default_factory=dict)

    if TYPE_CHECKING:
        node_columns: ClassVar[dict[str, Any]]  # each a `Column`
        edge_columns: ClassVar[dict[str, np.ndarray]]

    def __getattr__(self, name: str) -> Any:
        made = _MADE.get(name)
        if made is None:
            raise AttributeError(f"'Graph' has no attribute '{name}'")
        value = made(self)
        self.__dict__[name] = value
        return value

    @classmethod
    def of_columns(
        cls,
        rank: int,
        nodes: Mapping[str, Column],
        edges: Sequence[tuple[int, int, int]] | np.ndarray,
        metadata: dict[str, Any] | None = None,
        extra: Mapping[int, bytes] | None = None,
    ) -> Graph:
        """Build a graph from columns, sorted by ``node_id``, and (src, dst, kind).

        Absent columns take their default. Of several edges with the same ends, that of the lowest kind stays.
        """
        graph = object.__new__(cls)
        count = len(nodes["node_id"])
        complete = {name: _complete(nodes.get(name), name, count) for name in NODE_COLUMNS}
        graph.__dict__.update(
            rank=rank,
            node_columns=complete,
            edge_columns=_distinct_edges(edge_array(edges)),
            metadata={} if metadata is None else metadata,
            extra=extra or {},
        )
        return graph

    @classmethod
    def build(
        cls,
        rank: int,
        nodes: Sequence[Mapping[str, Any]],
        edges: Sequence[tuple[int, int, int]] | np.ndarray,
        metadata: dict[str, Any] | None = None,
        extra: Mapping[int, bytes] | None = None,
    ) -> Graph:
        """Build a graph from one mapping a node (absent columns take their default) and (src, dst, kind)."""
        columns: dict[str, Any] = {}
        for name, (dtype, default) in NODE_COLUMNS.items():
            values = [node.get(name, default) for node in nodes]
            columns[name] = TextColumn.of(values) if dtype == "str" else np.array(values, dtype=dtype)
        order = np.argsort(columns["node_id"], kind="stable")
        return cls.of_columns(
            rank, {name: _taken(column, order) for name, column in columns.items()}, edges, metadata, extra
        )

    def with_columns(self, **columns: Column) -> Graph:
        """Return this graph with other values in some columns."""
        graph = object.__new__(Graph)
        kept = {name: value for name, value in self.__dict__.items() if name != "nodes"}
        graph.__dict__.update(kept, node_columns={**self.node_columns, **columns})
        return graph


def _taken(column: Column, rows: np.ndarray) -> Column:
    return column.take(rows) if isinstance(column, TextColumn) else column[rows]


def _complete(column: Column | None, name: str, count: int) -> Column:
    """Return *column* in the type of column *name*, full of its default if there is none."""
    dtype, default = NODE_COLUMNS[name]
    if dtype == "str":
        return column if column is not None else TextColumn(np.zeros(count, dtype=np.int32), [default])
    return np.full(count, default, dtype) if column is None else np.asarray(column, dtype)


def _table(graph: Graph) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - converting and saving do without

    table: pd.DataFrame = pd.DataFrame(
        {
            name: column.to_series() if isinstance(column, TextColumn) else column
            for name, column in graph.node_columns.items()
        }
    )
    return table


def _edge_table(graph: Graph) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - converting and saving do without

    table: pd.DataFrame = pd.DataFrame(graph.edge_columns)
    return table


def _node_columns(graph: Graph) -> dict[str, Column]:
    return {
        name: TextColumn.of(graph.nodes[name].tolist())
        if dtype == "str"
        else graph.nodes[name].to_numpy(dtype)
        for name, (dtype, _) in NODE_COLUMNS.items()
    }


def _edge_columns(graph: Graph) -> dict[str, np.ndarray]:
    return {name: graph.edges[name].to_numpy(dtype) for name, dtype in EDGE_COLUMNS.items()}


_MADE: dict[str, Callable[[Graph], Any]] = {
    "nodes": _table,
    "edges": _edge_table,
    "node_columns": _node_columns,
    "edge_columns": _edge_columns,
}


def byte_table(parts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return *parts* behind each other, and where each ends."""
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    return np.frombuffer(bytearray().join(parts), dtype=np.uint8), ends


def edge_array(edges: Sequence[tuple[int, int, int]] | np.ndarray) -> np.ndarray:
    """Return *edges* as an array of three columns: source, target, kind."""
    if isinstance(edges, np.ndarray):
        return edges
    flat = np.fromiter(chain.from_iterable(edges), dtype=np.int64, count=3 * len(edges))
    array: np.ndarray = flat.reshape(-1, 3)
    return array


def _distinct_edges(array: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of *array*, sorted by target, one row for each (src, dst): the lowest kind wins."""
    source, target, kind = (array[:, place] for place in range(3))
    order = np.lexsort((kind, source, target))
    source, target, kind = source[order], target[order], kind[order]
    fresh = np.ones(len(array), dtype=bool)
    fresh[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    columns = zip(EDGE_COLUMNS.items(), (source, target, kind), strict=True)
    return {name: column[fresh].astype(dtype) for (name, dtype), column in columns}
