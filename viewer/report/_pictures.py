"""Parts of the report's sections; pictures are SVG, which needs no script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from ...runner.analysis import KIND_LABELS
from ...support import Svg, bytes_text, count_text, duration_text, element, share_text
from ...support import picture as drawing
from .._state import OpenRun
from .._theme import KINDS, MEMORY_PARTS, PATH_COLOUR, kind_colour
from ..queries import fullest_curve, memory_facts, memory_verdict, strip
from ..timeline import TimelineIndex

PICTURE_WIDTH, _ROW, LABEL_WIDTH, _LANE_LABEL, _TICKS = 1000, 22, 70, 215, 4


# Maximum number of columns of a lane, and maximum number of lanes; both limit the size of the report.
_COLUMNS, _MAX_LANES = 400, 32


def path_picture(run: OpenRun) -> Markup:
    """Draw the critical path as bars over time, a row per rank."""
    table = strip(run.path)
    ranks = sorted(table["rank"].unique())
    row_of = {rank: row for row, rank in enumerate(ranks)}
    scale = (PICTURE_WIDTH - LABEL_WIDTH) / max(1, run.path.makespan_ns)
    labels = [element("text", f"rank {rank}", x=0, y=row * _ROW + 15) for rank, row in row_of.items()]
    bars = [
        element(
            "rect", x=LABEL_WIDTH + row["start_ns"] * scale, y=row_of[row["rank"]] * _ROW + 2,
            width=max(0.3, row["duration_ns"] * scale), height=_ROW - 4, fill=kind_colour(str(row["kind"])),
        )
        for row in table.to_dict("records")
    ]  # fmt: skip
    title = f"The critical path over time, on {count_text(len(ranks), 'rank')}"
    return picture(title, LABEL_WIDTH, _ROW * len(ranks), run.path.makespan_ns, *labels, *bars)


def timeline_picture(run: OpenRun) -> Markup:
    """Draw the timeline and the critical path, a row per lane.

    Of too many ranks, those on the critical path are preferred.
    """
    index, ranks = _shown(run)
    lanes = index.table[index.table["rank"].isin(ranks)]
    row_of = {int(lane): row for row, lane in enumerate(lanes.index)}
    until = max(run.result.makespan_ns, index.makespan_ns, 1)
    scale = (PICTURE_WIDTH - _LANE_LABEL) / until
    parts = _lane_labels(lanes)
    for lane, row in row_of.items():
        batch = index.window(0, until, _COLUMNS, [lane])
        for code in np.unique(batch.colour):
            own = batch.colour == code
            shape = _boxes(batch.start_ns[own] * scale, batch.end_ns[own] * scale, row)
            parts.append(element("path", d=shape, fill=kind_colour(KINDS[code])))
    parts.append(_path_line(run, index, row_of, scale))
    title = f"Timeline of {len(ranks)} of {run.info.num_ranks} ranks"
    return picture(title, _LANE_LABEL, _ROW * len(row_of), until, *parts)


def timeline_note(run: OpenRun) -> str:
    """Describe the picture of :func:`timeline_picture`."""
    _, ranks = _shown(run)
    some = f" of {len(ranks)} of the {run.info.num_ranks} ranks" if len(ranks) < run.info.num_ranks else ""
    return f"A row per stream{some}. The line is the critical path."


def _shown(run: OpenRun) -> tuple[TimelineIndex, list[int]]:
    """Return the timeline index of simulated times, and the ranks in the picture.

    If not all lanes fit, the ranks with most time on the critical path are chosen.
    """
    index = run.rows(measured=False, nested=False)
    on_path = run.path.segments.groupby("rank")["duration_ns"].sum().sort_values(ascending=False)
    order = [*on_path.index, *(rank for rank in index.table["rank"].unique() if rank not in on_path.index)]
    ranks: list[int] = []
    lanes = 0
    for rank in map(int, order):
        index.prepare([rank])
        lanes += int((index.table["rank"] == rank).sum())
        if ranks and lanes > _MAX_LANES:
            break
        ranks.append(rank)
    return index, sorted(ranks)


def _lane_labels(lanes: pd.DataFrame) -> list[Svg]:
    texts: list[Svg] = []
    before = None
    for row, lane in enumerate(lanes.to_dict("records")):
        rank = f"rank {lane['rank']}" if lane["rank"] != before else ""
        before = lane["rank"]
        y = row * _ROW + 15
        texts += [element("text", rank, x=0, y=y), element("text", lane["label"], x=52, y=y)]
    return texts


def _boxes(starts: np.ndarray, ends: np.ndarray, row: int) -> str:
    """Return an SVG path of boxes on a row, from *starts* to *ends* in pixels."""
    tall = _ROW - 6
    widths = np.maximum(ends - starts, 0.4)
    return "".join(
        f"M{_LANE_LABEL + start:.1f} {row * _ROW + 2}h{width:.1f}v{tall}h-{width:.1f}z"
        for start, width in zip(starts.tolist(), widths.tolist(), strict=True)
    )


def _path_line(run: OpenRun, index: TimelineIndex, row_of: dict[int, int], scale: float) -> Svg:
    table = strip(run.path, _COLUMNS)
    lanes = index.lanes_of(table["rank"].to_numpy(np.int64), table["node_id"].to_numpy(np.int64))
    pieces, open_line = [], False
    for lane, start, duration in zip(
        lanes.tolist(), table["start_ns"].tolist(), table["duration_ns"].tolist(), strict=True
    ):
        if lane not in row_of:
            open_line = False
            continue
        y = row_of[lane] * _ROW + _ROW - 3
        x = _LANE_LABEL + start * scale
        pieces.append(f"{'L' if open_line else 'M'}{x:.1f} {y}H{x + duration * scale:.1f}")
        open_line = True
    return element("path", d="".join(pieces), fill="none", stroke=PATH_COLOUR, stroke_width=2)


def picture(title: str, left: int, height: int, until_ns: int, *content: Svg) -> Markup:
    """Draw *content* above a time axis from x = *left* to *until_ns*.

    *title* is the text alternative.
    """
    ticks = []
    for number in range(_TICKS + 1):
        x = left + (PICTURE_WIDTH - left) * number / _TICKS
        text = duration_text(until_ns * number / _TICKS) if number else "0"
        ticks.append(element("path", d=f"M{x:.1f} {height}v4", class_="tick"))
        ticks.append(element("text", text, x=x, y=height + 16, class_="end" if number == _TICKS else None))
    return Markup(drawing(PICTURE_WIDTH, height + 20, *content, *ticks, label=title))


# Field -> heading of its column, and function that formats its values.
Columns = Mapping[str, tuple[str, Callable[[Any], str]]]
# The macro of report.html.j2 that draws a part of a section, and its argument.
Part = tuple[str, Any]


class Section(NamedTuple):
    """A section: heading, parts, and a *note* that explains it."""

    title: str
    parts: Sequence[Part]
    note: str = ""


def table(frame: pd.DataFrame, columns: Columns) -> list[Part]:
    """Return the *columns* of *frame* as a table of texts in a list, which is empty without rows."""
    if frame.empty:
        return []
    shown = [[show(value) for value in frame[name]] for name, (_, show) in columns.items()]
    numeric = [pd.api.types.is_numeric_dtype(frame[name]) for name in columns]
    titles = [title for title, _ in columns.values()]
    return [("table", {"titles": titles, "numeric": numeric, "rows": [*zip(*shown, strict=True)]})]


def stack(kinds: pd.DataFrame) -> Part:
    """Return stacked bars of a breakdown by kind across the report's width, with a legend."""
    rows = kinds.to_dict("records")
    labels = [KIND_LABELS.get(row["key"], str(row["key"])) for row in rows]
    pairs = zip(rows, labels, strict=True)
    return "stack", [_bar(row, label, row["share"], kind_colour(row["key"])) for row, label in pairs]


