"""Work of inference operators whose arguments alone do not give it: attention over a cache, routed experts.

Sums over the requests of a batch are in the engine's annotation around its execution. A batch
attends with 2 x (width of q + width of v) x heads operations per pair of query and key; a request in its
prefill has half of the square of its own queries less, for the causal mask. Sliding windows are not in a
trace, so that all keys count.

Routed rows are tokens times experts per token; an expert's weights are read if a token is routed to it, which
is estimated for uniform routing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..linking import Lane, allocated_shapes
from ..readers import DeviceTrace, HostOp, dtype_bytes
from ._costs import Work
from ._operator_classes import EXPERTS, plain_name

# Where query, key and value stand: vllm/attention/layer.py, sglang/srt/layers/radix_attention.py,
# aiter/ops/attention.py and mha.py, flash_attn_interface.py of vllm-flash-attn.
_CACHED_ATTENTION = {
    "unified_attention": (0, 1, 2), "unified_attention_with_output": (0, 1, 2), "varlen_fwd": (0, 1, 2),
    "mha_batch_prefill": (0, 1, 2), "paged_attention_ragged": (2, 3, 4),
}  # fmt: skip
# SGLang's profiler names a range after the function and the layer.
_RANGE = re.compile(r"^attention_|_\d+$")
# Hidden states, both weights, and the experts of each token: fused_moe.py of vLLM, SGLang and aiter.
_FUSED_EXPERTS = frozenset({"inplace_fused_experts", "outplace_fused_experts", "fused_moe_"})
# Hidden states and logits of the router; the layer has the weights (vllm/model_executor/layers/fused_moe).
_EXPERT_LAYERS = frozenset({"moe_forward", "moe_forward_shared"})
_GATED = re.compile(r"swiglu|_glu|silu_and_mul")
# Bits of an element of weights by kernel; blocks of 32 elements of the MX formats share a scale of 8 bits.
_WEIGHT_BITS = (("mxfp4", 4.25), ("mxfp8", 8.25), ("fp8", 8.0), ("e4m3", 8.0))

_SUMS = r"sq(\d+)sk(\d+)sqsq(\d+)sqsk(\d+)"
_VLLM = re.compile(rf"context_\d+\({_SUMS}\)_generation_\d+\({_SUMS}\)")
_SGLANG = re.compile(r"\b([cg])_(sq|sk|sqsq|sqsk)=(\d+)")


class Batch(NamedTuple):
    """The *keys* of all requests of a batch, and the *pairs* of a query and a key that it attends."""

    keys: int
    pairs: float


class Context(NamedTuple):
    """The *batch* during which an operator was called, and the shapes that it *allocated*."""

    batch: Batch | None = None
    allocated: tuple[tuple[int, ...], ...] = ()


class Batches:
    """The batches that the annotations of a *trace* describe, by time."""

    def __init__(self, trace: DeviceTrace) -> None:
        described = {number: batch for number, text in enumerate(trace.texts) if (batch := _batch(text))}
        events = np.flatnonzero(np.isin(trace.events.name, [*described]))
        self._start_ns, self._end_ns = trace.events.start_ns[events], trace.events.end_ns[events]
        self._batches = [described[number] for number in trace.events.name[events].tolist()]

    def at(self, time_ns: int) -> Batch | None:
        """Return the innermost batch at *time_ns*."""
        inside = np.flatnonzero((self._start_ns <= time_ns) & (time_ns < self._end_ns))
        return self._batches[inside[-1]] if len(inside) else None


def _batch(annotation: str) -> Batch | None:
    """Return the batch that an *annotation* of vLLM or SGLang describes."""
    if match := _VLLM.search(annotation):
        _, sk, sqsq, sqsk, _, generated_sk, _, generated_sqsk = map(int, match.groups())
        return Batch(sk + generated_sk, sqsk - sqsq / 2 + generated_sqsk)
    sums = {kind + name: int(amount) for kind, name, amount in _SGLANG.findall(annotation)}
    if not sums:
        return None
    pairs = sums.get("csqsk", 0) - sums.get("csqsq", 0) / 2 + sums.get("gsqsk", 0)
    return Batch(sums.get("csk", 0) + sums.get("gsk", 0), pairs)


def needs_context(name: str) -> bool:
    """Return whether the work of an operator called *name* depends on its context."""
    return _attention_name(name) in _CACHED_ATTENTION or plain_name(name) in _EXPERT_LAYERS


def allocated_in(lanes: Sequence[Lane], lane: int, op: int) -> tuple[tuple[int, ...], ...]:
    """Return what operator *op* of a *lane* allocates, if its work depends on that."""
    ops = lanes[lane].ops
    is_layer = plain_name(ops.trace.texts[int(ops.name[op])]) in _EXPERT_LAYERS
    return allocated_shapes(ops, op) if is_layer else ()


def work_in_context(op: HostOp, context: Context, kernels: Iterable[str]) -> Work | None:
    """Return the work of *op*, whose *kernels* have these names; None for operators without such a model."""
    name = plain_name(op.name)
    try:
        if name in _FUSED_EXPERTS:
            return _fused_experts(op).work()
        if name in _EXPERT_LAYERS:
            return _expert_layer(op, context.allocated, [kernel.lower() for kernel in kernels]).work()
        if context.batch is not None and _attention_name(op.name) in _CACHED_ATTENTION:
            return _attention(op, context.batch)
    except (IndexError, OverflowError, TypeError, ValueError, ZeroDivisionError):
        pass  # shapes that such an operator cannot have
    return None


def _attention_name(name: str) -> str:
    return _RANGE.sub("", plain_name(name))


def _attention(op: HostOp, batch: Batch) -> Work:
    places = _CACHED_ATTENTION[_attention_name(op.name)]
    (queries, *heads), key, value = (_shape(op, place) for place in places)
    query_width, key_width, value_width = math.prod(heads), _width(key), _width(value)
    out_width = query_width * value_width // key_width
    element, cached = (dtype_bytes(op.types[place]) for place in places[:2])
    operations = round(2 * batch.pairs * (query_width + out_width))
    read = queries * query_width * element + batch.keys * (key_width + value_width) * cached
    return Work("attention", operations, read, queries * out_width * element)


def _width(shape: Sequence[int]) -> int:
    """Return the elements of all heads of a token in keys or values of *shape*."""
    return math.prod(shape[-2:]) if len(shape) > 2 else shape[-1]


class _Experts(NamedTuple):
    """Two matmuls of routed rows, *hidden* to *wide* and *inner* to *hidden*; *chosen* experts per token.

    *element_bytes* are those of rows, *weight_bytes* those of all weights of one expert.
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
        """Return the work of both matmuls, between which rows of the inner width are written and read."""
        rows = self.tokens * self.chosen
        active = self.experts * (1 - (1 - min(1.0, self.chosen / self.experts)) ** self.tokens)
        moved = (rows * self.inner + self.tokens * self.hidden) * self.element_bytes
        operations = 2 * rows * self.hidden * (self.wide + self.inner)
        return Work(EXPERTS, operations, round(active * self.weight_bytes) + moved, moved)


