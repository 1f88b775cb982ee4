"""Charts of one run: memory, steps, call stacks, roofline and calibration."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ...runner.analysis import Roof
from ...support import bytes_text, change_text, duration_text, share_text
from .._theme import MEMORY_PARTS, NAME_COLOURS, ON_KIND_INK, kind_colour, short
from ._charts import ABOVE, listed, literal, styled, time_scale


def memory_area(curve: Mapping[str, Any], scheme: str) -> go.Figure:
    """Draw a rank's memory over time from a `MemoryCurve` as JSON."""
    scale, unit = time_scale(max(curve["times_ns"], default=0))
    times = [time / scale for time in curve["times_ns"]]
    figure = go.Figure()
    for part, (label, colour) in MEMORY_PARTS.items():
        held = curve[f"{part}_bytes"]
        sizes = held if isinstance(held, list) else [held] * len(times)
        figure.add_scatter(
            x=times,
            y=[size / 2**30 for size in sizes],
            name=label,
            stackgroup="memory",
            line={"width": 0.5, "color": colour},
            text=[bytes_text(size) for size in sizes],
            hovertemplate=f"{label}: %{{text}} at %{{x:.2f}}{unit}<extra></extra>",
        )
    figure.update_layout(height=300, legend={"orientation": "h", "y": 1.12})
    figure.update_xaxes(title="time", ticksuffix=unit)
    figure.update_yaxes(title="GiB", rangemode="tozero")
    return styled(figure, scheme, margin={"l": 48, "r": 8, "t": 8, "b": 40})


_GROUPS = {
    "compute": ("compute", "computation"),
    "optimizer": ("memory", "optimizer"),
    "gc": ("host", "garbage collection"),
    "descheduled": ("sync", "descheduled"),
    "input": ("wait", "input"),
}
_OTHER = ("communication", "communication, with waiting")


def step_bars(operations: pd.DataFrame, scheme: str) -> go.Figure:
    """Draw *operations* (from `step_operations`) over time, a row per worker."""
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
    rows = ("rank " + operations["rank"].astype(str)).unique()
    workers = len(rows)
    figure.update_layout(
        barmode="overlay", height=110 + 20 * workers, bargap=0.2,
        legend=ABOVE,
    )  # fmt: skip
    figure.update_xaxes(ticksuffix=unit)
    # In the order of the table, even if some ranks lack the operations of the first series.
    figure.update_yaxes(automargin=True, categoryorder="array", categoryarray=rows)
    return styled(
        figure, scheme, margin={"l": 8, "r": 12, "t": 30, "b": 28}, alt=f"Operations of {workers} workers"
    )


def _group(type_: str) -> tuple[str, str]:
    return _GROUPS.get("compute" if type_.endswith("-compute") else type_.partition("-")[0], _OTHER)


_COLOURS = {"compute": ("#3b82c4", "bound by compute"), "memory": ("#e08214", "bound by memory"),
            "": ("#9aa3ad", "no peaks known")}  # fmt: skip
_LARGEST, _SMALLEST = 56, 5  # diameters in pixels
_ROOF = "#9aa3ad"
_RATES = {
    f"{10**digits} {prefix}FLOP/s": 10.0 ** (digits + power)
    for prefix, power in (("", -12), ("k", -9), ("M", -6), ("G", -3), ("T", 0), ("P", 3))
    for digits in range(3)
}
"""Ticks of the rate axis, in TFLOP/s."""
_LABELS = 6  # makes the intensity axis longer by this factor, for the names of the peaks


def roofline_scatter(points: pd.DataFrame, roofs: list[Roof], scheme: str) -> go.Figure:
    """Plot *points* (from `roofline_points`) by intensity and rate, with rooflines.

    A point's area is proportional to its operator's total time.
    """
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
    figure.update_layout(height=480, legend=ABOVE)
    figure.update_xaxes(type="log", title="FLOP per byte", showgrid=True, exponentformat="none", dtick=1)
    figure.update_yaxes(type="log", showgrid=True, tickvals=[*_RATES.values()], ticktext=[*_RATES])
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
    """Draw *roof*: for each peak, the slope of the bandwidth and the flat part."""
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
        # The position is within the axis, because Plotly hides a label that rounding moves beyond the axis.
        figure.add_annotation(
            x=np.log10(x[2] / 1.02), y=np.log10(tflops_per_s),
            text=f"{name.upper()} {tflops_per_s:,.0f} TFLOP/s",
            showarrow=False, xanchor="right", yanchor="bottom",
        )  # fmt: skip


_MIN_SHARE = 0.001
_LEVEL = 22
_MAX_LETTERS = 80


