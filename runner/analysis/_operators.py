"""FLOPs, bytes, TFLOP/s, TB/s and roofline share of each operator, as tables and as evidence for advice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...converter.building import FUSIBLE_CLASSES, MATRIX_CLASSES, TRANSFER, class_of, plain_name
from ...support import share_text
from ..chips import Chip, chip_of_device
from ._labels import short_name
from ._path_facts import program_of_rank

if TYPE_CHECKING:
    import pandas as pd

    from ...converter import Workload

# Vector units compute at the fp32 peak, whatever the type in memory.
_VECTOR = "fp32"
# The work per call of operators that are compared differs by at most this factor.
_ABOUT = 2.0
# The times of operators of the same size vary by this factor, so a smaller difference proves nothing.
_MIN_TIMES = 1.1
_MUCH = 0.1  # fraction of the device's time in operators without shapes that is reported
# Rates below 0.1 TFLOP/s or TB/s are written in G.
_MIN_TERA = 0.1
_REMEDIES = {
    "gemm": "pad its sizes to multiples of the kernel's tiles, or try another layout or tuned library",
    "attention": "try another attention backend (torch.nn.attention.sdpa_kernel)",
    "convolution": "try channels_last, or let the library search (torch.backends.cudnn.benchmark)",
}
_TF32 = (
    "TF32 (torch.backends.cuda.matmul.allow_tf32 = True), if factors rounded from 23 to 10 bits of mantissa "
    "are precise enough"
)
_STREAM_REMEDIES = {
    "softmax": "scaled_dot_product_attention if it belongs to attention, which then writes no scores, or "
    "another fused kernel (torch.compile)",
    "copy": "one layout from producer to consumer, which needs no copy, or fusing it (torch.compile)",
}
_STREAMS = "contiguous inputs of one layout, or fusing it with its neighbours (torch.compile)"
# A matrix product below this share of the peak is limited by its size, so that another precision gains
# little.
_NEAR_PEAK = 0.5
# Kernels of cuBLAS and CUTLASS that multiply in single precision outside of tensor cores.
_SINGLE = re.compile(r"(?:^|_)(?:simt_)?sgemm")
# Operators that stream whole tensors, so that their rates can be compared.
_STREAMING = frozenset(
    {"elementwise", "copy", "normalization", "softmax", "reduction", "optimizer", "triton"}
)


known_chip = lru_cache(64)(chip_of_device)


def peak_of(kind: str, precision: str) -> str:
    """Return the peak that bounds an operator class: fp32 if the class uses no matrix units."""
    return precision if kind in MATRIX_CLASSES else _VECTOR


@dataclass(frozen=True)
class OperatorRate:
    """The calls of an operator with the same arguments on a *rank* (-1: several), and their rate.

    *flops* and *size_bytes* are the work of one call, 0 if the operator has no model. *time_ns* is the total
    time of all *calls*.
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

    @cached_property
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
    """The possible speed-up (*times*) at the rate of other operators, and the evidence (*how*)."""

    times: float
    how: str


def reaches_of(rates: Sequence[OperatorRate]) -> dict[str, Reach]:
    """Return the operators that are slower than another operator of about the same size.

    Operators are compared on the same chip, with the same bound, class and precision, or if they
    stream whole tensors; calls must be of similar size, so that neither launches nor caches explain
    the difference. Rates above the roofline are ignored. On a chip with unknown peaks, matrix
    products are compared only if they move a similar number of bytes.
    """
    alike: dict[Hashable, list[OperatorRate]] = {}
    for rate in rates:
        if not rate.roofline_share > 1:  # above 1, the operator's data was in a cache
            alike.setdefault(_class(rate), []).append(rate)
    reaches = {}
    for operator in dict.fromkeys(rate.operator for rate in rates if rate.kind not in {"", TRANSFER}):
        own = [rate for rate in rates if rate.operator == operator]
        best = [_best(rate, alike.get(_class(rate), ())) for rate in own]
        now_ns = sum(rate.time_ns for rate in own)
        spared = [rate.time_ns * (1 - 1 / times) for rate, (times, _) in zip(own, best, strict=True)]
        left_ns = now_ns - sum(spared)
        if now_ns < _MIN_TIMES * left_ns:
            continue
        place = max(range(len(own)), key=spared.__getitem__)
        reaches[operator] = Reach(now_ns / left_ns, _evidence(own[place], best[place][1]))
    return reaches


