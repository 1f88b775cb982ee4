"""Chakra ``.et`` files: length-prefixed messages, one ``GlobalMetadata``, then the nodes in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from google.protobuf.message import DecodeError

from ..errors import WorkloadFormatError
from ._schema import GlobalMetadata, Node
from .graph import EdgeKind, Graph, NodeType

__all__ = ["decode_graph", "encode_graph"]

_FORMAT_VERSION = "0.0.4"
_MAX_VARINT_BYTES = 5
_COLLECTIVE_TYPES = 10
_INT64_MAX = 2**63 - 1

# attribute -> (column, value field we write). ASTRA-sim reads the first ones and ignores the last four.
_INT_ATTRIBUTES = {
    "comm_type": ("comm_type", "int64_val"),
    "comm_size": ("comm_size_bytes", "int64_val"),
    "comm_src": ("comm_src", "int32_val"),
    "comm_dst": ("comm_dst", "int32_val"),
    "comm_tag": ("comm_tag", "int32_val"),
    "num_ops": ("num_ops", "int64_val"),
    "tensor_size": ("tensor_size_bytes", "uint64_val"),
    "duration_ns": ("duration_ns", "uint64_val"),
    "stream": ("stream", "int64_val"),
    "step": ("step", "int64_val"),
    "measured_start_ns": ("measured_start_ns", "int64_val"),
}
_TEXT_ATTRIBUTES = ("kind", "operator", "module", "phase")
_UNSET_IS_MINUS_ONE = {
    "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "num_ops", "tensor_size", "step",
    "measured_start_ns",
}  # fmt: skip
_COMM = (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)


def encode_graph(graph: Graph) -> bytes:
    """Return *graph* as the bytes of an ``.et`` file that ASTRA-sim reads.

    ``duration_micros`` is the nanosecond duration rounded with carry along each lane, so that sums agree to
    half a microsecond; the exact value is in the attribute ``duration_ns``.
    """
    data, ctrl = _dependencies(graph.edges)
    carry: dict[int, int] = {}
    parts = [_framed(GlobalMetadata(version=_FORMAT_VERSION))]
    row: Any
    for row in graph.nodes.itertuples(index=False):
        message = Node()
        if row.node_id in graph.extra:
            message.ParseFromString(graph.extra[row.node_id])
        message.id, message.name, message.type = row.node_id, row.name, row.type
        message.data_deps.extend(data.get(row.node_id, ()))
        message.ctrl_deps.extend(ctrl.get(row.node_id, ()))
        exact = row.duration_ns + carry.get(row.stream, 0)
        message.duration_micros = max(0, (exact + 500) // 1000)
        carry[row.stream] = exact - message.duration_micros * 1000
        _encode_attributes(message, row)
        parts.append(_framed(message))
    return b"".join(parts)


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
    _parse(GlobalMetadata, *first, source)
    nodes: list[dict[str, Any]] = []
    edges: list[tuple[int, int, int]] = []
    extra: dict[int, bytes] = {}
    for offset, body in messages:
        message = _parse(Node, offset, body, source)
        node = _decode_node(message, f"{source}, offset {offset}")
        nodes.append(node)
        edges += [(dep, node["node_id"], EdgeKind.DATA) for dep in message.data_deps]
        edges += [(dep, node["node_id"], EdgeKind.CTRL) for dep in message.ctrl_deps]
        rest = _leftover(message)
        if rest:
            extra[node["node_id"]] = rest
    if len({node["node_id"] for node in nodes}) != len(nodes):
        raise WorkloadFormatError(f"{source} has two nodes of the same id. Write the workload again.")
    if any(src > _INT64_MAX for src, _, _ in edges):
        raise WorkloadFormatError(f"{source} has a dependency on an id above 2^63. Write the workload again.")
    return Graph.build(rank, nodes, edges, extra=extra)


def _dependencies(edges: pd.DataFrame) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Return the sources of each target: those of data edges, and those of all others."""
    data: dict[int, list[int]] = {}
    ctrl: dict[int, list[int]] = {}
    for src, dst, kind in zip(
        edges["src"].tolist(), edges["dst"].tolist(), edges["kind"].tolist(), strict=True
    ):
        (data if kind == EdgeKind.DATA else ctrl).setdefault(dst, []).append(src)
    return data, ctrl


