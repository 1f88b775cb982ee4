"""Read the arguments of operators from device traces, for jobs without host traces.

With ``record_shapes`` the profiler records shapes, types and numeric values of arguments. The
profiler records neither the identity of tensors nor the results of an operator. The annotation of the
communication library names the collective, and lists the collective's tensors with their type.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from .._columns import which
from ..readers import (
    COMM_OPS,
    FUNCTIONAL,
    GLOO,
    NCCL,
    PARAMETERS,
    CommArguments,
    DeviceTrace,
    Event,
    HostOp,
    HostTrace,
    Kinds,
    dtype_bytes,
    is_floating,
)
from ._costs import returned_shapes
from ._operator_classes import class_of, plain_name

_WAIT_TENSOR = f"{FUNCTIONAL}wait_tensor"
_COMMUNICATION = (PARAMETERS, NCCL, GLOO, FUNCTIONAL)
_MESSAGES = ("send", "recv")
_MAX_ELEMENTS = 2**50
# The assumed bytes per element of tensors in lists, because the profiler does not record their types.
LIST_ELEMENT_BYTES = 4
_BOOLEAN = frozenset({
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "logical_xor", "isnan",
    "isinf", "isfinite", "all", "any",
})  # fmt: skip
_NOTHING = "[[], [], []]"
_NO_SHAPES = (
    "no host trace was given and the device trace has no shapes (record_shapes): costs and data dependencies "
    "are unknown, and collectives whose size is not in the device trace keep their measured time"
)
_SHAPES_ONLY = (
    "no host trace was given: costs follow from the recorded shapes (returned tensors as large as the "
    f"largest argument, elements of tensors in lists {LIST_ELEMENT_BYTES} bytes), data dependencies are "
    "unknown"
)


class _Kind(NamedTuple):
    """The common arguments of equal operator calls, *spelled* as in the trace.

    For communication, *moved* are the arguments of the library's annotation. *collective* is the collective's
    name in this annotation or in the operator's arguments. *message* is the peer and the bytes of a send or
    receive.
    """

    name: str
    spelled: str = _NOTHING
    moved: str = _NOTHING
    collective: str = ""
    message: tuple[int, int] | None = None


class _RecordedKinds(Kinds):
    """Kinds of operator calls, assembled from recorded arguments on first use."""

    def __init__(self, kinds: Sequence[_Kind]) -> None:
        super().__init__([kind.name for kind in kinds], [""] * len(kinds), [""] * len(kinds))
        self._kinds = kinds

    def __getitem__(self, kind: int) -> HostOp:
        if kind not in self._decoded:
            self._decoded[kind] = _operator(self._kinds[kind])
        return self._decoded[kind]


def with_own_records(trace: DeviceTrace) -> DeviceTrace:
    """Return *trace* with the events' external ids as record ids, if an old trace lacks record ids."""
    return trace if trace.events.record_id.any() else trace.with_records(trace.events.external_id)


def read_recorded_host(trace: DeviceTrace) -> tuple[HostTrace, str]:
    """Return the operators' arguments in *trace* as a host trace, and a note on missing arguments.

    *trace* must have been read with arguments, and must have record ids. In the result, only a functional
    collective and its wait share a storage. Other data dependencies are unknown.
    """
    own, kinds = _called(trace)
    relevant = which(trace.texts, lambda text: text in COMM_OPS or text.startswith(_COMMUNICATION))
    events = replace(trace, events=trace.events.take(relevant[trace.events.name])).rows()
    spelled = {
        event.record_id: trace.arguments[event.arguments]
        for event in events
        if event.arguments >= 0 and event.record_id > 0
    }
    communicating = {
        event.record_id: kind
        for event, kind in _communications(events, spelled)
        if kind.name == PARAMETERS or event.record_id in spelled or kind.message is not None
    }
    numbers: dict[_Kind, int] = {}
    kind_of = {
        record: len(kinds) + numbers.setdefault(kind, len(numbers)) for record, kind in communicating.items()
    }
    host = _host_trace(own | kind_of, [*kinds, *numbers], dict(_waited(events)))
    return host, _SHAPES_ONLY if own else _NO_SHAPES


