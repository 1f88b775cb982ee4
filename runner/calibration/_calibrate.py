"""Fit a network to measurements: link figures with intervals, library overheads and handshake."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...errors import ConfigError
from ...support import bandwidth_text, bytes_text, count_text, duration_text
from .._traits import DEFAULT_BACKEND
from ..config import HANDSHAKES, EfficiencyPart, SystemConfig
from ._fit import REPEATED, Cell, Figure, LinkFit, Rows, can_separate, figure_of, fit_link
from ._records import EXCHANGE, MESSAGE, Call, Level, Records, levels_of, without_faster_pairs

_NONE, _IN_ORDER = HANDSHAKES
_BOTH_AT_ONCE, _IN_TURN = 1.25, 1.75  # the ratio of an exchange's time to the time of one message
_FASTER = 0.25  # quantile of compared durations; it is low, because noise only adds time
_LARGE = 16  # sizes below 1/16 of the largest size are ignored, because latency dominates


class Remarks(NamedTuple):
    """Sentences on assumptions (*assumed*) and on *undetermined* quantities of a calibration."""

    assumed: tuple[str, ...] = ()
    undetermined: tuple[str, ...] = ()


def handshake_of(records: Records) -> tuple[str, Remarks]:
    """Return the ``handshake`` of sends and receives that *records* of exchanges show, with remarks.

    If simultaneous messages in both directions take as long as sequential messages, the second message waited
    for the first message.
    """
    times: dict[tuple[str, int], list[int]] = defaultdict(list)
    for transfer in records.transfers:
        call = transfer.calls[0]
        if call.operation in (MESSAGE, EXCHANGE):
            times[call].append(transfer.transfer_ns)
    sizes = [size for operation, size in times if operation == EXCHANGE and (MESSAGE, size) in times]
    often = [
        size for size in sizes if min(len(times[name, size]) for name in (MESSAGE, EXCHANGE)) >= REPEATED
    ]
    if not often:
        return _NONE, Remarks()
    ratios = [
        float(np.quantile(times[EXCHANGE, size], _FASTER) / np.quantile(times[MESSAGE, size], _FASTER))
        for size in often
        if size * _LARGE >= max(often)
    ]
    ratio = float(np.median(ratios))
    if ratio >= _IN_TURN:
        return _IN_ORDER, Remarks(
            (
                f"Messages in both directions at the same time took {ratio:.2f} times as long as in one "
                "direction: the request of a receiver waits behind its own messages. Simulations on this "
                "network model this.",
            )
        )
    if ratio <= _BOTH_AT_ONCE:
        return _NONE, Remarks()
    return _NONE, Remarks(
        undetermined=(
            f"Whether messages in both directions wait for each other: both at once took {ratio:.2f} times "
            "as long as one, which is close to neither 1 nor 2; no handshake was written.",
        )
    )


_SURE = 1.5  # the largest ratio of an interval's ends for a figure to decide the fit
_DETERMINED = 20.0  # the largest ratio of an interval's ends for a bandwidth to count as determined
_REPORTED = 3.0  # the largest ratio of an interval's ends for a message cost to be written
_OVER = 0.1  # the relative error above which sizes that are faster than in the model are reported
_WORTH = 0.02  # the least relative overhead of a collective to be reported


@dataclass(frozen=True)
class Point:
    """A collective at one size: its measured time, and the modelled time with and without the library.

    *cost_ns* is the library's overhead, and *wire_ns* is the time of the messages.
    """

    dimension: str
    operation: str
    ranks: int
    size_bytes: int
    count: int
    measured_ns: float
    error_ns: float
    wire_ns: float
    cost_ns: float

    @property
    def model_ns(self) -> float:
        """The simulated time of the collective alone, in ns."""
        return self.wire_ns + self.cost_ns

    @property
    def error(self) -> float:
        """The relative error of the modelled time of the collective."""
        return self.model_ns / self.measured_ns - 1

    @property
    def efficiency(self) -> float:
        """The share of the modelled time that the collective's messages take."""
        return min(1.0, self.wire_ns / self.model_ns) if self.model_ns else 1.0


