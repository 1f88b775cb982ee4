"""The Chakra graph of one program: nodes and edges as tables, with the numbers of the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["EDGE_COLUMNS", "NODE_COLUMNS", "CollectiveType", "EdgeKind", "Graph", "NodeType"]


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
_DEFAULTS = {name: default for name, (_, default) in NODE_COLUMNS.items()}
_row = itemgetter(*NODE_COLUMNS)
EDGE_COLUMNS: dict[str, str] = {"src": "int64", "dst": "int64", "kind": "uint8"}


@dataclass(frozen=True)
class Graph:
    """One program: what one rank (or several identical ones) executes.

    *nodes* has the columns of `NODE_COLUMNS`, sorted by ``node_id``; *edges* has ``src``, ``dst``, ``kind``:
    ``src`` finishes before ``dst`` starts. *extra* keeps, by node id, the encoded parts of a read file that
    have no column, so that they survive being written again.
    """

    rank: int
    nodes: pd.DataFrame
    edges: pd.DataFrame
    metadata: dict[str, Any] = field(default_factory=dict)
    extra: Mapping[int, bytes] = field(default_factory=dict)

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
        rows = [_row({**_DEFAULTS, **node}) for node in nodes]
        values = zip(*rows, strict=True) if rows else ([] for _ in NODE_COLUMNS)
        types = (dtype for dtype, _ in NODE_COLUMNS.values())
        columns = {
            name: _column(list(column), dtype)
            for name, column, dtype in zip(NODE_COLUMNS, values, types, strict=True)
        }
        table = pd.DataFrame(columns)
        if not table["node_id"].is_monotonic_increasing:
            table = table.sort_values("node_id", kind="stable", ignore_index=True)
        return cls(rank, table, edge_table(edges), metadata or {}, extra or {})


def _column(values: list[Any], dtype: str) -> pd.Series[Any]:
    """Return *values* as a column; texts by way of their few different values, which is faster."""
    if dtype != "str":
        plain: pd.Series[Any] = pd.Series(np.array(values, dtype=dtype))
        return plain
    codes: dict[str, int] = {}
    index = [codes.setdefault(value, len(codes)) for value in values]
    texts: pd.Series[Any] = pd.Series(list(codes), dtype="str").take(np.array(index, dtype=np.int64))
    return texts.reset_index(drop=True)


def edge_array(edges: Sequence[tuple[int, int, int]] | np.ndarray) -> np.ndarray:
    """Return *edges* as an array of three columns: source, target, kind."""
    if isinstance(edges, np.ndarray):
        return edges
    flat = np.fromiter(chain.from_iterable(edges), dtype=np.int64, count=3 * len(edges))
    array: np.ndarray = flat.reshape(-1, 3)
    return array


def edge_table(edges: Sequence[tuple[int, int, int]] | np.ndarray) -> pd.DataFrame:
    """Return *edges* as a table, sorted by target, one row for each (src, dst): the lowest kind wins."""
    array = edge_array(edges)
    if len(array):
        array = array[np.lexsort((array[:, 2], array[:, 0], array[:, 1]))]
        fresh = np.ones(len(array), dtype=bool)
        fresh[1:] = (array[1:, :2] != array[:-1, :2]).any(axis=1)
        array = array[fresh]
    table: pd.DataFrame = pd.DataFrame(
        {name: array[:, index].astype(dtype) for index, (name, dtype) in enumerate(EDGE_COLUMNS.items())}
    )
    return table
