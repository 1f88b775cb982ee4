"""Draw the pictures of the report: the critical path and the timeline as SVG, which needs no script."""

from __future__ import annotations

import numpy as np
import pandas as pd
from markupsafe import Markup

from ...runner import about_backend
from ...support import Svg, count_text, duration_text, element
from ...support import picture as drawing
from .._state import OpenRun
from .._theme import KINDS, PATH_COLOUR, kind_colour
from ..queries import strip
from ..timeline import SliceIndex

__all__ = [
    "LABEL_WIDTH",
    "PICTURE_WIDTH",
    "path_picture",
    "picture",
    "timeline_note",
    "timeline_picture",
]

PICTURE_WIDTH, _ROW, LABEL_WIDTH, _LANE_LABEL, _TICKS = 1000, 22, 70, 215, 4
# A lane is drawn in so many columns, so that the file stays small enough to mail.
_COLUMNS, _MOST_LANES = 400, 32


def path_picture(run: OpenRun) -> Markup:
    """Return the critical path of *run* as bars over time, a row per rank it visits."""
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
    """Return what every rank did, a row per lane, with the critical path; of many ranks those it visits."""
    index, ranks = _shown(run)
    lanes = index.table[index.table["rank"].isin(ranks)]
    row_of = {int(lane): row for row, lane in enumerate(lanes.index)}
    until = max(run.result.makespan_ns, index.makespan_ns, 1)
    scale = (PICTURE_WIDTH - _LANE_LABEL) / until
    parts = _lane_labels(lanes)
    for lane, row in row_of.items():
        batch = index.window(0, until, _COLUMNS, [lane])
        opacity = 0.55 if bool(lanes.loc[lane, "measured"]) else None
        for code in np.unique(batch.colour):
            own = batch.colour == code
            shape = _boxes(batch.start_ns[own] * scale, batch.end_ns[own] * scale, row)
            parts.append(element("path", d=shape, fill=kind_colour(KINDS[code]), opacity=opacity))
    parts.append(_path_line(run, index, row_of, scale))
    title = f"What {len(ranks)} of {run.info.num_ranks} ranks did over time"
    return picture(title, _LANE_LABEL, _ROW * len(row_of), until, *parts)


def timeline_note(run: OpenRun) -> str:
    """Return in words what :func:`timeline_picture` shows."""
    index, ranks = _shown(run)
    some = f" of {len(ranks)} of the {run.info.num_ranks} ranks" if len(ranks) < run.info.num_ranks else ""
    pale = ", first as measured (pale), then as simulated" if index.table["measured"].any() else ""
    return f"A row per stream{some}{pale}. The line is the critical path."


def _shown(run: OpenRun) -> tuple[SliceIndex, list[int]]:
    """Return the lanes drawn: measured ones too if all fit, else as many ranks as do, the path's first."""
    index = (
        run.measured_slices if run.is_measured and not about_backend(run.info.backend).replays else run.slices
    )
    if len(index.table) > _MOST_LANES:
        index = run.slices
    on_path = run.path.segments.groupby("rank")["duration_ns"].sum().sort_values(ascending=False)
    order = [*on_path.index, *(rank for rank in index.table["rank"].unique() if rank not in on_path.index)]
    sizes = index.table.groupby("rank").size()
    kept = [rank for rank in order if rank in sizes.index]
    fitting = sizes[kept].cumsum() <= _MOST_LANES
    return index, sorted(int(rank) for rank in (fitting[fitting].index if fitting.any() else kept[:1]))


def _lane_labels(lanes: pd.DataFrame) -> list[Svg]:
    texts: list[Svg] = []
    before = None
    for row, lane in enumerate(lanes.to_dict("records")):
        rank = f"rank {lane['rank']}" if lane["rank"] != before else ""
        before = lane["rank"]
        label = f"{lane['label']}{' (measured)' if lane['measured'] else ''}"
        y = row * _ROW + 15
        texts += [element("text", rank, x=0, y=y), element("text", label, x=52, y=y)]
    return texts


def _boxes(starts: np.ndarray, ends: np.ndarray, row: int) -> str:
    """Return boxes from *starts* to *ends* on a row as one SVG path."""
    tall = _ROW - 6
    widths = np.maximum(ends - starts, 0.4)
    return "".join(
        f"M{_LANE_LABEL + start:.1f} {row * _ROW + 2}h{width:.1f}v{tall}h-{width:.1f}z"
        for start, width in zip(starts.tolist(), widths.tolist(), strict=True)
    )


def _path_line(run: OpenRun, index: SliceIndex, row_of: dict[int, int], scale: float) -> Svg:
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
    """Return *content* above an axis of time, which begins *left* of it; *title* is its text alternative."""
    ticks = []
    for number in range(_TICKS + 1):
        x = left + (PICTURE_WIDTH - left) * number / _TICKS
        text = duration_text(until_ns * number / _TICKS) if number else "0"
        ticks.append(element("path", d=f"M{x:.1f} {height}v4", class_="tick"))
        ticks.append(element("text", text, x=x, y=height + 16, class_="end" if number == _TICKS else None))
    return Markup(drawing(PICTURE_WIDTH, height + 20, *content, *ticks, label=title))
