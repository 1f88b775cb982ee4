"""Compare the rates of operators of similar size, and their part of the roofline, as evidence for advice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import msgspec

from ...converter.building import FUSIBLE_CLASSES, MATRIX_CLASSES, TRANSFER, class_of, plain_name
from ...support import share_text
from ..chips import Chip, chip_of_device

# Vector units compute at the fp32 peak, whatever the type in memory.
_VECTOR = "fp32"
# The work per call of operators that are compared differs by at most this factor.
_ABOUT = 2.0
# Even operators of the same size vary by this factor, so a smaller speed-up proves nothing.
_MIN_TIMES = 1.1
_MUCH = 0.1  # fraction of the device's time in operators without shapes that is reported
# Rates below 0.1 T are written in G.
_MIN_TERA = 0.1
_REMEDIES = {
    "gemm": "pad its sizes to multiples of the kernel's tiles, or try another layout or tuned library",
    "attention": "try another attention backend (torch.nn.attention.sdpa_kernel)",
    "convolution": "try channels_last, or let the library search (torch.backends.cudnn.benchmark)",
}
_STREAM_REMEDIES = {
    "softmax": "scaled_dot_product_attention if it belongs to attention, which then writes no scores, or "
    "another fused kernel (torch.compile)",
    "copy": "one layout from producer to consumer, which needs no copy, or fusing it (torch.compile)",
}
_STREAMS = "contiguous inputs of one layout, or fusing it with its neighbours (torch.compile)"
# Operators that stream whole tensors, so that their rates can be compared.
_STREAMING = frozenset(
    {"elementwise", "copy", "normalization", "softmax", "reduction", "optimizer", "triton"}
)


@lru_cache(64)
def known_chip(device: str) -> Chip | None:
    """Return the chip that traces call *device*, or None."""
    return chip_of_device(device)


def peak_of(kind: str, precision: str) -> str:
    """Return which peak of the chip bounds an operator class: fp32 where matrix units do not apply."""
    return precision if kind in MATRIX_CLASSES else _VECTOR


@dataclass(frozen=True)
class OperatorRate:
    """The calls of an operator with the same arguments on a *rank* (-1: several), and their rate.

    *flops* and *size_bytes* are the work of one call, 0 if the operator has no model. *time_ns* is
    that of all *calls*.
    """

    rank: int
    chip: str
    operator: str
    kind: str
    precision: str
    arguments: str
    flops: int
    size_bytes: int
    calls: int
    kernels: int
    time_ns: int

    @property
    def tflops_per_s(self) -> float:
        """The FLOPs of all calls over their time, in TFLOP/s."""
        return self.flops * self.calls / max(1, self.time_ns) / 1e3

    @property
    def tb_per_s(self) -> float:
        """The bytes of all calls over their time, in TB/s."""
        return self.size_bytes * self.calls / max(1, self.time_ns) / 1e3

    @cached_property
    def least_ns(self) -> tuple[float, float]:
        """The least times (ns) for all calls at the chip's compute and memory peaks, 0 if unknown."""
        chip = known_chip(self.chip)
        if chip is None or self.kind in {"", TRANSFER}:
            return 0.0, 0.0
        peak = chip.peak_flops.get(peak_of(self.kind, self.precision))
        compute_ns = self.flops * self.calls / peak * 1e9 if peak else 0.0
        return compute_ns, self.size_bytes * self.calls / chip.memory_bytes_per_s * 1e9

    @property
    def bound(self) -> str:
        """The bound of the operator at the chip's peaks, ``compute`` or ``memory``; "" without peaks."""
        compute_ns, memory_ns = self.least_ns
        return "compute" if compute_ns > memory_ns else "memory" if memory_ns else ""

    @property
    def roofline_share(self) -> float:
        """The least time at the chip's peaks divided by the measured time, NaN without peaks."""
        least_ns = max(self.least_ns)
        return least_ns / max(1, self.time_ns) if least_ns else float("nan")

    @property
    def is_by_operations(self) -> bool:
        """Whether compute bounds the operator: by the chip's peaks or, without these, by its class."""
        return self.bound == "compute" or (not self.bound and self.kind in MATRIX_CLASSES)

    @property
    def reached(self) -> str:
        """The attained rate as text, in FLOP/s or B/s depending on the bound; "" without a model."""
        if not self.kind:
            return ""
        rate, unit = (self.tflops_per_s, "FLOP/s") if self.is_by_operations else (self.tb_per_s, "B/s")
        return f"{rate:.3g} T{unit}" if rate >= _MIN_TERA else f"{rate * 1e3:.3g} G{unit}"


class _Kind(NamedTuple):
    operator: str
    kind: str
    precision: str
    arguments: str
    operations: int
    read_bytes: int
    written_bytes: int


class _Calls(NamedTuple):
    kind: int
    calls: int
    pieces: int
    time_ns: int


class _RecordedOperators(msgspec.Struct):
    kinds: list[_Kind]
    ranks: dict[int, list[_Calls]]


def operator_rates(metadata: Mapping[str, Any]) -> list[OperatorRate]:
    """Read the operator rates in a workload's *metadata*; invalid ones count as absent."""
    recorded = _recorded(metadata)
    try:
        chips = msgspec.convert(metadata.get("chips", {}), dict[int, str], strict=False)
        return [
            _rate(rank, chips.get(rank, ""), recorded.kinds[calls.kind], calls)
            for rank, rows in recorded.ranks.items()
            for calls in rows
        ]
    except (msgspec.ValidationError, IndexError):
        return []


