"""Fit a link's latency and bandwidth to transfers, robustly and with confidence intervals.

A transfer takes ``fixed + latencies * latency + bytes * ns_per_byte``, and neither the latency nor the time
per byte is negative. Outliers have little weight (Huber loss). Errors are relative, because times span
decades. Intervals come from resampling both sizes and repetitions (bootstrap). The engine determines the
numbers of latencies and bytes of a collective, so the fit uses the simulation's model of any collective
algorithm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...converter import CollectiveType, EdgeKind, Graph, NodeType, Workload, microbenchmark
from ...support.table import Floats
from .._experiment import Detail, Experiment, WorkloadSource
from .._traits import DEFAULT_BACKEND
from ..backends import get_backend
from ..config import GIB, EfficiencyPart, NetworkConfig, SystemConfig
from ._records import MESSAGE, ROOTED, Call

TOPOLOGY = "Switch"
_ROOTED = {kind.name.lower(): kind for kind in ROOTED}
_LATENCY_NS = 1e6
_LATE_NS = 10_000_000
# Low bandwidths, at which a byte takes 10 or 20 us, so that times in whole ns are exact enough even for one
# byte.
_SLOW_NS_PER_BYTE = (10_000.0, 20_000.0)


@dataclass(frozen=True)
class Row:
    """The time of a collective as a sum: *fixed_ns*, link *latencies*, and *bytes* at the bandwidth."""

    fixed_ns: float
    latencies: float
    bytes: float

    def time_ns(self, latency_ns: float, ns_per_byte: float) -> float:
        """Return the duration of the collective in ns."""
        return self.fixed_ns + self.latencies * latency_ns + self.bytes * ns_per_byte


@dataclass
class Rows:
    """The rows of the fit, from one simulation per collective with *system* on one network dimension.

    Each message keeps its sender busy for *message_cost_ns*. For operations in *sends_first* (see
    `EfficiencyPart`), the row describes a rank that arrives long after all other ranks. An operation in
    *substitutes* has the row of its substitute.
    """

    system: SystemConfig
    message_cost_ns: int = 0
    sends_first: Mapping[str, int] = field(default_factory=dict)
    substitutes: Mapping[str, str] = field(default_factory=dict)
    _known: dict[tuple[int, Call], Row] = field(default_factory=dict)

    def of(self, ranks: int, calls: Sequence[Call]) -> Row:
        """Return the row for consecutive *calls* of *ranks* ranks, without pauses between the calls.

        Of several consecutive calls, only one latency counts, because the other latencies overlap with data
        transfer.
        """
        rows = [self._row(ranks, call) for call in calls]
        return Row(
            max(row.fixed_ns for row in rows),
            max(row.latencies for row in rows),
            sum(row.bytes for row in rows),
        )

    def _row(self, ranks: int, call: Call) -> Row:
        call = call._replace(operation=self.substitutes.get(call.operation, call.operation))
        if (ranks, call) not in self._known:
            slow, slower = _SLOW_NS_PER_BYTE
            base = self._time_ns(ranks, call, 0, slow)
            moved = (self._time_ns(ranks, call, 0, slower) - base) / (slower - slow)
            latencies = (self._time_ns(ranks, call, _LATENCY_NS, slow) - base) / _LATENCY_NS
            fixed = base - moved * slow
            self._known[ranks, call] = Row(max(0.0, fixed), latencies, moved)
        return self._known[ranks, call]

    def _time_ns(self, ranks: int, call: Call, latency_ns: float, ns_per_byte: float) -> float:
        bandwidth = 1e9 / GIB / ns_per_byte
        late_ns = _LATE_NS if call.operation in self.sends_first else 0
        part = EfficiencyPart(
            message_cost_ns=self.message_cost_ns,
            handshake="in-order" if late_ns else "none",
            sends_first=self.sends_first if late_ns else {},
        )
        network = NetworkConfig((TOPOLOGY,), (ranks,), (bandwidth,), (latency_ns,), efficiency=part)
        experiment = Experiment(
            WorkloadSource.of_model(_workload(ranks, call, late_ns)),
            self.system,
            network,
            backend=DEFAULT_BACKEND,
            detail=Detail.TOTALS,
            # ASTRA-sim has no collectives with a root.
            semantics="trace" if call.operation in _ROOTED else "astra-sim",
        )
        makespan_ns = get_backend(DEFAULT_BACKEND).run(experiment).makespan_ns
        return makespan_ns / 2 if call.operation == MESSAGE else makespan_ns - late_ns


def _workload(ranks: int, call: Call, late_ns: int) -> Workload:
    """Return a workload with only *call*, at which the last rank arrives *late_ns* after the others.

    A call of a message becomes a round trip in this workload.
    """
    size = max(1, call.size_bytes)
    if late_ns:
        return _with_last(ranks, call, late_ns)
    if call.operation not in _ROOTED:
        return microbenchmark(
            "ping-pong" if call.operation == MESSAGE else call.operation.replace("_", "-"), ranks, size
        )
    graph = Graph.build(0, [_collective(call, _ROOTED[call.operation])], [])
    return Workload((graph,), np.zeros(ranks, dtype=np.int32), {}, {"source": "calibration"})


def _with_last(ranks: int, call: Call, late_ns: int) -> Workload:
    node = _collective(call, CollectiveType[call.operation.upper()])
    computation = {"node_id": 1, "name": "late", "type": NodeType.COMP, "duration_ns": late_ns}
    graphs = (
        Graph.build(0, [node], []),
        Graph.build(1, [node, computation], [(1, 0, int(EdgeKind.DATA))]),
    )
    programs = np.zeros(ranks, dtype=np.int32)
    programs[-1] = 1
    return Workload(graphs, programs, {}, {"source": "calibration"})


def _collective(call: Call, kind: CollectiveType) -> dict[str, object]:
    return {
        "node_id": 0,
        "name": call.operation,
        "operator": call.operation,
        "type": NodeType.COMM_COLL,
        "comm_type": int(kind),
        "comm_size_bytes": max(1, call.size_bytes),
        "stream": 100,
    }


_DRAWS = 400
_SEED = 14
_INTERVAL = (0.025, 0.975)
_HUBER = 1.345
_ROUNDS = 12
_MIN_ERROR = 0.02  # relative error of a size that repetitions do not show, such as by the machine's state
_FINEST = 1e-3  # relative half-width of the narrowest interval, because times are rounded
_MIN_NS = 0.5  # the least error of a time, due to rounding
REPEATED = 3
_UNREPEATED = 0.1  # the relative error of a size with fewer repetitions
_SEPARABLE = 4.0  # bytes per latency must differ by this factor to separate bandwidth from latency
_FEW_SIZES = 4
_BENDS = 0.05  # above this relative error of a size with enough repetitions, a line does not fit
_LARGE = 16  # if a line does not fit, sizes below 1/16 of the largest size are ignored


@dataclass(frozen=True)
class Cell:
    """Repetitions of equal collectives among equally many ranks, with their row and measured times.

    Cells of one *kind* differ only in size.
    """

    kind: str
    row: Row
    times_ns: Floats

    @property
    def median_ns(self) -> float:
        """The median time of the repetitions in ns."""
        return float(np.median(self.times_ns))

    @property
    def usual_ns(self) -> float:
        """The mean of the middle half of times (ns), which is typical even for bimodal distributions."""
        outer = len(self.times_ns) // 4
        return float(np.mean(np.sort(self.times_ns)[outer : len(self.times_ns) - outer]))

    @property
    def repeated(self) -> bool:
        """Whether there are enough repetitions (three) for an error estimate."""
        return len(self.times_ns) >= REPEATED

    @property
    def error_ns(self) -> float:
        """The standard error of the median in ns, from the median absolute deviation."""
        if not self.repeated:
            return _UNREPEATED * self.median_ns
        deviation = float(np.median(np.abs(self.times_ns - self.median_ns)))
        return 1.2533 * 1.4826 * deviation / float(np.sqrt(len(self.times_ns)))


@dataclass(frozen=True)
class Figure:
    """A figure with its 95 % interval; *known* states whether the figure was fitted, given or unknown."""

    value: float
    low: float
    high: float
    known: str = "fitted"

    @property
    def spread(self) -> float:
        """The ratio of the upper to the lower end of the interval."""
        return self.high / self.low if self.low > 0 else float("inf")


@dataclass(frozen=True)
class LinkFit:
    """The latency and the time per byte of a link, each either fitted, given or unknown."""

    latency_ns: Figure
    ns_per_byte: Figure


def fit_link(
    cells: Sequence[Cell], latency_ns: float | None = None, ns_per_byte: float | None = None
) -> LinkFit:
    """Return the link that explains *cells*, without fitting given figures.

    If the sizes are too similar to separate latency from bandwidth, the latency is reported as unknown, with
    the value 0. If no single line fits all sizes, the bandwidth is the marginal cost of a byte at the largest
    sizes.
    """
    line = _fit_line(cells, latency_ns, ns_per_byte)
    if ns_per_byte is not None or not any(_is_off(cell, line) for cell in cells):
        return line
    pace = _slope(cells)
    if pace is None:
        return line
    return LinkFit(_fit_line(cells, latency_ns, pace.value).latency_ns, pace)


def _slope(cells: Sequence[Cell]) -> Figure | None:
    """Return the marginal cost per byte of the largest *cells*, or None if no kind has two large sizes.

    The cost is the median, over all kinds of collectives, of the slope between the smallest and the largest
    of the large sizes.
    """
    most = max(cell.row.bytes for cell in cells)
    kinds: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.row.bytes):
        if cell.row.bytes * _LARGE >= most and cell.repeated:
            kinds.setdefault(cell.kind, []).append(cell)
    pairs = [
        (own[0], own[-1]) for own in kinds.values() if own[-1].row.bytes >= _SEPARABLE * own[0].row.bytes
    ]
    if not pairs:
        return None
    random = np.random.default_rng(_SEED)

    def slope(small: Cell, large: Cell, small_ns: Floats, large_ns: Floats) -> Floats:
        fixed = large.row.fixed_ns - small.row.fixed_ns
        return (large_ns - small_ns - fixed) / (large.row.bytes - small.row.bytes)

    def drawn(cell: Cell) -> Floats:
        medians: Floats = np.median(random.choice(cell.times_ns, (_DRAWS, len(cell.times_ns))), axis=1)
        return medians

    middle = [slope(a, b, np.array(a.median_ns), np.array(b.median_ns)) for a, b in pairs]
    value = float(np.median(middle))
    if value <= 0:
        return None
    chosen = random.integers(0, len(pairs), (_DRAWS, len(pairs)))
    table = np.stack([slope(a, b, drawn(a), drawn(b)) for a, b in pairs], axis=1)
    return _figure(value, np.median(np.take_along_axis(table, chosen, axis=1), axis=1))


def _is_off(cell: Cell, line: LinkFit) -> bool:
    predicted = cell.row.time_ns(line.latency_ns.value, line.ns_per_byte.value)
    return cell.repeated and abs(predicted - cell.median_ns) > max(_BENDS * cell.median_ns, 3 * cell.error_ns)


def _fit_line(cells: Sequence[Cell], latency_ns: float | None, ns_per_byte: float | None) -> LinkFit:
    """Return the latency and the time per byte of a single line through *cells*."""
    rows = np.array([(cell.row.latencies, cell.row.bytes) for cell in cells], dtype=float).reshape(-1, 2)
    fixed = np.array([cell.row.fixed_ns for cell in cells])
    medians = np.array([cell.median_ns for cell in cells])
    shares = np.array([np.hypot(cell.error_ns / max(cell.median_ns, 1.0), _MIN_ERROR) for cell in cells])
    held = _fixed_values(rows, latency_ns, ns_per_byte)
    columns = _Columns(rows, medians - fixed, shares)
    best = _solve(columns.of(np.arange(len(cells))[None]), held)[0]
    off = _misfit(columns, best)
    draws = _draws(cells, columns, fixed, held, off) if np.isnan(held).any() else np.empty((0, 2))
    figures = []
    given = (latency_ns, ns_per_byte)
    for place, value in enumerate(best.tolist()):
        if given[place] is not None:
            figures.append(Figure(value, value, value, "given"))
        elif not np.isnan(held[place]):
            figures.append(Figure(value, value, value, "unknown"))
        else:
            figures.append(_figure(value, draws[:, place]))
    return LinkFit(*figures)


def figure_of(values: Sequence[float]) -> Figure:
    """Return the median of *values* (at least 0) with its 95 % interval."""
    random = np.random.default_rng(_SEED)
    medians = np.median(random.choice(np.array(values), (_DRAWS, len(values))), axis=1)
    return _figure(max(0.0, float(np.median(values))), medians)


def can_separate(rows: Floats) -> bool:
    """Return whether *rows* of (latencies, bytes) differ enough to separate latency from bandwidth."""
    ratios = rows[:, 1] / np.maximum(rows[:, 0], 1e-9)
    return len(ratios) > 1 and bool(ratios.max() >= _SEPARABLE * max(float(ratios.min()), 1e-12))


def _fixed_values(rows: Floats, latency_ns: float | None, ns_per_byte: float | None) -> Floats:
    """Return the fixed values of the latency and of ns per byte, or NaN for a figure that is fitted."""
    held = np.array([np.nan if given is None else given for given in (latency_ns, ns_per_byte)], dtype=float)
    if np.isnan(held).all() and not can_separate(rows):
        held[0] = 0.0
    return held


@dataclass(frozen=True)
class _Columns:
    """The data of the fit by size, or by bootstrap draw and size; *shares* are the relative errors."""

    rows: Floats
    times: Floats
    shares: Floats

    def of(self, chosen: npt.NDArray[np.intp], times: Floats | None = None) -> _Columns:
        """Return the columns of the *chosen* sizes (draws, sizes), with the *times* of each draw if given."""
        drawn = self.times[chosen] if times is None else np.take_along_axis(times, chosen, axis=1)
        return _Columns(self.rows[chosen], drawn, self.shares[chosen])


def _solve(columns: _Columns, held: Floats) -> Floats:
    """Return (latency, ns per byte) of each draw, where *held* has given figures, or NaN.

    The method is iteratively reweighted least squares. Errors are relative to the line instead of the
    measurement, because otherwise short times would have more weight.
    """
    weights, predicted = np.ones_like(columns.times), columns.times
    solution = np.zeros((len(columns.times), 2))
    few = columns.times.shape[1] < _FEW_SIZES
    for _ in range(_ROUNDS):
        errors = np.maximum(columns.shares * np.maximum(predicted, 1.0), _MIN_NS)
        solution = _least_squares(columns.rows, columns.times, weights / errors**2, held)
        predicted = (columns.rows * solution[:, None, :]).sum(axis=2)
        left = (columns.times - predicted) / errors
        # If the residuals exceed the scatter of the repetitions, the error of every time is scaled up.
        usual = np.median(np.abs(left), axis=1, keepdims=True) * 1.4826
        usual = np.ones_like(usual) if few else np.maximum(1.0, usual)
        weights = np.minimum(1.0, _HUBER * usual / np.maximum(np.abs(left), 1e-12))
    return solution


def _least_squares(rows: Floats, times: Floats, weights: Floats, held: Floats) -> Floats:
    """Return the weighted least-squares solution of each draw, with both figures at least 0."""
    free = np.isnan(held)
    base = np.where(free, 0.0, held)
    rest = times - rows @ base
    scale = np.sqrt((weights[:, :, None] * rows**2).sum(axis=1))
    scale = np.where(scale > 0, scale, 1.0)
    units = rows / scale[:, None, :]
    seen = (weights * rest)[:, :, None] * units
    wanted = seen.sum(axis=1)
    alone = np.maximum(wanted, 0.0)  # each figure fitted alone; columns are unit vectors
    alone_first, alone_second = (np.where([True, False], alone, 0.0), np.where([False, True], alone, 0.0))
    if free.all():
        both = (weights * units[:, :, 0] * units[:, :, 1]).sum(axis=1)
        room = np.maximum(1 - both**2, 1e-12)
        first = (wanted[:, 0] - both * wanted[:, 1]) / room
        second = (wanted[:, 1] - both * wanted[:, 0]) / room
        inside = ((first >= 0) & (second >= 0))[:, None]
        better = (alone[:, 0] >= alone[:, 1])[:, None]  # whether the first figure explains more of the times
        edge = np.where(better, alone_first, alone_second)
        solution = np.where(inside, np.stack([first, second], axis=1), edge)
    else:
        solution = np.where(free, alone, 0.0)
    return base + solution / scale


def _misfit(columns: _Columns, best: Floats) -> float:
    """Return the root mean square of the logarithmic deviations of the sizes from the line."""
    predicted = np.maximum(columns.rows @ best, 1.0)
    return float(np.sqrt(np.mean(np.log(np.maximum(columns.times, 1.0) / predicted) ** 2)))


def _draws(cells: Sequence[Cell], columns: _Columns, fixed: Floats, held: Floats, off: float) -> Floats:
    """Return the solutions for resampled repetitions, and for resampled sizes if enough sizes exist.

    The times of sizes without repetitions scatter by *off*, which is the deviation of all sizes from the
    line.
    """
    random = np.random.default_rng(_SEED)
    medians = [
        np.median(random.choice(cell.times_ns, (_DRAWS, len(cell.times_ns))), axis=1)
        if cell.repeated
        else cell.median_ns * random.lognormal(0, max(off, _UNREPEATED), _DRAWS)
        for cell in cells
    ]
    times = np.stack(medians, axis=1) - fixed
    chosen = np.broadcast_to(np.arange(len(cells)), times.shape)
    if len(cells) >= _FEW_SIZES:
        chosen = _drawn_sizes(columns.rows, random)
    return _solve(columns.of(chosen, times), held)


def _drawn_sizes(rows: Floats, random: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return indices of *rows* for each draw, stratified by small and large sizes.

    A draw without small sizes, or without large sizes, could not separate latency from bandwidth.
    """
    ratios = np.log(np.maximum(rows[:, 1], 1e-9) / np.maximum(rows[:, 0], 1e-9))
    large = ratios > (ratios.min() + ratios.max()) / 2
    parts = [np.flatnonzero(part) for part in (~large, large) if part.any()]
    return np.concatenate([random.choice(part, (_DRAWS, len(part))) for part in parts], axis=1)


def _figure(value: float, draws: Floats) -> Figure:
    low, high = np.quantile(draws, _INTERVAL).tolist() if len(draws) else (0.0, float("inf"))
    return Figure(value, max(0.0, min(low, value * (1 - _FINEST))), max(high, value * (1 + _FINEST)))
