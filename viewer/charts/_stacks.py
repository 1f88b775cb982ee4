"""Draw call stacks as an icicle: a flame graph whose callers are on top."""

from __future__ import annotations

from zlib import crc32

import pandas as pd
import plotly.graph_objects as go

from ...support import duration_text
from .._theme import NAME_COLOURS, ON_KIND_INK
from ._charts import listed, literal, short, styled, time_scale

__all__ = ["stacks_icicle"]

_LEAST_SHARE = 0.001
_LEVEL = 22
_MOST_LETTERS = 80


def stacks_icicle(stacks: pd.DataFrame, value: str, scheme: str) -> go.Figure:
    """Return a box a stack, below its caller, as wide as its column *value* (ns); *stacks* as in a view.

    Stacks of less than a thousandth of the whole are left out.
    """
    boxes = _placed(stacks, value)
    scale, unit = time_scale(boxes["start"].add(boxes[value]).max())
    texts = [
        f"{name}<br>{duration_text(total)} in {calls:,} calls"
        for name, total, calls in zip(map(literal, boxes["label"]), boxes[value], boxes["calls"], strict=True)
    ]
    figure = go.Figure(
        go.Bar(
            x=boxes[value] / scale,
            base=boxes["start"] / scale,
            y=boxes["depth"],
            orientation="h",
            marker={
                "color": [NAME_COLOURS[crc32(name.encode()) % len(NAME_COLOURS)] for name in boxes["name"]],
                "line": {"color": ON_KIND_INK, "width": 0.5},
            },
            text=[literal(short(label, _MOST_LETTERS)) for label in boxes["label"]],
            textposition="inside",
            insidetextanchor="start",
            textangle=0,
            textfont_color=ON_KIND_INK,
            hovertext=texts,
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    levels = int(boxes["depth"].max()) + 1
    figure.update_layout(height=44 + _LEVEL * levels, bargap=0.06, showlegend=False, hovermode="closest")
    figure.update_yaxes(visible=False, range=[levels - 0.5, -0.5])
    figure.update_xaxes(ticksuffix=unit)
    roots = boxes[boxes["depth"] == 0].nlargest(8, value)
    return styled(
        figure,
        scheme,
        margin={"l": 4, "r": 4, "t": 4, "b": 30},
        alt="Host calls by stack: "
        + listed(zip(roots["label"], map(duration_text, roots[value]), strict=True)),
    )


def _placed(stacks: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the stacks that are wide enough, with ``start`` (ns) and ``label``: next to their siblings."""
    starts, cursor = [], [0]
    for depth, wide in zip(stacks["depth"].tolist(), stacks[value].tolist(), strict=True):
        del cursor[depth + 1 :]
        starts.append(cursor[depth])
        cursor[depth] += wide
        cursor.append(starts[-1])
    several = stacks["rank"].nunique() > 1
    thread = stacks["thread"].where(stacks["depth"] == 0, "")
    rank = ("rank " + stacks["rank"].astype(str) + ", ") if several else ""
    label = (rank + thread + ": ").where(stacks["depth"] == 0, "") + stacks["name"]
    placed = stacks.assign(start=starts, label=label)
    boxes: pd.DataFrame = placed[placed[value] > _LEAST_SHARE * cursor[0]]
    return boxes
