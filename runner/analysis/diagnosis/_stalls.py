"""Find stalled links: all messages in flight on a stalled link are late by about the same time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....support import duration_text, instant_text
from ....support.table import Flags, Floats, Ints
from ._messages import Suspect, suspects_of
from ._rates import Rates

_MAX_STALLS = 5
_CHANCE = 1e-3
_SUPPORT = 0.4  # late messages with at least this fraction of the largest loss have the same cause
_MIN_SHARE = 0.02  # fraction of the run's time; shorter stalls are not reported
_EXPLAINED = 0.8
_LESS = 0.5  # weight of messages that began during a stall or right after


@dataclass(frozen=True, eq=False)
class Stall:
    """A stall: *suspect* carried no data for about *lasted_ns*, between *begin_ns* and *end_ns*.

    *shortest_ns* and *longest_ns* are the least and most time its messages lost. *chance* is the probability
    that the latest of this number of messages is as late without a cause.
    """

    suspect: Suspect
    begin_ns: int
    end_ns: int
    lasted_ns: int
    shortest_ns: int
    longest_ns: int
    confidence: float
    chance: float
    evidence: Ints


def stalls(rates: Rates) -> tuple[list[Stall], list[str]]:
    """Return the stalls of links, longest first, and sentences about pauses of the whole machine.

    A message is late if its lateness exceeds a quantile of the exponential tail of all messages. The
    suspect is the link that explains most of the late messages, and no punctual message. If all
    messages in flight were late, the whole machine paused.
    """
    late = late_ns(rates)
    limit, tail = _limit_ns(late, rates)
    suspects = suspects_of(rates.messages, rates.sharing.paths)
    result: list[Stall] = []
    remarks: list[str] = []
    open_ = late > limit
    begun, end = _in_flight(rates)
    while open_.any() and len(result) + len(remarks) < _MAX_STALLS:
        worst = int(np.argmax(np.where(open_, late, 0)))
        group, window = _together(worst, late, begun, end)
        after = _after(group, window, late, begun, limit)
        stall = _named(rates, suspects, late, (group, after, window), tail)
        if stall is not None:
            result.append(stall)
        else:
            remarks.append(_everything(late, group, window))
        # Late messages that began during the stall, or right after, have the same cause.
        open_ &= (end <= window[0]) | (begun >= window[1] + round(late[worst]))
        open_[worst] = False
    return sorted(result, key=lambda stall: -stall.lasted_ns), remarks


def late_ns(rates: Rates) -> Floats:
    """Return the lateness of each message in ns, relative to the duration for its size and share."""
    begun, end = _in_flight(rates)
    rest = np.minimum(0.0, rates.log_rate - rates.baselines[rates.size])
    late: Floats = (end - begun) * (1 - np.exp(rest))
    return late


def _in_flight(rates: Rates) -> tuple[Ints, Ints]:
    messages = rates.messages
    instants = np.concatenate([[0], np.cumsum(rates.sharing.lasted_ns)]).astype(np.int64)
    first = int(messages.end_ns.max() - instants[rates.sharing.last.max()])
    return first + instants[rates.sharing.first], messages.end_ns


def _limit_ns(late: Floats, rates: Rates) -> tuple[float, tuple[float, float]]:
    """Return the largest random lateness (ns), and start and scale of the exponential tail."""
    middle, high = (float(value) for value in np.quantile(late, (0.5, 0.9)))
    scale = max((high - middle) / np.log(5), 1.0)
    limit = middle + scale * np.log(0.5 * len(late) / _CHANCE)
    whole = float(rates.messages.end_ns.max() - rates.messages.start_ns.min())
    return max(limit, _MIN_SHARE * whole), (middle, scale)


def _together(worst: int, late: Floats, begun: Ints, end: Ints) -> tuple[Ints, tuple[int, int]]:
    """Return the messages late at the same time as *worst*, and when all of them were in flight."""
    least = _SUPPORT * late[worst]
    window = (int(begun[worst]), int(end[worst]))
    order = np.argsort(-late)
    group = []
    for one in order[late[order] >= least]:
        both = max(window[0], int(begun[one])), min(window[1], int(end[one]))
        if both[1] - both[0] >= least:
            window = both
            group.append(int(one))
    return np.array(group, np.int64), window


def _after(group: Ints, window: tuple[int, int], late: Floats, begun: Ints, limit: float) -> Ints:
    """Return the late messages that began right after those in *group*, due to the same link."""
    soon = (late > limit) & (begun >= window[0]) & (begun < window[1] + np.median(late[group]))
    soon[group] = False
    return np.flatnonzero(soon)


def _named(
    rates: Rates,
    suspects: Sequence[Suspect],
    late: Floats,
    event: tuple[Ints, Ints, tuple[int, int]],
    tail: tuple[float, float],
) -> Stall | None:
    group, after, window = event
    begun, end = _in_flight(rates)
    lasted = float(np.median(late[group]))
    inside = np.minimum(end, window[1]) - np.maximum(begun, window[0])
    punctual = (inside >= lasted / 2) & (late < _SUPPORT / 2 * lasted)
    path_of = rates.sharing.path_of
    paths = len(rates.sharing.paths)
    held = np.bincount(path_of[group], minlength=paths) + _LESS * np.bincount(path_of[after], minlength=paths)
    moved = np.bincount(path_of[punctual], minlength=paths).astype(np.float64)
    scores = np.array([_explained(held, moved, suspect.on) for suspect in suspects])
    # Of suspects that explain equally many late messages, the suspect with the fewest paths is chosen.
    best = min(
        range(len(suspects)),
        key=lambda place: (-round(float(scores[place]), 2), suspects[place].on.sum()),
        default=-1,
    )
    if best < 0 or scores[best] < _EXPLAINED:
        return None
    suspect = suspects[best]
    alike = [
        suspects[place].name
        for place in np.flatnonzero(scores > scores[best] - 0.1).tolist()
        if place != best
    ]
    suspect = dataclasses.replace(suspect, others=tuple(dict.fromkeys((*suspect.others, *alike))))
    own = group[suspect.on[path_of[group]]]
    chance = min(1.0, 0.5 * len(late) * float(np.exp(-(late[own].max() - tail[0]) / tail[1])))
    return Stall(
        suspect, *window, round(float(np.median(late[own]))), round(float(late[own].min())),
        round(float(late[own].max())), min(float(scores[best]), 1 - chance), chance,
        np.sort(rates.messages.row[own]),
    )  # fmt: skip


def _explained(held: Floats, moved: Floats, on: Flags) -> float:
    """Return the fraction of late messages on a suspect's paths, minus that of punctual ones."""
    return float((held[on].sum() - moved[on].sum()) / held.sum())


def _everything(late: Floats, group: Ints, window: tuple[int, int]) -> str:
    lost = duration_text(round(float(np.median(late[group]))))
    return (
        f"Around {instant_text(window[0])}, {len(group)} messages on paths without a common link were late "
        f"by {lost}: the whole machine paused, not one link."
    )
