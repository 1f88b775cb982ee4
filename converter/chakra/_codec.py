"""Chakra ``.et`` files: length-prefixed messages, one ``GlobalMetadata``, then the nodes in any order."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...errors import WorkloadError, WorkloadFormatError
from ._encode import ATTRIBUTES, PREAMBLE, TEXT_ATTRIBUTES, encode_graph
from ._graph import FILE_METADATA, EdgeKind, Graph, NodeType

__all__ = ["decode_graph", "encode_graph", "read_et"]

_MAX_VARINT_BYTES = 5
_COLLECTIVE_TYPES = 10
_INT64_MAX = 2**63 - 1
_GZIP_MAGIC = b"\x1f\x8b"
_NODE_START = b"\x08"  # the id, a node's first field

_COMM = (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)


def read_et(path: str | Path) -> bytes:
    """Return the content of the ``.et`` file at *path*, decompressed if it is gzip, as ASTRA-sim reads it.

    Raises `WorkloadError` when it cannot be read and `WorkloadFormatError` when it is cut off.
    """
    try:
        data = Path(path).read_bytes()
        return gzip.decompress(data) if data.startswith(_GZIP_MAGIC) else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WorkloadFormatError(f"{path} is truncated or damaged ({error}). Write it again.") from error
    except OSError as error:
        raise WorkloadError(
            f"{path} cannot be read: {error.strerror}. Check the file and its permissions."
        ) from error


def decode_graph(data: bytes, *, rank: int = 0, source: str = "<bytes>") -> Graph:
    """Read the bytes of an ``.et`` file.

    Raises `WorkloadFormatError` naming *source* and the byte offset when they are no such file.
    """
    messages = _messages(data, source)
    first = next(messages, None)
    if first is None:
        raise WorkloadFormatError(
            f"{source} is empty: a Chakra file starts with its metadata. Write it again."
        )
    metadata = first[1]
    _refuse_early(*first, source)
    nodes: list[dict[str, Any]] = []
    edges: list[tuple[int, int, int]] = []
    extra: dict[int, bytes] = {} if metadata == PREAMBLE else {FILE_METADATA: metadata}
    for offset, body in messages:
        message = _parse("Node", offset, body, source)
        node, foreign = _decode_node(message, f"{source}, offset {offset}")
        number = node["node_id"]
        nodes.append(node)
        edges += [(dep, number, EdgeKind.DATA) for dep in message.data_deps]
        edges += [(dep, number, EdgeKind.CTRL) for dep in message.ctrl_deps]
        rest = _leftover(message, foreign)
        if rest:
            extra[number] = rest
    if len({node["node_id"] for node in nodes}) != len(nodes):
        raise WorkloadFormatError(f"{source} has two nodes of the same id. Write the workload again.")
    if any(src > _INT64_MAX for src, _, _ in edges):
        raise WorkloadFormatError(f"{source} has a dependency on an id above 2^63. Write the workload again.")
    return Graph.build(rank, nodes, edges, extra=extra)


def _refuse_early(offset: int, metadata: bytes, source: str) -> None:
    """Raise for a file that starts with a node, or whose metadata has attributes where the version is."""
    if (
        metadata.startswith(_NODE_START)
        or not _parse("GlobalMetadata", offset, metadata, source).version.isprintable()
    ):
        raise WorkloadFormatError(
            f"{source} does not start with the metadata of Chakra 0.0.4 or later: an older version wrote it, "
            "or a tool that left the metadata out. Write it again with a newer one, or convert its traces."
        )


def _messages(data: bytes, source: str) -> Iterator[tuple[int, bytes]]:
    """Yield offset and body of each length-prefixed message of *data*."""
    view, position = memoryview(data), 0
    while position < len(data):
        start, length, shift = position, 0, 0
        while True:
            if position >= len(data) or position - start >= _MAX_VARINT_BYTES:
                raise _damaged(source, start, "a message length is cut off")
            byte = data[position]
            position += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if length > len(data) - position:
            raise _damaged(
                source, start, f"a message of {length} bytes is announced, {len(data) - position} follow"
            )
        yield start, bytes(view[position : position + length])
        position += length


def _damaged(source: str, offset: int, what: str) -> WorkloadFormatError:
    return WorkloadFormatError(
        f"{source} is no Chakra .et file or is damaged at byte {offset}: {what}. Convert the trace set again."
    )


def _parse(kind: str, offset: int, body: bytes, source: str) -> Any:
    """Parse *body*, the message of that *kind* at *offset* of *source*."""
    from . import _schema  # noqa: PLC0415 - only reading needs protobuf, which is slow to import

    message = getattr(_schema, kind)()
    try:
        message.ParseFromString(body)
    except (_schema.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(source, offset, "the message does not decode") from error
    return message


def _decode_node(message: Any, place: str) -> tuple[dict[str, Any], list[Any]]:
    """Return the columns *message* says something about, and the attributes that have no column."""
    kind = message.type if 0 <= message.type <= NodeType.COMM_COLL else NodeType.INVALID
    node: dict[str, Any] = {
        "node_id": _bounded(message.id, "its id", place),
        "name": message.name,
        "type": kind,
        "duration_ns": _bounded(message.duration_micros * 1000, "its duration", place),
        "kind": _kind_of(kind),
    }
    known: set[str] = set()
    foreign = []
    for attribute in message.attr:
        name = attribute.name
        if name not in known and _decode_attribute(name, attribute, node, place):
            known.add(name)
        else:
            foreign.append(attribute)
    return node, foreign


def _kind_of(node_type: int) -> str:
    """Return the ``kind`` of a node whose file does not say."""
    if node_type in _COMM:
        return "communication"
    return "memory" if node_type in (NodeType.MEM_LOAD, NodeType.MEM_STORE) else "compute"


def _decode_attribute(name: str, attribute: Any, node: dict[str, Any], place: str) -> bool:
    """Move *attribute*, called *name*, into *node* if a column stands for it; return whether it did."""
    field = attribute.WhichOneof("value")
    value = getattr(attribute, field) if field else None
    integer = isinstance(value, int)
    if isinstance(value, int) and name in ATTRIBUTES:
        column, _ = ATTRIBUTES[name]
        node[column] = _bounded(int(value), name, place)
        if column == "comm_type" and not 0 <= node[column] < _COLLECTIVE_TYPES:
            raise WorkloadFormatError(
                f"{place}: comm_type {value} is no collective. Use 0 (all-reduce) to 9."
            )
    elif name == "is_cpu_op" and integer:
        node["is_cpu_op"] = bool(value)
    elif name == "pg_name" and isinstance(value, str):
        node["group"] = _group_id(value, place)
    elif name in TEXT_ATTRIBUTES and isinstance(value, str):
        node[name] = value
    else:
        return False
    return True


def _bounded(value: int, what: str, place: str) -> int:
    """Return *value* if it fits a signed 64-bit column."""
    if value > _INT64_MAX:
        raise WorkloadFormatError(f"{place}: {what} is {value}, above 2^63. Write the workload again.")
    return int(value)


def _group_id(name: str, place: str) -> int:
    """Return the number of group *name*; "" and "0" are all ranks."""
    if name and not (name.isascii() and name.isdigit() and len(name) < 19):
        raise WorkloadFormatError(
            f"{place}: process group '{name}' is not a number, which simulators require. Number the groups."
        )
    return int(name or 0)


def _leftover(message: Any, foreign: Sequence[Any]) -> bytes:
    """Return *message* without what the tables hold, with the attributes *foreign*; modifies it.

    A type that the tables do not know stays: written after theirs, it is the one that counts.
    """
    kept = [attribute.SerializeToString() for attribute in foreign]
    for field in ("id", "name", "data_deps", "ctrl_deps", "duration_micros"):
        message.ClearField(field)
    if 0 <= message.type <= NodeType.COMM_COLL:
        message.ClearField("type")
    message.ClearField("attr")
    for body in kept:
        message.attr.add().ParseFromString(body)
    leftover: bytes = message.SerializeToString(deterministic=True)
    return leftover
