"""The state of the form New run as text for an address: only what differs from its presets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...runner import backend_names, list_presets
from ...runner.engine import COLLECTIVES
from ._configure import Dimension, Setup

__all__ = ["SYSTEM_FIELDS", "Form", "decode_form", "encode_form", "first_form"]

SYSTEM_FIELDS = (
    "preferred-dataset-splits",
    "active-chunks-per-dimension",
    "endpoint-delay",
    "local-mem-bw",
    "peak-perf",
    "collective-optimization",
    "inter-dimension-policy",
    "intra-dimension-policy",
    "roofline-enabled",
)
"""The keys of a system file that the form shows."""

_FIRST_NETWORK, _FIRST_SYSTEM = "cpu-cluster-16", "default"
_FIRST_BACKENDS = ("analytical-unaware",)
_MOST_DIMENSIONS = 4
_LABEL_LENGTH = 120


@dataclass(frozen=True)
class Form:
    """Everything the form holds: what to simulate, where, by which *backends*, and what to call it."""

    workload: str
    setup: Setup
    backends: tuple[str, ...] = _FIRST_BACKENDS
    label: str = ""


def first_form(workloads: Sequence[str]) -> Form:
    """Return the form as it is before anybody changed it, for a study's *workloads*, of which it has some."""
    presets = list_presets("network")
    network = _FIRST_NETWORK if _FIRST_NETWORK in presets else presets[0]
    return Form(workloads[-1], Setup.of_presets(network, _FIRST_SYSTEM))


def encode_form(form: Form, workloads: Sequence[str]) -> str:
    """Return *form* as text, ``""`` if nobody changed it."""
    first, start = first_form(workloads), _start(form.setup)
    setup = form.setup
    changes = {
        "workload": form.workload != first.workload and form.workload,
        "network": setup.network_preset != first.setup.network_preset and setup.network_preset,
        "system": setup.system_preset != first.setup.system_preset and setup.system_preset,
        "dimensions": setup.dimensions != start.dimensions and [_row(each) for each in setup.dimensions],
        "keys": {
            key: setup.system.get(key)
            for key in SYSTEM_FIELDS
            if setup.system.get(key) != start.system.get(key)
        },
        "backends": form.backends != first.backends and [*form.backends],
        "label": form.label,
    }
    told = {key: value for key, value in changes.items() if value not in (False, {}, "")}
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False) if told else ""


def decode_form(text: str, workloads: Sequence[str]) -> Form:
    """Return the form that :func:`encode_form` wrote; what is missing or makes no sense is as at first."""
    first = first_form(workloads)
    try:
        told = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return first
    if not isinstance(told, dict):
        return first
    network = _one_of(told.get("network"), list_presets("network"), first.setup.network_preset)
    system = _one_of(told.get("system"), list_presets("system"), first.setup.system_preset)
    setup = Setup.of_presets(network, system)
    rows, keys = told.get("dimensions"), told.get("keys")
    if isinstance(rows, list) and 0 < len(rows) <= _MOST_DIMENSIONS and all(map(_is_row, rows)):
        setup = replace(setup, dimensions=tuple(_dimension(row) for row in rows))
    if isinstance(keys, dict):
        setup = replace(setup, system=_with_keys(setup.system, keys))
    backends = told.get("backends")
    chosen = tuple(name for name in backends if name in backend_names()) if isinstance(backends, list) else ()
    return Form(
        _one_of(told.get("workload"), workloads, first.workload),
        setup,
        chosen if isinstance(backends, list) else first.backends,
        str(told.get("label", ""))[:_LABEL_LENGTH],
    )


def _start(setup: Setup) -> Setup:
    return Setup.of_presets(setup.network_preset, setup.system_preset)


def _one_of(value: Any, allowed: Sequence[str], otherwise: str) -> str:
    return value if isinstance(value, str) and value in allowed else otherwise


def _row(dimension: Dimension) -> list[Any]:
    return [
        dimension.topology,
        dimension.size,
        dimension.bandwidth,
        dimension.latency,
        *dimension.algorithms,
    ]


def _is_row(row: Any) -> bool:
    if not isinstance(row, list) or len(row) != 4 + len(COLLECTIVES):
        return False
    texts, numbers = [row[0], *row[4:]], row[1:4]
    return all(isinstance(text, str) for text in texts) and all(map(_is_number, numbers))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _dimension(row: Sequence[Any]) -> Dimension:
    return Dimension(row[0], int(row[1]), float(row[2]), float(row[3]), tuple(row[4:]))


def _with_keys(system: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return *system* with the changed *keys*; None takes a key away."""
    changed = dict(system)
    for key in SYSTEM_FIELDS:
        if key in keys:
            value = keys[key]
            if value is None:
                changed.pop(key, None)
            elif isinstance(value, str) or _is_number(value):
                changed[key] = value
    return changed
