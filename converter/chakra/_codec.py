"""Chakra ``.et`` files: length-prefixed messages, one ``GlobalMetadata``, then the nodes in any order."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import WorkloadError, WorkloadFormatError
from .._columns import positions
from .._files import UnpacksTooFar, unpacked
from .._native import ChakraRefusal, ChakraWriter, read_attributes, read_chakra
from ._extra import Extra
from ._graph import FILE_METADATA, Column, EdgeKind, Graph, TextColumn
from ._kinds import with_current_kinds
from ._order import dependencies

__all__ = [
    "decode_graph",
    "encode_graph",
    "encoded_pieces",
    "has_unknown_type",
    "other_attributes",
    "read_et",
]


_TYPE_FIELD = b"\x18"  # prefix of the extra fields of a node with a type that is not in `NodeType`


def read_et(path: str | Path) -> bytes:
    """Return the content of the ``.et`` file at *path*, decompressed if it is gzip, as ASTRA-sim reads it.

    Raises `WorkloadError` if it cannot be read, and `WorkloadFormatError` if it is truncated or unpacks to
    more than any graph has.
    """
    try:
        return unpacked(Path(path))
    except UnpacksTooFar as error:
        raise WorkloadFormatError(f"{path} {error}") from error
    except (EOFError, zlib.error) as error:
        raise WorkloadFormatError(f"{path} is truncated or damaged ({error}). Write it again.") from error
    except OSError as error:
        raise WorkloadError(
            f"{path} cannot be read: {error.strerror}. Check the file and its permissions."
        ) from error


def decode_graph(data: bytes, *, rank: int = 0, source: str = "<bytes>") -> Graph:
    """Read the bytes of an ``.et`` file.

    Raises `WorkloadFormatError` naming *source*, the byte and the node for an invalid file.
    """
    try:
        numbers, texts, edges, (ids, ends, content) = read_chakra(data)
    except ChakraRefusal as error:
        raise WorkloadFormatError(f"{source}{error}") from None
    nodes: dict[str, Column] = {**numbers}
    nodes.update((name, TextColumn(*column)) for name, column in texts.items())
    with_current_kinds(nodes)
    return Graph.of_columns(rank, nodes, edges.reshape(-1, 3), extra=Extra(ids, ends, content))


def other_attributes(graph: Graph, node_id: int) -> dict[str, Any]:
    """Return the attributes of a node that have no column, by name, from the file of *graph*."""
    return read_attributes(graph.extra.get(node_id, b""))


def has_unknown_type(graph: Graph, node_id: int) -> bool:
    """Return whether the file of *graph* gives a node an unsupported type."""
    return graph.extra.get(node_id, b"").startswith(_TYPE_FIELD)


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
