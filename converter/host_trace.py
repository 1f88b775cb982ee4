"""Host traces: the JSON of PyTorch's ExecutionTraceObserver, which knows tensors and groups but no times."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import TraceFormatError
from .files import read_json

__all__ = ["HostOp", "HostTrace", "Tensor", "read_host_trace", "tensors"]

_TENSOR_FIELDS = 6
_GROUPS_NODE = "process_group:init"


_NOTHING = msgspec.Raw(b"[]")


class _Values(msgspec.Struct, gc=False):
    values: list[Any] = msgspec.field(default_factory=list)
    shapes: list[Any] = msgspec.field(default_factory=list)


class _Attribute(msgspec.Struct, gc=False):
    name: str
    value: Any = None


class _RawNode(msgspec.Struct, gc=False):
    """A node of schema 1.0.2 and later, or of 1.0.1, which keeps everything at the top level.

    Its arguments, most of the file, are decoded only when somebody asks for the operator.
    """

    id: int
    name: str
    inputs: msgspec.Raw = _NOTHING
    outputs: msgspec.Raw = _NOTHING
    attrs: list[_Attribute] = msgspec.field(default_factory=list)
    rf_id: Any = 0
    tid: Any = 0
    op_schema: Any = ""
    input_shapes: msgspec.Raw = _NOTHING
    output_shapes: msgspec.Raw = _NOTHING


class _Document(msgspec.Struct):
    nodes: list[_RawNode]
    schema: str = ""


class Tensor(msgspec.Struct, frozen=True, gc=False):
    """A tensor argument: which storage it lies in, and its size."""

    storage: int
    size_bytes: int


class HostOp(msgspec.Struct, frozen=True):
    """One recorded operator: its arguments as the trace spells them, and its schema.

    *thread* numbers the process's threads from 1 in a way that the device trace does not share.
    """

    name: str
    inputs: list[Any]
    outputs: list[Any]
    schema: str
    shapes: list[Any] = []
    output_shapes: list[Any] = []
    thread: int = 0


class HostTrace(msgspec.Struct, frozen=True):
    """The operators of one rank by record-function id, and the groups it listed (empty ranks: all)."""

    operators: Mapping[int, HostOp]
    groups: dict[str, tuple[int, ...]]
    schema: str = ""


class _Node(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a node until it is asked for."""

    id: int
    name: str
    schema: str
    thread: int
    inputs: msgspec.Raw
    outputs: msgspec.Raw
    input_shapes: msgspec.Raw
    output_shapes: msgspec.Raw


class _Operators(Mapping[int, HostOp]):
    """The operators of a file by record-function id, decoded when they are first asked for."""

    def __init__(self, nodes: dict[int, _Node], path: Path) -> None:
        self._nodes, self._path = nodes, path
        self._decoded: dict[int, HostOp] = {}

    def __getitem__(self, record: int) -> HostOp:
        found = self._decoded.get(record)
        if found is None:
            found = self._decoded[record] = self._decode(self._nodes[record])
        return found

    def __contains__(self, record: object) -> bool:
        return record in self._nodes

    def __iter__(self) -> Iterator[int]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def _decode(self, node: _Node) -> HostOp:
        try:
            inputs = _values(node.inputs, node.input_shapes)
            outputs = _values(node.outputs, node.output_shapes)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise TraceFormatError(
                f"{self._path}: the arguments of node {node.id} '{node.name}' cannot be read ({error}). "
                "Capture again."
            ) from error
        return HostOp(
            node.name,
            inputs.values,
            outputs.values,
            node.schema,
            inputs.shapes,
            outputs.shapes,
            node.thread,
        )


def _kept(node: _RawNode) -> tuple[int, _Node]:
    """Return the record-function id of *node* (0 if it has none) and what is kept of it."""
    record, thread, schema = node.rf_id, node.tid, node.op_schema
    for attribute in node.attrs:
        if attribute.name == "rf_id":
            record = attribute.value
        elif attribute.name == "tid":
            thread = attribute.value
        elif attribute.name == "op_schema":
            schema = attribute.value
    return record if isinstance(record, int) else 0, _Node(
        node.id,
        sys.intern(node.name),
        sys.intern(schema) if isinstance(schema, str) else "",
        thread if isinstance(thread, int) else 0,
        node.inputs,
        node.outputs,
        node.input_shapes,
        node.output_shapes,
    )


_decode_values = msgspec.json.Decoder(_Values | list[Any]).decode


def _values(raw: msgspec.Raw, shapes: msgspec.Raw) -> _Values:
    """Decode the arguments of a node; in schema 1.0.1 they are a list and *shapes* stands apart."""
    found: _Values | list[Any] = _decode_values(raw)
    if isinstance(found, list):
        return _Values(found, msgspec.json.decode(shapes, type=list))
    return found


def read_host_trace(path: Path) -> HostTrace:
    """Read the ExecutionTraceObserver JSON at *path* (plain or gzip), schemas 1.0.1 to 1.1.x.

    The arguments of an operator are decoded when it is first asked for, which may raise `TraceFormatError`.
    """
    document = read_json(path, _Document)
    nodes: dict[int, _Node] = {}
    groups: dict[str, tuple[int, ...]] = {}
    for node in document.nodes:
        if _GROUPS_NODE in node.name:
            groups.update(_listed_groups(node))
            continue
        record, kept = _kept(node)
        if record > 0:
            nodes[record] = kept
    return HostTrace(_Operators(nodes, path), groups, document.schema)


def tensors(value: Any) -> list[Tensor]:
    """Return every tensor in *value*, an argument or a list of them, however nested."""
    found: list[Tensor] = []
    pending = [value]
    while pending:
        item = pending.pop()
        if type(item) is not list:
            continue
        if len(item) == _TENSOR_FIELDS and type(item[5]) is str:
            _, storage, _, elements, width, _ = item
            if type(storage) is type(elements) is type(width) is int:
                found.append(Tensor(storage, max(0, elements) * max(0, width)))
        else:
            pending += [part for part in reversed(item) if type(part) is list]
    return found


def _listed_groups(node: _RawNode) -> dict[str, tuple[int, ...]]:
    """Return the groups in the list PyTorch notes when an observer starts; anything odd counts as absent."""
    try:
        listed = json.loads(_values(node.inputs, node.input_shapes).values[0])
        return {str(group["pg_name"]): tuple(int(rank) for rank in group["ranks"]) for group in listed}
    except (IndexError, KeyError, TypeError, ValueError, msgspec.MsgspecError):
        return {}