def _framed(message: Any) -> bytes:
    """Return *message* behind its varint length."""
    body: bytes = message.SerializeToString(deterministic=True)
    length, prefix = len(body), bytearray()
    while length > 127:
        prefix.append(length & 127 | 128)
        length >>= 7
    return bytes([*prefix, length]) + body


def _encode_attributes(message: Any, row: Any) -> None:
    """Add the columns of *row* that say something to *message*."""
    message.attr.add(name="is_cpu_op", bool_val=bool(row.is_cpu_op))
    for name, (column, field) in _INT_ATTRIBUTES.items():
        value = getattr(row, column)
        if value >= 0 or name not in _UNSET_IS_MINUS_ONE:
            message.attr.add(name=name, **{field: int(value)})
    if row.group:
        message.attr.add(name="pg_name", string_val=str(row.group))
    for name in _TEXT_ATTRIBUTES:
        value = getattr(row, name)
        if value:
            message.attr.add(name=name, string_val=value)


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


def _parse(message_class: Callable[[], Any], offset: int, body: bytes, source: str) -> Any:
    """Parse *body*, the message at *offset* of *source*."""
    message = message_class()
    try:
        message.ParseFromString(body)
    except (DecodeError, UnicodeDecodeError) as error:
        raise _damaged(source, offset, "the message does not decode") from error
    return message


def _decode_node(message: Any, place: str) -> dict[str, Any]:
    """Return the columns *message* says something about."""
    kind = message.type if 0 <= message.type <= NodeType.COMM_COLL else NodeType.INVALID
    node: dict[str, Any] = {
        "node_id": _bounded(message.id, "its id", place),
        "name": message.name,
        "type": kind,
        "duration_ns": _bounded(message.duration_micros * 1000, "its duration", place),
        "kind": _kind_of(kind),
    }
    known: set[str] = set()
    for attribute in message.attr:
        if attribute.name not in known and _decode_attribute(attribute, node, place):
            known.add(attribute.name)
    node["operator"] = node.get("operator", "")
    return node


def _kind_of(node_type: int) -> str:
    """Return the ``kind`` of a node whose file does not say."""
    if node_type in _COMM:
        return "communication"
    return "memory" if node_type in (NodeType.MEM_LOAD, NodeType.MEM_STORE) else "compute"


def _decode_attribute(attribute: Any, node: dict[str, Any], place: str) -> bool:
    """Move *attribute* into *node* if a column stands for it; return whether it did."""
    field = attribute.WhichOneof("value")
    value = getattr(attribute, field) if field else None
    integer = isinstance(value, int)
    if attribute.name in _INT_ATTRIBUTES and isinstance(value, int):
        column, _ = _INT_ATTRIBUTES[attribute.name]
        node[column] = _bounded(int(value), attribute.name, place)
        if column == "comm_type" and not 0 <= node[column] < _COLLECTIVE_TYPES:
            raise WorkloadFormatError(
                f"{place}: comm_type {value} is no collective. Use 0 (all-reduce) to 9."
            )
    elif attribute.name == "is_cpu_op" and integer:
        node["is_cpu_op"] = bool(value)
    elif attribute.name == "pg_name" and isinstance(value, str):
        node["group"] = _group_id(value, place)
    elif attribute.name in _TEXT_ATTRIBUTES and isinstance(value, str):
        node[attribute.name] = value
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


def _leftover(message: Any) -> bytes:
    """Return *message* without what the tables hold; modifies it."""
    for field in ("id", "name", "type", "data_deps", "ctrl_deps", "duration_micros"):
        message.ClearField(field)
    known: set[str] = set()
    rest = []
    for attribute in message.attr:
        if attribute.name not in known and _decode_attribute(attribute, {}, ""):
            known.add(attribute.name)
        else:
            rest.append(attribute)
    kept = [attribute.SerializeToString() for attribute in rest]
    message.ClearField("attr")
    for body in kept:
        message.attr.add().ParseFromString(body)
    leftover: bytes = message.SerializeToString(deterministic=True)
    return leftover
