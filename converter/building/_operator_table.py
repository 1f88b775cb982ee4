"""Tabulate the time and work of a rank's operators by arguments and by inference batch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..linking import KERNEL, Lane, Launches, allocated_shapes, host_rows
from ..readers import (
    DeviceTrace,
    HostOp,
    HostTrace,
    Ops,
    dtype_bytes,
    kernel_width,
    precision_of,
    short_type,
)
from ._costs import Work, operator_work, shape_of
from ._operator_classes import COPY, EXPERTS, plain_name
from ._recorded_shapes import LIST_ELEMENT_BYTES, recorded_operator

# The class of copies between host and device. The bandwidth of the device's memory does not limit these
# copies.
TRANSFER = "transfer"
_TO_HOST = ("HtoD", "DtoH", "HostToDevice", "DeviceToHost")
_MAX_ARGUMENTS = 3
# The type that a device trace records for lists of tensors.
_LIST_TYPE = "TensorList"


class _Called(NamedTuple):
    """The key of equal operator calls: the kind of the host *record*, or name and *spelled* arguments."""

    record: int
    name: str
    spelled: str
    context: Context


class OperatorCalls(NamedTuple):
    """The calls of one operator with the same arguments on a rank.

    *kind* is the operator's class, "" without a model. *time_ns* is the total time of all *calls*: the time
    of their *pieces* of device work or, on the host, the time of the calls themselves. *operations* and bytes
    apply to one call.
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
    """Return the calls of the operators with device work among *launches*, except communication."""
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
    """Return the calls of the *counted* operators of a host thread that have a record, by kind."""
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
    """Return the operator calls of all ranks as metadata; each ``kind`` of call appears only once."""
    kinds: dict[tuple[Any, ...], int] = {}
    ranks = {
        str(rank): [[kinds.setdefault(call[:7], len(kinds)), *call[7:]] for call in calls]
        for rank, calls in of_ranks.items()
    }
    return {"kinds": [list(kind) for kind in kinds], "ranks": ranks}


