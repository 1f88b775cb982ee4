"""The charts of a sweep: makespans by setting, and all settings of all points at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from ...runner.analysis import Matrix
from ...runner.sweep import setting_title
from ...support import duration_text
from ._charts import literal, short, styled, time_scale

_BANDS = 12
_MOST_LINES = 1_000
_MOST_TICKS = 12
_MOST_TEXTS = 120
_HEAT = {
    "light": [[0, "#eaf3fb"], [0.5, "#7fb2dd"], [1, "#08488a"]],
    "dark": [[0, "#17324d"], [0.5, "#3f7fb5"], [1, "#bfe0ff"]],
}
# Behind what is written on the lines.
_PANEL = {"light": "rgba(255,255,255,0.8)", "dark": "rgba(36,36,36,0.8)"}
_SCALE = {
    "light": ["#08488a", "#6aa9dc", "#d9a441", "#c8553d"],
    "dark": ["#9fd0ff", "#4c8fc7", "#d9a441", "#e8836b"],
}


def best_heat_map(matrix: Matrix, scheme: str, row: str = "", column: str = "") -> go.Figure:
    """Return *matrix* of makespans (ns) as a heat map with a logarithmic colour scale.

    *row* and *column* are the settings along its sides.
    """
    texts = np.vectorize(_time_text, otypes=[object])(matrix.values)
    figure = go.Figure(
        go.Heatmap(
            z=np.log2(np.maximum(matrix.values, 1)),
            x=matrix.columns,
            y=matrix.rows,
            text=texts,
            texttemplate="%{text}" if matrix.values.size <= _MOST_TEXTS else "",
            colorscale=_HEAT[scheme],
            showscale=False,
            xgap=1,
            ygap=1,
            hovertemplate="%{y}, %{x}: %{text}<extra></extra>",
        )
    )
    figure.update_layout(height=140 + 26 * min(30, max(5, len(matrix.rows))))
    figure.update_yaxes(
        autorange="reversed", automargin=True, type="category", title=literal(setting_title(row, unit=True))
    )
    figure.update_xaxes(
        side="top", automargin=True, type="category", showgrid=False,
        title=literal(setting_title(column, unit=True)),
    )  # fmt: skip
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        alt=f"Shortest step for each {setting_title(row)} and {setting_title(column)}: from "
        f"{_time_text(np.nanmin(matrix.values))} to {_time_text(np.nanmax(matrix.values))}"
        if np.isfinite(matrix.values).any()
        else "No point has an answer",
    )


def _time_text(nanoseconds: float) -> str:
    return "no answer" if np.isnan(nanoseconds) else duration_text(nanoseconds)


def frontier_scatter(points: pd.DataFrame, settings: Sequence[str], objective: str, scheme: str) -> go.Figure:
    """Return the makespan of each point over its *objective*; those with ``best`` true are joined."""
    figure = go.Figure()
    best = points[points["best"]].sort_values(objective)
    marked = {"size": 12, "color": "#e08214", "symbol": "diamond"}
    others = {"size": 8, "color": "#3b82c4", "opacity": 0.7}
    title, size = literal(setting_title(objective, unit=True)), 1
    if title.endswith("(bytes)"):
        title, size = title.replace("(bytes)", "(GiB)"), 2**30
    scale, unit = time_scale(float(points["makespan_ns"].max()))
    for part, name, mode, marker in (
        (points, "points", "markers", others),
        (best, "none better", "lines+markers", marked),
    ):
        figure.add_scatter(
            x=part[objective].astype(float) / size,
            y=part["makespan_ns"] / scale,
            mode=mode,
            name=name,
            marker=marker,
            line={"color": "#e08214", "dash": "dot"},
            hovertext=[_hover_text(row, settings) for row in part.to_dict("records")],
            hovertemplate=f"{title} %{{x:.6~g}}<br>%{{hovertext}}<extra></extra>",
        )
    figure.update_layout(height=320, legend={"orientation": "h", "y": 1, "yanchor": "bottom"})
    figure.update_xaxes(title=title, rangemode="tozero")
    figure.update_yaxes(title="step", ticksuffix=unit, showgrid=True)
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 12, "t": 30, "b": 40},
        alt=f"Step time of {len(points):,} points against {title}; {len(best):,} are on the Pareto front",
    )


def parallel_coordinates(points: pd.DataFrame, settings: Sequence[str], scheme: str) -> go.Figure:
    """Return a line per point across an axis for each setting and one for the step, fast points on top.

    It uses plain lines: Plotly's parallel coordinates need WebGL and generated scripts, which the
    content policy forbids.
    """
    shown = points.sort_values("makespan_ns", ascending=False).tail(_MOST_LINES)
    axes = [_axis(shown[name]) for name in settings]
    scale, unit = time_scale(float(shown["makespan_ns"].max()))
    axes.append(_axis(shown["makespan_ns"].astype(float) / scale))
    heights = np.stack([position for position, _ in axes], axis=1)
    figure = go.Figure()
    order = np.argsort(-shown["makespan_ns"].to_numpy(dtype=float), kind="stable")
    bands = np.array_split(order, min(_BANDS, len(order)))
    colours = sample_colorscale(_SCALE[scheme], np.linspace(1, 0, len(bands)))
    for band, colour in zip(bands, colours, strict=True):
        _add_lines(figure, heights[band], shown.iloc[band], settings, colour)
    titles = [*(short(setting_title(name, unit=True), 30) for name in settings), f"step ({unit.strip()})"]
    for place, ((_, ticks), title) in enumerate(zip(axes, titles, strict=True)):
        figure.add_vline(x=place, line={"color": "#9aa3ad", "width": 1})
        figure.add_annotation(x=place, y=1.13, text=f"<b>{literal(title)}</b>", showarrow=False)
        for height, text in ticks:
            figure.add_annotation(
                x=place,
                y=height,
                text=literal(short(text, 22)),
                showarrow=False,
                xanchor="left",
                xshift=4,
                bgcolor=_PANEL[scheme],
            )
    figure.update_layout(height=360, showlegend=False, hovermode="closest")
    figure.update_xaxes(visible=False, range=[-0.3, len(axes) - 0.5])
    figure.update_yaxes(visible=False, range=[-0.08, 1.2])
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        alt=f"A line for each of {len(shown):,} points through {', '.join(titles)}; the table below has "
        f"them all",
    )


def _add_lines(
    figure: go.Figure, heights: np.ndarray[Any, Any], rows: pd.DataFrame, settings: Sequence[str], colour: str
) -> None:
    """Add the lines of one colour as one trace, with gaps between them."""
    count, width = heights.shape
    x = np.tile(np.append(np.arange(width, dtype=float), np.nan), count)
    y = np.column_stack([heights, np.full(count, np.nan)]).ravel()
    rows_texts = [_hover_text(row, settings) for row in rows.to_dict("records")]
    texts = [text for text in rows_texts for _ in range(width + 1)]
    figure.add_scatter(
        x=x, y=y, mode="lines", line={"color": colour, "width": 1.6}, opacity=0.8, hovertext=texts,
        hovertemplate="%{hovertext}<extra></extra>",
    )  # fmt: skip


def _hover_text(row: dict[Any, Any], settings: Sequence[str]) -> str:
    parts = [
        f"{literal(setting_title(key, unit=True))} = {literal(short(str(row[key]), 60))}" for key in settings
    ]
    return "<br>".join([duration_text(row["makespan_ns"]), *parts])


def _axis(column: pd.Series) -> tuple[np.ndarray[Any, Any], list[tuple[float, str]]]:
    """Return each value scaled to 0 to 1, NaN if missing, and the ticks of the axis."""
    if pd.api.types.is_numeric_dtype(column):
        numbers = column.astype("Float64").to_numpy(dtype=float, na_value=np.nan)
        distinct = np.unique(numbers[~np.isnan(numbers)])
        # Few values stand at equal distances, as they were chosen; many are a scale.
        if len(distinct) > _MOST_TICKS:
            low, high = float(distinct[0]), float(distinct[-1])
            ticks = [(float(place), f"{low + place * (high - low):.4g}") for place in np.linspace(0, 1, 5)]
            return (numbers - low) / (high - low), ticks
        codes = np.where(np.isnan(numbers), -1, np.searchsorted(distinct, numbers))
        names = [f"{value:.6g}" for value in distinct]
    else:
        codes, found = pd.factorize(
            column.map(lambda value: None if value is None else str(value)), sort=True
        )
        names = [str(name) for name in found]
    places = np.linspace(0, 1, len(names)) if len(names) > 1 else np.full(len(names), 0.5)
    step = max(1, len(names) // _MOST_TICKS)
    ticks = list(zip(places.tolist(), names, strict=True))[::step]
    return np.append(places, np.nan)[codes], ticks
