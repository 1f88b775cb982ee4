"""Charts that compare runs, for the pages Compare, Diff and Sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from ...runner import Side, StepDiff
from ...runner.analysis import KIND_LABELS, Matrix
from ...runner.sweep import setting_title
from ...support import duration_text
from .._theme import PATH_COLOUR, kind_colour, short
from ._charts import ABOVE, MODE_BAR, heat_map, listed, literal, styled, time_scale


def runs_bar(runs: list[tuple[str, pd.DataFrame]], scheme: str) -> go.Figure:
    """Return a bar per run with the kinds of work on its critical path.

    *runs* are pairs of a label and a breakdown with ``key`` and ``duration_ns``.
    """
    labels = [f"{number}. {literal(short(label, 44))}" for number, (label, _) in enumerate(runs, start=1)]
    figure = go.Figure()
    scale, unit = time_scale(max((int(kinds["duration_ns"].sum()) for _, kinds in runs), default=0))
    for kind in KIND_LABELS:
        durations = [int(kinds.loc[kinds["key"] == kind, "duration_ns"].sum()) for _, kinds in runs]
        if not any(durations):
            continue
        figure.add_bar(
            x=[duration / scale for duration in durations],
            y=labels,
            orientation="h",
            name=KIND_LABELS[kind],
            marker_color=kind_colour(kind),
            customdata=[duration_text(duration) for duration in durations],
            hovertemplate=f"{KIND_LABELS[kind]}: %{{customdata}}<extra></extra>",
        )
    figure.update_layout(barmode="stack", height=100 + 40 * len(runs), bargap=0.3)
    figure.update_layout(legend={**ABOVE, "traceorder": "normal"})
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(ticksuffix=unit)
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 12, "t": 30, "b": 36},
        alt="Critical paths by kind: "
        + "; ".join(
            f"{label}: "
            + listed(
                (KIND_LABELS.get(str(k), k), duration_text(int(d)))
                for k, d in zip(kinds["key"], kinds["duration_ns"], strict=True)
            )
            for label, kinds in runs
        ),
    )


def paths_bars(strip: pd.DataFrame, labels: tuple[str, str], scheme: str) -> go.Figure:
    """Draw two critical paths as rows; segments on only one of them have their own colour.

    *strip* is from `queries.paths_strip`.
    """
    figure = go.Figure()
    scale, unit = time_scale((strip["start_ns"] + strip["duration_ns"]).max())
    for apart, name, colour in (
        (False, "on both paths", "#9aa3ad"),
        (True, "on this path only", PATH_COLOUR),
    ):
        part = strip[strip["apart"] == apart]
        figure.add_bar(
            x=part["duration_ns"] / scale,
            base=part["start_ns"] / scale,
            y=[literal(short(labels[number], 40)) for number in part["path"]],
            orientation="h",
            name=name,
            marker={"color": colour, "line_width": 0},
            customdata=list(zip(part["rank"], part["node_id"], part["path"], strict=True)),
            hovertext=[
                f"{literal(short(str(row.name), 60))}, rank {row.rank}<br>{duration_text(row.duration_ns)}"
                for row in part[["name", "rank", "duration_ns"]].itertuples(index=False)
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    figure.update_layout(modebar=MODE_BAR)
    figure.update_layout(barmode="overlay", bargap=0.35, height=170, hovermode="closest")
    figure.update_layout(legend=ABOVE)
    names = [literal(short(label, 40)) for label in labels]
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], automargin=True)
    figure.update_xaxes(ticksuffix=unit)
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 12, "t": 30, "b": 30},
        alt=(
            f"Two critical paths over time, {labels[0]} and {labels[1]}; highlighted where they go through "
            "different nodes"
        ),
    )


_MAX_POINTS = 3_000


def difference_scatter(nodes: pd.DataFrame, scheme: str) -> go.Figure:
    """Plot the durations of nodes in two runs against each other, for the first 3,000 rows.

    Both axes are logarithmic.
    """
    figure = go.Figure()
    shown = nodes.head(_MAX_POINTS)
    for kind, part in shown.groupby("kind", sort=False):
        figure.add_scatter(
            x=part["base_ns"].clip(lower=1) / 1e3,
            y=part["other_ns"].clip(lower=1) / 1e3,
            mode="markers",
            name=KIND_LABELS.get(str(kind), str(kind)),
            marker={"color": kind_colour(str(kind)), "size": 6, "opacity": 0.7},
            hovertext=[
                f"{literal(short(str(row.name), 60))}<br>rank {row.rank}, node {row.node_id}<br>"
                f"{duration_text(row.base_ns)} → {duration_text(row.other_ns)}"
                for row in part.itertuples(index=False)
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    if len(shown):
        ends = [f(shown[["base_ns", "other_ns"]].clip(lower=1).to_numpy()) / 1e3 for f in (np.min, np.max)]
        figure.add_scatter(
            x=ends,
            y=ends,
            mode="lines",
            line={"color": "#9aa3ad", "dash": "dot"},
            name="equal",
            hoverinfo="skip",
        )
    figure.update_layout(height=340, legend=ABOVE)
    figure.update_xaxes(type="log", title="this run (µs)", dtick=1)
    figure.update_yaxes(type="log", title="other run (µs)", dtick=1)
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 12, "t": 30, "b": 40},
        alt=f"Durations of {len(shown):,} nodes in this run against the other; those that differ most are "
        f"in the table Nodes that differ most",
    )


def difference_histogram(nodes: pd.DataFrame, scheme: str) -> go.Figure:
    """Return a histogram of the relative changes of nodes that differ."""
    edges = [-np.inf, -0.5, -0.2, -0.1, -0.02, 0.02, 0.1, 0.2, 0.5, 1.0, np.inf]
    labels = ["< −50 %", "−50 to −20", "−20 to −10", "−10 to −2", "±2 %", "2 to 10", "10 to 20", "20 to 50",
              "50 to 100", "> 100 %"]  # fmt: skip
    nodes = nodes[nodes["delta_ns"] != 0]
    place = pd.cut(nodes["relative"], edges, labels=labels)
    figure = go.Figure()
    for kind, part in nodes.groupby("kind", sort=False):
        counts = place.loc[part.index].value_counts().reindex(labels).fillna(0)
        figure.add_bar(
            x=labels,
            y=counts.to_numpy(),
            name=KIND_LABELS.get(str(kind), str(kind)),
            marker_color=kind_colour(str(kind)),
            hovertemplate="%{x}: %{y:,} nodes<extra></extra>",
        )
    figure.update_layout(barmode="stack", height=340, legend=ABOVE)
    figure.update_xaxes(title="other run takes longer by", tickangle=-35, type="category")
    figure.update_yaxes(title="nodes", showgrid=True)
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 12, "t": 30, "b": 40},
        alt="Nodes by how much longer they take in the other run: "
        + listed(
            (label, f"{int(n):,}") for label, n in place.value_counts().reindex(labels).fillna(0).items() if n
        ),
    )


_MAX_BARS = 14


def waterfall_bars(found: StepDiff, by: str, scheme: str) -> go.Figure:
    """Draw the waterfall of *found*: a bar for each of its 14 largest differences, and one for all others.

    Grey differences may be noise.
    """
    bars, low = found.waterfall_bars(by, _MAX_BARS)
    scale, unit = time_scale(max(bar.end for bar in bars))
    figure = go.Figure(
        go.Bar(
            x=[(bar.end - bar.start) / scale for bar in bars],
            base=[bar.start / scale for bar in bars],
            y=list(range(len(bars))),
            orientation="h",
            marker_color=[bar.colour for bar in bars],
            text=[bar.text for bar in bars],
            textposition="outside",
            cliponaxis=False,
            hovertext=[literal(f"{bar.label}: {bar.text}") for bar in bars],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    ends = [max(bar.start, bar.end) for bar in bars[1:-1] or bars]
    figure.update_layout(height=70 + 28 * len(bars), showlegend=False, bargap=0.25)
    # The texts to the right of the bars need a quarter of the space between the shortest and the longest bar.
    most = max(ends) + 0.25 * max(max(ends) - low, 1)
    figure.update_xaxes(ticksuffix=unit, range=[low / scale, most / scale])
    figure.update_yaxes(
        tickvals=list(range(len(bars))),
        ticktext=[literal(short(bar.label, 46)) for bar in bars],
        autorange="reversed",
        automargin=True,
    )
    return styled(figure, scheme, margin={"l": 8, "r": 12, "t": 8, "b": 36})


def steps_strip(before: Side, after: Side, scheme: str) -> go.Figure:
    """Plot the duration of each step, a row per start of the job.

    Rows of *before* are above those of *after*.
    """
    figure = go.Figure()
    labels: list[str] = []
    scale, unit = time_scale(max(step.makespan_ns for side in (before, after) for step in side.steps))
    for side, name, colour in ((before, "before", "#3b82c4"), (after, "after", "#e08214")):
        for number, places in enumerate(side.starts, start=1):
            label = f"{name}, start {number}" if len(side.starts) > 1 else name
            labels.append(label)
            steps = [side.steps[place] for place in places]
            figure.add_scatter(
                x=[step.makespan_ns / scale for step in steps],
                y=[label] * len(steps),
                mode="markers",
                marker={"color": colour, "size": 10, "opacity": 0.75},
                hovertext=[literal(f"{step.name}: {duration_text(step.makespan_ns)}") for step in steps],
                hovertemplate="%{hovertext}<extra></extra>",
                showlegend=False,
            )
    figure.update_layout(height=60 + 24 * len(labels))
    figure.update_yaxes(categoryorder="array", categoryarray=labels[::-1], automargin=True)
    figure.update_xaxes(ticksuffix=unit, rangemode="tozero")
    return styled(figure, scheme, margin={"l": 8, "r": 12, "t": 8, "b": 32})


_BANDS = 12
_MAX_LINES = 1_000
_MAX_TICKS = 12
_MAX_TEXTS = 120
_HEAT = {
    "light": [[0, "#eaf3fb"], [0.5, "#7fb2dd"], [1, "#08488a"]],
    "dark": [[0, "#17324d"], [0.5, "#3f7fb5"], [1, "#bfe0ff"]],
}
# Background of text over lines, by colour scheme.
_PANEL = {"light": "rgba(255,255,255,0.8)", "dark": "rgba(36,36,36,0.8)"}
_SCALE = {
    "light": ["#08488a", "#6aa9dc", "#d9a441", "#c8553d"],
    "dark": ["#9fd0ff", "#4c8fc7", "#d9a441", "#e8836b"],
}


def best_heat_map(matrix: Matrix, scheme: str, row: str = "", column: str = "") -> go.Figure:
    """Return *matrix* of makespans (ns) as a heat map on a logarithmic scale.

    *row* and *column* are the settings along its axes.
    """
    texts = np.vectorize(_time_text, otypes=[object])(matrix.values)
    logarithms = replace(matrix, values=np.log2(np.maximum(matrix.values, 1)))
    figure = heat_map(logarithms, texts, scheme, _MAX_TEXTS)
    rows, columns = (literal(setting_title(name, unit=True)) for name in (row, column))
    figure.update_traces(colorscale=_HEAT[scheme])
    figure.update_yaxes(type="category", title=rows)
    figure.update_xaxes(type="category", title=columns, tickangle=None)
    values = matrix.values[np.isfinite(matrix.values)]
    alt = (
        f"Shortest step for each {setting_title(row)} and {setting_title(column)}: from "
        f"{_time_text(values.min())} to {_time_text(values.max())}"
        if len(values)
        else "No point has a result"
    )
    figure.update_layout(height=140 + 26 * min(30, max(5, len(matrix.rows))), meta=alt)
    return figure


def _time_text(nanoseconds: float) -> str:
    return "no answer" if np.isnan(nanoseconds) else duration_text(nanoseconds)


def frontier_scatter(points: pd.DataFrame, settings: Sequence[str], objective: str, scheme: str) -> go.Figure:
    """Plot makespan over *objective*; a line joins the *points* whose ``best`` is true."""
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
    figure.update_layout(height=320, legend=ABOVE)
    figure.update_xaxes(title=title, rangemode="tozero")
    figure.update_yaxes(title="step", ticksuffix=unit, showgrid=True)
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 12, "t": 30, "b": 40},
        alt=f"Step time of {len(points):,} points against {title}; {len(best):,} are on the Pareto front",
    )


def parallel_coordinates(points: pd.DataFrame, settings: Sequence[str], scheme: str) -> go.Figure:
    """Return parallel coordinates of sweep points: an axis per setting, and one of step times.

    Fast points are drawn last. The chart draws plain lines, because Plotly's parallel coordinates need
    WebGL and generated scripts, which the content policy forbids.
    """
    shown = points.sort_values("makespan_ns", ascending=False).tail(_MAX_LINES)
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
        alt=f"A line for each of {len(shown):,} points through {', '.join(titles)}; the table below lists "
        "all points",
    )


def _add_lines(
    figure: go.Figure, heights: np.ndarray[Any, Any], rows: pd.DataFrame, settings: Sequence[str], colour: str
) -> None:
    """Add all lines of one colour to *figure* as one trace with gaps."""
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
    """Return *column* scaled to 0 to 1 (NaN if missing), and the ticks of its axis."""
    if pd.api.types.is_numeric_dtype(column):
        numbers = column.astype("Float64").to_numpy(dtype=float, na_value=np.nan)
        distinct = np.unique(numbers[~np.isnan(numbers)])
        # Few distinct values are spaced evenly; many values lie on a linear scale.
        if len(distinct) > _MAX_TICKS:
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
    step = max(1, len(names) // _MAX_TICKS)
    ticks = list(zip(places.tolist(), names, strict=True))[::step]
    return np.append(places, np.nan)[codes], ticks