def _fused_experts(op: HostOp) -> _Experts:
    """Return the experts whose weights are arguments: experts x rows x columns, of packed elements maybe."""
    (tokens, hidden), up, down, chosen = (_shape(op, place) for place in (0, 1, 2, 4))
    packed = hidden // up[2]
    weights = (math.prod(one[1:]) * dtype_bytes(op.types[place]) for place, one in ((1, up), (2, down)))
    element = dtype_bytes(op.types[0])
    return _Experts(tokens, hidden, up[1], down[2] * packed, up[0], chosen[1], element, sum(weights))


def _expert_layer(op: HostOp, allocated: Iterable[Sequence[int]], kernels: Sequence[str]) -> _Experts:
    """Return the experts of a layer by the rows that it *allocated* for the result of the first matmul."""
    (tokens, hidden), (_, experts) = (_shape(op, place) for place in (0, 1))
    routed = (shape for shape in allocated if math.prod(shape[:-1]) in range(2 * tokens, 2**62, tokens))
    *rows, inner = next(routed, ())
    wide = inner * (2 if any(map(_GATED.search, kernels)) else 1)
    element = dtype_bytes(op.types[0])
    named = (bits for word, bits in _WEIGHT_BITS if any(word in kernel for kernel in kernels))
    weights = hidden * (wide + inner) * next(named, 8.0 * element) / 8
    return _Experts(tokens, hidden, wide, inner, experts, math.prod(rows) // tokens, element, weights)


def _shape(op: HostOp, place: int) -> list[int]:
    """Return the shape of the tensor at *place*; raises ValueError unless it is one."""
    shape: Any = op.shapes[place]
    if not isinstance(shape, list) or not shape or not all(isinstance(size, int) for size in shape):
        raise ValueError(shape)
    return shape