def recorded_operator(name: str, spelled: str) -> HostOp:
    """Return the operator called *name* with arguments as spelled in a device trace."""
    return _operator(_Kind(name, spelled))


def _called(trace: DeviceTrace) -> tuple[dict[int, int], list[_Kind]]:
    """Return the index of each recorded operator's kind by record id, and the list of kinds."""
    events = trace.events
    known = np.flatnonzero((events.arguments >= 0) & (events.record_id > 0))
    records, first = np.unique(events.record_id[known], return_index=True)
    calls = np.column_stack([events.name, events.arguments])[known[first]]
    different, kind = np.unique(calls, axis=0, return_inverse=True)
    kinds = [_Kind(trace.texts[name], trace.arguments[called]) for name, called in different.tolist()]
    return dict(zip(records.tolist(), kind.ravel().tolist(), strict=True)), kinds


def _host_trace(kind_of: Mapping[int, int], kinds: Sequence[_Kind], waited: Mapping[int, int]) -> HostTrace:
    """Return the host trace of the given records; pairs of *waited* (waiting, collective) share a storage."""
    shared = {record: number for number, pair in enumerate(waited.items()) for record in pair}
    records = np.array(sorted(kind_of), dtype=np.int64)
    begin = np.array([shared.get(record, 0) for record in records.tolist()], dtype=np.int64)
    end = begin + np.array([record in shared for record in records.tolist()], dtype=np.int64)
    return HostTrace(
        records=records,
        kind=np.array([kind_of[record] for record in records.tolist()], dtype=np.int64),
        thread=np.zeros(len(records), dtype=np.int64),
        begin=begin,
        end=end,
        inputs_end=end,
        first_end=end,
        storages=np.arange(len(waited), dtype=np.int64),
        kinds=_RecordedKinds(kinds),
    )


def _communications(events: Sequence[Event], spelled: Mapping[int, str]) -> Iterator[tuple[Event, _Kind]]:
    """Yield the communicating operators with their arguments."""
    annotations = dict(_annotated(events))
    messages = dict(_messages(events))
    for event in events:
        record = event.record_id
        if event.name == PARAMETERS or event.name in COMM_OPS:
            annotation, name = annotations.get(record, (0, "wait"))
            stated = event.comm.collective if event.comm is not None else name
            moved = spelled.get(annotation, _NOTHING)
            own = spelled.get(record, _NOTHING)
            yield event, _Kind(event.name, own, moved, stated, messages.get(record))


def _annotated(events: Sequence[Event]) -> Iterator[tuple[int, tuple[int, str]]]:
    """Yield communicating operators with the record id and the name from the collective's annotation.

    The annotation of a collective is the next annotation by record id. NCCL's annotation is on the operator's
    thread; gloo's annotation may be on any thread.
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
        elif event.name.startswith((NCCL, GLOO)):
            thread = event.thread if event.name.startswith(NCCL) else latest
            for one in opened.pop(thread, []):
                yield one.record_id, (event.record_id, event.name)


def _messages(events: Sequence[Event]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield sends and receives with the peer and the bytes in their recorded parameters."""
    around: dict[str, Event] = {}
    for event in events:
        if event.name in COMM_OPS:
            around[event.thread] = event
        elif event.comm is not None and event.comm.collective in _MESSAGES and event.thread in around:
            outer = around[event.thread]
            if event.start_ns < outer.end_ns and _message_bytes(event.comm):
                yield outer.record_id, (event.comm.peer, _message_bytes(event.comm))


def _message_bytes(comm: CommArguments) -> int:
    return max(0, comm.in_elements, comm.out_elements) * dtype_bytes(comm.dtype)


