"""What people call a setting of a sweep, and its values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._answers import value_text

__all__ = ["point_label", "setting_title", "setting_unit"]

_UNITS = {
    "bandwidth": "GiB/s",
    "latency": "ns",
    "npus_count": "ranks",
    "endpoint-delay": "ns",
    "local-mem-bw": "GB/s",
    "peak-perf": "TFLOP/s",
}


def setting_title(name: str, *, unit: bool = False) -> str:
    """Return what people call a setting: its key without the file it stands in, with its *unit* if asked."""
    plain = name.removeprefix("network.").removeprefix("system.").removesuffix("-implementation")
    plain = plain.replace("npus_count", "size").replace("rank_time_ns", "time of all ranks (ns)")
    plain = plain.replace("memory_bytes", "memory of a rank (bytes)")
    field, bracket, index = plain.rstrip("]").partition("[")
    title = f"{field} of dimension {int(index) + 1}" if bracket and index.isdigit() else plain
    return f"{title} ({setting_unit(name)})" if unit and setting_unit(name) else title


def setting_unit(name: str) -> str:
    """Return the unit that a setting's numbers are in, ``""`` for none."""
    return _UNITS.get(name.rpartition(".")[2].partition("[")[0], "")


def point_label(settings: Mapping[str, Any]) -> str:
    """Return what a point is called: each of its settings with its value and unit."""
    return ", ".join(
        f"{setting_title(key)} {value_text(value)}{' ' if setting_unit(key) else ''}{setting_unit(key)}"
        for key, value in settings.items()
    )
