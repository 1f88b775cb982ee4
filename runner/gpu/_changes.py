"""Change one figure of a machine, and read machines from results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ...errors import ConfigError, did_you_mean
from ._machine import PARTS, Machine, Protocol


def machine_of_plain(plain: Mapping[str, Any]) -> Machine:
    """Return the machine from the output *plain* of `dataclasses.asdict`.

    Raises `TypeError` and `KeyError` for other data.
    """
    parts = {name: kind(**plain[name]) for name, kind in PARTS.items()}
    protocols = {name: Protocol(**facts) for name, facts in plain["protocols"].items()}
    return Machine(**{**plain, **parts, "protocols": protocols})


def machine_figures(machine: Machine) -> dict[str, float]:
    """Return the numbers of *machine* by dotted key, such as ``scale_up.latency_ns``."""
    figures: dict[str, float] = {}
    for part in fields(machine):
        value = getattr(machine, part.name)
        if is_dataclass(value):
            own = {f"{part.name}.{item.name}": getattr(value, item.name) for item in fields(value)}
        else:
            own = {part.name: value}
        figures |= {
            key: value
            for key, value in own.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }
    return figures


def faster_machine(machine: Machine, key: str, times: float) -> Machine:
    """Return *machine* with the figure *key* multiplied by a factor, or divided by it if it is a time.

    Integers change by at least one. Raises `ConfigError` for an unknown figure and an impossible machine.
    """
    figures = machine_figures(machine)
    if key not in figures:
        raise ConfigError(f"A machine has no figure '{key[:60]}'{did_you_mean(key, figures)}")
    value = figures[key]
    is_time = key.endswith("_ns") and not key.endswith("_per_ns")
    changed: float = value / times if is_time else value * times
    if isinstance(value, int):
        changed = max(1, math.ceil(changed - 1e-9) if times >= 1 else math.floor(changed + 1e-9))
    part, _, name = key.rpartition(".")
    new: dict[str, Any] = {name: changed}
    if part:
        new = {part: replace(getattr(machine, part), **new)}
    return replace(machine, **new)