@dataclass(frozen=True)
class Dimension:
    """A network dimension with its fitted link; *fitted_on* is the number of transfers in the fit."""

    name: str
    count: int
    fit: LinkFit
    fitted_on: int


@dataclass(frozen=True)
class Calibration:
    """The fitted network: dimensions starting with the innermost, all measured points, and known gaps.

    * *efficiency* has the library's overheads, as the network file contains them.
    * *message_cost_ns* is the time for which a message keeps its sender from sending the next message, if
      measured.
    * *undetermined* and *assumptions* are sentences on undetermined figures and on assumptions.
    """

    records: Records
    system: str
    dimensions: tuple[Dimension, ...]
    points: tuple[Point, ...]
    efficiency: EfficiencyPart
    message_cost_ns: Figure | None
    undetermined: tuple[str, ...]
    assumptions: tuple[str, ...]


@dataclass(frozen=True)
class _Group:
    """Transfers on one network level with the same number of ranks and the same collective calls."""

    ranks: int
    calls: tuple[Call, ...]
    cell: Cell


def calibrate_records(
    records: Records,
    system: SystemConfig,
    *,
    wire: float = 1.0,
    bandwidth_bytes_per_ns: float | None = None,
    latency_ns: float | None = None,
) -> Calibration:
    """Return the network that explains *records* when simulated with *system*.

    *wire* is the fraction of bytes on the wire that are payload. A given *bandwidth* (of the link, including
    headers) or *latency* is used without a fit. Time that given figures do not explain counts as overhead of
    the collectives. The function raises `ConfigError` if the records do not determine a bandwidth.
    """
    message_cost, unsure = _message_cost(records)
    handshake, remarks = handshake_of(records)
    everything = records
    records = replace(
        records, transfers=tuple(t for t in records.transfers if t.calls[0].operation != EXCHANGE)
    )
    if not records.transfers:
        raise ConfigError(_nothing(records))
    sends_first = records.sends_first if handshake != "none" else {}
    rows = Rows(system, round(message_cost.value) if message_cost else 0, sends_first, records.substitutes)
    levels, why = levels_of(records)
    records, uneven = without_faster_pairs(records, levels)
    chosen, notes = _usable_levels(records, levels)
    given = None if bandwidth_bytes_per_ns is None else 1 / (bandwidth_bytes_per_ns * wire)
    dimensions, points, undetermined = [], [], []
    for level, places in chosen:
        groups = _groups(records, places, rows)
        fit = _level_fit(level.name, groups, latency_ns, given)
        undetermined += _undetermined(level.name, fit, groups)
        dimensions.append(Dimension(level.name, level.count, fit, len(places)))
        points += _points(level.name, groups, fit)
    costs = _costs(points)
    messages = costs.pop(MESSAGE, ())
    part = EfficiencyPart(
        wire=wire,
        message_cost_ns=rows.message_cost_ns,
        collectives=costs,
        messages=messages,
        handshake=handshake,
        sends_first=sends_first,
        substitutes=records.substitutes,
    )
    points = [replace(one, cost_ns=part.cost_ns(one.operation, one.size_bytes)) for one in points]
    undetermined += _faster(points)
    if why:
        undetermined.append(f"Dimensions: {why}.")
    return Calibration(
        everything,
        system.name,
        tuple(dimensions),
        tuple(points),
        part,
        message_cost,
        (*undetermined, *unsure, *uneven, *remarks.undetermined, *notes),
        (
            f"The network was fitted to {records.source}, with the collective algorithms of the system "
            f"'{system.name}' as '{DEFAULT_BACKEND}' simulates them; for other algorithms, its values are "
            "less accurate.",
            *remarks.assumed,
            *(
                f"The library runs {other} for {operation}, because both take the same time."
                for operation, other in records.substitutes.items()
            ),
        ),
    )


def _message_cost(records: Records) -> tuple[Figure | None, list[str]]:
    """Return the cost of a message for its sender, or None if it is unknown, with the reason."""
    if not records.message_costs_ns:
        return None, []
    figure = figure_of(records.message_costs_ns)
    if figure.spread <= _REPORTED:
        return figure, []
    return None, [
        f"The cost of a message for its sender: measurements lie between {duration_text(figure.low)} and "
        f"{duration_text(figure.high)}, and no cost was written."
    ]


