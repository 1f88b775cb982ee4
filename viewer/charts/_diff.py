"""Build the charts of the page Diff: every step of both sides, and the waterfall between the median ones."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ...runner import Side
from ...runner.analysis import VERDICT_COLOURS
from ...support import duration_text
from ._charts import literal, short, styled, time_scale

__all__ = ["COLOURS", "steps_strip", "waterfall_bars"]

_MOST_BARS = 14
_STEP = "step"
COLOURS = VERDICT_COLOURS | {_STEP: "#3b82c4"}
"""Of the bars: the verdicts', and that of the two steps."""


def waterfall_bars(table: pd.DataFrame, scheme: str) -> go.Figure:
    """Return the way from one step to the other, a bar a row of the waterfall *table*; small ones as one.

    Grey is what noise may be.
    """
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