def reach_in_tf32(rates: Iterable[OperatorRate], kernels: Iterable[str]) -> Reach | None:
    """Return the speed-up of an operator in TF32; None if its *kernels* or their *rates* allow no gain.

    The products, which must be near the FP32 peak, are assumed to reach the same share of the TF32 peak,
    unless memory bounds them.
    """
    if not all(map(_SINGLE.search, kernels)):
        return None
    now_ns = spared_ns = 0.0
    longest = None
    for rate in rates:
        now_ns += rate.time_ns
        chip, (compute_ns, memory_ns) = known_chip(rate.chip), rate.least_ns
        peaks: Mapping[str, float] = (
            {} if chip is None or (rate.kind, rate.precision) != ("gemm", "fp32") else chip.peak_flops
        )
        if "tf32" not in peaks or compute_ns < max(memory_ns, _NEAR_PEAK * rate.time_ns):
            continue
        spared_ns += rate.time_ns - max(rate.time_ns * peaks["fp32"] / peaks["tf32"], memory_ns)
        if longest is None or rate.time_ns > longest.time_ns:
            longest = rate
    if longest is None or now_ns < _MIN_TIMES * (now_ns - spared_ns):
        return None
    how = f"{longest.arguments} reaches {_reach_text(longest)} in FP32: {_TF32}"
    return Reach(now_ns / (now_ns - spared_ns), how)


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


def _class(rate: OperatorRate) -> Hashable:
    """Return a key; the rates of operators with equal keys can be compared if their sizes are similar."""
    kind = None if rate.kind in _STREAMING else rate.kind
    return rate.chip, kind, rate.is_by_operations, rate.precision * rate.is_by_operations


def _is_comparable(rate: OperatorRate, other: OperatorRate) -> bool:
    """Return whether two operators of the same class are about as large."""
    if not rate.is_by_operations:
        return _is_about(rate.size_bytes, other.size_bytes)
    if not rate.bound and not _is_about(rate.size_bytes, other.size_bytes):
        return False  # either operator may be bound by memory
    return _is_about(rate.flops, other.flops)


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


_FIELDS = (
    "rank", "operator", "kind", "precision", "arguments", "calls", "kernels", "time_ns", "flops",
    "size_bytes", "tflops_per_s", "tb_per_s", "bound", "roofline_share", "chip", "reached",
)  # fmt: skip
_WORK = ("flops", "size_bytes", "tflops_per_s", "tb_per_s")
_NAMED, _LETTERS = 5, 60


def operator_table(workload: Workload) -> pd.DataFrame:
    """Return a row per rank, operator, and shapes and types of its arguments, by descending time.

    ``time_ns`` is the measured device time of all ``calls``, or the operators' time on a host, and ``share``
    its fraction of the rank's total. ``flops`` and ``size_bytes`` are the work of one call; they and the
    rates are missing, and ``kind`` is "", without a model or recorded shapes. ``bound`` is the resource
    (compute or memory) that takes longer at the peaks of the chip, and ``roofline_share`` is this time
    divided by the measured time (NaN if unknown). Workloads that do not come from traces have no rows.
    """
    return _table(operator_rates(workload.metadata))


