"""Expected message rates for given NICs, and slow NICs by the highest rate that they attain.

A slow NIC slows the messages of all its peers. If half of the NICs in a small network are slow,
messages have similar rates on nearly all paths, but the throughputs that NICs attain still differ,
because a slow NIC never exceeds its rate.

NICs send and receive at separate rates, and messages share them as TCP connections or credits do on
average: a message gets an equal share of the NIC that limits it (max-min fairness).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....support.table import Floats, Ints
from ._messages import Messages

_WINDOW = 0.25  # window length as a multiple of the median message duration
_BEST = 0.98  # quantile of the throughput over an interval's windows
_WINDOWS = 100  # windows per interval
_DRAWS = 400


@dataclass(frozen=True)
class SlowGroup:
    """NICs that attain less throughput than all others, by the logarithm *gap*.

    *confidence* is the fraction of bootstrap draws in which these NICs are the slowest. *chance* is the
    fraction of draws with permuted NICs in which the slowest NICs attain as little as these NICs.
    """

    nics: tuple[int, ...]
    gap: float
    confidence: float
    chance: float


def slow_group(messages: Messages, time: Ints) -> SlowGroup | None:
    """Return the NICs (two to half of all) that attain less than the others, or None.

    *time* is each message's interval.
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
    """Return the mean logarithmic gap over intervals between the *size* slowest NICs and the others."""
    ordered = np.sort(attained.mean(axis=0))
    return float(ordered[size:].mean() - ordered[:size].mean())


def _attained(messages: Messages, time: Ints) -> Floats:
    """Return the logarithm of each NIC's highest sending rate in each interval, NaN if unknown."""
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
    """Return instants, and the bytes sent until each if every message has a constant rate."""
    instants, at = np.unique(np.concatenate([begun, end]), return_inverse=True)
    rate = size_bytes / (end - begun)
    change = np.bincount(at.reshape(-1), weights=np.concatenate([rate, -rate]), minlength=len(instants))
    sent = np.cumsum(np.cumsum(change)[:-1] * np.diff(instants))
    return instants.astype(np.float64), np.concatenate([[0.0], sent])


_CELLS = 4_000_000  # maximum number of entries of an array (situations, paths)


@dataclass(frozen=True, eq=False)
class Sharing:
    """The number of messages in flight on each path over time.

    *path_of* is each message's pair of NICs, as an index into *paths* (n, 2). A message is in flight
    from the instant with index *first* to that with index *last*. *situation* is each instant's row
    of *counts* (n, paths): the messages in flight during the next *lasted_ns*.
    """

    path_of: Ints
    paths: Ints
    first: Ints
    last: Ints
    situation: Ints
    counts: Floats
    lasted_ns: Floats
    num_nics: int

    @classmethod
    def of(cls, messages: Messages, begun_ns: Ints) -> Sharing:
        """Return the sharing of NICs by *messages*, which are in flight from *begun_ns* to their arrivals."""
        nics = len(messages.nics)
        key, path_of = np.unique(messages.src * nics + messages.dst, return_inverse=True)
        paths = np.stack([key // nics, key % nics], axis=1)
        instants = np.unique(np.concatenate([begun_ns, messages.end_ns]))
        first, last = np.searchsorted(instants, begun_ns), np.searchsorted(instants, messages.end_ns)
        change = np.zeros((len(instants), len(paths)), np.int32)
        np.add.at(change, (first, path_of), 1)
        np.add.at(change, (last, path_of), -1)
        in_flight = np.cumsum(change, axis=0, dtype=np.int32)
        counts, situation = np.unique(in_flight, axis=0, return_inverse=True)
        lasted = np.append(np.diff(instants), 0).astype(np.float64)
        return cls(
            path_of, paths, first, last, situation.reshape(-1), counts.astype(np.float64), lasted, nics
        )

    def carried(self, sends: Floats, receives: Floats, paths: Mapping[int, float] | None = None) -> Floats:
        """Return the bytes that the NICs could have carried for each message while the message was in flight.

        *sends* and *receives* are rates of NICs, in bytes per ns or relative to another rate.
        *paths* has the rates of paths that are slower than their two NICs.
        """
        rates = self._rates(sends, receives, paths or {})
        carried = np.empty(len(self.path_of))
        for path in range(len(self.paths)):
            so_far = np.concatenate([[0.0], np.cumsum(rates[self.situation, path] * self.lasted_ns)])
            own = np.flatnonzero(self.path_of == path)
            carried[own] = so_far[self.last[own]] - so_far[self.first[own]]
        return carried

    def senders(self) -> Floats:
        """Return the mean number of messages, including itself, at each message's receiving NIC."""
        into = self.counts @ (self.paths[:, 1:] == np.arange(self.num_nics))
        result = np.ones(len(self.path_of))
        passed = np.concatenate([[0.0], np.cumsum(self.lasted_ns)])
        for nic in np.unique(self.paths[:, 1]):
            so_far = np.concatenate([[0.0], np.cumsum(into[self.situation, nic] * self.lasted_ns)])
            own = np.flatnonzero(self.paths[self.path_of, 1] == nic)
            first, last = self.first[own], self.last[own]
            result[own] = (so_far[last] - so_far[first]) / (passed[last] - passed[first])
        return result

    def _rates(self, sends: Floats, receives: Floats, slow: Mapping[int, float]) -> Floats:
        """Return the rate of a message on each path in each situation (situations, paths)."""
        limits = np.concatenate([sends, receives, list(slow.values())])
        through = np.zeros((len(self.paths), len(limits)))
        rows = np.arange(len(self.paths))
        through[rows, self.paths[:, 0]] = 1.0
        through[rows, self.num_nics + self.paths[:, 1]] = 1.0
        for place, path in enumerate(slow):
            through[path, 2 * self.num_nics + place] = 1.0
        size = max(1, _CELLS // max(1, len(self.paths)))
        parts = [
            _fair(self.counts[at : at + size], through, limits) for at in range(0, len(self.counts), size)
        ]
        return np.concatenate(parts)


def _fair(counts: Floats, through: Floats, limits: Floats) -> Floats:
    """Return max-min fair rates: divide the most loaded NIC first, then the most loaded remaining NIC."""
    rates = np.zeros_like(counts)
    rows = np.arange(len(counts))
    open_ = counts > 0
    left = np.tile(limits, (len(counts), 1))
    while True:
        going = open_.any(axis=1)
        if not going.any():
            return rates
        rows, open_, left, counts = rows[going], open_[going], left[going], counts[going]
        load = (counts * open_) @ through
        share = np.divide(left, load, out=np.full_like(left, np.inf), where=load > 0)
        least = share.min(axis=1, keepdims=True)
        full = (share <= least * (1 + 1e-9)) & (load > 0)
        done = open_ & ((full.astype(np.float64) @ through.T) > 0)
        rates[rows] += np.where(done, least, 0.0)
        left = np.maximum(0.0, left - (counts * done * np.where(done, least, 0.0)) @ through)
        open_ &= ~done
