"""The network file of a calibration with its provenance, and the plot of the fit as SVG."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd

from ...support import Svg, bytes_text, duration_text, element
from ...support import picture as drawing
from ..config import GIB, NetworkConfig
from ._calibrate import Calibration, Dimension, Point
from ._fit import TOPOLOGY, Figure

_DIGITS = 6
_POINT_COLUMNS = [
    "dimension", "operation", "ranks", "size_bytes", "count", "measured_ns", "model_ns", "messages_ns",
    "error", "efficiency",
]  # fmt: skip


def calibrated_network(calibration: Calibration, name: str = "network", when: str = "") -> NetworkConfig:
    """Return the network of *calibration*, with the time *when* in its provenance."""
    dimensions, part = calibration.dimensions, calibration.efficiency
    facts = calibration_facts(calibration) | ({"when": when} if when else {})
    return NetworkConfig(
        (TOPOLOGY,) * len(dimensions),
        tuple(dimension.count for dimension in dimensions),
        tuple(
            _rounded(1e9 / GIB / (dimension.fit.ns_per_byte.value * part.wire)) for dimension in dimensions
        ),
        tuple(_rounded(dimension.fit.latency_ns.value) for dimension in dimensions),
        assumptions=(*calibration.assumptions, *calibration.undetermined),
        efficiency=part if part.to_dict() else None,
        calibration=facts,
        name=name,
    )


def calibration_facts(calibration: Calibration) -> dict[str, Any]:
    """Return the figures, intervals, errors and gaps of *calibration* as plain data."""
    part = calibration.efficiency
    worst = max((abs(point.error) for point in calibration.points), default=0.0)
    return {
        "fitted-on": calibration.records.source,
        "system": calibration.system,
        "transfers": len(calibration.records.transfers),
        "dimensions": [_dimension(dimension, part.wire) for dimension in calibration.dimensions],
        **_message_cost(calibration.message_cost_ns),
        **({"handshake": part.handshake} if part.handshake != "none" else {}),
        "largest-error": _rounded(worst),
        "points": [
            {name.replace("_", "-"): value for name, value in row.items() if name != "error"}
            | {"efficiency": _rounded(row["efficiency"])}
            for row in map(_row, calibration.points)
        ],
        "undetermined": list(calibration.undetermined),
        "left-out": list(calibration.records.left_out),
    }


def calibration_points(calibration: Calibration) -> pd.DataFrame:
    """Return a row for each fitted collective and size, with times in whole ns."""
    table: pd.DataFrame = pd.DataFrame([*map(_row, calibration.points)], columns=_POINT_COLUMNS)
    return table


def _row(point: Point) -> dict[str, Any]:
    return {
        "dimension": point.dimension,
        "operation": point.operation,
        "ranks": point.ranks,
        "size_bytes": point.size_bytes,
        "count": point.count,
        "measured_ns": round(point.measured_ns),
        "model_ns": round(point.model_ns),
        "messages_ns": round(point.wire_ns),
        "error": point.error,
        "efficiency": point.efficiency,
    }


def _message_cost(figure: Figure | None) -> dict[str, Any]:
    if figure is None:
        return {}
    return {"message-cost-ns": _interval(figure, figure.value, figure.low, figure.high)}


def _dimension(dimension: Dimension, wire: float) -> dict[str, Any]:
    pace, latency = dimension.fit.ns_per_byte, dimension.fit.latency_ns
    rates = [1 / (value * wire) if value > 0 else None for value in (pace.value, pace.high, pace.low)]
    return {
        "name": dimension.name,
        "ranks": dimension.count,
        "transfers": dimension.fitted_on,
        "bandwidth-bytes-per-ns": _interval(pace, *rates),
        "latency-ns": _interval(latency, latency.value, latency.low, latency.high),
    }


def _interval(figure: Figure, value: float | None, low: float | None, high: float | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"known": figure.known, "value": _maybe(value)}
    if figure.known == "fitted":
        entry |= {"low": _maybe(low), "high": _maybe(high)}
    return entry


def _maybe(value: float | None) -> float | None:
    return None if value is None else _rounded(value)


def _rounded(value: float) -> float:
    """Return *value* rounded to six significant digits."""
    return float(f"{value:.{_DIGITS}g}")


_WIDTH, _HEIGHT = 840, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 270, 40, 60
_COLOURS = ("#2a78d6", "#c2570c", "#2e8b57", "#8a4fbf", "#b3294e", "#6b6f76")
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.grid{stroke:#d0d7de}.axis{stroke:#57606a}"
    "svg{background:#fff}@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}"
    ".grid{stroke:#30363d}.axis{stroke:#8b949e}}"
)
_Scale = Callable[[float], float]


def picture(calibration: Calibration) -> str:
    """Return an SVG with logarithmic axes, with measured medians as dots and the fitted network as lines.

    Dashed lines show the time of the messages without the library's overhead.
    """
    points = [point for point in calibration.points if point.measured_ns > 0]
    series: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        where = f", {point.dimension}" if len(calibration.dimensions) > 1 else ""
        series[f"{point.operation}, {point.ranks} ranks{where}"].append(point)
    across = _scale([max(1, p.size_bytes) for p in points], _LEFT, _WIDTH - _RIGHT)
    times = [value for p in points for value in (p.measured_ns, p.model_ns, p.wire_ns) if value > 0]
    up = _scale(times, _HEIGHT - _BOTTOM, _TOP)
    parts = [
        element("style", Svg(_STYLE)),
        element("text", f"Measured and fitted: {calibration.records.source}", x=_LEFT, y=22),
        *_axes(points, times, across, up),
    ]
    for number, (name, own) in enumerate(sorted(series.items())):
        colour = _COLOURS[number % len(_COLOURS)]
        parts += _series(sorted(own, key=lambda p: p.size_bytes), colour, across, up)
        parts += _legend(name, colour, number)
    note = "Dots: median of the measurements. Lines: the network; dashed: its messages alone."
    parts.append(element("text", note, x=_LEFT, y=_HEIGHT - 10))
    return drawing(_WIDTH, _HEIGHT, *parts, label="Fit against measurements") + "\n"


def _scale(values: Sequence[float], start: float, end: float) -> _Scale:
    low, high = (math.log10(edge) for edge in (min(values, default=1), max(values, default=10)))
    if high - low < 1e-6:
        low, high = low - 0.5, high + 0.5
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
    return lambda value: start + (math.log10(value) - low) / (high - low) * (end - start)


def _axes(points: Iterable[Point], times: Sequence[float], across: _Scale, up: _Scale) -> list[Svg]:
    sizes = [max(1, point.size_bytes) for point in points]
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    middle = {"text_anchor": "middle"}
    parts = []
    for value in _ticks(sizes, 2, 4):
        x = across(value)
        parts.append(element("line", class_="grid", x1=x, x2=x, y1=_TOP, y2=bottom))
        parts.append(element("text", bytes_text(value), x=x, y=bottom + 18, **middle))
    for value in _ticks(times, 10, 1):
        y = up(value)
        parts.append(element("line", class_="grid", x1=_LEFT, x2=right, y1=y, y2=y))
        parts.append(element("text", duration_text(value), x=_LEFT - 8, y=y + 4, text_anchor="end"))
    parts.append(element("path", class_="axis", fill="none", d=f"M{_LEFT} {_TOP}V{bottom}H{right}"))
    parts.append(element("text", "size", x=(_LEFT + right) / 2, y=bottom + 36, **middle))
    return parts


def _ticks(values: Sequence[float], base: int, step: int) -> list[int]:
    """Return the powers of *base* within *values*, in steps of *step* exponents, thinned to about eight."""
    if not values:
        return []
    low, high = (math.log(edge, base) for edge in (min(values), max(values)))
    powers = range(math.ceil(low / step - 1e-9) * step, math.floor(high + 1e-9) + 1, step)
    return [base**power for power in powers[:: max(1, len(powers) // 8)]]


def _series(points: Sequence[Point], colour: str, across: _Scale, up: _Scale) -> list[Svg]:
    def line(value: Callable[[Point], float], **more: str | float) -> Svg:
        path = " ".join(f"{across(max(1, p.size_bytes)):.1f},{up(max(1.0, value(p))):.1f}" for p in points)
        return element("polyline", fill="none", stroke=colour, points=path, **more)

    def dot(point: Point) -> Svg:
        tip = (
            f"{point.operation} of {bytes_text(point.size_bytes)}: measured "
            f"{duration_text(point.measured_ns)}, model {duration_text(point.model_ns)}"
        )
        x, y = across(max(1, point.size_bytes)), up(point.measured_ns)
        return element("circle", element("title", tip), cx=x, cy=y, r=3.5, fill=colour)

    return [
        line(lambda p: p.wire_ns, stroke_dasharray="4 3"),
        line(lambda p: p.model_ns, stroke_width=1.5),
        *map(dot, points),
    ]


def _legend(name: str, colour: str, number: int) -> list[Svg]:
    x, y = _WIDTH - _RIGHT + 16, _TOP + 12 + 18 * number
    return [element("circle", cx=x, cy=y - 4, r=4, fill=colour), element("text", name, x=x + 10, y=y)]