def joined_operators(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `operator_table` merged over all ranks of a chip, as rank -1."""
    return _table(joined_rates(_rates(table)))


@dataclass(frozen=True)
class Roof:
    """The roofline of a *chip*: its memory bandwidth in TB/s, and its *peaks* in TFLOP/s by precision."""

    chip: str
    tb_per_s: float
    peaks: Mapping[str, float]


def roofline_points(table: pd.DataFrame) -> pd.DataFrame:
    """Return the operators of known FLOPs and bytes, with their ``intensity`` in FLOP per byte."""
    points = table[(table["kind"] != "") & (table["flops"] > 0) & (table["size_bytes"] > 0)]
    points = points.astype(dict.fromkeys(["flops", "size_bytes"], "int64"))
    intensity = points["flops"] / points["size_bytes"]
    chosen: pd.DataFrame = points.assign(intensity=intensity).reset_index(drop=True)
    return chosen


def rooflines(points: pd.DataFrame) -> list[Roof]:
    """Return the roofline of each chip in *points*, with the peaks that bound any of its operators."""
    rows = []
    for device, own in points.groupby("chip", sort=False):
        chip = known_chip(str(device))
        if chip is None:
            continue
        used = set(map(peak_of, own["kind"], own["precision"]))
        peaks = {name: flops / 1e12 for name, flops in chip.peak_flops.items() if name in used}
        rows.append(Roof(chip.title, chip.memory_bytes_per_s / 1e12, peaks))
    return rows


def longest_call(workload: Workload, operator: str, size_bytes: int) -> tuple[int, int]:
    """Return rank and node of the longest piece of an *operator*, preferably in a call of *size_bytes*.

    The rank is the one where these calls take most time. The result is (-1, -1) if the operator
    runs nowhere.
    """
    table = operator_table(workload)
    own = table[table["operator"] == operator]
    if own.empty:
        return -1, -1
    sized = own[own["size_bytes"] == size_bytes]
    rank = int((own if sized.empty else sized).nlargest(1, "time_ns")["rank"].iloc[0])
    nodes = program_of_rank(workload, rank)
    nodes = nodes[(nodes["operator"] == operator) & nodes["kind"].isin(["compute", "copy"])]
    alike = nodes[nodes["tensor_size_bytes"] == size_bytes]
    longest = (nodes if alike.empty else alike).nlargest(1, "duration_ns")
    return (rank, int(longest["node_id"].iloc[0])) if len(longest) else (-1, -1)


def _rates(table: pd.DataFrame) -> Iterator[OperatorRate]:
    names = [field.name for field in fields(OperatorRate)]
    counted = table[names].fillna({"flops": 0, "size_bytes": 0})
    for row in counted.itertuples(index=False):
        yield OperatorRate(*row)


def _table(rates: Sequence[OperatorRate]) -> pd.DataFrame:
    """Return *rates* with the columns of `operator_table`."""
    import pandas as pd  # noqa: PLC0415 - advice needs the rates alone

    total: Counter[int] = Counter()
    for rate in rates:
        total[rate.rank] += rate.time_ns
    ordered = sorted(rates, key=lambda rate: (rate.rank, -rate.time_ns))
    table: pd.DataFrame = pd.DataFrame(
        [[getattr(rate, name) for name in _FIELDS] for rate in ordered], columns=[*_FIELDS]
    )
    table = table.astype(dict.fromkeys(["flops", "size_bytes"], "Int64"))
    table[[*_WORK]] = table[[*_WORK]].where(table["kind"] != "")
    shares = [rate.time_ns / max(1, total[rate.rank]) for rate in ordered]
    table.insert(_FIELDS.index("time_ns") + 1, "share", shares)
    return table


def operators_text(table: pd.DataFrame) -> str:
    """Summarise an operator table: the share of time with a model, and the peaks of the chips."""
    rates = [*_rates(table)]
    total = max(1, sum(rate.time_ns for rate in rates))
    unmodelled: Counter[str] = Counter()
    for rate in rates:
        if not rate.kind:
            unmodelled[rate.operator] += rate.time_ns
    listed = ", ".join(
        f"{short_name(name, _LETTERS)} {share_text(ns / total)}"
        for name, ns in unmodelled.most_common(_NAMED)
    )
    more = f" and {len(unmodelled) - _NAMED} more" if len(unmodelled) > _NAMED else ""
    share = share_text(1 - unmodelled.total() / total)
    without = f"; the rest is {listed}{more}" if listed else ""
    lines = [(f"{share} of the time is spent in operators with a cost model and recorded shapes{without}.")]
    for device in dict.fromkeys(rate.chip for rate in rates):
        chip = known_chip(device)
        if chip is not None:
            lines.append(f"Peaks of {chip.title}: {_peaks(chip)}.")
        elif device:
            lines.append(
                f"The peaks of the chip '{device}' are unknown, so the bound and the roofline share of "
                "operators are unknown."
            )
        else:
            lines.append(
                "The trace does not name the chip, so the bound and the roofline share of operators are "
                "unknown."
            )
    return " ".join(lines)


def _peaks(chip: Chip) -> str:
    peaks = [f"{name.upper()} {flops / 1e12:,.0f}" for name, flops in chip.peak_flops.items()]
    return f"{', '.join(peaks)} TFLOP/s, {chip.memory_bytes_per_s / 1e12:.3g} TB/s"
