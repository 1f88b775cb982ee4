"""The time and work of each operator of a rank, by its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..linking import KERNEL, Lane, Launches, host_rows
from ..readers import (
    DeviceTrace,
    HostOp,
    HostTrace,
    Ops,
    kernel_width,
    precision_of,
    short_type,
)
from ._costs import operator_work
from ._operator_classes import COPY
from ._recorded_shapes import recorded_operator
from ._serving import Batches, Context, allocated_in, needs_context, work_in_context

# The class of copies between host and device, which the device's memory does not bound.
TRANSFER = "transfer"
_TO_HOST = ("HtoD", "DtoH", "HostToDevice", "DeviceToHost")
_MOST_ARGUMENTS = 3
# A device trace gives no types of tensors in lists: this many bytes per element are counted until known.
_LIST_TYPE, _LIST_ELEMENT_BYTES = "TensorList", 4


class _Called(NamedTuple):
    """An operator called alike: the kind of its *record* (-1: none), or its name and *spelled* arguments."""

    record: int
    name: str
    spelled: str
    context: Context


class OperatorCalls(NamedTuple):
    """The calls of one operator with the same arguments on a rank.

    *kind* is its class, "" if it has no model. *time_ns* is that of its *pieces* of device work, of all
    *calls*; on the host that of the calls themselves. *operations* and bytes are those of one call.
    """

    operator: str
    kind: str
    precision: str
    arguments: str
    operations: int
    read_bytes: int
    written_bytes: int
    calls: int
    pieces: int
    time_ns: int


def device_operators(
    trace: DeviceTrace, launches: Launches, lanes: Sequence[Lane], host: HostTrace
) -> list[OperatorCalls]:
    """Return the operators with device work among *launches*, except communication."""
    own = np.flatnonzero(~launches.is_comm)
    rows = host_rows(launches, lanes, host)
    kind, call = np.full(len(launches), -1, dtype=np.int64), (launches.lane << 32) + launches.op
    kind[rows >= 0] = host.kind[rows[rows >= 0]]
    others: dict[_Called, int] = {}
    batches = Batches(trace)
    records = [record for record in np.unique(kind[own]).tolist() if record >= 0]
    in_context = [record for record in records if needs_context(host.kinds.names[record])]
    has_origin = np.isin(own, [*launches.origins])
    for index in own[(kind[own] < 0) | np.isin(kind[own], in_context) | has_origin].tolist():
        called, call[index] = _called(trace, launches, lanes, index, batches)
        if index not in launches.origins:
            called = called._replace(record=int(kind[index]))
        kind[index] = -1 - others.setdefault(called, len(others))
    names, times = trace.works.name[launches.work], launches.end_ns - launches.start_ns
    listed, found = list(others), []
    for number in np.unique(kind[own]).tolist():
        mine = own[kind[own] == number]
        figures = len(np.unique(call[mine])), len(mine), int(times[mine].sum())
        pieces = [trace.texts[name] for name in np.unique(names[mine]).tolist()]
        record, name, spelled, context = (
            listed[-1 - number] if number < 0 else _Called(number, "", "", Context())
        )
        if record >= 0 or spelled:
            op = host.kinds[record] if record >= 0 else recorded_operator(name, spelled)
            found.append(_transferred(_calls(op, pieces, figures, context), pieces))
            continue
        moved = int(trace.works.size_bytes[launches.work[mine]].sum()) // figures[0]
        copies = bool(moved) and not (launches.category[mine] == KERNEL).any()
        work = (COPY, "", "", 0, 0, moved) if copies else ("", "", "", 0, 0, 0)
        found.append(_transferred(OperatorCalls(name, *work, *figures), pieces))
    return found


def host_operators(ops: Ops, counted: np.ndarray, host: HostTrace) -> list[OperatorCalls]:
    """Return the *counted* operators of a host thread that have a record, by kind."""
    rows = host.rows(ops.record_id)
    own = np.flatnonzero(counted & (rows >= 0))
    kind, times = host.kind[rows[own]], (ops.end_ns - ops.start_ns)[own]
    found = []
    for number in np.unique(kind).tolist():
        mine = kind == number
        count = int(mine.sum())
        found.append(_calls(host.kinds[number], (), (count, count, int(times[mine].sum())), Context()))
    return found


def joined_operators(of_ranks: Mapping[int, Iterable[OperatorCalls]]) -> dict[str, Any]:
    """Return the operators of all ranks for a workload's metadata: each ``kind`` of call once."""
    kinds: dict[tuple[Any, ...], int] = {}
    ranks = {
        str(rank): [[kinds.setdefault(call[:7], len(kinds)), *call[7:]] for call in calls]
        for rank, calls in of_ranks.items()
    }
    return {"kinds": [list(kind) for kind in kinds], "ranks": ranks}


