"""Draws the curves of docs/validation/gpu-validation.md for gpu_report.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from chakrascope.support import bytes_text, element, picture

_COLOURS = ("#1f6feb", "#d1572b", "#2a9d50", "#8250df", "#b08800", "#57606a")


@dataclass(frozen=True)
class Line:
    """A curve: its name and its points."""

    name: str
    points: tuple[tuple[float, float], ...]
    dots: bool = False


def chart(title: str, unit: str, lines: Sequence[Line]) -> str:
    """Return a picture of curves over sizes, both axes logarithmic."""
    width, height, left, top, right, bottom = 720, 400, 70, 40, 190, 45
    points = [point for line in lines for point in line.points]
    axes = [
        (math.log2(min(p[axis] for p in points)), math.log2(max(p[axis] for p in points))) for axis in (0, 1)
    ]

    def across(x: float) -> float:
        return left + (math.log2(x) - axes[0][0]) / ((axes[0][1] - axes[0][0]) or 1) * (width - left - right)

    def up(y: float) -> float:
        share = (math.log2(y) - axes[1][0]) / ((axes[1][1] - axes[1][0]) or 1)
        return height - bottom - share * (height - top - bottom)

    grid, middle, bottom_y = {"stroke": "#eaeef2"}, {"text_anchor": "middle"}, height - bottom
    parts = [
        element("rect", width=width, height=height, fill="white"),
        element("text", title, x=left, y=22, font_size=14),
    ]
    for exponent in range(math.ceil(axes[0][0]), math.floor(axes[0][1]) + 1, 2):
        x = across(2**exponent)
        label = bytes_text(2**exponent).replace(".00", "").replace(".0", "")
        parts.append(element("line", x1=x, y1=top, x2=x, y2=bottom_y, **grid))
        parts.append(element("text", label, x=x, y=bottom_y + 16, **middle))
    for exponent in range(math.ceil(axes[1][0]), math.floor(axes[1][1]) + 1):
        y = up(2**exponent)
        parts.append(element("line", x1=left, y1=y, x2=width - right, y2=y, **grid))
        parts.append(element("text", f"{2**exponent:g} {unit}", x=left - 6, y=y + 4, text_anchor="end"))
    for number, line in enumerate(lines):
        colour = _COLOURS[
            number // 2 % len(_COLOURS) if any(each.dots for each in lines) else number % len(_COLOURS)
        ]
        where = [(across(x), up(y)) for x, y in line.points]
        if line.dots:
            parts += [element("circle", cx=x, cy=y, r=3.5, fill=colour) for x, y in where]
        else:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in where)
            parts.append(element("polyline", points=path, fill="none", stroke=colour, stroke_width=1.6))
        x, y = width - right + 12, top + 16 * number + 8
        parts.append(element("rect", x=x, y=y - 8, width=10, height=10, fill=colour))
        parts.append(element("text", line.name, x=x + 16, y=y + 1))
    return picture(width, height, *parts, font_family="sans-serif", font_size=11) + "\n"
