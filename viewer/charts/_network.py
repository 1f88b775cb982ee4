"""Charts of the Network page: link maps, link use over time, traffic, and programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ...runner.analysis import Matrix, Use
from ...runner.programs import Inspection, Traffic
from ...support import bandwidth_text, bytes_text, count_text, ranks_text, share_text
from ..queries import LinkMap
from ._charts import ABOVE, heat_map, listed, shades, styled, time_scale

# Lower bounds of the levels of link use, as fractions of the step; each has a line colour and width.
_BUSY = (0.0, 0.1, 0.3, 0.6, 0.85)
_BUSY_COLOURS = {
    "light": ("#c9d3dc", "#8db8dc", "#3b82c4", "#e08214", "#b2182b"),
    "dark": ("#4b545d", "#3f6f99", "#6db3f2", "#f0a04b", "#ff6b6b"),
}
_DOWN_COLOURS = {"light": "#b2182b", "dark": "#ff6b6b"}
_OUTWARD = 1.1
_NODE_COLOURS = {"light": ("#1f2933", "#52606d"), "dark": ("#d5dbe1", "#9aa3ad")}


def loads_bar(loads: pd.DataFrame, shown: str, scheme: str) -> go.Figure:
    """Return bars of what each rank sends and receives; *loads* is from `switch_loads`.

    *shown* is ``busy_ns``, as a fraction of the step, or ``bytes``, in MiB.
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
    figure.update_layout(legend=ABOVE)
    figure.update_xaxes(title="rank", dtick=max(1, loads["rank"].nunique() // 16))
    unit, title = (" %", "busy, of the step") if shown == "busy_ns" else (" MiB", "carried")
    figure.update_yaxes(ticksuffix=unit, title=title, showgrid=True, rangemode="tozero")
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 8, "t": 30, "b": 40},
        alt="How busy each link is; the table of links contains the values",
    )


def use_map(use: Use, scheme: str) -> go.Figure:
    """Return a heat map of link bandwidth over time, a row per link."""
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
    """Draw the network; the colour of a link shows the share of the step in which it is busy."""
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
        "contains the values",
    )


def _gapped(links: pd.DataFrame, axis: str) -> list[Any]:
    """Return the x or y coordinates (*axis*) of both ends of *links*, with gaps between links."""
    ends = zip(links[f"{axis}0"], links[f"{axis}1"], strict=True)
    return [value for start, end in ends for value in (start, end, None)]


# Beyond these limits, arrows can no longer be distinguished.
_MAX_ARROWS, _MAX_STEPS, _MAX_RANKS = 600, 32, 16
# Margin at both ends of an arrow, as a fraction of the step's width.
_ARROW_GAP = 0.06
# Colours of arrows by message size, the smallest first.
_COLOURS = {
    "light": ("#8a939c", "#3b82c4", "#d9731a", "#b2182b"),
    "dark": ("#8a939c", "#6db3f2", "#f0a04b", "#ff6b6b"),
}
# Labels are at this fraction of an arrow, near the sender, because many arrows cross in the middle.
_POINTED = 0.3


def has_arrows(found: Inspection) -> bool:
    """Return whether the chart of a program has arrows rather than a heat map."""
    few = len(found.traffic) <= _MAX_ARROWS and found.steps <= _MAX_STEPS
    return few and found.program.num_ranks <= _MAX_RANKS