def _nothing(records: Records) -> str:
    why = f" Left out: {'; '.join(records.left_out)}." if records.left_out else ""
    return (
        f"{records.source.capitalize()} hold no collective whose transfer can be separated from waiting, so "
        f"there is nothing to fit.{why} Next: capture a job that communicates, or measure the network with "
        "--hosts."
    )


def _usable_levels(records: Records, levels: list[Level]) -> tuple[list[tuple[Level, list[int]]], list[str]]:
    """Return the levels with the indices of their transfers, or one level if levels are indistinguishable."""
    places: list[list[int]] = [[] for _ in levels]
    mixed = 0
    for place, transfer in enumerate(records.transfers):
        index = next((n for n, level in enumerate(levels) if level.joins(transfer.members)), None)
        if index is None:
            mixed += 1
        else:
            places[index].append(place)
    if all(places):
        notes = (
            [f"{count_text(mixed, 'transfer')} of groups that span several dimensions were left out."]
            if mixed
            else []
        )
        return list(zip(levels, places, strict=True)), notes
    lacking = " and ".join(f"'{level.name}'" for level, own in zip(levels, places, strict=True) if not own)
    names = " and ".join(f"'{level.name}'" for level in levels)
    everyone = (0,) * records.num_ranks
    flat = Level("all ranks", records.num_ranks, tuple(range(records.num_ranks)), everyone)
    last = levels[-1]
    widest = [
        number
        for number, transfer in enumerate(records.transfers)
        if last.above and len({last.units[rank] for rank in transfer.members}) > 1
    ]
    chosen = widest or list(range(len(records.transfers)))
    note = (
        f"{names} could not be distinguished: no collective uses {lacking} alone. All ranks became one "
        "dimension, with the figures of the widest groups."
    )
    return [(flat, chosen)], [note]


def _groups(records: Records, places: Sequence[int], rows: Rows) -> list[_Group]:
    times: dict[tuple[int, tuple[Call, ...]], list[int]] = defaultdict(list)
    for place in places:
        transfer = records.transfers[place]
        if transfer.transfer_ns > 0:
            times[len(transfer.members), transfer.calls].append(transfer.transfer_ns)
    return [
        _Group(
            ranks,
            calls,
            Cell(
                " + ".join(call.operation for call in calls) + f" of {ranks}",
                rows.of(ranks, calls),
                np.array(taken, dtype=float),
            ),
        )
        for (ranks, calls), taken in sorted(times.items())
    ]


def _level_fit(
    name: str, groups: Sequence[_Group], latency_ns: float | None, ns_per_byte: float | None
) -> LinkFit:
    """Return the link of a network level, fitted to the operations with the highest bandwidth."""
    lead = _leading(groups, latency_ns, ns_per_byte)
    cells = [group.cell for group in lead]
    fit = fit_link(cells, latency_ns, ns_per_byte)
    if fit.ns_per_byte.known != "given" and fit.ns_per_byte.spread > _DETERMINED:
        raise ConfigError(
            f"The collectives of '{name}' are too small, or too few, to determine the bandwidth: the "
            f"interval is "
            f"{rate_text(fit.ns_per_byte.high)} to {rate_text(fit.ns_per_byte.low)}. Give --bandwidth, or "
            "records with larger messages."
        )
    return fit


def rate_text(ns_per_byte: float) -> str:
    """Return the bandwidth of a time per byte as text."""
    return bandwidth_text(1 / ns_per_byte) if ns_per_byte > 0 else "no limit"


