"""The roofline of a chip with the operators below it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ...runner.analysis import Roof
from ...support import duration_text, share_text
from ._charts import listed, literal, short, styled

__all__ = ["roofline_scatter"]

_COLOURS = {"compute": ("#3b82c4", "bound by compute"), "memory": ("#e08214", "bound by memory"),
            "": ("#9aa3ad", "no peaks known")}  # fmt: skip
_LARGEST, _SMALLEST = 56, 5  # pixels across
_ROOF = "#9aa3ad"
_LABELS = 6  # times the largest intensity: room for the names of the peaks


def roofline_scatter(points: pd.DataFrame, roofs: list[Roof], scheme: str) -> go.Figure:
    """Return *points*, rows of `roofline_points`, by intensity and rate; areas are shares of the time."""
    figure = go.Figure()
    sizes = np.sqrt(points["time_ns"] / max(1, points["time_ns"].max())) * _LARGEST
    for bound, (colour, label) in _COLOURS.items():
        own = points["bound"] == bound
        part = points[own]
        if part.empty:
            continue
        figure.add_scatter(
            x=part["intensity"],
            y=part["tflops_per_s"],
            mode="markers",
            name=label,
            marker={"color": colour, "opacity": 0.65, "size": sizes[own].clip(lower=_SMALLEST)},
            customdata=part.index.tolist(),
            hovertext=[_facts(row) for row in part.to_dict("records")],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    for roof in roofs:
        _add_roof(figure, roof, points)
    figure.update_layout(height=480, legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0})
    figure.update_xaxes(type="log", title="FLOP per byte", showgrid=True, exponentformat="none", dtick=1)
    figure.update_yaxes(type="log", title="TFLOP/s", showgrid=True, exponentformat="none", dtick=1)
    longest = points.nlargest(3, "time_ns")
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 12, "t": 30, "b": 44},
        alt=f"Roofline of {len(points):,} operators and shapes; most time: "
        + listed((row["operator"], duration_text(row["time_ns"])) for row in longest.to_dict("records")),
    )


def _facts(row: dict[Any, Any]) -> str:
    lines = [
        literal(short(f"{row['operator']} {row['arguments']}", 90)),
        f"{duration_text(row['time_ns'])} ({share_text(row['share'])}), {row['calls']:,} calls",
        row["reached"] + (f", {share_text(row['roofline_share'])} of the roofline" if row["bound"] else ""),
    ]
    return "<br>".join(lines)


def _add_roof(figure: go.Figure, roof: Roof, points: pd.DataFrame) -> None:
    """Draw the bandwidth up to each peak of *roof*, and the peak from there on."""
    low, high = points["intensity"].min() / 2, points["intensity"].max() * 2 * _LABELS
    for name, tflops_per_s in roof.peaks.items():
        ridge = tflops_per_s / roof.tb_per_s
        x = [min(low, ridge / 2), ridge, max(high, ridge * 2)]
        figure.add_scatter(
            x=x,
            y=[x[0] * roof.tb_per_s, tflops_per_s, tflops_per_s],
            mode="lines",
            line={"color": _ROOF, "width": 1.5},
            showlegend=False,
            hoverinfo="skip",
        )
        figure.add_annotation(
            x=np.log10(x[2]), y=np.log10(tflops_per_s), text=f"{name.upper()} {tflops_per_s:,.0f} TFLOP/s",
            showarrow=False, xanchor="right", yanchor="bottom",
        )  # fmt: skip