def stacks_icicle(stacks: pd.DataFrame, value: str, scheme: str) -> go.Figure:
    """Draw call stacks as boxes below their callers, as wide as their *value* in ns.

    *value* is a column of *stacks* (from `host_stack_table`). Stacks shorter than a thousandth are
    left out.
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
            text=[literal(short(label, _MAX_LETTERS)) for label in boxes["label"]],
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
    """Return the stacks wide enough to draw, with each box's start (ns) and label."""
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
    boxes: pd.DataFrame = placed[placed[value] > _MIN_SHARE * cursor[0]]
    return boxes


# Each colour has its own symbol, for readers who cannot distinguish the colours.
_FIT_COLOURS = {
    "light": ("#2a78d6", "#c2570c", "#2e8b57", "#8a4fbf", "#b3294e", "#6b6f76"),
    "dark": ("#6db3f2", "#f0a04b", "#6cc492", "#c39bea", "#ff8aa0", "#b4bac2"),
}
_SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "x")
_MAX_TICKS = 7
_MARGIN = 0.03  # space beyond the ticks at the ends of an axis, in decades


def calibration_fit(points: pd.DataFrame, scheme: str) -> go.Figure:
    """Plot the measured *points* of a calibration, and the times of the fitted network as lines.

    Dotted lines are the messages alone, without the library's overhead.
    """
    figure = go.Figure()
    names = ["operation", "ranks", *(["dimension"] if points["dimension"].nunique() > 1 else [])]
    for number, (key, part) in enumerate(points.groupby(names, sort=True)):
        operation, ranks, *where = key
        name = f"{operation}, {ranks} ranks" + "".join(f", {text}" for text in where)
        colour = _FIT_COLOURS[scheme][number % len(_FIT_COLOURS[scheme])]
        ordered = part.sort_values("size_bytes")
        sizes = ordered["size_bytes"]
        for column, dash, width in (("messages_ns", "dot", 1), ("model_ns", "solid", 1.5)):
            figure.add_scatter(
                x=sizes, y=ordered[column] / 1e6, mode="lines",
                line={"color": colour, "dash": dash, "width": width}, hoverinfo="skip",
                showlegend=False, legendgroup=name,
            )  # fmt: skip
        figure.add_scatter(
            x=sizes, y=ordered["measured_ns"] / 1e6, mode="markers", name=name, legendgroup=name,
            marker={"color": colour, "symbol": _SYMBOLS[number % len(_SYMBOLS)], "size": 8},
            hovertext=[_hover_text(row) for row in ordered.to_dict("records")],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    sizes = _scale(
        points["size_bytes"].min(), points["size_bytes"].max(), [1 << power for power in range(63)]
    )
    columns = points[["measured_ns", "model_ns", "messages_ns"]]
    lowest, highest = columns.where(columns > 0, np.inf).min().min(), max(1, columns.max().max())
    lowest = min(lowest, highest)
    digits = (1,) if highest > 100 * lowest else (1, 2, 5)
    times = _scale(lowest, highest, [digit * 10**power for power in range(18) for digit in digits])
    figure.update_layout(height=400, legend={"y": 1, "yanchor": "top"})
    for update, title, ticks, text, unit in (
        (figure.update_xaxes, "size", sizes, bytes_text, 1),
        (figure.update_yaxes, "time", times, duration_text, 1e6),
    ):
        update(
            type="log", title=title, showgrid=True, tickvals=[tick / unit for tick in ticks],
            ticktext=[text(tick) for tick in ticks],
            range=[math.log10(ticks[0] / unit) - _MARGIN, math.log10(ticks[-1] / unit) + _MARGIN],
        )  # fmt: skip
    return styled(
        figure,
        scheme,
        margin={"l": 8, "r": 8, "t": 8, "b": 40},
        alt="Measured times by size compared with the network; the table of measurements contains the values",
    )


def _scale(lowest: float, highest: float, values: Sequence[int]) -> Sequence[int]:
    """Return a few of the sorted *values* as ticks of an axis from *lowest* to *highest*."""
    first = min(max(0, bisect_right(values, lowest) - 1), len(values) - 2)
    last = max(first + 1, bisect_left(values, highest))
    stride = -(-(last - first) // _MAX_TICKS)
    return values[first : last + stride : stride]


def _hover_text(row: dict[str, float]) -> str:
    times = " and ".join(
        f"{word} {duration_text(row[column])}"
        for word, column in (("measured", "measured_ns"), ("fitted", "model_ns"))
    )
    return (
        f"{row['operation']} of {bytes_text(int(row['size_bytes']))}: {times} ({change_text(row['error'])})"
    )
