"""Errors of predictions by the distance of a step from the steps to which its costs were fitted."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fit_chips import TASKS, unseen_steps
from measured_steps import Step, every_step

from chakrascope.runner.chips import find_chip
from chakrascope.runner.prediction import Setting, estimated_ns, layer_flops, parts_of, uncertainty
from chakrascope.support import Svg, element, picture

_BINS = (0.5, 1.0, 2.0, 4.0, math.inf)
_LEFT_OUT, _OTHER = "family left out of the fit", "another lab"
_COLOURS = {_LEFT_OUT: "#2f6fde", _OTHER: "#d9731a"}
_MAX_ERROR, _MAX_DISTANCE = 0.4, 8.0
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 640, 300, 52, 16, 16, 46


class Point(NamedTuple):
    """The relative *error* of a step, its *distance* from fitted steps; *inside*: within its interval."""

    kind: str
    distance: float
    error: float
    inside: bool


def points(never_fitted: Sequence[Step]) -> list[Point]:
    """Return a point for each step with costs fitted without its family, and for the steps *never_fitted*."""
    steps = every_step()
    found = []
    for task in TASKS:
        part = [step for step in steps if step.data == task.data]
        unseen = unseen_steps(task, find_chip(task.chip), part)
        found += [_point(_LEFT_OUT, each.setting, each.step, each.others) for each in unseen]
    for step in never_fitted:
        chip = find_chip(step.chip)
        setting = Setting(step.model, step.plan, chip, step.network, step.software)
        chips = {chip.name, chip.like.get(step.software)}
        fitted = [each for each in steps if each.chip in chips and each.software == step.software]
        found.append(_point(_OTHER, setting, step, fitted))
    return found


def _point(kind: str, setting: Setting, step: Step, fitted: Sequence[Step]) -> Point:
    ratio = step.measured_ns / estimated_ns(setting)
    low, high = uncertainty(setting)
    missing = sum(part not in setting.costs.fit.covers for part in parts_of(setting))
    nearest = min(_doublings(setting, each) for each in fitted)
    return Point(kind, nearest + missing, abs(1 / ratio - 1), low <= ratio <= high)


def _doublings(setting: Setting, step: Step) -> float:
    """Return the largest difference of ranks, parameters or operations of a layer, in doublings."""
    other = Setting(step.model, step.plan, setting.chip, step.network, step.software)
    return max(abs(mine - its) for mine, its in zip(_sizes(setting), _sizes(other), strict=True))


def _sizes(setting: Setting) -> tuple[float, ...]:
    sizes = setting.plan.world, setting.model.params(), layer_flops(setting)
    return tuple(math.log2(size) for size in sizes)


def table(found: Sequence[Point]) -> Iterator[str]:
    """Yield the lines of a table of errors by distance."""
    yield "| distance | rows | mean error | median error | in the interval |"
    yield "|---|---|---|---|---|"
    for low, high, part in _binned(found):
        errors = [each.error for each in part]
        inside = sum(each.inside for each in part) / len(part)
        name = f"{low:g} to {high:g}" if high < math.inf else f"above {low:g}"
        yield (
            f"| {name} | {len(part)} | {statistics.mean(errors):.1%} | {statistics.median(errors):.1%} | "
            f"{inside:.0%} |"
        )


def _binned(found: Sequence[Point]) -> Iterator[tuple[float, float, list[Point]]]:
    for low, high in zip((0.0, *_BINS), _BINS, strict=False):
        part = [each for each in found if low <= each.distance < high]
        if part:
            yield low, high, part


def drawing(found: Sequence[Point]) -> str:
    """Return the errors against the distances as SVG, with the median of each bin; rings are outside."""
    parts = [element("rect", width="100%", height="100%", fill="#ffffff"), *_axes()]
    for (kind, colour), inside in itertools.product(_COLOURS.items(), (True, False)):
        circles = [
            element("circle", cx=_across(each.distance), cy=_down(each.error), r=3)
            for each in found
            if (each.kind, each.inside) == (kind, inside)
        ]
        filled = colour if inside else "none"
        parts.append(element("g", *circles, fill=filled, fill_opacity=0.55, stroke=colour))
    for low, high, part in _binned(found):
        y = _down(statistics.median(each.error for each in part))
        ends = {"x1": _across(low), "x2": _across(high), "y1": y, "y2": y}
        parts.append(element("line", **ends, stroke="#222222", stroke_width=2.0))
    for place, (kind, colour) in enumerate(_COLOURS.items()):
        y = _TOP + 14 + 18 * place
        parts.append(element("circle", cx=_WIDTH - 196.0, cy=y - 4, r=4.0, fill=colour))
        parts.append(element("text", kind, x=_WIDTH - 186, y=y, fill="#222222"))
    drawn = picture(_WIDTH, _HEIGHT, *parts, label=described(found), font_family="sans-serif", font_size=12)
    return drawn + "\n"


def described(found: Sequence[Point]) -> str:
    """Return the text alternative of the picture of errors by distance."""
    medians = ", ".join(
        f"{statistics.median(each.error for each in part):.1%} (from {low:g})"
        for low, _, part in _binned(found)
    )
    return f"error against distance from fitted steps in doublings; medians: {medians}"


def _axes() -> Iterator[Svg]:
    grey, bottom = {"fill": "#444444"}, _HEIGHT - _BOTTOM
    for error in (0.0, 0.1, 0.2, 0.3, _MAX_ERROR):
        y = _down(error)
        yield element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, stroke="#dddddd")
        yield element("text", f"{error:.0%}", x=_LEFT - 8, y=y + 4, text_anchor="end", **grey)
    for doublings in range(0, int(_MAX_DISTANCE) + 1, 2):
        x = _across(doublings)
        yield element("line", x1=x, x2=x, y1=_TOP, y2=bottom, stroke="#eeeeee")
        yield element("text", f"{doublings}", x=x, y=_HEIGHT - 28, text_anchor="middle", **grey)
    yield element(
        "text", "distance from the nearest fitted step, in doublings", x=_LEFT, y=_HEIGHT - 8, **grey
    )
    yield element("text", "error", x=_LEFT + 6, y=_TOP + 12, **grey)


def _across(distance: float) -> float:
    return _LEFT + min(distance, _MAX_DISTANCE) / _MAX_DISTANCE * (_WIDTH - _LEFT - _RIGHT)


def _down(error: float) -> float:
    return _TOP + (1 - min(error, _MAX_ERROR) / _MAX_ERROR) * (_HEIGHT - _TOP - _BOTTOM)