def without_shapes(metadata: Mapping[str, Any]) -> str:
    """Return a sentence if much device time gets no advice because the trace has no shapes."""
    rates = operator_rates(metadata)
    unknown_ns = sum(
        rate.time_ns
        for rate in rates
        if not rate.kind and not rate.arguments and class_of(plain_name(rate.operator))
    )
    share = unknown_ns / max(1, sum(rate.time_ns for rate in rates))
    return "" if share < _MUCH else (
        f"{share_text(share)} of the device time is spent in operators without recorded shapes, so their "
        "rates are unknown and there is no advice on them. Next: profile with record_shapes=True"
    )  # fmt: skip


def written_bytes(metadata: Mapping[str, Any]) -> dict[tuple[str, int], tuple[str, int]]:
    """Return the class and written bytes of elementwise operators and copies, by name and bytes per call."""
    return {
        (one.operator, one.read_bytes + one.written_bytes): (one.kind, one.written_bytes)
        for one in _recorded(metadata).kinds
        if one.kind in FUSIBLE_CLASSES
    }


def precisions(metadata: Mapping[str, Any]) -> Iterator[tuple[str, int, str]]:
    """Yield name, bytes per call and precision of each kind of recorded operator."""
    for one in _recorded(metadata).kinds:
        yield one.operator, one.read_bytes + one.written_bytes, one.precision


def _recorded(metadata: Mapping[str, Any]) -> _RecordedOperators:
    try:
        return msgspec.convert(metadata.get("operators"), _RecordedOperators, strict=False)
    except msgspec.ValidationError:
        return _RecordedOperators([], {})


def _rate(rank: int, chip: str, of: _Kind, own: _Calls) -> OperatorRate:
    flops, size_bytes = (of.operations, of.read_bytes + of.written_bytes) if of.kind else (0, 0)
    return OperatorRate(
        rank, chip, of.operator, of.kind, of.precision, of.arguments, flops, size_bytes,
        own.calls, own.pieces, own.time_ns,
    )  # fmt: skip


def joined_rates(rates: Iterable[OperatorRate]) -> list[OperatorRate]:
    """Merge the *rates* of the same operator and chip on all ranks, as rank -1."""
    joined: dict[tuple[object, ...], OperatorRate] = {}
    for rate in rates:
        one = replace(rate, rank=-1, calls=0, kernels=0, time_ns=0)
        first = joined.setdefault(astuple(one), one)
        figures = {
            name: getattr(first, name) + getattr(rate, name) for name in ("calls", "kernels", "time_ns")
        }
        joined[astuple(one)] = replace(first, **figures)
    return [*joined.values()]


@dataclass(frozen=True)
class Reach:
    """The possible speed-up (*times*) of an operator at the rate of others, and the evidence (*how*)."""

    times: float
    how: str


def reaches_of(rates: Sequence[OperatorRate]) -> dict[str, Reach]:
    """Return the operators that another operator of about the same size outpaces.

    Operators are compared on the same chip, with the same bound, class and precision, or if they
    stream whole tensors; calls must be of similar size, so that neither launches nor caches explain
    the difference. Rates above the roofline are ignored. On a chip with unknown peaks, matrix
    products are compared only if they move a similar number of bytes.
    """
    reaches = {}
    for operator in dict.fromkeys(rate.operator for rate in rates if rate.kind not in {"", TRANSFER}):
        own = [rate for rate in rates if rate.operator == operator]
        best = [_best(rate, rates) for rate in own]
        now_ns = sum(rate.time_ns for rate in own)
        spared = [rate.time_ns * (1 - 1 / times) for rate, (times, _) in zip(own, best, strict=True)]
        left_ns = now_ns - sum(spared)
        if now_ns < _MIN_TIMES * left_ns:
            continue
        place = max(range(len(own)), key=spared.__getitem__)
        reaches[operator] = Reach(now_ns / left_ns, _evidence(own[place], best[place][1]))
    return reaches


def _best(rate: OperatorRate, rates: Iterable[OperatorRate]) -> tuple[float, OperatorRate]:
    """Return the speed-up at the rate of the fastest comparable operator, and that operator."""
    best, fastest = 1.0, rate
    for other in rates:
        if not _is_comparable(rate, other):
            continue
        times = _speed(other) / max(1e-12, _speed(rate))
        if times > best:
            best, fastest = times, other
    return best, fastest


def _is_comparable(rate: OperatorRate, other: OperatorRate) -> bool:
    if other.roofline_share > 1:  # its data was in a cache
        return False
    if other is rate or other.chip != rate.chip or other.is_by_operations != rate.is_by_operations:
        return False
    alike = other.kind == rate.kind or {rate.kind, other.kind} <= _STREAMING
    if rate.is_by_operations and other.precision != rate.precision:
        return False
    if not rate.bound and rate.is_by_operations and not _is_about(rate.size_bytes, other.size_bytes):
        return False  # either may be bound by memory
    amounts = (one.flops if rate.is_by_operations else one.size_bytes for one in (rate, other))
    return alike and _is_about(*amounts)


def _is_about(one: int, other: int) -> bool:
    return 0 < one <= _ABOUT * other and other <= _ABOUT * one


def _speed(rate: OperatorRate) -> float:
    return rate.tflops_per_s if rate.is_by_operations else rate.tb_per_s


def _evidence(rate: OperatorRate, other: OperatorRate) -> str:
    remedies = _REMEDIES if rate.is_by_operations else _STREAM_REMEDIES
    remedy = remedies.get(rate.kind, _STREAMS)
    named = f"{other.operator} " if other.operator != rate.operator else ""
    reached, other_reached = _reach_text(rate), _reach_text(other)
    return f"{rate.arguments} reaches {reached}, {named}{other.arguments} {other_reached}: {remedy}"


def _reach_text(rate: OperatorRate) -> str:
    return rate.reached + (f" ({share_text(rate.roofline_share)} of the roofline)" if rate.bound else "")
