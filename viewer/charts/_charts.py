"""Charts that several pages share, and the settings that keep all charts from contacting a host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from dash import dcc, html

from ...runner.analysis import KIND_LABELS, Matrix
from ...support import duration_text, share_text
from .._theme import ON_KIND_INK, kind_colour, short
from ..queries import Dimension

# By default, Plotly has a button that sends the figure to a hosted service.
_PRIVATE_CONFIG: dict[str, Any] = {
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
}
_FEW_RANKS = 8
_MAX_LABELS = 80
_MAX_WORDS = 600
# Units of a time axis: up to which time (ns), the unit's length in ns, and its suffix.
_TIME_SCALES = ((2e3, 1.0, " ns"), (2e6, 1e3, " µs"), (1e10, 1e6, " ms"))
_INK = {"light": "#1f2933", "dark": "#d5dbe1"}
ABOVE = {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "xanchor": "left"}
"""The place of a legend above its chart."""
MODE_BAR = {"bgcolor": "rgba(0,0,0,0)", "color": "#9aa3ad", "activecolor": "#3b82c4"}
_GRID = {"light": "#e4e8ec", "dark": "#3a4148"}


def graph(figure: go.Figure, **properties: Any) -> html.Div:
    """Return the chart of *figure*, which contacts no other host.

    The chart's text alternative is *alt* of :func:`styled`, or else the names of the series.
    """
    config = {**_PRIVATE_CONFIG, "displayModeBar": properties.pop("mode_bar", False)}
    drawn = dcc.Graph(figure=figure, config=config, style={"height": figure.layout.height}, **properties)
    names = ", ".join(str(trace.name) for trace in figure.data if trace.name)
    alt = str(figure.layout.meta or f"Chart{f' of {names}' if names else ''}")
    identity = properties.get("id")
    # A clickable chart has a pattern id for callbacks; its frame has a plain id for style sheets and tests.
    named = {"id": "-".join([*identity.values(), *identity])} if isinstance(identity, dict) else {}
    return html.Div(drawn, role="figure", **named, **{"aria-label": alt[:_MAX_WORDS]})


def time_scale(most_ns: float) -> tuple[float, str]:
    """Return the unit for times up to *most_ns*: its length in ns, and its suffix."""
    return next(((scale, unit) for most, scale, unit in _TIME_SCALES if most_ns < most), (1e9, " s"))


def breakdown_bar(breakdown: pd.DataFrame, scheme: str) -> go.Figure:
    """Return one bar of *breakdown* (key, duration_ns, share), stacked by kind."""
    figure = go.Figure()
    for row in breakdown.to_dict("records"):
        kind, fraction = str(row["key"]), float(row["share"])
        label, share = KIND_LABELS.get(kind, kind), share_text(fraction)
        figure.add_bar(
            x=[row["duration_ns"]],
            y=[""],
            orientation="h",
            name=label,
            marker_color=kind_colour(kind),
            text=f"{label}<br>{share}" if fraction >= 0.06 else "",
            insidetextanchor="middle",
            textangle=0,
            textfont_color=ON_KIND_INK,
            hovertemplate=f"{label}<br>{duration_text(row['duration_ns'])} ({share})<extra></extra>",
        )
    figure.update_layout(barmode="stack", height=96, showlegend=False)
    figure.update_xaxes(visible=False, range=[0, max(1, int(breakdown["duration_ns"].sum()))])
    figure.update_yaxes(visible=False)
    return styled(
        figure,
        scheme,
        margin={"l": 0, "r": 0, "t": 4, "b": 4},
        alt="Critical path by kind: "
        + listed(
            (KIND_LABELS.get(str(k), k), share_text(float(s)))
            for k, s in zip(breakdown["key"], breakdown["share"], strict=True)
        ),
    )


_FIGURES_WIDTH = 124  # pixels for the figures at the right of a bar


def contributors_bar(
    breakdown: pd.DataFrame,
    scheme: str,
    *,
    narrow: bool = False,
    labels: Mapping[str, str] | None = None,
) -> go.Figure:
    """Return a bar for each of the first 15 keys of *breakdown*, the first on top.

    A *narrow* chart fills half a page and shortens names. *labels* replaces keys.
    """
    shown = breakdown.head(15)
    names = [(labels or {}).get(key, str(key).removesuffix(", all ranks")) for key in shown["key"]]
    texts = [short(name, 30 if narrow else 48) or "(none)" for name in names]
    figure = go.Figure(
        go.Bar(
            x=shown["share"],
            y=list(range(len(shown))),
            orientation="h",
            marker_color=[kind_colour(kind if kind in KIND_LABELS else "compute") for kind in shown["kind"]],
            text=[
                f"{share_text(s)} · {duration_text(d)}"
                for s, d in zip(shown["share"], shown["duration_ns"], strict=True)
            ],
            textposition="outside",
            cliponaxis=False,
            hovertext=[literal(str(key)) for key in shown["key"]],
            hovertemplate="%{hovertext}<br>%{text}<extra></extra>",
        )
    )
    figure.update_layout(height=48 + 28 * max(1, len(shown)))
    figure.update_xaxes(visible=False, range=[0, float(shown["share"].max() if len(shown) else 1)])
    figure.update_yaxes(
        tickvals=list(range(len(shown))),
        ticktext=[literal(t) for t in texts],
        autorange="reversed",
        automargin=True,
    )
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": _FIGURES_WIDTH, "t": 8, "b": 8},
        alt="Shares of the critical path: " + listed(zip(names, figure.data[0].text, strict=True), 15),
    )


def ranks_bar(ranks: pd.DataFrame, scheme: str) -> go.Figure:
    """Return a bar per rank: computation, exposed communication, exposed copies, and idle time.

    The parts add up to the step time.
    """
    figure = go.Figure()
    parts = [
        ("compute_ns", "compute", "Compute"),
        ("exposed_comm_ns", "communication", "Exposed communication"),
        ("exposed_copy_ns", "copy", "Exposed copies"),
        ("idle_ns", "idle", "Idle"),
    ]
    scale, unit = time_scale(ranks[[column for column, _, _ in parts]].sum(axis=1).max())
    for column, kind, label in parts:
        figure.add_bar(
            x=ranks["rank"],
            y=ranks[column] / scale,
            name=label,
            marker={"color": kind_colour(kind), "line_width": 0},
            customdata=[duration_text(value) for value in ranks[column]],
            hovertemplate=f"rank %{{x}}<br>{label}: %{{customdata}}<extra></extra>",
        )
    figure.update_layout(barmode="stack", height=328, bargap=0.2)
    figure.update_layout(
        legend={**ABOVE, "traceorder": "normal"}
    )  # fmt: skip
    # With fewer than 8 ranks, the chart leaves space for 8, so that bars stay narrow.
    few = len(ranks) < _FEW_RANKS
    ticks = {"tickvals": ranks["rank"].tolist()} if few else {"dtick": max(1, len(ranks) // 16)}
    figure.update_xaxes(title="rank", range=[-0.5, max(_FEW_RANKS, len(ranks)) - 0.5], **ticks)
    figure.update_yaxes(ticksuffix=unit, showgrid=True)
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 8, "t": 30, "b": 40},
        alt=f"Compute, exposed communication, exposed copies and idle time of {len(ranks):,} ranks; "
        f"most exposed communication: "
        + listed(
            (f"rank {r}", duration_text(v))
            for r, v in ranks.nlargest(3, "exposed_comm_ns")[["rank", "exposed_comm_ns"]].itertuples(
                index=False
            )
        ),
    )


def path_strip(strip: pd.DataFrame, scheme: str) -> go.Figure:
    """Return the critical path over time, a row per rank; *strip* is from `queries.strip`."""
    figure = go.Figure()
    scale, unit = time_scale((strip["start_ns"] + strip["duration_ns"]).max())
    for kind, part in strip.groupby("kind", sort=False):
        figure.add_bar(
            x=part["duration_ns"] / scale,
            base=part["start_ns"] / scale,
            y=[f"rank {rank}" for rank in part["rank"]],
            orientation="h",
            name=KIND_LABELS.get(str(kind), str(kind)),
            marker={"color": kind_colour(str(kind)), "line_width": 0},
            customdata=list(
                zip(part["rank"], part["node_id"], map(duration_text, part["duration_ns"]), strict=True)
            ),
            hovertext=[literal(short(str(name), 80)) for name in part["name"]],
            hovertemplate="%{hovertext}<br>%{y}, %{customdata[2]}<extra></extra>",
        )
    ranks = sorted(strip["rank"].unique())
    figure.update_layout(modebar=MODE_BAR)
    figure.update_layout(barmode="overlay", bargap=0.25, height=130 + 22 * len(ranks), hovermode="closest")
    figure.update_layout(legend=ABOVE)
    figure.update_yaxes(
        categoryorder="array", categoryarray=[f"rank {r}" for r in reversed(ranks)], automargin=True
    )
    figure.update_xaxes(ticksuffix=unit)
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 12, "t": 56, "b": 40},  # space for the buttons above the legend
        alt=(
            f"The critical path over time, on {len(ranks):,} ranks; the table Segments below lists all "
            "segments"
        ),
    )


def topology_sketch(dimensions: Sequence[Dimension], scheme: str) -> go.Figure:
    """Draw a group of at most 16 ranks for each network dimension."""
    figure = go.Figure()
    for number, dimension in enumerate(dimensions):
        count = max(1, min(dimension.size, 16))
        angles = 2 * np.pi * np.arange(count) / count
        x, y = 3.0 * number + np.sin(angles), np.cos(angles)
        pairs = _links(dimension.topology, count)
        centre = (3.0 * number, 0.0)
        ends = [((x[a], y[a]), (x[b], y[b]) if b >= 0 else centre) for a, b in pairs]
        figure.add_scatter(
            x=[value for a, b in ends for value in (a[0], b[0], None)],
            y=[value for a, b in ends for value in (a[1], b[1], None)],
            mode="lines", line={"color": "#9aa3ad", "width": 1}, hoverinfo="skip",
        )  # fmt: skip
        figure.add_scatter(x=x, y=y, mode="markers", marker={"size": 9, "color": "#3b82c4"}, hoverinfo="skip")
        if dimension.topology == "Switch":
            square = {"size": 15, "color": "#e08214", "symbol": "square"}
            figure.add_scatter(x=[centre[0]], y=[centre[1]], mode="markers", marker=square, hoverinfo="skip")
        shown = f" ({count} drawn)" if count < dimension.size else ""
        text = f"{number + 1}: {dimension.topology} of {dimension.size}{shown}"
        figure.add_annotation(x=centre[0], y=-1.45, text=text, showarrow=False)
    figure.update_layout(height=230, showlegend=False)
    figure.update_xaxes(visible=False, range=[-1.6, 3 * len(dimensions) - 1.4])
    figure.update_yaxes(visible=False, range=[-1.7, 1.2], scaleanchor="x")
    return styled(
        figure,
        scheme,
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        alt="Topology: " + listed((d.topology, f"of {d.size}") for d in dimensions),
    )


def _links(topology: str, count: int) -> list[tuple[int, int]]:
    """Return the links among *count* ranks as pairs of indices; -1 is a central switch."""
    if topology == "Switch":
        return [(rank, -1) for rank in range(count)]
    if topology == "Ring":
        return [(rank, (rank + 1) % count) for rank in range(count)]
    return [(a, b) for a in range(count) for b in range(a)]


def heat_map(matrix: Matrix, texts: Any, scheme: str, most: int = _MAX_LABELS) -> go.Figure:
    """Return a heat map of *matrix*; *texts* are its values with units, shown in at most *most* cells."""
    figure = go.Figure(
        go.Heatmap(
            z=matrix.values,
            x=matrix.columns,
            y=matrix.rows,
            customdata=texts,
            text=texts,
            texttemplate="%{text}" if matrix.values.size <= most else "",
            colorscale=shades(scheme),
            showscale=False,
            xgap=1,
            ygap=1,
            hovertemplate="%{y}, %{x}: %{customdata}<extra></extra>",
        )
    )
    figure.update_layout(height=120 + 18 * min(40, max(10, len(matrix.rows))))
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(side="top", automargin=True, tickangle=-45, showgrid=False)
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        alt=f"Heat map of {len(matrix.rows):,} rows and {len(matrix.columns):,} columns; the export has its "
        f"figures",
    )


def shades(scheme: str) -> list[list[Any]]:
    """Return the colours of a heat map from zero to the maximum."""
    if scheme == "dark":
        return [[0, "rgba(59,130,196,0.06)"], [0.001, "#17324d"], [1, "#9fd0ff"]]
    return [[0, "rgba(59,130,196,0.06)"], [0.001, "#cfe3f4"], [1, "#08488a"]]


def listed(pairs: Iterable[tuple[Any, Any]], most: int = 8) -> str:
    """Join the first *most* (name, text) pairs, and count the others."""
    items = [f"{name} {text}" for name, text in pairs]
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def styled(figure: go.Figure, scheme: str, margin: dict[str, int], alt: str = "") -> go.Figure:
    """Return *figure* with the common colours, grid and margins, and the text alternative *alt*."""
    figure.update_layout(
        meta=alt or None,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": _INK[scheme], "size": 13, "family": "system-ui, sans-serif"},
        margin=margin,
        uniformtext={"minsize": 11, "mode": "hide"},
    )
    axes = {"gridcolor": _GRID[scheme], "title_font_size": 13}
    figure.update_xaxes(zerolinecolor=_GRID[scheme], **axes)
    figure.update_yaxes(zeroline=False, ticklabelstandoff=5, **axes)
    figure.for_each_yaxis(lambda axis: axis.update(showgrid=bool(axis.showgrid)))
    return figure


def literal(text: str) -> str:
    """Return *text* escaped for Plotly, whose labels interpret some HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