def meters(breakdown: pd.DataFrame, most: int) -> list[Part]:
    """Return bars for the first *most* rows in a list, which is empty without rows.

    The longest bar has the full width; a note counts the rows that are left out.
    """
    if breakdown.empty:
        return []
    largest = max(float(breakdown["share"].max()), 1e-12)
    rows = breakdown.head(most).to_dict("records")
    bars = [_bar(row, str(row["key"]), row["share"] / largest) for row in rows]
    more = len(breakdown) - len(bars)
    return [("meters", {"bars": bars, "more": f"{more:,}" if more else ""})]


def _bar(row: Mapping[Any, Any], label: str, width: float, colour: str = "") -> dict[str, Any]:
    """Return a bar for a *row* of a breakdown; *width* is a fraction of the full width."""
    texts = {"duration": duration_text(row["duration_ns"]), "share": share_text(row["share"])}
    return {"label": label, "percent": 100 * width, "colour": colour, **texts}


def lines(texts: Iterable[str]) -> list[Part]:
    """Return sentences or facts, one per line, in a list, which is empty without *texts*."""
    rows = list(texts)
    return [("lines", rows)] if rows else []


_HEIGHT, _HEADROOM = 170, 1.14


def memory_parts(run: OpenRun) -> list[Part]:
    """Draw a predicted run's memory with a legend; empty without a prediction."""
    curve = fullest_curve(run)
    if curve is None:
        return []
    times = [int(time) for time in curve["times_ns"]]
    held = {part: curve[f"{part}_bytes"] for part in MEMORY_PARTS}
    layers = [size if isinstance(size, list) else [size] * len(times) for size in held.values()]
    sums = list(accumulate(layers, lambda below, own: [a + b for a, b in zip(below, own, strict=True)]))
    prediction = run.result.provenance.get("prediction") or {}
    room = int(prediction.get("chip_usable_bytes", prediction.get("chip_memory_bytes", 0)))
    top = _HEADROOM * max(int(curve["peak_bytes"]), room, 1)
    scale = (PICTURE_WIDTH - LABEL_WIDTH) / max(1, run.result.makespan_ns)
    x = [f"{LABEL_WIDTH + time * scale:.1f}" for time in times]
    below = [0] * len(times)
    shapes = []
    for (_, colour), above in zip(MEMORY_PARTS.values(), sums, strict=True):
        edge = [f"{a} {_y(b, top):.1f}" for a, b in zip(x, above, strict=True)]
        back = [f"{a} {_y(b, top):.1f}" for a, b in zip(reversed(x), reversed(below), strict=True)]
        shapes.append(element("path", d=f"M{'L'.join([*edge, *back])}Z", fill=colour))
        below = above
    marks = [_mark(0, top), _mark(int(curve["peak_bytes"]), top)]
    if room:
        y = _y(room, top)
        shapes.append(element("path", d=f"M{LABEL_WIDTH} {y:.1f}H{PICTURE_WIDTH}", class_="limit"))
        shapes.append(
            element("text", f"{bytes_text(room)} usable of the chip", x=PICTURE_WIDTH, y=y - 4, class_="end")
        )
    title = "Memory contents of the fullest rank over the step"
    drawn = picture(title, LABEL_WIDTH, _HEIGHT, run.result.makespan_ns, *shapes, *marks)
    return [("picture", drawn), ("legend", list(MEMORY_PARTS.values()))]


def memory_note(run: OpenRun) -> str:
    """Describe the fullest rank's memory, and whether the job fits."""
    verdict = memory_verdict(run)
    return f"{verdict[:1].upper()}{verdict[1:]}. {memory_facts(run)}" if verdict else memory_facts(run)


def _y(size: float, top: float) -> float:
    return _HEIGHT * (1 - size / top)


def _mark(size: int, top: float) -> Svg:
    return element("text", bytes_text(size) if size else "0", x=0, y=min(_HEIGHT, _y(size, top) + 4))
