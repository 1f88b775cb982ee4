"""What a device trace tells of operators' arguments, for jobs of which there is no host trace.

With ``record_shapes`` the profiler notes shapes, types and numbers of arguments, but neither which tensors
they are nor what an operator returned. Collectives are named, and their tensors given once more with their
type, by the annotation that their library adds.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

import msgspec

from ..errors import TraceFormatError
from .collectives import COMM_OPS
from .costs import returned_shape
from .files import read_json
from .host_trace import HostOp, HostTrace, host_trace
from .kineto import DeviceTrace, Event
from .nccl import PARAMETERS, dtype_bytes

__all__ = ["read_recorded_host", "with_own_records"]

_HOST = ("cpu_op", "user_annotation")
_NCCL, _GLOO = "nccl:", "gloo:"
_FUNCTIONAL = "_c10d_functional::"
_WAIT_TENSOR = "_c10d_functional::wait_tensor"
_MAX_ELEMENTS = 2**50
# Types of tensors in lists are not recorded.
_LIST_ELEMENT_BYTES = 4
_TYPE_BYTES = {
    "long int": 8, "short int": 2, "unsigned char": 1, "signed char": 1, "complex<float>": 8,
    "complex<double>": 16, "complex<half>": 4, "unsigned int": 4, "unsigned short": 2, "unsigned long": 8,
}  # fmt: skip
_NOTHING = msgspec.Raw(b"[]")
_NO_SHAPES = (
    "no host trace was given and the device trace has no shapes (record_shapes): costs and data dependencies "
    "are unknown, and collectives whose size the device trace does not tell keep their measured time"
)
_SHAPES_ONLY = (
    "no host trace was given: costs follow from the recorded shapes (returned tensors as large as the "
    f"largest argument, elements of tensors in lists {_LIST_ELEMENT_BYTES} bytes), data dependencies are "
    "unknown"
)


class _Arguments(msgspec.Struct, gc=False):
    record_id: Any = msgspec.field(default=0, name="Record function id")
    external_id: Any = msgspec.field(default=0, name="External id")
    shapes: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input type")
    values: msgspec.Raw = msgspec.field(default=_NOTHING, name="Concrete Inputs")


class _RawEvent(msgspec.Struct, gc=False):
    cat: Any = ""
    args: _Arguments | None = None


class _Document(msgspec.Struct):
    traceEvents: list[_RawEvent]


def with_own_records(trace: DeviceTrace) -> DeviceTrace:
    """Return *trace* with its events' external ids as record ids, if it is too old to have such."""
    return trace if trace.events.record_id.any() else trace.with_records(trace.events.external_id)


def read_recorded_host(path: Path, trace: DeviceTrace) -> tuple[HostTrace, str]:
    """Return what the device trace at *path* tells of operators' arguments, and what it does not tell.

    *trace* was read from *path*, and has record ids. Every tensor gets a storage of its own, so that no data
    dependency follows.
    """
    by_record = bool((trace.events.record_id != trace.events.external_id).any())
    recorded = _arguments(path, by_record=by_record)
    operators = _Recorded(recorded, trace.rows())
    return host_trace(operators), _SHAPES_ONLY if recorded else _NO_SHAPES


def _arguments(path: Path, *, by_record: bool) -> dict[int, _Arguments]:
    """Return the arguments of all operators and annotations with shapes; none if the file is odd."""
    try:
        document = read_json(path, _Document)
    except TraceFormatError:
        return {}
    found: dict[int, _Arguments] = {}
    for event in document.traceEvents:
        if event.cat in _HOST and event.args is not None and event.args.types != _NOTHING:
            number = event.args.record_id if by_record else event.args.external_id
            if isinstance(number, int) and number > 0:
                found[number] = event.args
    return found


