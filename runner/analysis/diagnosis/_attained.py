"""Find groups of slow NICs by the highest throughput that each NIC attained.

A slow NIC slows the messages of all its peers. If half of the NICs in a small network are slow, the rates of
messages are similar on nearly all paths. The highest attained throughput of NICs still differs, because a
slow NIC never exceeds its rate.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from ._messages import Floats, Ints, Messages

_WINDOW = 0.25  # in median message durations; a collective equalises throughputs over whole messages
_BEST = 0.98  # quantile of the throughput over the windows of an interval
_WINDOWS = 100  # number of windows in an interval
_DRAWS = 400


@dataclass(frozen=True)
class SlowGroup:
    """NICs that attain less throughput than all others, by the logarithm *gap*, with *confidence*.

    *confidence* is the share of draws in which these NICs are slowest. *chance* is the share of draws with
    permuted NICs in which the slowest NICs attain as little throughput.
    """

    nics: tuple[int, ...]
    gap: float
    confidence: float
    chance: float


def slow_group(messages: Messages, time: Ints) -> SlowGroup | None:
    """Return the NICs (two to half of all) that attain less throughput than the others, or None.

    *time* is the interval of each message.
    """
    attained = _attained(messages, time)
    attained = attained[np.isfinite(attained).all(axis=1)]
    times, nics = attained.shape
    if times < 2 or nics < 4:
        return None
    attained -= attained.mean(axis=1, keepdims=True)
    middle = np.median(attained, axis=0)
    order = np.argsort(middle, kind="stable")
    gaps = np.diff(middle[order])
    size = 1 + int(np.argmax(gaps[: nics // 2]))
    if size < 2:
        return None
    group = np.sort(order[:size])
    rng = np.random.default_rng(len(messages))
    won = sum(
        bool((np.sort(np.argsort(draw, kind="stable")[:size]) == group).all())
        for draw in (np.median(attained[rng.integers(times, size=times)], axis=0) for _ in range(_DRAWS))
    )
    seen = _contrast(attained, size)
    reached = sum(_contrast(rng.permuted(attained, axis=1), size) >= seen for _ in range(_DRAWS))
    chance = (reached + 1) / (_DRAWS + 1)
    return SlowGroup(tuple(group.tolist()), float(gaps[size - 1]), won / _DRAWS, chance)


def _contrast(attained: Floats, size: int) -> float:
    """Return the mean logarithmic gap between the *size* slowest NICs and the others over intervals."""
    ordered = np.sort(attained.mean(axis=0))
    return float(ordered[size:].mean() - ordered[:size].mean())


def _attained(messages: Messages, time: Ints) -> Floats:
    """Return the logarithm of the highest sending rate of each NIC in each interval, NaN if unknown."""
    begun, end = np.minimum(messages.begun_ns, messages.end_ns - 1), messages.end_ns
    window = _WINDOW * float(np.median(end - begun))
    times = int(time.max()) + 1
    starts = [int(begun[time == one].min()) for one in range(times)] + [int(end.max())]
    result = np.full((times, len(messages.nics)), np.nan)
    for nic in range(len(messages.nics)):
        own = messages.src == nic
        if not own.any():
            continue
        instants, sent = _sent_bytes(messages.size_bytes[own], begun[own], end[own])
        for one, (first, last) in enumerate(itertools.pairwise(starts)):
            at = np.linspace(first, max(first + 1, last - window), _WINDOWS)
            rates = (np.interp(at + window, instants, sent) - np.interp(at, instants, sent)) / window
            best = float(np.quantile(rates, _BEST))
            result[one, nic] = np.log(best) if best > 0 else np.nan
    return result


def _sent_bytes(size_bytes: Ints, begun: Ints, end: Ints) -> tuple[Floats, Floats]:
    """Return instants and the bytes sent until each instant, if every message has a constant rate."""
    instants, at = np.unique(np.concatenate([begun, end]), return_inverse=True)
    rate = size_bytes / (end - begun)
    change = np.bincount(at.reshape(-1), weights=np.concatenate([rate, -rate]), minlength=len(instants))
    sent = np.cumsum(np.cumsum(change)[:-1] * np.diff(instants))
    return instants.astype(np.float64), np.concatenate([[0.0], sent])
