"""Which two things could be slow together: with half of a small network slow, no single one stands out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ._messages import Floats
from ._suspects import Flags, Suspect

__all__ = ["Pair", "likely_pairs"]

_MOST = 3
_MOST_SUSPECTS = 128
_BETTER = 0.8  # of what a single suspect leaves unexplained; each is tested once the other is known


class Pair(NamedTuple):
    """Two suspects, by their places in the list, and the factor of each."""

    places: tuple[int, int]
    factors: tuple[float, float]


def likely_pairs(ways: Floats, suspects: Sequence[Suspect], least_slower: float) -> list[Pair]:
    """Return the pairs of NICs that best explain *ways*, the logarithmic rate of each way; the best first.

    They leave clearly less unexplained than the best single suspect, both are slower than the ways of neither
    by *least_slower*, and each has a way of its own.
    """
    nics = [place for place, one in enumerate(suspects) if one.kind != "link"][:_MOST_SUSPECTS]
    single = min((_loss(ways, (suspects[place].on,))[0] for place in nics), default=0.0)
    found: list[tuple[float, Pair]] = []
    for places in itertools.combinations(nics, 2):
        ons = (suspects[places[0]].on, suspects[places[1]].on)
        if not ((ons[0] & ~ons[1]).any() and (ons[1] & ~ons[0]).any()) or (ons[0] | ons[1]).all():
            continue
        loss, logs = _loss(ways, ons)
        if loss <= _BETTER * single and max(logs) < np.log1p(-least_slower):
            found.append((loss, Pair(places, (float(np.exp(logs[0])), float(np.exp(logs[1]))))))
    return [pair for _, pair in sorted(found)[:_MOST]]


def _loss(ways: Floats, ons: tuple[Flags, ...]) -> tuple[float, tuple[float, ...]]:
    """Return what common factors of the ways *ons* leave unexplained, and their logarithms.

    A way through both is as slow as the slower of them.
    """
    every = np.logical_or.reduce(ons)
    if every.all():
        return float("inf"), (0.0,)
    sound = float(np.nanmedian(ways[~every]))
    logs = []
    for place, on in enumerate(ons):
        others = np.logical_or.reduce([other for at, other in enumerate(ons) if at != place] or [~on])
        own = on & ~others
        logs.append(float(np.nanmedian(ways[own if own.any() else on])) - sound)
    slow = np.min([np.where(on, log, 0.0) for on, log in zip(ons, logs, strict=True)], axis=0)
    return float(np.nansum(np.abs(ways - sound - slow))), tuple(logs)
