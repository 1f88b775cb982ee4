"""Host traces: the JSON of PyTorch's ExecutionTraceObserver, which knows tensors and groups but no times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from .files import read_json

__all__ = ["HostOp", "HostTrace", "Tensor", "read_host_trace", "tensors"]

_TENSOR_FIELDS = 6
_GROUPS_NODE = "process_group:init"


class _Values(msgspec.Struct, gc=False):
    values: list[Any] = msgspec.field(default_factory=list)
    shapes: list[Any] = msgspec.field(default_factory=list)


class _Attribute(msgspec.Struct, gc=False):
    name: str
    value: Any = None


class _RawNode(msgspec.Struct, gc=False):
    """A node of schema 1.0.2 and later, or of 1.0.1, which keeps everything at the top level."""

    id: int
    name: str
    inputs: _Values | list[Any] = msgspec.field(default_factory=_Values)
    outputs: _Values | list[Any] = msgspec.field(default_factory=_Values)
    attrs: list[_Attribute] = msgspec.field(default_factory=list)
    ctrl_deps: Any = 0
    parent: Any = 0
    rf_id: Any = 0
    tid: Any = 0
    op_schema: Any = ""
    input_shapes: list[Any] = msgspec.field(default_factory=list)
    output_shapes: list[Any] = msgspec.field(default_factory=list)


class _Document(msgspec.Struct):
    nodes: list[_RawNode]
    schema: str = ""


class Tensor(msgspec.Struct, frozen=True, gc=False):
    """A tensor argument: which storage it lies in, and its size."""

    storage: int
    size_bytes: int


class HostOp(msgspec.Struct, frozen=True):
    """One recorded operator: its arguments as the trace spells them, and its schema.

    *node_id* counts in order of start, *parent* is another's *node_id*; *thread* numbers the process's
    threads from 1 in a way that the device trace does not share.
    """

    name: str
    inputs: list[Any]
    outputs: list[Any]
    schema: str
    shapes: list[Any] = []
    output_shapes: list[Any] = []
    node_id: int = 0
    parent: int = 0
    thread: int = 0


class HostTrace(msgspec.Struct, frozen=True):
    """The operators of one rank by record-function id, and the groups it listed (empty ranks: all)."""

    operators: dict[int, HostOp]
    groups: dict[str, tuple[int, ...]]
    schema: str = ""


def read_host_trace(path: Path) -> HostTrace:
    """Read the ExecutionTraceObserver JSON at *path* (plain or gzip), schemas 1.0.1 to 1.1.x."""
    document = read_json(path, _Document)
    operators: dict[int, HostOp] = {}
    groups: dict[str, tuple[int, ...]] = {}
    for node in document.nodes:
        if _GROUPS_NODE in node.name:
            groups.update(_listed_groups(node))
            continue
        record, operator = _operator(node)
        if record > 0:
            operators[record] = operator
    return HostTrace(operators, groups, document.schema)


def _operator(node: _RawNode) -> tuple[int, HostOp]:
    """Return the record-function id of *node* (0 if it has none) and what it says."""
    record, thread, schema = node.rf_id, node.tid, node.op_schema
    for attribute in node.attrs:
        if attribute.name == "rf_id":
            record = attribute.value
        elif attribute.name == "tid":
            thread = attribute.value
        elif attribute.name == "op_schema":
            schema = attribute.value
    inputs, outputs = node.inputs, node.outputs
    if isinstance(inputs, list):
        inputs = _Values(inputs, node.input_shapes)
    if isinstance(outputs, list):
        outputs = _Values(outputs, node.output_shapes)
    parent = node.ctrl_deps or node.parent
    return record if isinstance(record, int) else 0, HostOp(
        node.name,
        inputs.values,
        outputs.values,
        str(schema or ""),
        inputs.shapes,
        outputs.shapes,
        node.id,
        parent if isinstance(parent, int) else 0,
        thread if isinstance(thread, int) else 0,
    )


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
    values = node.inputs if isinstance(node.inputs, list) else node.inputs.values
    try:
        listed = json.loads(values[0])
        return {str(group["pg_name"]): tuple(int(rank) for rank in group["ranks"]) for group in listed}
    except (IndexError, KeyError, TypeError, ValueError):
        return {}
