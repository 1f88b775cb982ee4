"""The charts of Compare and Diff: totals, both critical paths, steps of both sides, and the waterfall."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ...runner import Side
from ...runner.analysis import KIND_LABELS, VERDICT_COLOURS
from ...support import duration_text
from .._theme import PATH_COLOUR, kind_colour
from ._charts import listed, literal, short, styled, time_scale


def runs_bar(runs: list[tuple[str, pd.DataFrame]], scheme: str) -> go.Figure:
    """Return one stacked bar per run: its critical path by kind (key, duration_ns), the first on top."""
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
    figure.update_layout(legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "xanchor": "left"})
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
    """Return two critical paths below each other, with separate colours for segments of only one path.

    *strip* is as :func:`queries.path.paths_strip` returns it.
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
    figure.update_layout(modebar={"bgcolor": "rgba(0,0,0,0)", "color": "#9aa3ad", "activecolor": "#3b82c4"})
    figure.update_layout(barmode="overlay", bargap=0.35, height=170, hovermode="closest")
    figure.update_layout(legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "xanchor": "left"})
    names = [literal(short(label, 40)) for label in labels]
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], automargin=True)
    figure.update_xaxes(ticksuffix=unit)
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 12, "t": 30, "b": 30},
        alt=f"Two critical paths over time, {labels[0]} and {labels[1]}: where they go over different nodes",
    )


def difference_scatter(nodes: pd.DataFrame, scheme: str, most: int = 3000) -> go.Figure:
    """Return each node's duration in both runs on logarithmic axes, for the *most* worst nodes."""
    figure = go.Figure()
    shown = nodes.head(most)
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
    figure.update_layout(height=340, legend={"orientation": "h", "y": 1, "yanchor": "bottom"})
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
    """Return the histogram of the relative differences of nodes that differ from this run."""
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
    figure.update_layout(
        barmode="stack", height=340, legend={"orientation": "h", "y": 1, "yanchor": "bottom"}
    )
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


_MOST_BARS = 14
_STEP = "step"
COLOURS = VERDICT_COLOURS | {_STEP: "#3b82c4"}
"""Of the bars: the verdicts', and that of the two steps."""


def waterfall_bars(table: pd.DataFrame, scheme: str) -> go.Figure:
    """Return a bar for each row of the waterfall *table*, small ones merged; grey bars may be noise."""
    bars = _bars(table)
    scale, unit = time_scale(max(bar["to_ns"] for bar in bars))
    figure = go.Figure(
        go.Bar(
            x=[(bar["to_ns"] - bar["from_ns"]) / scale for bar in bars],
            base=[bar["from_ns"] / scale for bar in bars],
            y=list(range(len(bars))),
            orientation="h",
            marker_color=[COLOURS[bar["verdict"]] for bar in bars],
            text=[bar["text"] for bar in bars],
            textposition="outside",
            cliponaxis=False,
            hovertext=[literal(f"{bar['key']}: {bar['text']}") for bar in bars],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    ends = [bar[column] / scale for bar in bars[1:-1] or bars for column in ("from_ns", "to_ns")]
    room = max(max(ends) - min(ends), 1e-6)
    low = max(0.0, min(ends) - 0.15 * room)
    figure.update_layout(height=70 + 28 * len(bars), showlegend=False, bargap=0.25)
    figure.update_xaxes(ticksuffix=unit, range=[low, max(ends) + 0.25 * room])
    figure.update_yaxes(
        tickvals=list(range(len(bars))),
        ticktext=[literal(short(str(bar["key"]), 46)) for bar in bars],
        autorange="reversed",
        automargin=True,
    )
    return styled(figure, scheme, margin={"l": 8, "r": 12, "t": 8, "b": 36})


def _bars(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the bars as ``key, from_ns, to_ns, verdict, text``: both steps, and the pieces between them."""
    rows = table[table["delta_ns"] != 0]
    before = int(table["base_ns"].sum())
    after = int(table["other_ns"].sum())
    bars = [_bar("before", 0, before, _STEP, duration_text(before))]
    bars += [
        _bar(str(row["key"]), row["from_ns"], row["to_ns"], str(row["verdict"]), _signed(row["delta_ns"]))
        for row in rows.head(_MOST_BARS).to_dict("records")
    ]
    rest = rows.iloc[_MOST_BARS:]
    if len(rest):
        delta = int(rest["delta_ns"].sum())
        key = f"{len(rest)} more"
        bars.append(_bar(key, after - delta, after, "within noise", _signed(delta)))
    return [*bars, _bar("after", 0, after, _STEP, duration_text(after))]


def _bar(key: str, start: int, end: int, verdict: str, text: str) -> dict[str, Any]:
    return {"key": key, "from_ns": start, "to_ns": end, "verdict": verdict, "text": text}


def _signed(delta_ns: int) -> str:
    return f"{'+' if delta_ns > 0 else ''}{duration_text(delta_ns)}"


def steps_strip(before: Side, after: Side, scheme: str) -> go.Figure:
    """Return every step of both sides as a point on the axis of time, those of one start in one row."""
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
