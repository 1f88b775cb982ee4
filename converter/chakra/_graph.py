"""The Chakra graph of one program: nodes and edges as columns, with the enum values of the format.

Fields that have no column, such as fields of other writers and the splits of uneven collectives, stay
encoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ...support.table import TextColumn, byte_table, positions
from .._columns import groups_of

if TYPE_CHECKING:
    import pandas as pd


class NodeType(IntEnum):
    """The type of a node, with the numbers of the Chakra schema."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


MESSAGES = (NodeType.COMM_SEND, NodeType.COMM_RECV)


class CollectiveType(IntEnum):
    """The collective of a ``COMM_COLL`` node, with the numbers of the Chakra schema."""

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

    @classmethod
    def of(cls, number: int) -> CollectiveType | None:
        """Return the collective type with the value *number*, or None for other values, as for messages."""
        try:
            return cls(number)
        except ValueError:
            return None

    @property
    def operation(self) -> str:
        """The name of the collective in tables, such as ``all_reduce``."""
        return self.name.lower()

    @property
    def key(self) -> str:
        """The name of the collective in system configurations and programs, such as ``all-reduce``."""
        return self.operation.removesuffix("_block").replace("_", "-")

    @property
    def is_rooted(self) -> bool:
        """Whether the collective has a root, so that other ranks need not wait for each other."""
        return self in _ROOTED

    @property
    def ring_passes(self) -> int:
        """The number of times that a ring sends all but one rank's share over each link; 0 without rings."""
        return 2 if self is CollectiveType.ALL_REDUCE else int(self not in (*_ROOTED, CollectiveType.BARRIER))

    @property
    def sized_by_shard(self) -> bool:
        """Whether the collective's size is one rank's shard (as in ASTRA-sim) instead of the total size."""
        return self in (CollectiveType.ALL_GATHER, CollectiveType.GATHER)


_ROOTED = (CollectiveType.REDUCE, CollectiveType.GATHER, CollectiveType.SCATTER, CollectiveType.BROADCAST)


class EdgeKind(IntEnum):
    """The kind of a graph's edge: why one node waits for another.

    ``DATA`` is a data dependency in the file. All other kinds are control dependencies.
    """

    DATA = 0
    PROGRAM_ORDER = 1
    STREAM_ORDER = 2
    LAUNCH = 3
    EVENT_SYNC = 4
    COMM_ISSUE = 5
    COMM_WAIT = 6
    AUTOGRAD = 7
    CTRL = 8


# Columns of nodes: name -> (dtype, default value).
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
    "cause": ("str", ""),
    "place": ("str", ""),
    "step": ("int64", -1),
    "measured_start_ns": ("int64", -1),
}
# The key of a read file's metadata in `Graph.extra`.
FILE_METADATA = -1
EDGE_COLUMNS: dict[str, str] = {"src": "int64", "dst": "int64", "kind": "uint8"}


Column = np.ndarray | TextColumn


