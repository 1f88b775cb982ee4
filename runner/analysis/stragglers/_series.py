"""Series of steps: where their level changes, and patterns of slow steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....support import ordinal_text

_CHANCE = 0.001  # probability of a false change point
_CHANCE_OF_PERIOD = 0.01
_MAX_STEPS = 8  # maximum number of steps that a sentence lists
_MIN_REPEATS = 3
_MIN_SIDE, _MAX_EXCEPTIONS = 3, 0.2  # minimum steps on each side of a change, maximum exceptions


@dataclass(frozen=True)
class Change:
    """A change of step times at *step*, from the median *before* to the median *after*."""

    step: int
    before: float
    after: float


def level_change(
    steps: npt.NDArray[np.int64], values: npt.NDArray[np.float64], least: float
) -> Change | None:
    """Return the step at which *values* rise or fall by at least the factor *least*, or None.

    Pettitt's test decides whether the level changes; least squares, on values clipped to the 5 %
    and 95 % quantiles, decide where.
    """
    if len(values) < 2:
        return None
    at = _best_split(np.clip(values, *np.quantile(values, (0.05, 0.95))))
    before, after = float(np.median(values[:at])), float(np.median(values[at:]))
    if not _changes(values) or max(before, after) < least * min(before, after):
        return None
    return Change(int(steps[at]), before, after)


def _changes(values: npt.NDArray[np.float64]) -> bool:
    """Return whether the level of *values* changes, by Pettitt's rank test (1979) at a p-value of 0.001.

    The probability of a false change point is ``2 exp(-6 K^2 / (n^3 + n^2))``.
    """
    count = len(values)
    _, places, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[places]
    sums = np.abs(2 * np.cumsum(ranks) - np.arange(1, count + 1) * (count + 1))[:-1]
    return bool(2 * np.exp(-6 * float(sums.max()) ** 2 / (count**3 + count**2)) <= _CHANCE)


def _best_split(values: npt.NDArray[np.float64]) -> int:
    """Return the number of *values* before the split with the least variance on both sides."""
    before = np.arange(1, len(values))
    sums = np.cumsum(values)
    between = sums[:-1] ** 2 / before + (sums[-1] - sums[:-1]) ** 2 / (len(values) - before)
    return int(between.argmax()) + 1


def when_text(steps: npt.NDArray[np.int64], slow: npt.NDArray[np.bool_]) -> str:
    """Describe which steps are *slow*: all, since a step, every n-th, or a list."""
    if slow.all():
        return "in all steps"
    numbers = steps[slow].tolist()
    count = f"in {len(numbers)} of {len(steps)} steps"
    if pattern := pattern_text(steps, slow):
        return f"{count}, {pattern}"
    named = ", ".join(map(str, numbers[:_MAX_STEPS])) + (", ..." if len(numbers) > _MAX_STEPS else "")
    return f"{count} ({named})"


def pattern_text(steps: npt.NDArray[np.int64], slow: npt.NDArray[np.bool_]) -> str:
    """Describe the pattern of the *slow* steps: since a step, until a step, or a period; "" if none.

    At most 20 % of the steps on each side of a change may be exceptions. If there are more than 20
    % of the shorter side in total, Pettitt's test must confirm the change.
    """
    for word, other in (("since", slow), ("until", ~slow)):
        before, after = np.cumsum(other)[:-1], np.cumsum(~other[::-1])[::-1][1:]
        at = int((before + after).argmin()) + 1 if len(before) else 0
        sides = np.array([at, len(steps) - at])
        exceptions = np.array([before[at - 1], after[at - 1]]) if at else sides
        few = (exceptions <= _MAX_EXCEPTIONS * sides).all()
        certain = exceptions.sum() <= _MAX_EXCEPTIONS * sides.min() or _changes(slow.astype(np.float64))
        if sides.min() >= _MIN_SIDE and few and certain:
            return f"{word} step {steps[at]}"
    period = _period(slow)
    return f"every {ordinal_text(period)}" if period else ""


def _period(slow: npt.NDArray[np.bool_]) -> int:
    """Return the period at which steps are *slow* (exceptions are rare), or 0 if there is none."""
    gaps = set(np.diff(np.flatnonzero(slow)).tolist())
    if slow.sum() >= _MIN_REPEATS and len(gaps) == 1:
        return int(gaps.pop()) if gaps != {1} else 0
    share, best, tests = float(slow.mean()), (_CHANCE_OF_PERIOD, 0), 0
    for period in range(2, len(slow) // _MIN_REPEATS + 1):
        for phase in range(period):
            own = slow[phase::period]
            hits, tests = int(own.sum()), tests + 1
            if hits > _MIN_REPEATS and hits >= (1 - _MAX_EXCEPTIONS) * len(own):
                best = min(best, (math.comb(len(own), hits) * share**hits, period))
    return best[1] if best[0] * tests <= _CHANCE_OF_PERIOD else 0
