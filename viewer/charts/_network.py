"""Build the charts of the Network page: links on a map and over time, and the traffic of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ...runner.analysis import Use
from ...support import bandwidth_text, bytes_text, share_text
from ..queries import LinkMap
from ._charts import shades, styled, time_scale

# Parts of the step in which a link carries data, from which it is drawn in the next colour and width.
_BUSY = (0.0, 0.1, 0.3, 0.6, 0.85)
_BUSY_COLOURS = {
    "light": ("#c9d3dc", "#8db8dc", "#3b82c4", "#e08214", "#b2182b"),
    "dark": ("#4b545d", "#3f6f99", "#6db3f2", "#f0a04b", "#ff6b6b"),
}
_DOWN_COLOURS = {"light": "#b2182b", "dark": "#ff6b6b"}
_OUTWARD = 1.1
_NODE_COLOURS = {"light": ("#1f2933", "#52606d"), "dark": ("#d5dbe1", "#9aa3ad")}


def loads_bar(loads: pd.DataFrame, shown: str, scheme: str) -> go.Figure:
    """Return the traffic of each rank, as from :func:`queries.network.switch_loads`.

    *shown* is ``busy_ns``, drawn as the share of the step, or ``bytes``, drawn in MiB.
    """
    figure = go.Figure()
    for direction, colour in (("sends", "#3b82c4"), ("receives", "#e08214")):
        part = loads[loads["direction"] == direction]
        values = part["share"] * 100 if shown == "busy_ns" else part["bytes"] / (1 << 20)
        figure.add_bar(
            x=part["rank"],
            y=values,
            name=direction,
            marker={"color": colour, "line_width": 0},
            customdata=[
                f"{share_text(share)}, {bytes_text(int(size))}"
                for share, size in zip(part["share"], part["bytes"], strict=True)
            ],
            hovertemplate=f"rank %{{x}} {direction}: %{{customdata}}<extra></extra>",
        )
    figure.update_layout(barmode="group", height=300, bargap=0.2)
    figure.update_layout(legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "xanchor": "left"})
    figure.update_xaxes(title="rank", dtick=max(1, loads["rank"].nunique() // 16))
    unit, title = (" %", "busy, of the step") if shown == "busy_ns" else (" MiB", "carried")
    figure.update_yaxes(ticksuffix=unit, title=title, showgrid=True, rangemode="tozero")
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 8, "t": 30, "b": 40},
        alt="How busy each link is; the table of links has the figures",
    )


def use_map(use: Use, scheme: str) -> go.Figure:
    """Return the bandwidth of links over time, a row per link."""
    middle = use.starts_ns + use.length_ns / 2
    scale, unit = time_scale(float(middle.max()) if len(middle) else 0.0)
    figure = go.Figure(
        go.Heatmap(
            z=use.rates,
            x=middle / scale,
            y=use.rows,
            colorscale=shades(scheme),
            colorbar={"title": {"text": "GB/s", "side": "right"}, "thickness": 12, "outlinewidth": 0},
            zmin=0,
            ygap=1,
            customdata=np.vectorize(bandwidth_text, otypes=[object])(use.rates),
            hovertemplate=f"%{{y}} at %{{x:,.3f}}{unit}: %{{customdata}}<extra></extra>",
        )
    )
    figure.update_layout(height=110 + 18 * max(6, len(use.rows)))
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(ticksuffix=unit)
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 8, "t": 8, "b": 36},
        alt="How busy links are over time, the busiest on top",
    )


def link_map(drawn: LinkMap, scheme: str) -> go.Figure:
    """Return a drawing of the network, with links coloured by their use."""
    figure = go.Figure()
    links = drawn.links
    level = np.searchsorted(_BUSY, links["share"].to_numpy(), side="right") - 1
    for number, colour in enumerate(_BUSY_COLOURS[scheme]):
        part = links[level == number]
        upper = share_text(_BUSY[number + 1]) if number + 1 < len(_BUSY) else "100 %"
        figure.add_scatter(
            x=_gapped(part, "x"), y=_gapped(part, "y"), mode="lines", hoverinfo="skip",
            line={"color": colour, "width": 1.5 + number}, name=f"{share_text(_BUSY[number])} to {upper}",
            showlegend=len(part) > 0,
        )  # fmt: skip
    if len(drawn.down):
        figure.add_scatter(
            x=_gapped(drawn.down, "x"), y=_gapped(drawn.down, "y"), mode="lines", hoverinfo="skip",
            line={"color": _DOWN_COLOURS[scheme], "width": 2, "dash": "dot"}, name="down",
        )  # fmt: skip
    for lines in (links, drawn.down):
        figure.add_scatter(
            x=(lines["x0"] + lines["x1"]) / 2, y=(lines["y0"] + lines["y1"]) / 2, mode="markers",
            marker={"size": 9, "opacity": 0}, showlegend=False, hovertext=lines["text"],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    rank_colour, switch_colour = _NODE_COLOURS[scheme]
    for is_switch, symbol, colour in ((False, "circle", rank_colour), (True, "square", switch_colour)):
        ends = drawn.ends[drawn.ends["is_switch"] == is_switch]
        figure.add_scatter(
            x=ends["x"], y=ends["y"], mode="markers",
            marker={"size": 9 if symbol == "circle" else 12, "color": colour, "symbol": symbol},
            hovertext=ends["name"], hovertemplate="%{hovertext}<extra></extra>", showlegend=False,
        )  # fmt: skip
    figure.add_scatter(
        x=_OUTWARD * drawn.ends["x"], y=_OUTWARD * drawn.ends["y"], mode="text", text=drawn.ends["label"],
        hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    figure.update_layout(height=460, legend={"title": "Busy, of the step", "y": 1, "yanchor": "top"})
    figure.update_xaxes(visible=False, range=[-1.25, 1.25])
    figure.update_yaxes(visible=False, range=[-1.2, 1.25], scaleanchor="x")
    return styled(
        figure,
        scheme,
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        alt="Map of the links between ranks and switches, coloured by how busy they are; the table of links "
        "has the figures",
    )


def _gapped(links: pd.DataFrame, axis: str) -> list[Any]:
    """Return one coordinate of the ends of *links*, with a gap between one link and the next."""
    ends = zip(links[f"{axis}0"], links[f"{axis}1"], strict=True)
    return [value for start, end in ends for value in (start, end, None)]