def _waited(events: Sequence[Event]) -> Iterator[tuple[int, int]]:
    """Yield the waits of functional collectives, each with the oldest operator without a wait."""
    pending: deque[int] = deque()
    issued_until: dict[str, int] = {}
    for event in events:
        if event.name == _WAIT_TENSOR:
            if pending:
                yield event.record_id, pending.popleft()
        elif event.name.startswith(FUNCTIONAL):
            issued_until[event.thread] = event.end_ns
        elif event.name in COMM_OPS and event.start_ns < issued_until.get(event.thread, 0):
            pending.append(event.record_id)


def _operator(kind: _Kind) -> HostOp:
    """Return the calls of *kind* as an operator of a host trace."""
    moved = [item for item in _inputs(kind.moved)[0] if _is_tensor(item)]
    if kind.name == PARAMETERS:
        return HostOp(kind.name, [moved, -1, ["", ""], 0, kind.collective, [], [], 0, 1, 0], [], "")
    inputs, shapes, types = _inputs(kind.spelled)
    spec = COMM_OPS.get(kind.name)
    if spec is not None:
        if kind.message is not None and not moved:
            peer, size = kind.message
            moved, inputs = [_tensor([size], 1)], [None, None, peer, 0]
        if moved and 0 <= spec.sized_by < len(inputs):
            inputs[spec.sized_by] = moved
        return HostOp(kind.name, inputs, [], "", shapes)
    if kind.name.endswith("_"):
        return HostOp(kind.name, inputs, inputs[:1], "", shapes, types=types)
    returned = returned_shapes(kind.name, shapes, inputs)
    width = _returned_width(plain_name(kind.name), inputs, shapes, types)
    outputs = [_tensor(shape, width) for shape in returned]
    return HostOp(kind.name, inputs, outputs, "", shapes, returned, types)


def _returned_width(name: str, inputs: Sequence[Any], shapes: Sequence[Any], types: Sequence[Any]) -> int:
    """Return the bytes per element of the result of the operator *name*.

    Floating-point types take precedence over integer types. Tensors without dimensions do not change the
    type. Products of 8-bit factors have 16 bits.
    """
    if name in _BOOLEAN:
        return 1
    tensors: list[tuple[int, bool, bool]] = [
        (item[4], is_floating(of), bool(shape))
        for item, of, shape in zip(inputs, types, shapes, strict=False)
        if _is_tensor(item)
    ]
    tensors = [tensor for tensor in tensors if tensor[2]] or tensors
    widths = [width for width, floating, _ in tensors if floating] or [width for width, _, _ in tensors]
    if not widths:
        return LIST_ELEMENT_BYTES
    kind = class_of(name)
    if kind == "elementwise":
        return max(widths)
    return max(2, widths[0]) if kind == "gemm" else widths[0]


def _inputs(spelled: str) -> tuple[list[Any], list[Any], list[Any]]:
    """Return arguments in the format of host traces, their shapes and their types."""
    try:
        shapes, types, values = msgspec.json.decode(spelled, type=list[list[Any]])
    except msgspec.MsgspecError:
        return [], [], []
    inputs = [
        _argument(shape, kind, value)
        for shape, kind, value in zip_longest(shapes, types, values, fillvalue="")
    ]
    return inputs, shapes, types


def _argument(shape: Any, kind: Any, value: Any) -> Any:
    width = dtype_bytes(kind) if isinstance(kind, str) else 0
    if width and _is_shape(shape):
        return _tensor(shape, width)
    if isinstance(shape, list) and shape and all(_is_shape(one) for one in shape):
        return [_tensor(one, LIST_ELEMENT_BYTES) for one in shape]
    return _number(value)


def _tensor(shape: Sequence[int], width: int) -> list[Any]:
    return [0, 0, 0, math.prod(shape), width, ""]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 6 and value[5] == ""


def _is_shape(value: Any) -> bool:
    if not isinstance(value, list) or not all(type(size) is int and size >= 0 for size in value):
        return False
    return math.prod(value) < _MAX_ELEMENTS


def _number(value: Any) -> Any:
    """Return the number, Boolean or list in the text *value*; return other text unchanged."""
    if not isinstance(value, str) or not value:
        return None
    try:
        return json.loads(value.replace("True", "true").replace("False", "false"))
    except ValueError:
        return value