def _called(
    trace: DeviceTrace, launches: Launches, lanes: Sequence[Lane], index: int, batches: Batches
) -> tuple[_Called, int]:
    """Return the operator of a launch, without its host record, and the number of the operator's call.

    All launches of one call have the same call number.
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
    """Return the calls of *op* with the *pieces* they launched; *figures*: calls, pieces, time."""
    work = work_in_context(op, context, pieces) or operator_work(op)
    kind, read, written = work.kind, work.read_bytes, work.written_bytes
    if _LIST_TYPE in op.types:
        width = next(filter(None, map(kernel_width, pieces)), 0)
        kind = kind if width else ""
        read, written = (amount * width // LIST_ELEMENT_BYTES for amount in (read, written))
    if not read + written:
        kind = ""
    precision = precision_of(op.types, pieces)
    return OperatorCalls(op.name, kind, precision, _arguments(op), work.operations, read, written, *figures)


def _transferred(calls: OperatorCalls, pieces: Sequence[str]) -> OperatorCalls:
    """Return *calls* as transfers if one of their *pieces* copies from or to the host."""
    across = any(word in piece for piece in pieces for word in _TO_HOST)
    return calls._replace(kind=TRANSFER, operations=0) if across else calls


def _arguments(op: HostOp) -> str:
    """Return the tensor arguments of *op* as text; a type applies to all tensors up to the next type."""
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
    more = len(spelled) - _MAX_ARGUMENTS
    return " ".join(spelled[:_MAX_ARGUMENTS]) + (f" and {more} more" if more > 0 else "")


# The positions of query, key and value among the arguments, from vllm/attention/layer.py,
# sglang/srt/layers/radix_attention.py, aiter/ops/attention.py and mha.py, and flash_attn_interface.py of
# vllm-flash-attn.
_CACHED_ATTENTION = {
    "unified_attention": (0, 1, 2), "unified_attention_with_output": (0, 1, 2), "varlen_fwd": (0, 1, 2),
    "mha_batch_prefill": (0, 1, 2), "paged_attention_ragged": (2, 3, 4),
}  # fmt: skip
# The pattern of the affixes that SGLang's profiler adds to a function's name, such as the number of the
# layer.
_RANGE = re.compile(r"^attention_|_\d+$")
# Operators with hidden states, both weights and the experts of each token as arguments, from fused_moe.py of
# vLLM, SGLang and aiter.
_FUSED_EXPERTS = frozenset({"inplace_fused_experts", "outplace_fused_experts", "fused_moe_"})
# Operators with hidden states and router logits as arguments. The layer contains the weights
# (vllm/model_executor/layers/fused_moe).
_EXPERT_LAYERS = frozenset({"moe_forward", "moe_forward_shared"})
_GATED = re.compile(r"swiglu|_glu|silu_and_mul")
# The bits per weight element by kernel name. In MX formats, a block of 32 elements shares an 8-bit scale.
_WEIGHT_BITS = (("mxfp4", 4.25), ("mxfp8", 8.25), ("fp8", 8.0), ("e4m3", 8.0))

_SUMS = r"sq(\d+)sk(\d+)sqsq(\d+)sqsk(\d+)"
_VLLM = re.compile(rf"context_\d+\({_SUMS}\)_generation_\d+\({_SUMS}\)")
_SGLANG = re.compile(r"\b([cg])_(sq|sk|sqsq|sqsk)=(\d+)")


class Batch(NamedTuple):
    """An inference batch: the number of *keys* of all requests, and of (query, key) *pairs* in attention."""

    keys: int
    pairs: float


class Context(NamedTuple):
    """The *batch* during which an operator was called, and the shapes that the operator *allocated*."""

    batch: Batch | None = None
    allocated: tuple[tuple[int, ...], ...] = ()


class Batches:
    """The inference batches that the annotations of a *trace* describe, by time."""

    def __init__(self, trace: DeviceTrace) -> None:
        described = {number: batch for number, text in enumerate(trace.texts) if (batch := _batch(text))}
        events = np.flatnonzero(np.isin(trace.events.name, [*described]))
        self._start_ns, self._end_ns = trace.events.start_ns[events], trace.events.end_ns[events]
        self._batches = [described[number] for number in trace.events.name[events].tolist()]

    def at(self, time_ns: int) -> Batch | None:
        """Return the innermost batch at *time_ns*, or None outside batches."""
        inside = np.flatnonzero((self._start_ns <= time_ns) & (time_ns < self._end_ns))
        return self._batches[inside[-1]] if len(inside) else None


def _batch(annotation: str) -> Batch | None:
    """Return the batch that an *annotation* of vLLM or SGLang describes, or None for other annotations."""
    if match := _VLLM.search(annotation):
        _, sk, sqsq, sqsk, _, generated_sk, _, generated_sqsk = map(int, match.groups())
        return Batch(sk + generated_sk, sqsk - sqsq / 2 + generated_sqsk)
    sums = {kind + name: int(amount) for kind, name, amount in _SGLANG.findall(annotation)}
    if not sums:
        return None
    pairs = sums.get("csqsk", 0) - sums.get("csqsq", 0) / 2 + sums.get("gsqsk", 0)
    return Batch(sums.get("csk", 0) + sums.get("gsk", 0), pairs)


def needs_context(name: str) -> bool:
    """Return whether the work of the operator *name* depends on its batch or on allocated shapes."""
    return _attention_name(name) in _CACHED_ATTENTION or plain_name(name) in _EXPERT_LAYERS


def allocated_in(lanes: Sequence[Lane], lane: int, op: int) -> tuple[tuple[int, ...], ...]:
    """Return the shapes that operator *op* of a *lane* allocates, if they determine its work."""
    ops = lanes[lane].ops
    is_layer = plain_name(ops.trace.texts[int(ops.name[op])]) in _EXPERT_LAYERS
    return allocated_shapes(ops, op) if is_layer else ()


def work_in_context(op: HostOp, context: Context, kernels: Iterable[str]) -> Work | None:
    """Return the work of *op* with the kernels called *kernels*, or None if no model uses *context*."""
    name = plain_name(op.name)
    try:
        if name in _FUSED_EXPERTS:
            return _fused_experts(op).work()
        if name in _EXPERT_LAYERS:
            return _expert_layer(op, context.allocated, [kernel.lower() for kernel in kernels]).work()
        if context.batch is not None and _attention_name(op.name) in _CACHED_ATTENTION:
            return _attention(op, context.batch)
    except (IndexError, OverflowError, TypeError, ValueError, ZeroDivisionError):
        pass  # the operator cannot have the recorded shapes
    return None


def _attention_name(name: str) -> str:
    return _RANGE.sub("", plain_name(name))


def _attention(op: HostOp, batch: Batch) -> Work:
    places = _CACHED_ATTENTION[_attention_name(op.name)]
    (queries, *heads), key, value = (shape_of(op, place) for place in places)
    query_width, key_width, value_width = math.prod(heads), _width(key), _width(value)
    out_width = query_width * value_width // key_width
    element, cached = (dtype_bytes(op.types[place]) for place in places[:2])
    operations = round(2 * batch.pairs * (query_width + out_width))
    read = queries * query_width * element + batch.keys * (key_width + value_width) * cached
    return Work("attention", operations, read, queries * out_width * element)


def _width(shape: Sequence[int]) -> int:
    """Return the number of elements of all heads of one token in keys or values of *shape*."""
    return math.prod(shape[-2:]) if len(shape) > 2 else shape[-1]


class _Experts(NamedTuple):
    """The two matmuls of an expert layer, from *hidden* to *wide* and from *inner* to *hidden* columns.

    Each token is routed to *chosen* experts. *element_bytes* is the size of an element of a row, and
    *weight_bytes* is the size of all weights of an expert.
    """

    tokens: int
    hidden: int
    wide: int
    inner: int
    experts: int
    chosen: int
    element_bytes: int
    weight_bytes: float

    def work(self) -> Work:
        """Return the work of both matmuls, including the writes and reads of rows between the matmuls."""
        rows = self.tokens * self.chosen
        active = self.experts * (1 - (1 - min(1.0, self.chosen / self.experts)) ** self.tokens)
        moved = (rows * self.inner + self.tokens * self.hidden) * self.element_bytes
        operations = 2 * rows * self.hidden * (self.wide + self.inner)
        return Work(EXPERTS, operations, round(active * self.weight_bytes) + moved, moved)


def _fused_experts(op: HostOp) -> _Experts:
    """Return the experts, whose weights are arguments with the dimensions experts, rows and columns."""
    (tokens, hidden), up, down, chosen = (shape_of(op, place) for place in (0, 1, 2, 4))
    packed = hidden // up[2]
    weights = (math.prod(one[1:]) * dtype_bytes(op.types[place]) for place, one in ((1, up), (2, down)))
    element = dtype_bytes(op.types[0])
    return _Experts(tokens, hidden, up[1], down[2] * packed, up[0], chosen[1], element, sum(weights))


def _expert_layer(op: HostOp, allocated: Iterable[Sequence[int]], kernels: Sequence[str]) -> _Experts:
    """Return the experts of a layer from the rows *allocated* for the result of the first matmul."""
    (tokens, hidden), (_, experts) = (shape_of(op, place) for place in (0, 1))
    routed = (shape for shape in allocated if math.prod(shape[:-1]) in range(2 * tokens, 2**62, tokens))
    *rows, inner = next(routed, ())
    wide = inner * (2 if any(map(_GATED.search, kernels)) else 1)
    element = dtype_bytes(op.types[0])
    named = (bits for word, bits in _WEIGHT_BITS if any(word in kernel for kernel in kernels))
    weights = hidden * (wide + inner) * next(named, 8.0 * element) / 8
    return _Experts(tokens, hidden, wide, inner, experts, math.prod(rows) // tokens, element, weights)
