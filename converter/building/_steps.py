"""Which steps a trace holds, and which of them to convert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ...errors import TraceError, UsageError
from ...tracer import StepRange
from .._columns import which
from ..readers import DeviceTrace

__all__ = ["StepChoice", "annotated_steps", "choose_steps", "typical_steps", "whole_trace"]

StepChoice = int | Literal["all", "median"]
_STEP = "ProfilerStep#"
_STUMP_SHARE = 0.1


def annotated_steps(device: DeviceTrace) -> list[StepRange]:
    """Return the steps that the profiler's own annotations mark, in order.

    A profiler that stops within a step leaves a stump of an annotation, which counts for nothing.
    """
    found: dict[int, StepRange] = {}
    events = device.events
    marks = np.flatnonzero(which(device.texts, lambda text: text.startswith(_STEP))[events.name])
    for index in marks.tolist():
        number = device.texts[events.name[index]][len(_STEP) :]
        if number.isdecimal() and len(number) < 19:
            step = StepRange(int(number), int(events.start_ns[index]), int(events.end_ns[index]))
            found.setdefault(int(number), step)
    steps = [found[index] for index in sorted(found)]
    if len(steps) > 1 and _length(steps[-1]) < _STUMP_SHARE * max(map(_length, steps)):
        steps.pop()
    return steps


def _length(step: StepRange) -> int:
    return step.end_ns - step.start_ns


def whole_trace(device: DeviceTrace) -> StepRange:
    """Return all that *device* saw on the host as one step, number 0."""
    starts = [int(table.start_ns[0]) for table in (device.events, device.calls) if len(table)]
    return StepRange(0, min(starts), int(device.events.end_ns.max()))


def typical_steps(steps: Sequence[Sequence[StepRange]]) -> list[int]:
    """Return the numbers of the steps that every rank has, the median one first, the most unlike it last."""
    return _from_the_median(steps, _common(steps))


def _common(steps: Sequence[Sequence[StepRange]]) -> set[int]:
    return set.intersection(*({item.index for item in own if item.end_ns > item.start_ns} for own in steps))


def _from_the_median(steps: Sequence[Sequence[StepRange]], common: set[int]) -> list[int]:
    slowest = dict.fromkeys(common, 0)
    for item in (item for own in steps for item in own if item.index in common):
        slowest[item.index] = max(slowest[item.index], item.end_ns - item.start_ns)
    ordered = sorted(common, key=lambda index: (slowest[index], index))
    middle = (len(ordered) - 1) // 2
    return [ordered[place] for place in sorted(range(len(ordered)), key=lambda place: abs(place - middle))]


def choose_steps(steps: Sequence[Sequence[StepRange]], step: StepChoice, place: str) -> set[int]:
    """Return the numbers of the steps to convert: *step*, ``"all"`` or the ``"median"`` one.

    *steps* are those of each rank; only a step of every rank can be chosen, and the median is by the slowest
    rank. *place* is named in errors: `TraceError` without a common step, `UsageError` for another *step*.
    """
    common = _common(steps)
    if not common:
        raise TraceError(f"{place}: no step was captured whole on every rank. Capture more steps.")
    if step == "all":
        return common
    if step == "median":
        return {_from_the_median(steps, common)[0]}
    if step not in common:
        raise UsageError(
            f"Step {step} was not captured on every rank of {place}. "
            f"Captured: {', '.join(map(str, sorted(common)))}; or 'median' or 'all'."
        )
    return {int(step)}