class _Recorded(Mapping[int, HostOp]):
    """The operators by record id, put together when they are first asked for."""

    def __init__(self, arguments: Mapping[int, _Arguments], events: Sequence[Event]) -> None:
        self._arguments = arguments
        self._names = {
            event.record_id: event.name
            for event in events
            if event.record_id in arguments or event.name == PARAMETERS
        }
        self._collectives = {e.record_id: e.comm.collective for e in events if e.comm is not None}
        self._annotations = dict(_annotated(events))
        self._waited = dict(_waited(events))
        self._storages = count(1)
        self._built: dict[int, HostOp] = {}

    def __getitem__(self, record: int) -> HostOp:
        if record not in self._built:
            self._built[record] = self._build(record, self._names[record])
        return self._built[record]

    def __contains__(self, record: object) -> bool:
        return record in self._names

    def __iter__(self) -> Iterator[int]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _build(self, record: int, name: str) -> HostOp:
        if name == PARAMETERS:
            return HostOp(name, self._parameters(record), [], "")
        if record in self._waited:
            return HostOp(name, self[self._waited[record]].inputs, [], "")
        inputs, shapes = self._inputs(record)
        spec = COMM_OPS.get(name)
        if spec is not None:
            moved = self._annotated_tensors(record)
            if moved and 0 <= spec.sized_by < len(inputs):
                inputs[spec.sized_by] = moved
            return HostOp(name, inputs, [], "", shapes)
        if name.endswith("_"):
            return HostOp(name, inputs, inputs[:1], "", shapes)
        shape = returned_shape(name, shapes, inputs)
        width = max((item[4] for item in inputs if _is_tensor(item)), default=_LIST_ELEMENT_BYTES)
        return HostOp(name, inputs, [self._tensor(shape, width)], "", shapes, [shape])

    def _parameters(self, record: int) -> list[Any]:
        """Return the arguments of a ``record_param_comms``, as host traces spell them.

        One without a name and without the annotation of a collective is a wait.
        """
        annotation, name = self._annotations.get(record, (0, "wait"))
        moved = self._annotated_tensors(record) if annotation else []
        return [moved, -1, ["", ""], 0, self._collectives.get(record, name), [], [], 0, 1, 0]

    def _annotated_tensors(self, record: int) -> list[Any]:
        """Return the tensors in the annotation of collective *record*, [] without."""
        annotation, _ = self._annotations.get(record, (0, ""))
        if annotation not in self._arguments:
            return []
        return [item for item in self._inputs(annotation)[0] if _is_tensor(item)]

    def _inputs(self, record: int) -> tuple[list[Any], list[Any]]:
        """Return the arguments of *record* as host traces spell them, and their shapes."""
        raw = self._arguments[record]
        try:
            shapes, types, values = (
                msgspec.json.decode(part, type=list) for part in (raw.shapes, raw.types, raw.values)
            )
        except msgspec.MsgspecError:
            return [], []
        inputs = [
            self._argument(shape, kind, value)
            for shape, kind, value in zip_longest(shapes, types, values, fillvalue="")
        ]
        return inputs, shapes

    def _argument(self, shape: Any, kind: Any, value: Any) -> Any:
        width = _type_bytes(kind) if isinstance(kind, str) else 0
        if width and _is_shape(shape):
            return self._tensor(shape, width)
        if isinstance(shape, list) and shape and all(_is_shape(one) for one in shape):
            return [self._tensor(one, _LIST_ELEMENT_BYTES) for one in shape]
        return _number(value)

    def _tensor(self, shape: Sequence[int], width: int) -> list[Any]:
        return [0, next(self._storages), 0, math.prod(shape), width, ""]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 6 and value[5] == ""


def _is_shape(value: Any) -> bool:
    if not isinstance(value, list) or not all(type(size) is int and size >= 0 for size in value):
        return False
    return math.prod(value) < _MAX_ELEMENTS


def _type_bytes(name: str) -> int:
    """Return the bytes of an element of the C++ type *name*, 0 if it is no tensor's."""
    plain = name.removeprefix("c10::").lower()
    return _TYPE_BYTES.get(plain, 0) or dtype_bytes(plain)


def _number(value: Any) -> Any:
    """Return the number, truth value or list that *value* spells; the text itself if it is none of them."""
    if not isinstance(value, str) or not value:
        return None
    try:
        return json.loads(value.replace("True", "true").replace("False", "false"))
    except ValueError:
        return value


def _annotated(events: Sequence[Event]) -> Iterator[tuple[int, tuple[int, str]]]:
    """Yield, for operators that communicate, the annotation of the collective: its record id and name.

    It is the next one by number; NCCL's on the operator's thread, gloo's on any.
    """
    opened: dict[str, list[Event]] = {}
    latest = ""
    for event in sorted(events, key=lambda event: event.record_id):
        if event.name in COMM_OPS:
            latest = event.thread
            opened[latest] = [event]
        elif event.name == PARAMETERS:
            latest = event.thread
            around = opened.get(latest, [])[-1:]
            opened[latest] = [*(one for one in around if one.name in COMM_OPS), event]
        elif event.name.startswith((_NCCL, _GLOO)):
            thread = event.thread if event.name.startswith(_NCCL) else latest
            for one in opened.pop(thread, []):
                yield one.record_id, (event.record_id, event.name)


def _waited(events: Sequence[Event]) -> Iterator[tuple[int, int]]:
    """Yield, for every wait of a functional collective, the operator that it waits for: the oldest."""
    pending: deque[int] = deque()
    issued_until: dict[str, int] = {}
    for event in events:
        if event.name == _WAIT_TENSOR:
            if pending:
                yield event.record_id, pending.popleft()
        elif event.name.startswith(_FUNCTIONAL):
            issued_until[event.thread] = event.end_ns
        elif event.name in COMM_OPS and event.start_ns < issued_until.get(event.thread, 0):
            pending.append(event.record_id)
