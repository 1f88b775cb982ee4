"""The difference of two groups of figures, with an exact confidence interval from ranks.

The difference is the difference of the medians, and the interval is the Hodges-Lehmann interval: the sorted
differences of all pairs, truncated at both ends by the exact distribution of the Mann-Whitney statistic. The
interval assumes no particular distribution of the noise. Samples are the starts of the job if each side has
at least four, because steps of one start resemble each other; otherwise they are the steps, and the variation
between starts must be given.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from ....support.table import Ints

MIN_STARTS = 4
"""Starts needed on each side to estimate the noise between starts."""
CONFIDENCE = 0.95
MIN_CONFIDENCE = 0.9
"""Least confidence of an interval that decides on a difference."""
_MAX_PAIRS, _MAX_EXACT = 40_000, 900


@dataclass(frozen=True)
class Layout:
    """The columns of each side by start of the job, and the known noise.

    *between_starts* is the relative variation between starts, given by the user, or None.
    """

    base: tuple[tuple[int, ...], ...]
    other: tuple[tuple[int, ...], ...]
    exact: bool = False
    between_starts: float | None = None

    @property
    def by_starts(self) -> bool:
        """Whether the samples are starts rather than steps."""
        return min(len(self.base), len(self.other)) >= MIN_STARTS

    @property
    def units(self) -> tuple[int, int]:
        """The number of samples on each side."""
        sides = (self.base, self.other)
        count = [len(side) if self.by_starts else sum(map(len, side)) for side in sides]
        return count[0], count[1]

    @property
    def confidence(self) -> float:
        """The probability that an interval contains the difference."""
        return 1.0 if self.exact else rank_cut(*self.units)[1]

    @property
    def decides(self) -> bool:
        """Whether the noise is known well enough to decide on a difference."""
        if self.exact:
            return True
        is_known = self.by_starts or self.between_starts is not None
        return is_known and self.confidence >= MIN_CONFIDENCE


@dataclass(frozen=True, eq=False)
class Differences:
    """The medians of both sides per row, their difference, and its confidence interval."""

    base: Ints
    other: Ints
    low: Ints
    high: Ints

    @property
    def delta(self) -> Ints:
        """The median of the other side minus the median of the base."""
        return self.other - self.base


@lru_cache
def rank_cut(count: int, others: int) -> tuple[int, float]:
    """Return how many pairs to cut at each end, and the confidence of the remaining interval.

    The confidence is at least 95 %, or the most that *count* and *others* samples allow.
    """
    pairs = count * others
    if pairs > _MAX_EXACT:
        spread = (pairs * (count + others + 1) / 12) ** 0.5
        cut = int(pairs / 2 - NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * spread)
        return max(0, cut), CONFIDENCE
    orders = _orders(count, others)
    below, cut, confidence = 0, 0, 0.0
    for place in range((pairs + 1) // 2):
        below += orders[place]
        surely = 1 - 2 * below / sum(orders)
        if place and surely < CONFIDENCE:
            break
        cut, confidence = place, max(0.0, surely)
    return cut, confidence


def _orders(count: int, others: int) -> list[int]:
    """Return the number of orders of the samples for each value of the Mann-Whitney statistic."""
    ways = [1] + [0] * (count * others)
    for item in range(1, count + 1):  # Gauss' binomial coefficient, factor by factor
        for value in range(count * others, others + item - 1, -1):
            ways[value] -= ways[value - others - item]
        for value in range(item, count * others + 1):
            ways[value] += ways[value - item]
    return ways


def differences(base: Ints, other: Ints, layout: Layout) -> Differences:
    """Return the difference of each row of *other* and *base*, which have a column per sample.

    Medians are lower medians, so that they are observed values.
    """
    medians = _median(base), _median(other)
    if layout.exact:
        delta = medians[1] - medians[0]
        return Differences(*medians, delta, delta)
    units = [base, other]
    if layout.by_starts:
        units = [_starts(base, layout.base), _starts(other, layout.other)]
    low, high = _interval(*map(_at_most, units))
    allowed = 0.0 if layout.by_starts else layout.between_starts or 0.0
    slack = np.ceil(medians[0] * allowed).astype(np.int64)
    return Differences(*medians, low - slack, high + slack)


def _median(samples: Ints) -> Ints:
    ordered = np.sort(samples, axis=1)
    return ordered[:, (ordered.shape[1] - 1) // 2]


def _starts(samples: Ints, starts: tuple[tuple[int, ...], ...]) -> Ints:
    return np.stack([_median(samples[:, list(columns)]) for columns in starts], axis=1)


def _at_most(samples: Ints) -> Ints:
    """Return *samples*, or evenly chosen columns of them if there would be too many pairs."""
    most = int(_MAX_PAIRS**0.5)
    count = samples.shape[1]
    return samples if count <= most else samples[:, np.linspace(0, count - 1, most).astype(int)]


def _interval(base: Ints, other: Ints) -> tuple[Ints, Ints]:
    count = base.shape[1] * other.shape[1]
    pairs = np.sort((other[:, :, None] - base[:, None, :]).reshape(len(base), count), axis=1)
    cut, _ = rank_cut(base.shape[1], other.shape[1])
    return pairs[:, cut], pairs[:, count - 1 - cut]
