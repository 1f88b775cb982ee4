"""Say the figures of a sweep in words."""

from __future__ import annotations

from ...support import duration_text

__all__ = ["figure_text"]


def figure_text(figure: str, value: float) -> str:
    """Return a figure of a sweep for people."""
    if figure.endswith("_ns"):
        return duration_text(value)
    return f"{value:,.4g}" if figure == "cost" else f"{int(value):,}"
