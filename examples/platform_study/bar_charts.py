"""Draw the figures of the study as SVG, without a plotting library."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

__all__ = ["write_all"]

_COMPUTE, _COMMUNICATION = "#4477aa", "#ee6677"
_PARALLELISMS = {"data": "#66ccee", "model": "#aa3377", "hybrid": "#228833"}
_PLATFORMS = "#4477aa", "#ee7733"
_PLACE = 160
_LEFT, _TOP, _HEIGHT = 90, 60, 260


def write_all(layers: pd.DataFrame, summary: pd.DataFrame, folder: Path, titles: dict[str, str]) -> None:
    """Write ``communication.svg``, ``step.svg``, ``compute.svg``, and ``layers-MODEL.svg`` for each model."""
    _write(folder / "compute.svg", _compute(layers, titles))
    _write(folder / "communication.svg", _communication(summary, titles))
    _write(folder / "step.svg", _steps(summary, titles))
    for model, rows in layers.groupby("model", sort=False):
        _write(folder / f"layers-{model}.svg", _layers(rows, titles[str(model)]))


def _write(path: Path, drawing: _Drawing) -> None:
    path.write_text(drawing.svg(), encoding="utf-8")


class _Drawing:
    """Shapes of a drawing, and the size that they need."""

    def __init__(self, title: str) -> None:
        self.shapes: list[str] = []
        self.width, self.height = 0.0, 0.0
        self.text(10, 24, title, size=16)

    def bar(self, x: float, y: float, width: float, height: float, colour: str, *, tip: str) -> None:
        self._reach(x + width, y + height)
        self.shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}">'
            f"<title>{escape(tip)}</title></rect>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str = "#999") -> None:
        self._reach(max(x1, x2), max(y1, y2))
        self.shapes.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'
        )

    def text(
        self, x: float, y: float, words: str, *, size: int = 11, anchor: str = "start", turn: int = 0
    ) -> None:
        self._reach(x + (0.6 * size * len(words) if anchor == "start" else 0), y)
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        style = f'font-size="{size}" text-anchor="{anchor}"{turned}'
        self.shapes.append(f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>')

    def key(self, y: float, entries: dict[str, str]) -> None:
        """Draw the legend of the colours."""
        x = float(_LEFT)
        for words, colour in entries.items():
            self.bar(x, y - 10, 12, 12, colour, tip=words)
            self.text(x + 16, y, words)
            x += 40 + 7 * len(words)

    def _reach(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)

    def svg(self) -> str:
        width, height = math.ceil(self.width) + 20, math.ceil(self.height) + 20
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                f'viewBox="0 0 {width} {height}" font-family="sans-serif">',
                f'<rect width="{width}" height="{height}" fill="white"/>',
                *self.shapes,
                "</svg>\n",
            ]
        )


def _communication(summary: pd.DataFrame, titles: dict[str, str]) -> _Drawing:
    """Draw the communication time of each parallelism; published times are lines across the bars."""
    drawing = _Drawing("Communication time of a training step, 256 accelerators (logarithmic)")
    times = pd.concat([summary["communication_us"], summary["published_us"].dropna()]).astype(float)
    low, high = math.floor(math.log10(times.min())), math.ceil(math.log10(times.max()))
    scale = _HEIGHT / (high - low)
    bottom = _TOP + _HEIGHT
    places = summary[["model", "platform"]].drop_duplicates()
    for power in range(low, high + 1):
        y = bottom - (power - low) * scale
        drawing.line(_LEFT, y, _LEFT + _PLACE * len(places), y, "#ddd")
        drawing.text(_LEFT - 6, y + 4, _time(10.0**power), anchor="end")
    for column, (model, platform) in enumerate(_rows(places)):
        x = _LEFT + _PLACE * column + 20
        rows = summary[(summary["model"] == model) & (summary["platform"] == platform)]
        for offset, row in enumerate(_rows(rows)):
            height = (math.log10(row.communication_us) - low) * scale
            colour = _PARALLELISMS[row.parallelism]
            left = x + 40 * offset
            drawing.bar(left, bottom - height, 36, height, colour, tip=_time(row.communication_us))
            drawing.text(left + 18, bottom - height - 4, _time(row.communication_us), size=9, anchor="middle")
            if not pd.isna(row.published_us):
                y = bottom - (math.log10(float(row.published_us)) - low) * scale
                drawing.line(left - 2, y, left + 38, y, "black")
        drawing.text(x + 58, bottom + 16, str(platform), anchor="middle")
        drawing.text(x + 58, bottom + 32, titles[str(model)], anchor="middle")
    kinds = {f"{kind} parallel": colour for kind, colour in _PARALLELISMS.items()}
    drawing.key(_TOP - 14, {**kinds, "published (line)": "black"})
    return drawing


def _steps(summary: pd.DataFrame, titles: dict[str, str]) -> _Drawing:
    """Draw computation and exposed communication together, as shares of the step."""
    drawing = _Drawing("What a training step consists of")
    for index, row in enumerate(_rows(summary)):
        y = _TOP + 24 * index
        drawing.text(
            10,
            y + 13,
            f"{titles[row.model]}, {row.parallelism} parallel, {row.platform}: {_time(row.step_us)}",
        )
        split = 600 * row.compute_us / row.step_us
        drawing.bar(400, y, split, 18, _COMPUTE, tip=f"computation {_time(row.compute_us)}")
        drawing.bar(
            400 + split, y, 600 - split, 18, _COMMUNICATION, tip=f"communication {_time(row.exposed_us)}"
        )
    drawing.key(_TOP - 14, {"computation": _COMPUTE, "communication not covered by it": _COMMUNICATION})
    return drawing


def _compute(layers: pd.DataFrame, titles: dict[str, str]) -> _Drawing:
    """Draw the computation of each layer on all platforms on a logarithmic axis, one panel per model."""
    drawing = _Drawing("Computation of each layer in a training step (logarithmic)")
    rows = layers[(layers["parallelism"] == "data") & (layers["compute_ns"] > 0)]
    platforms = dict(zip(rows["platform"].unique(), _PLATFORMS, strict=False))
    drawing.key(_TOP - 14, platforms)
    top = float(_TOP)
    for model, panel in rows.groupby("model", sort=False):
        drawing.text(_LEFT, top + 14, titles[str(model)], size=13)
        top = _compute_panel(drawing, panel, platforms, top + 24)
    drawing.height = top
    return drawing


def _compute_panel(drawing: _Drawing, panel: pd.DataFrame, platforms: dict[str, str], top: float) -> float:
    """Draw a line of dots per platform, one dot per layer; return the position of the next panel."""
    low = math.floor(math.log10(panel["compute_ns"].min()))
    high = math.ceil(math.log10(panel["compute_ns"].max()))
    scale = 150 / (high - low)
    names = list(panel["layer"].unique())
    for power in range(low, high + 1):
        y = top + 150 - (power - low) * scale
        drawing.line(_LEFT, y, _LEFT + 18 * len(names), y, "#ddd")
        drawing.text(_LEFT - 6, y + 4, _time(10.0**power / 1000), anchor="end")
    for platform, colour in platforms.items():
        times = panel[panel["platform"] == platform].set_index("layer")["compute_ns"]
        places = [
            (_LEFT + 18 * column + 9, top + 150 - (math.log10(times[name]) - low) * scale, name)
            for column, name in enumerate(names)
        ]
        for (x1, y1, _), (x2, y2, _) in itertools.pairwise(places):
            drawing.line(x1, y1, x2, y2, colour)
        for x, y, name in places:
            drawing.bar(x - 3, y - 3, 6, 6, colour, tip=f"{name}, {platform}: {_time(times[name] / 1000)}")
    for column, name in enumerate(names):
        drawing.text(_LEFT + 18 * column + 12, top + 164, str(name), size=9, anchor="end", turn=-60)
    return top + 174 + 5 * max(map(len, names))


def _layers(rows: pd.DataFrame, title: str) -> _Drawing:
    """Draw computation and communication of each layer, one panel per parallelism and platform."""
    drawing = _Drawing(f"{title}: computation and communication of each layer")
    drawing.key(_TOP - 14, {"computation": _COMPUTE, "communication": _COMMUNICATION})
    top = float(_TOP)
    panels = rows.groupby(["parallelism", "platform"], sort=False)
    for (parallelism, platform), panel in panels:
        drawing.text(_LEFT, top + 14, f"{parallelism} parallel, {platform}", size=13)
        _panel(drawing, panel, top + 24)
        top += 24 + 150 + 14
    for column, name in enumerate(panel["layer"]):
        drawing.text(_LEFT + 18 * column + 12, top, str(name), size=9, anchor="end", turn=-60)
    longest = max(len(str(name)) for name in panel["layer"])
    drawing.height = top + 5 * longest
    return drawing


def _panel(drawing: _Drawing, rows: pd.DataFrame, top: float) -> None:
    """Draw pairs of bars, one pair per layer, with a separate scale."""
    peak = float(rows[["compute_ns", "communication_ns"]].to_numpy().max())
    drawing.line(_LEFT, top + 150, _LEFT + 18 * len(rows), top + 150)
    drawing.line(_LEFT, top, _LEFT, top + 150)
    drawing.text(_LEFT - 6, top + 10, _time(peak / 1000), anchor="end")
    drawing.text(_LEFT - 6, top + 150, "0", anchor="end")
    for column, row in enumerate(_rows(rows)):
        for offset, (time_ns, colour) in enumerate(
            ((row.compute_ns, _COMPUTE), (row.communication_ns, _COMMUNICATION))
        ):
            height = 150 * time_ns / peak
            left = _LEFT + 18 * column + 2 + 7 * offset
            drawing.bar(
                left, top + 150 - height, 7, height, colour, tip=f"{row.layer}: {_time(time_ns / 1000)}"
            )


def _rows(table: pd.DataFrame) -> Iterator[Any]:
    """Yield the rows of the table as dictionaries."""
    yield from table.itertuples(index=False)


def _time(microseconds: float) -> str:
    """Return a time as text with its unit."""
    for unit, size in (("s", 1e6), ("ms", 1e3), ("us", 1.0)):
        if microseconds >= size:
            value = microseconds / size
            return f"{value:.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"
    return f"{1000 * microseconds:.0f} ns"
