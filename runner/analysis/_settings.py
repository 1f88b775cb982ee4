"""The settings of simulations: each with its name, its place in the configurations, and its value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import pandas as pd

from .._result import Result
from .._traits import about_backend

_MACHINE = "machine: "
_MACHINE_NAME = "machine: name"
_DIMENSIONS = {"npus_count": "", "topology": "", "bandwidth": " GiB/s", "latency": " ns"}
_WORDS = {"sources", "title"}  # of a machine: sentences on where its figures are from


class Setting(NamedTuple):
    """A setting: its *name*, the keys that lead to its *value* in the configurations, and a unit."""

    name: str
    keys: tuple[str | int, ...]
    value: Any
    unit: str = ""

    @property
    def text(self) -> str:
        """The value for people."""
        return f"{_plain(self.value)}{self.unit}"


def settings_table(results: Mapping[str, Result], workloads: Sequence[str] = ()) -> pd.DataFrame:
    """Return the settings of *results*, a row per setting: ``setting``, ``differs``, and a column per result.

    Settings that differ come first. A result without a setting has an empty text; measurements, which have
    no settings of a simulation, do not count as differing.
    """
    given = [_settings(result) for result in results.values()]
    for settings, workload in zip(given, workloads, strict=False):
        settings["workload"] = workload
    is_measured = [about_backend(result.backend).replays for result in results.values()]
    measured = list(compress(given, is_measured))
    keys = list(dict.fromkeys(key for each in given for key in each))
    if sum(_MACHINE_NAME in each for each in given) < 2:
        # The figures of one machine are compared with nothing.
        keys = [key for key in keys if not key.startswith(_MACHINE) or key == _MACHINE_NAME]
    rows = [
        {
            "setting": key,
            "differs": len({each.get(key, "") for each in given if key in each or each not in measured}) > 1,
            **{name: each.get(key, "") for name, each in zip(results, given, strict=True)},
        }
        for key in keys
    ]
    table = pd.DataFrame(rows, columns=["setting", "differs", *results])
    ordered: pd.DataFrame = table.sort_values("differs", ascending=False, kind="stable", ignore_index=True)
    return ordered


def _settings(result: Result) -> dict[str, str]:
    """Return every setting of *result* by its name, as text."""
    made = result.provenance
    texts = {"backend": result.backend, "network": str(made.get("network_name", ""))}
    texts["ranks"] = f"{len(result.ranks):,}"
    if about_backend(result.backend).replays:
        return texts
    return texts | {setting.name: setting.text for setting in settings_of(made)}


def settings_of(made: Mapping[str, Any]) -> list[Setting]:
    """Return the settings of the configurations and options in *made*, a provenance or a part of one.

    Each dimension of the network, and each figure of a GPU machine, is a separate setting.
    """
    network = made.get("network", {})
    rows = [
        Setting(f"dimension {place + 1}: {key}", ("network", key, place), value, unit)
        for key, unit in _DIMENSIONS.items()
        for place, value in enumerate(network.get(key, []))
    ]
    for part in ("network", "system", "memory"):
        rows += [
            Setting(f"{part}: {key}", (part, key), value)
            for key, value in made.get(part, {}).items()
            if part != "network" or key not in _DIMENSIONS
        ]
    options = made.get("options", {})
    rows += _machine_settings(options.get("machine"), ("options", "machine"))
    rows += [
        Setting(f"option: {key}", ("options", key), value)
        for key, value in options.items()
        if key != "machine"
    ]
    return rows


def _machine_settings(machine: Any, keys: tuple[str, ...]) -> Iterator[Setting]:
    """Yield the figures of a GPU machine one by one, without their sources."""
    for key, value in machine.items() if isinstance(machine, Mapping) else ():
        within = (*keys, key)
        if isinstance(value, Mapping) and key not in _WORDS:
            yield from _machine_settings(value, within)
        elif key not in _WORDS:
            yield Setting(_MACHINE + ".".join(within[2:]), within, value)


def _plain(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain, value)) if len(value) <= 8 else f"{len(value):,} entries"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(each)}" for key, each in value.items())
    return str(value)
