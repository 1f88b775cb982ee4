"""Chakra ``.et`` files: length-prefixed messages, one ``GlobalMetadata``, then the nodes in any order."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UsageError, WorkloadError, WorkloadFormatError
from ...support.table import TextColumn
from .._columns import positions
from .._files import UnpacksTooFar, unpacked
from .._native import ChakraRefusal, ChakraWriter, read_attributes, read_chakra
from ._extra import Extra, varint
from ._graph import FILE_METADATA, Column, EdgeKind, Graph
from ._kinds import with_current_kinds
from ._order import dependencies

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


# The numbers of the fields that the codec reads and writes. Other fields are passed on as they are.
_FIELDS = {
    "GlobalMetadata": {"version": 1, "attr": 2},
    "Node": {
        "id": 1, "name": 2, "type": 3, "ctrl_deps": 4, "data_deps": 5, "start_time_micros": 6,
        "duration_micros": 7, "attr": 10,
    },
    "AttributeProto": {
        "name": 1, "int32_val": 7, "int64_val": 9, "uint64_val": 13, "bool_val": 27, "string_val": 29,
    },
}  # fmt: skip


def bytes_of_messages(messages: Iterable[Any], *, rank: int) -> bytes:
    """Return the ``.et`` file of *messages*: a ``GlobalMetadata``, then each ``Node``.

    Raises `WorkloadFormatError` for other messages, and for other numbers of their fields.
    """
    pieces, expected = [], "GlobalMetadata"
    for position, message in enumerate(messages):
        descriptor = getattr(message, "DESCRIPTOR", None)
        if descriptor is None or descriptor.name != expected:
            raise WorkloadFormatError(
                f"Rank {rank}: message {position} has type {type(message).__name__}, not {expected}. "
                "Pass a GlobalMetadata, then the nodes, as in an .et file."
            )
        if position < 2:
            _check(descriptor)
        expected = "Node"
        body = message.SerializeToString()
        pieces += [varint(len(body)), body]
    return b"".join(pieces)


def messages_of_bytes(data: bytes, et_def: Any) -> Iterator[Any]:
    """Yield the messages of the ``.et`` file *data*, of the classes in the module *et_def*.

    Raises `UsageError` if it has other classes or other numbers of their fields.
    """
    try:
        message_class, node_class = et_def.GlobalMetadata, et_def.Node
        descriptors = [message_class.DESCRIPTOR, node_class.DESCRIPTOR]
    except AttributeError as error:
        raise UsageError(
            f"{getattr(et_def, '__name__', et_def)!r} has no Chakra messages ({error}). "
            "Pass the module et_def_pb2 that protoc makes of Chakra's et_def.proto."
        ) from None
    for descriptor in descriptors:
        _check(descriptor)
    start = 0
    while start < len(data):
        length = shift = 0
        more = True
        while more:
            more, length = data[start] > 127, length | (data[start] & 127) << shift
            start, shift = start + 1, shift + 7
        yield message_class.FromString(data[start : start + length])
        start, message_class = start + length, node_class


def _check(descriptor: Any) -> None:
    """Raise `UsageError` if fields of a message have other numbers than in Chakra 0.0.4."""
    fields = descriptor.fields_by_name
    for name, number in _FIELDS[descriptor.name].items():
        if name not in fields or fields[name].number != number:
            raise UsageError(
                f"Field {name!r} of message {descriptor.name} is not number {number}: this is not "
                "version 0.0.4 of Chakra's schema. Update the module et_def_pb2."
            )
    if "attr" in fields:
        _check(fields["attr"].message_type)