class Graph:
    """One program, which one rank (or several identical ranks) executes.

    The data of a graph are stored in columns. *node_columns* have the names of `NODE_COLUMNS` and are sorted
    by ``node_id``. *edge_columns* are ``src``, ``dst`` and ``kind``: ``src`` finishes before ``dst`` starts.
    *nodes* and *edges* are the same data as tables, built on first use. *extra* has the fields of a file
    that have no column, encoded, by node id, and the file's metadata under `FILE_METADATA`. Writing the
    graph writes these fields again.

    Create a graph with `of_columns`, `of_tables` or `build`. A graph, its columns and its tables are
    immutable: `with_columns`, `with_edges` and `as_rank` return another graph, which shares unchanged
    columns. Graphs are equal if rank, columns and *extra* are equal. Graphs have no hash because columns have
    no hash.
    """

    def __init__(
        self,
        rank: int,
        node_columns: Mapping[str, Any],
        edge_columns: Mapping[str, np.ndarray],
        extra: Mapping[int, bytes] | None = None,
    ) -> None:
        """Create a graph from columns that are already complete and sorted."""
        self.rank = rank
        self.node_columns = node_columns
        self.edge_columns = edge_columns
        self.extra = {} if extra is None else extra

    @classmethod
    def of_columns(
        cls,
        rank: int,
        nodes: Mapping[str, Column],
        edges: Sequence[tuple[int, int, int]] | np.ndarray,
        extra: Mapping[int, bytes] | None = None,
    ) -> Graph:
        """Create a graph from columns, sorted by ``node_id``, and edges (src, dst, kind).

        Missing columns get their default values. Of several edges with the same ends, only the edge of the
        lowest kind is kept.
        """
        count = len(nodes["node_id"])
        complete = {name: _complete(nodes.get(name), name, count) for name in NODE_COLUMNS}
        return cls(rank, complete, _distinct_edges(edge_array(edges)), extra)

    @classmethod
    def of_tables(cls, rank: int, nodes: pd.DataFrame, edges: pd.DataFrame) -> Graph:
        """Create a graph from tables; *nodes* may lack columns of `NODE_COLUMNS`, *edges* has all columns."""
        table = nodes.sort_values("node_id", kind="stable")
        columns: dict[str, Column] = {
            str(name): TextColumn.of(table[name].tolist())
            if NODE_COLUMNS[str(name)][0] == "str"
            else table[name].to_numpy()
            for name in table.columns
        }
        return cls.of_columns(rank, columns, edges[list(EDGE_COLUMNS)].to_numpy(np.int64))

    @classmethod
    def build(
        cls,
        rank: int,
        nodes: Sequence[Mapping[str, Any]],
        edges: Sequence[tuple[int, int, int]] | np.ndarray,
        extra: Mapping[int, bytes] | None = None,
    ) -> Graph:
        """Create a graph from a mapping per node (missing columns get defaults) and (src, dst, kind)."""
        columns: dict[str, Any] = {}
        for name, (dtype, default) in NODE_COLUMNS.items():
            values = [node.get(name, default) for node in nodes]
            columns[name] = TextColumn.of(values) if dtype == "str" else np.array(values, dtype=dtype)
        order = np.argsort(columns["node_id"], kind="stable")
        return cls.of_columns(rank, {name: column[order] for name, column in columns.items()}, edges, extra)

    def as_rank(self, rank: int) -> Graph:
        """Return a copy of this graph as the graph of another *rank*."""
        return Graph(rank, self.node_columns, self.edge_columns, self.extra)

    def with_columns(self, **columns: Column) -> Graph:
        """Return a copy of this graph with other values in the given *columns*."""
        changed = {name: _complete(column, name, self.num_nodes) for name, column in columns.items()}
        nodes = {**self.node_columns, **changed}
        return Graph(self.rank, nodes, self.edge_columns, self.extra)

    def derived(self, **columns: Callable[[Mapping[str, Any]], Column]) -> Graph:
        """Return a copy with derived columns; for a graph in a file, they are computed on every read."""
        if isinstance(self.node_columns, dict):
            return self.with_columns(**{name: make(self.node_columns) for name, make in columns.items()})
        nodes = _Derived(self.node_columns, columns)
        return Graph(self.rank, nodes, self.edge_columns, self.extra)

    def with_edges(self, edges: Sequence[tuple[int, int, int]] | np.ndarray) -> Graph:
        """Return a copy of this graph with other *edges* (src, dst, kind)."""
        columns = _distinct_edges(edge_array(edges))
        return Graph(self.rank, self.node_columns, columns, self.extra)

    def column_rows(self, name: str, rows: np.ndarray) -> Column:
        """Return the given *rows* of the node column *name*.

        For a graph in a file, only these rows are kept in memory.
        """
        nodes = self.node_columns
        taken: Column = nodes.take(name, rows) if isinstance(nodes, ColumnsOnDemand) else nodes[name][rows]
        return taken

    @property
    def num_nodes(self) -> int:
        """The number of nodes in the graph."""
        return len(self.node_columns["node_id"])

    @property
    def num_edges(self) -> int:
        """The number of edges in the graph."""
        return len(self.edge_columns["src"])

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """The nodes of the graph as a table with one row per node."""
        return table_of(self.node_columns)

    @cached_property
    def edges(self) -> pd.DataFrame:
        """The edges of the graph as a table with one row per edge."""
        return table_of(self.edge_columns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return (
            self.rank == other.rank
            and _same_columns(self.node_columns, other.node_columns)
            and _same_columns(self.edge_columns, other.edge_columns)
            and self.extra == other.extra
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Graph(rank={self.rank}, num_nodes={self.num_nodes}, num_edges={self.num_edges})"

    def __getstate__(self) -> dict[str, Any]:
        """Omit the tables from pickles and copies, because the tables can be rebuilt from the columns."""
        return {name: value for name, value in self.__dict__.items() if name not in ("nodes", "edges")}


class ColumnsOnDemand(Mapping[str, Any]):
    """Base class of the columns *names* that each access reads or computes; a pickle has the columns."""

    names: Sequence[str]

    def take(self, name: str, rows: np.ndarray) -> Column:
        """Return the given *rows* of the column *name*."""
        taken: Column = self[name][rows]
        return taken

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[list[tuple[str, Any]]]]:
        return dict, (list(self.items()),)


class _Derived(ColumnsOnDemand):
    """The columns of *own* and derived columns, which are computed on demand."""

    def __init__(
        self, own: Mapping[str, Any], made: Mapping[str, Callable[[Mapping[str, Any]], Column]]
    ) -> None:
        self.names = tuple(own)
        self._own = own
        self._made = made

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            return self._own[name]
        column = self._made[name](self._own)
        return column if isinstance(column, TextColumn) else np.asarray(column, NODE_COLUMNS[name][0])


def table_of(columns: Mapping[str, Column], *, copy: bool = True) -> pd.DataFrame:
    """Return *columns* as a pandas table with texts as strings."""
    import pandas as pd  # noqa: PLC0415 - converting and saving do without

    series = {
        name: column.to_series() if isinstance(column, TextColumn) else column
        for name, column in columns.items()
    }
    table: pd.DataFrame = pd.DataFrame(series, copy=copy)
    return table


def joined(columns: Sequence[Any]) -> Column:
    """Return the concatenation of *columns*, which are all numbers or all texts."""
    is_text = isinstance(columns[0], TextColumn)
    return TextColumn.joined(columns) if is_text else np.concatenate(columns)


def _same_columns(ours: Mapping[str, Column], theirs: Mapping[str, Column]) -> bool:
    return all(_same(column, theirs[name]) for name, column in ours.items())


def _same(one: Column, other: Column) -> bool:
    if isinstance(one, TextColumn) or isinstance(other, TextColumn):
        return one is other or bool(one == other)
    return one is other or np.array_equal(one, other)


def _complete(column: Column | None, name: str, count: int) -> Column:
    """Return *column* in the type of column *name*; a missing column is filled with the default."""
    dtype, default = NODE_COLUMNS[name]
    if column is None:
        column = (
            TextColumn(np.zeros(count, np.int32), [default]) if dtype == "str" else np.full(count, default)
        )
    if len(column) != count:
        raise ValueError(f"column {name} has {len(column)} rows, not {count}")
    return column if isinstance(column, TextColumn) else np.asarray(column, dtype)


def edge_array(edges: Sequence[tuple[int, int, int]] | np.ndarray) -> np.ndarray:
    """Return *edges* as an array of three columns: source, target, kind."""
    if isinstance(edges, np.ndarray):
        return edges
    flat = np.fromiter(chain.from_iterable(edges), dtype=np.int64, count=3 * len(edges))
    return flat.reshape(-1, 3)


def _distinct_edges(array: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of *array* sorted by target; each pair (src, dst) keeps only its lowest kind."""
    source, target, kind = (array[:, place] for place in range(3))
    order = np.lexsort((kind, source, target))
    source, target, kind = source[order], target[order], kind[order]
    fresh = np.ones(len(array), dtype=bool)
    fresh[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    columns = zip(EDGE_COLUMNS.items(), (source, target, kind), strict=True)
    return {name: column[fresh].astype(dtype) for (name, dtype), column in columns}


# Name of the attribute with a rank's bytes for each member of an uneven collective. ASTRA-sim ignores this
# attribute.
SPLITS = "comm_splits"
# Field numbers of the schema: an attribute of a node, its name, its list of unsigned integers, and the list's
# values.
_ATTRIBUTE, _NAME, _LIST, _VALUES = 10, 1, 14, 1


class Extra(Mapping[int, bytes]):
    """A mapping of numbers to bytes for `Graph.extra`, without a Python object per entry.

    *ids* are ascending. Entry i ends at ``ends[i]`` of *content*.
    """

    def __init__(self, ids: np.ndarray, ends: np.ndarray, content: np.ndarray) -> None:
        self._ids, self._ends, self._content = ids, ends, content

    @classmethod
    def of(cls, entries: Mapping[int, bytes]) -> Extra:
        """Return *entries* as an `Extra` mapping."""
        if isinstance(entries, cls):
            return entries
        ids = np.array(sorted(entries), dtype=np.int64)
        content, ends = byte_table([entries[number] for number in ids.tolist()])
        return cls(ids, ends, content)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids.tolist())

    def __getitem__(self, number: int) -> bytes:
        (at,) = positions(self._ids, np.array([number])).tolist()
        if at < 0:
            raise KeyError(number)
        return self._content[self._ends[at - 1] if at else 0 : self._ends[at]].tobytes()

    def distinct(self, pattern: str) -> Iterator[tuple[np.ndarray, bytes]]:
        """Yield each distinct entry that matches the regular expression *pattern*, with its numbers."""
        if not len(self._ids):
            return
        from ...support.table import distinct_parts  # noqa: PLC0415 - loads PyArrow

        rows, numbers, contents = distinct_parts(self._content, self._ends, pattern)
        for number, alike in groups_of(numbers).items():
            yield self._ids[rows[alike]], contents[number]

    def contains(self, text: bytes) -> bool:
        """Return whether *text* occurs in any entry."""
        return re.search(re.escape(text), self._content.data) is not None

    def spans(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the content, and the start and end of the entries of *ids*; missing entries are empty."""
        at = positions(self._ids, ids)
        ends = np.concatenate([self._ends, [0]])  # a missing id has the position -1, which selects this 0
        begins = np.concatenate([[0], self._ends])
        begins[-1] = 0
        return self._content, begins[at], ends[at]


def with_splits(graph: Graph, splits: Mapping[int, Sequence[int]]) -> Graph:
    """Return *graph* with *splits*: by node id, the bytes for each member of the group, in order."""
    extra = dict(graph.extra)
    for node, sizes in splits.items():
        extra[node] = extra.get(node, b"") + _attribute(sizes)
    return Graph(graph.rank, graph.node_columns, graph.edge_columns, extra)


def _attribute(sizes: Sequence[int]) -> bytes:
    """Return the encoded field of a node with the attribute `SPLITS`."""
    values = _field(_VALUES, b"".join(map(varint, sizes)))
    return _field(_ATTRIBUTE, _field(_NAME, SPLITS.encode()) + _field(_LIST, values))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Return a non-negative *value* encoded as a varint."""
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def read_varint(encoded: bytes, at: int) -> tuple[int, int]:
    """Return the varint at the index *at* of *encoded*, and the index behind it."""
    value = shift = 0
    more = True
    while more:
        more, value = encoded[at] > 127, value | (encoded[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value, at
