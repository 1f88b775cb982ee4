"""Say the settings and the figures of a sweep in words."""

from __future__ import annotations

from ...support import duration_text

__all__ = ["figure_text", "setting_title"]


def setting_title(name: str) -> str:
    """Return what people call a setting: its key without the file it stands in."""
    plain = name.removeprefix("network.").removeprefix("system.").removesuffix("-implementation")
    plain = plain.replace("npus_count", "size").replace("rank_time_ns", "time of all ranks (ns)")
    field, bracket, index = plain.rstrip("]").partition("[")
    return f"{field} of dimension {int(index) + 1}" if bracket and index.isdigit() else plain


def figure_text(figure: str, value: float) -> str:
    """Return a figure of a sweep for people."""
    if figure.endswith("_ns"):
        return duration_text(value)
    return f"{value:,.4g}" if figure == "cost" else f"{int(value):,}"
