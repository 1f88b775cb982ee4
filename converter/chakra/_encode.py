"""Write Chakra ``.et`` files, from columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .._columns import positions
from .._native import ChakraWriter
from ._extra import Extra
from ._graph import FILE_METADATA, EdgeKind, Graph, TextColumn
from ._order import dependencies

__all__ = ["encode_graph", "encoded_pieces"]


def encode_graph(graph: Graph) -> bytes:
    """Return *graph* as the bytes of an ``.et`` file that ASTRA-sim reads, those of `encoded_pieces`."""
    return b"".join(encoded_pieces(graph))


def encoded_pieces(graph: Graph) -> Iterator[bytes]:
    """Yield the bytes of an ``.et`` file of *graph*, about a megabyte at a time.

    ``duration_micros`` is the nanosecond duration rounded with carry along each lane, so that sums agree to
    half a microsecond; the exact value is in the attribute ``duration_ns``.
    """
    nodes, edges = graph.node_columns, graph.edge_columns
    numbers = {name: _integers(column) for name, column in nodes.items() if isinstance(column, np.ndarray)}
    texts = {name: column.encoded() for name, column in nodes.items() if isinstance(column, TextColumn)}
    ids = numbers["node_id"]
    is_data = edges["kind"] == EdgeKind.DATA
    writer = ChakraWriter(
        graph.extra.get(FILE_METADATA),
        numbers,
        texts,
        _dependencies(ids, edges["src"][~is_data], edges["dst"][~is_data]),
        _dependencies(ids, edges["src"][is_data], edges["dst"][is_data]),
        Extra.of(graph.extra).spans(ids),
    )
    while piece := writer.next():
        yield piece


def _integers(column: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(column, dtype=np.int64)


def _dependencies(ids: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids on which each node depends, by node; missing nodes are omitted."""
    place = positions(ids, targets)
    known = place >= 0
    return dependencies(_integers(sources)[known], place[known], len(ids))