def program_chart(found: Inspection, scheme: str) -> go.Figure:
    """Draw a program's traffic: arrows by step, or a heat map for many ranks."""
    few = has_arrows(found)
    figure = _arrows(found, scheme) if few else _heat_map(found, scheme)
    ranks = found.program.num_ranks
    figure.update_layout(height=110 + (36 if few else 18) * max(4, min(ranks, 40)))
    labels = [*range(0, ranks, 1 if few else max(1, ranks // 32))]
    figure.update_yaxes(
        tickvals=labels, ticktext=[f"rank {rank}" for rank in labels], range=[ranks - 0.5, -0.5],
        automargin=True,
    )  # fmt: skip
    numbers = [*range(1, found.steps + 1, max(1, found.steps // 16))]
    figure.update_xaxes(
        title="step", range=[0, found.steps], zeroline=False, showgrid=False,
        tickvals=[number - 0.5 for number in numbers], ticktext=[str(number) for number in numbers],
    )  # fmt: skip
    styled(figure, scheme, margin={"l": 8, "r": 8, "t": 30, "b": 44}, alt=_alt_text(found))
    if few:
        figure.update_yaxes(showgrid=True)
    return figure


def pairs_chart(found: Inspection, scheme: str) -> go.Figure:
    """Return a heat map of the bytes between each pair of ranks, over all steps of a program."""
    ranks = found.program.num_ranks
    sent = np.zeros((ranks, ranks), dtype=np.int64)
    for item in found.traffic:
        sent[item.source, item.destination] += item.size_bytes
    rows, columns = ([f"{word} {rank}" for rank in range(ranks)] for word in ("from", "to"))
    texts = np.vectorize(bytes_text, otypes=[object])(sent)
    figure = heat_map(Matrix(rows, columns, sent.astype(np.float64)), texts, scheme)
    pairs = count_text(int(np.count_nonzero(sent)), "pair")
    figure.update_layout(
        meta=f"Traffic between ranks over all steps of the program {found.program.name}: {pairs} of "
        f"{ranks:,} "
        f"ranks, at most {bytes_text(int(sent.max()))} from one to another"
    )
    return figure


def _alt_text(found: Inspection) -> str:
    """Return the text alternative of a program's chart: senders and receivers by step."""
    steps: dict[int, list[int]] = defaultdict(list)
    for item in found.traffic:
        steps[item.step].append(item.size_bytes)
    each = listed(
        (f"step {step}:", f"{count_text(len(sizes), 'sender and receiver', 'senders and receivers')}")
        for step, sizes in steps.items()
    )
    return (
        f"Traffic between ranks in the program {found.program.name}, {found.program.num_ranks} ranks over "
        f"{count_text(found.steps, 'step')}; {each}"
    )


def _size_groups(sizes: Iterable[int]) -> list[tuple[str, int, int]]:
    """Group *sizes* (bytes) into at most one range per colour, each with label, minimum and maximum."""
    distinct = sorted(set(sizes))
    count = max(1, min(len(_COLOURS["light"]), len(distinct)))
    whole, more = divmod(len(distinct), count)
    edges = [number * whole + min(number, more) for number in range(count + 1)] if distinct else []
    ranges = [(distinct[start], distinct[end - 1]) for start, end in pairwise(edges)]
    return [
        (bytes_text(low) if low == high else f"{bytes_text(low)} to {bytes_text(high)}", low, high)
        for low, high in ranges
    ]


def _traffic_sentence(item: Traffic) -> str:
    return (
        f"Step {item.step}: rank {item.source} to rank {item.destination}, {bytes_text(item.size_bytes)} in "
        f"{count_text(item.messages, 'message')}"
    )


def _arrows(found: Inspection, scheme: str) -> go.Figure:
    figure = go.Figure()
    groups = _size_groups(item.size_bytes for item in found.traffic)
    colours = _COLOURS[scheme][1:] if len(groups) == 1 else _COLOURS[scheme]
    for (label, least, most), colour in zip(groups, colours, strict=False):
        shown = [item for item in found.traffic if least <= item.size_bytes <= most]
        ends = [
            (item.step - 1 + _ARROW_GAP, item.step - _ARROW_GAP, item.source, item.destination)
            for item in shown
        ]
        figure.add_scatter(
            x=[place for start, end, _, _ in ends for place in (start, end, None)],
            y=[rank for _, _, source, target in ends for rank in (source, target, None)],
            mode="lines+markers", line={"color": colour, "width": 1.4}, name=label, hoverinfo="skip",
            marker={"symbol": "arrow", "angleref": "previous", "size": [0, 9, 0] * len(ends),
                    "color": colour, "opacity": 1, "line_width": 0},
        )  # fmt: skip
        figure.add_scatter(
            x=[start + _POINTED * (end - start) for start, end, _, _ in ends],
            y=[source + _POINTED * (target - source) for _, _, source, target in ends],
            mode="markers", marker={"size": 10, "opacity": 0, "color": colour}, showlegend=False,
            hovertext=[_traffic_sentence(item) for item in shown],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(
        hovermode="closest", showlegend=True,
        legend={**ABOVE,
                "title": {"text": "sent in one step: ", "side": "left", "font_size": 13}},
    )  # fmt: skip
    for step in range(1, found.steps):
        figure.add_vline(step, line={"color": "#9aa3ad", "width": 1, "dash": "dot"}, opacity=0.5)
    return figure


def _heat_map(found: Inspection, scheme: str) -> go.Figure:
    shape = found.program.num_ranks, max(1, found.steps)
    sent = np.zeros(shape, dtype=np.int64)
    texts = np.full(shape, "nothing", dtype=object)
    targets: dict[tuple[int, int], list[int]] = defaultdict(list)
    for item in found.traffic:
        place = item.source, item.step - 1
        sent[place] += item.size_bytes
        targets[place].append(item.destination)
    for place, ranks in targets.items():
        words = "rank" if len(ranks) == 1 else "ranks"
        texts[place] = f"{bytes_text(int(sent[place]))} to {words} {ranks_text(ranks)}"
    most = max(1, int(sent.max()))
    bar = {"title": {"text": "sent in one step", "side": "right"}, "thickness": 12, "outlinewidth": 0}
    bar |= {"tickvals": [0, most / 2, most], "ticktext": [bytes_text(n) for n in (0, most // 2, most)]}
    return go.Figure(
        go.Heatmap(
            z=sent, x=np.arange(shape[1]) + 0.5, y=np.arange(shape[0]), customdata=texts, zmin=0, zmax=most,
            colorscale=shades(scheme), colorbar=bar,
            hovertemplate="rank %{y} sends %{customdata}<extra></extra>",
        )
    )  # fmt: skip
