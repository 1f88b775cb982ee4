"""What a rank holds in memory over a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from ...support import bytes_text
from .._theme import MEMORY_PARTS
from ._charts import styled, time_scale

__all__ = ["memory_area"]


def memory_area(curve: Mapping[str, Any], scheme: str) -> go.Figure:
    """Return the parts of a `MemoryCurve` as JSON has it, one on top of the other."""
    scale, unit = time_scale(max(curve["times_ns"], default=0))
    times = [time / scale for time in curve["times_ns"]]
    figure = go.Figure()
    for part, (label, colour) in MEMORY_PARTS.items():
        held = curve[f"{part}_bytes"]
        sizes = held if isinstance(held, list) else [held] * len(times)
        figure.add_scatter(
            x=times,
            y=[size / 2**30 for size in sizes],
            name=label,
            stackgroup="memory",
            line={"width": 0.5, "color": colour},
            text=[bytes_text(size) for size in sizes],
            hovertemplate=f"{label}: %{{text}} at %{{x:.2f}}{unit}<extra></extra>",
        )
    figure.update_layout(height=300, legend={"orientation": "h", "y": 1.12})
    figure.update_xaxes(title="time", ticksuffix=unit)
    figure.update_yaxes(title="GiB", rangemode="tozero")
    return styled(figure, scheme, margin={"l": 48, "r": 8, "t": 8, "b": 40})
