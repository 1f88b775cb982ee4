"""The network file of a calibration, including its provenance."""

from __future__ import annotations

from typing import Any

from ..config import GIB, EfficiencyPart, NetworkConfig
from ._calibrate import Calibration, Dimension
from ._fit import Figure
from ._records import MESSAGE
from ._rows import TOPOLOGY

__all__ = ["calibrated_network", "calibration_facts"]

_DIGITS = 6


def calibrated_network(calibration: Calibration, name: str = "network", when: str = "") -> NetworkConfig:
    """Return the network of *calibration*, with the time *when* in its provenance."""
    dimensions = calibration.dimensions
    message_cost = calibration.message_cost_ns
    part = EfficiencyPart(
        wire=calibration.wire,
        message_cost_ns=round(message_cost.value) if message_cost else 0,
        collectives={name: curve for name, curve in calibration.costs.items() if name != MESSAGE},
        messages=calibration.costs.get(MESSAGE, ()),
        handshake=calibration.handshake,
        sends_first=calibration.sends_first,
        substitutes=calibration.substitutes,
    )
    facts = calibration_facts(calibration) | ({"when": when} if when else {})
    return NetworkConfig(
        (TOPOLOGY,) * len(dimensions),
        tuple(dimension.count for dimension in dimensions),
        tuple(
            _rounded(1e9 / GIB / (dimension.fit.ns_per_byte.value * calibration.wire))
            for dimension in dimensions
        ),
        tuple(_rounded(dimension.fit.latency_ns.value) for dimension in dimensions),
        assumptions=(*calibration.assumptions, *calibration.undetermined),
        efficiency=part if part.to_dict() else None,
        calibration=facts,
        name=name,
    )


def calibration_facts(calibration: Calibration) -> dict[str, Any]:
    """Return the basis of *calibration* as plain data: figures with intervals, errors, gaps."""
    worst = max((abs(point.error) for point in calibration.points), default=0.0)
    return {
        "fitted-on": calibration.records.source,
        "system": calibration.system,
        "transfers": len(calibration.records.transfers),
        "dimensions": [_dimension(dimension, calibration.wire) for dimension in calibration.dimensions],
        **_message_cost(calibration.message_cost_ns),
        **({"handshake": calibration.handshake} if calibration.handshake != "none" else {}),
        "largest-error": _rounded(worst),
        "points": [
            {
                "dimension": point.dimension,
                "operation": point.operation,
                "ranks": point.ranks,
                "size-bytes": point.size_bytes,
                "count": point.count,
                "measured-ns": round(point.measured_ns),
                "model-ns": round(point.model_ns),
                "messages-ns": round(point.wire_ns),
                "efficiency": _rounded(point.efficiency),
            }
            for point in calibration.points
        ],
        "undetermined": list(calibration.undetermined),
        "left-out": list(calibration.records.left_out),
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
    known: dict[str, Any] = {"known": figure.known, "value": _maybe(value)}
    if figure.known == "fitted":
        known |= {"low": _maybe(low), "high": _maybe(high)}
    return known


def _maybe(value: float | None) -> float | None:
    return None if value is None else _rounded(value)


def _rounded(value: float) -> float:
    """Return *value* with as many digits as a measurement has."""
    return float(f"{value:.{_DIGITS}g}")