def _called(
    trace: DeviceTrace, launches: Launches, lanes: Sequence[Lane], index: int, batches: Batches
) -> tuple[_Called, int]:
    """Return the operator of a launch, but for its record in the host trace, and its call.

    Calls are numbered; launches of one call have one number.
    """
    op, lane = int(launches.op[index]), int(launches.lane[index])
    if index in launches.origins:
        origin = launches.origins[index]
        context = Context(None, origin.allocated) if needs_context(origin.operator) else Context()
        called = _Called(-1, origin.operator, origin.arguments, context)
        number = -1 - ((int(launches.call[index]) << 32) + origin.call)
    elif op < 0:
        return _Called(
            -1, trace.texts[int(trace.works.name[launches.work[index]])], "", Context()
        ), -1 - index
    else:
        name = trace.texts[int(lanes[lane].ops.name[op])]
        called = _Called(-1, name, "", Context(None, allocated_in(lanes, lane, op)))
        number = (lane << 32) + op
    if needs_context(called.name):
        batch = batches.at(int(launches.call_start_ns[index]))
        called = called._replace(context=called.context._replace(batch=batch))
    return called, number


def _calls(
    op: HostOp, pieces: Sequence[str], figures: tuple[int, int, int], context: Context
) -> OperatorCalls:
    """Return the calls of *op*, which launched *pieces* by name; *figures* are calls, pieces and time."""
    work = work_in_context(op, context, pieces) or operator_work(op)
    kind, read, written = work.kind, work.read_bytes, work.written_bytes
    if _LIST_TYPE in op.types:
        width = next(filter(None, map(kernel_width, pieces)), 0)
        kind = kind if width else ""
        read, written = (amount * width // _LIST_ELEMENT_BYTES for amount in (read, written))
    if not read + written:
        kind = ""
    precision = precision_of(op.types, pieces)
    return OperatorCalls(op.name, kind, precision, _arguments(op), work.operations, read, written, *figures)


def _transferred(calls: OperatorCalls, pieces: Sequence[str]) -> OperatorCalls:
    """Return *calls* as transfers if one of their *pieces* copies from or to the host."""
    across = any(word in piece for piece in pieces for word in _TO_HOST)
    return calls._replace(kind=TRANSFER, operations=0) if across else calls


def _arguments(op: HostOp) -> str:
    """Return the tensor arguments of *op* as text; a type applies until another follows."""
    spelled: list[str] = []
    latest = ""
    for place, shape in enumerate(op.shapes):
        if not isinstance(shape, list) or not shape:
            continue
        if all(isinstance(size, int) for size in shape):
            kind = short_type(op.types[place]) if place < len(op.types) else ""
            spelled.append(f"{kind if kind != latest else ''}[{','.join(map(str, shape))}]")
            latest = kind
        elif any(shape):
            alike = f" of [{','.join(map(str, shape[0]))}]" if shape.count(shape[0]) == len(shape) else ""
            spelled.append(f"{len(shape)} tensors{alike}")
    more = len(spelled) - _MOST_ARGUMENTS
    return " ".join(spelled[:_MOST_ARGUMENTS]) + (f" and {more} more" if more > 0 else "")
