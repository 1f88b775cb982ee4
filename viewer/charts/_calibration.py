"""Build the chart of a calibration: what was measured against what the network says, by size."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ...support import bytes_text, change_text, duration_text
from ._charts import styled

__all__ = ["calibration_fit"]

# Shapes distinguish them as well: some see few of these colours.
_COLOURS = {
    "light": ("#2a78d6", "#c2570c", "#2e8b57", "#8a4fbf", "#b3294e", "#6b6f76"),
    "dark": ("#6db3f2", "#f0a04b", "#6cc492", "#c39bea", "#ff8aa0", "#b4bac2"),
}
_SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "x")
_TICKS_APART = 4  # as powers of two


def calibration_fit(points: pd.DataFrame, scheme: str) -> go.Figure:
    """Return the measured *points* of a calibration, the line of its network, and that of messages alone."""
    figure = go.Figure()
    names = ["operation", "ranks", *(["dimension"] if points["dimension"].nunique() > 1 else [])]
    for number, (key, part) in enumerate(points.groupby(names, sort=True)):
        operation, ranks, *where = key
        name = f"{operation}, {ranks} ranks" + "".join(f", {text}" for text in where)
        colour = _COLOURS[scheme][number % len(_COLOURS[scheme])]
        ordered = part.sort_values("size_bytes")
        sizes = ordered["size_bytes"]
        for column, dash, width in (("messages_ns", "dot", 1), ("model_ns", "solid", 1.5)):
            figure.add_scatter(
                x=sizes, y=ordered[column] / 1e6, mode="lines",
                line={"color": colour, "dash": dash, "width": width}, hoverinfo="skip",
                showlegend=False, legendgroup=name,
            )  # fmt: skip
        figure.add_scatter(
            x=sizes, y=ordered["measured_ns"] / 1e6, mode="markers", name=name, legendgroup=name,
            marker={"color": colour, "symbol": _SYMBOLS[number % len(_SYMBOLS)], "size": 8},
            hovertext=[_hover_text(row) for row in ordered.to_dict("records")],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    lowest, highest = (int(points["size_bytes"].agg(end)).bit_length() - 1 for end in ("min", "max"))
    ticks = [
        1 << power for power in range(lowest, highest + 1, max(1, min(_TICKS_APART, (highest - lowest) // 4)))
    ]
    figure.update_layout(height=400, legend={"y": 1, "yanchor": "top"})
    figure.update_xaxes(
        type="log", title="size", tickvals=ticks, ticktext=[bytes_text(size) for size in ticks]
    )
    figure.update_yaxes(type="log", title="time", ticksuffix=" ms", dtick=1, showgrid=True)
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 8, "t": 8, "b": 40},
        alt="Measured times by size against the network; the table of measurements has the figures",
    )


def _hover_text(row: dict[str, float]) -> str:
    times = " and ".join(
        f"{word} {duration_text(row[column])}"
        for word, column in (("measured", "measured_ns"), ("fitted", "model_ns"))
    )
    return (
        f"{row['operation']} of {bytes_text(int(row['size_bytes']))}: {times} ({change_text(row['error'])})"
    )