def _leading(
    groups: Sequence[_Group], latency_ns: float | None, ns_per_byte: float | None
) -> Sequence[_Group]:
    """Return the transfers of operations with the highest bandwidth, within confidence intervals."""
    if ns_per_byte is not None:
        return groups
    by_operation: dict[str, list[_Group]] = defaultdict(list)
    for group in groups:
        for operation in {call.operation for call in group.calls}:
            by_operation[operation].append(group)
    fits: dict[str, Figure] = {}
    for operation, own in by_operation.items():
        alone = [group for group in own if {call.operation for call in group.calls} == {operation}]
        table = np.array([(group.cell.row.latencies, group.cell.row.bytes) for group in alone])
        if alone and (latency_ns is not None or can_separate(table)):
            figure = fit_link([group.cell for group in alone], latency_ns).ns_per_byte
            if figure.spread <= _SURE:
                fits[operation] = figure
    if not fits:
        return groups
    fastest = min(fits.values(), key=lambda figure: figure.value)
    chosen = {operation for operation, figure in fits.items() if figure.low <= fastest.high}
    return [group for group in groups if {call.operation for call in group.calls} <= chosen]


def _undetermined(name: str, fit: LinkFit, groups: Sequence[_Group]) -> list[str]:
    """Return sentences on the figures of *fit* that the measurements do not determine."""
    sentences = []
    latency, pace = fit.latency_ns, fit.ns_per_byte
    sizes = sorted({call.size_bytes for group in groups for call in group.calls})
    if latency.known == "unknown":
        alike = "one size" if len(sizes) == 1 else "sizes that are too similar"
        sentences.append(
            f"The latency of '{name}': with {alike} it cannot be separated from the bandwidth. It was "
            "written as 0, so that the bandwidth includes the latency and is wrong for other sizes; "
            "give --latency, or records with other sizes."
        )
    elif latency.known == "fitted" and latency.low == 0:
        sentences.append(
            f"The latency of '{name}': these sizes do not distinguish it from 0; it is at most "
            f"{duration_text(latency.high)}."
        )
    if pace.known == "fitted" and pace.spread > _SURE:
        sentences.append(
            f"The bandwidth of '{name}' is uncertain: {rate_text(pace.high)} to {rate_text(pace.low)}; "
            "larger messages would narrow it."
        )
    return sentences


def _points(name: str, groups: Sequence[_Group], fit: LinkFit) -> list[Point]:
    """Return the points of transfers with a single collective, with the overheads of the library."""
    points = []
    for group in groups:
        if len(group.calls) != 1:
            continue
        cell = group.cell
        wire_ns = cell.row.time_ns(fit.latency_ns.value, fit.ns_per_byte.value)
        # A step contains many collectives, so the cost is the mean of the middle half of the times, and not
        # the median.
        beyond = cell.usual_ns - wire_ns
        worth = cell.repeated and beyond > max(2 * cell.error_ns, _WORTH * cell.usual_ns)
        points.append(
            Point(
                name,
                group.calls[0].operation,
                group.ranks,
                group.calls[0].size_bytes,
                len(cell.times_ns),
                cell.usual_ns,
                cell.error_ns,
                wire_ns,
                beyond if worth else 0.0,
            )
        )
    return points


def _faster(points: Sequence[Point]) -> list[str]:
    """Return a sentence if sizes with enough repetitions take much less time than in the model."""
    over = [point for point in points if point.count >= REPEATED and point.error > _OVER]
    if not over:
        return []
    worst = max(over, key=lambda point: point.error)
    return [
        f"The reason why {count_text(len(over), 'size')} took less time than latency and bandwidth allow: "
        f"the network file says {duration_text(worst.model_ns)} for {worst.operation} of "
        f"{bytes_text(worst.size_bytes)}, which took {duration_text(worst.measured_ns)}. Caches, and links "
        "that allow bursts, are possible causes. For such sizes, the network file is too slow."
    ]


def _costs(points: Sequence[Point]) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return each operation's overhead by size, from the sizes with enough repetitions.

    Operations without overhead are omitted from the result.
    """
    points_by_size: dict[str, dict[int, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        if point.count >= REPEATED:
            points_by_size[point.operation][point.size_bytes].append(point)
    curves = {}
    for operation, sizes in sorted(points_by_size.items()):
        curve = tuple(
            (size, round(float(np.median([point.cost_ns for point in own]))))
            for size, own in sorted(sizes.items())
        )
        if any(cost for _, cost in curve):
            curves[operation] = curve
    return curves
