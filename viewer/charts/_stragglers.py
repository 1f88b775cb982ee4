"""One recorded step: what each worker did, when."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ...support import duration_text
from .._theme import kind_colour
from ._charts import styled, time_scale

__all__ = ["step_bars"]

_GROUPS = {
    "compute": ("compute", "computation"),
    "optimizer": ("memory", "optimizer"),
    "gc": ("host", "garbage collection"),
    "descheduled": ("sync", "descheduled"),
    "input": ("wait", "input"),
}
_OTHER = ("communication", "communication, with waiting")


def step_bars(operations: pd.DataFrame, scheme: str) -> go.Figure:
    """Return *operations*, rows of `step_operations`, as bars over time, a row for each worker."""
    scale, unit = time_scale(float((operations["start_ns"] + operations["duration_ns"]).max()))
    figure = go.Figure()
    groups = operations["type"].map(_group)
    for (kind, label), part in operations.groupby(groups, sort=False):
        figure.add_bar(
            orientation="h",
            x=part["duration_ns"] / scale,
            base=part["start_ns"] / scale,
            y="rank " + part["rank"].astype(str),
            name=label,
            marker={"color": kind_colour(kind), "line": {"width": 0}},
            customdata=[
                f"{type_}, {duration_text(int(ns))}"
                for type_, ns in zip(part["type"], part["duration_ns"], strict=True)
            ],
            hovertemplate="%{y}: %{customdata}<extra></extra>",
        )
    workers = operations["rank"].nunique()
    figure.update_layout(
        barmode="overlay", height=110 + 20 * workers, bargap=0.2,
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0},
    )  # fmt: skip
    figure.update_xaxes(ticksuffix=unit)
    figure.update_yaxes(automargin=True, type="category")
    return styled(
        figure, scheme, margin={"l": 8, "r": 12, "t": 30, "b": 28}, alt=f"Operations of {workers} workers"
    )


def _group(type_: str) -> tuple[str, str]:
    return _GROUPS.get("compute" if type_.endswith("-compute") else type_.partition("-")[0], _OTHER)
