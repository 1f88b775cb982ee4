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


class _Attribute(msgspec.Struct, gc=False):
    name: str
    value: Any = None


class _RawNode(msgspec.Struct, gc=False):
    id: int
    name: str
    inputs: _Values = msgspec.field(default_factory=_Values)
    outputs: _Values = msgspec.field(default_factory=_Values)
    attrs: list[_Attribute] = msgspec.field(default_factory=list)


class _Document(msgspec.Struct):
    nodes: list[_RawNode]
    schema: str = ""


class Tensor(msgspec.Struct, frozen=True, gc=False):
    """A tensor argument: which storage it lies in, and its size."""

    storage: int
    size_bytes: int


class HostOp(msgspec.Struct, frozen=True):
    """One recorded operator: its arguments as the trace spells them, and its schema."""

    name: str
    inputs: list[Any]
    outputs: list[Any]
    schema: str


class HostTrace(msgspec.Struct, frozen=True):
    """The operators of one rank by record-function id, and the groups it listed (empty ranks: all)."""

    operators: dict[int, HostOp]
    groups: dict[str, tuple[int, ...]]


def read_host_trace(path: Path) -> HostTrace:
    """Read the ExecutionTraceObserver JSON at *path* (plain or gzip)."""
    document = read_json(path, _Document)
    operators: dict[int, HostOp] = {}
    groups: dict[str, tuple[int, ...]] = {}
    for node in document.nodes:
        if _GROUPS_NODE in node.name:
            groups.update(_listed_groups(node))
            continue
        attributes = {attribute.name: attribute.value for attribute in node.attrs}
        record = attributes.get("rf_id")
        if isinstance(record, int) and record > 0:
            schema = str(attributes.get("op_schema") or "")
            operators[record] = HostOp(node.name, node.inputs.values, node.outputs.values, schema)
    return HostTrace(operators, groups)


def tensors(value: Any) -> list[Tensor]:
    """Return every tensor in *value*, an argument or a list of them, however nested."""
    found: list[Tensor] = []
    pending = [value]
    while pending:
        item = pending.pop()
        if not isinstance(item, list):
            continue
        if (
            len(item) == _TENSOR_FIELDS
            and isinstance(item[5], str)
            and all(isinstance(x, int) for x in item[:5])
        ):
            found.append(Tensor(item[1], max(0, item[3]) * max(0, item[4])))
        else:
            pending.extend(reversed(item))
    return found


def _listed_groups(node: _RawNode) -> dict[str, tuple[int, ...]]:
    """Return the groups in the list PyTorch notes when an observer starts; anything odd counts as absent."""
    try:
        listed = json.loads(node.inputs.values[0])
        return {str(group["pg_name"]): tuple(int(rank) for rank in group["ranks"]) for group in listed}
    except (IndexError, KeyError, TypeError, ValueError):
        return {}
