"""The suspects: NICs, hosts, paths between two NICs, and pairs of these."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ._messages import Floats, Ints, Messages

__all__ = ["Pair", "Suspect", "likely_pairs", "suspects_of"]

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Suspect:
    """A suspect: its *kind*, the NICs that would *send* and *receive* slower, or one *way* (path).

    *on* marks the paths through it. *others* are the names of indistinguishable suspects, through which
    the same messages go.
    """

    kind: str
    name: str
    hosts: tuple[str, ...]
    on: Flags
    sends: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()
    way: int = -1
    others: tuple[str, ...] = ()

    def rates(self, factor: float, num_nics: int) -> tuple[np.ndarray, np.ndarray, dict[int, float]]:
        """Return the rates of all NICs, and of slow paths, as shares of a healthy NIC's."""
        sends, receives = np.ones(num_nics), np.ones(num_nics)
        sends[list(self.sends)] = factor
        receives[list(self.receives)] = factor
        return sends, receives, {self.way: factor} if self.way >= 0 else {}


def suspects_of(messages: Messages, ways: Ints) -> list[Suspect]:
    """Return all suspects of the paths *ways* (n, 2) of *messages*.

    A part that all messages go through is excluded, as it cannot be compared. Of several with the same
    messages, the first is kept and names the others.
    """
    src, dst = ways[:, 0], ways[:, 1]
    suspects: list[Suspect] = []
    for place, host in enumerate(messages.hosts):
        nics = tuple(np.flatnonzero(messages.host_of == place).tolist())
        if len(nics) > 1:
            on = np.isin(src, nics) | np.isin(dst, nics)
            suspects.append(Suspect("host network", f"all NICs of {host}", (host,), on, nics, nics))
    for nic, name in enumerate(messages.nics):
        own = (messages.hosts[messages.host_of[nic]],)
        out, into = src == nic, dst == nic
        both = [Suspect("NIC", name, own, out | into, (nic,), (nic,))] if out.any() and into.any() else []
        suspects += [
            *both,
            Suspect("NIC, sending", f"{name}, sending", own, out, (nic,)),
            Suspect("NIC, receiving", f"{name}, receiving", own, into, (), (nic,)),
        ]
    for way, (a, b) in enumerate(ways.tolist()):
        ends = tuple(dict.fromkeys(messages.hosts[messages.host_of[nic]] for nic in (a, b)))
        on = np.arange(len(ways)) == way
        suspects.append(Suspect("link", f"{messages.nics[a]} to {messages.nics[b]}", ends, on, way=way))
    return _told_apart(suspects)


def _told_apart(suspects: Sequence[Suspect]) -> list[Suspect]:
    """Return *suspects* without those with no paths, all paths, or the same paths as another.

    If a NIC's direction has a single path, the path is named, as only that was observed.
    """
    groups: dict[bytes, list[Suspect]] = {}
    for suspect in suspects:
        if suspect.on.any() and not suspect.on.all():
            groups.setdefault(suspect.on.tobytes(), []).append(suspect)
    kept = []
    for group in groups.values():
        first = next((one for one in group if one.kind == "link"), group[0])
        names = tuple(one.name for one in group if one is not first)
        hosts = tuple(dict.fromkeys(host for one in (first, *group) for host in one.hosts))
        kept.append(
            Suspect(first.kind, first.name, hosts, first.on, first.sends, first.receives, first.way, names)
        )
    return kept


_MOST = 3
_MOST_SUSPECTS = 128
_BETTER = 0.8  # of what a single suspect leaves unexplained; each is tested once the other is known


class Pair(NamedTuple):
    """Two suspects, by their indices in the list, and the factor of each."""

    places: tuple[int, int]
    factors: tuple[float, float]


def likely_pairs(ways: Floats, suspects: Sequence[Suspect], least_slower: float) -> list[Pair]:
    """Return the pairs of NICs that best explain *ways*, the logarithmic rate of each path; the best first.

    Their residual is clearly less than that of the best single suspect, both are slower than the other
    paths by *least_slower*, and each has a separate path.
    """
    nics = [place for place, one in enumerate(suspects) if one.kind != "link"][:_MOST_SUSPECTS]
    single = min((_loss(ways, (suspects[place].on,))[0] for place in nics), default=0.0)
    pairs: list[tuple[float, Pair]] = []
    for places in itertools.combinations(nics, 2):
        ons = (suspects[places[0]].on, suspects[places[1]].on)
        if not ((ons[0] & ~ons[1]).any() and (ons[1] & ~ons[0]).any()) or (ons[0] | ons[1]).all():
            continue
        loss, logs = _loss(ways, ons)
        if loss <= _BETTER * single and max(logs) < np.log1p(-least_slower):
            pairs.append((loss, Pair(places, (float(np.exp(logs[0])), float(np.exp(logs[1]))))))
    return [pair for _, pair in sorted(pairs)[:_MOST]]


def _loss(ways: Floats, ons: tuple[Flags, ...]) -> tuple[float, tuple[float, ...]]:
    """Return the residuals of common factors of the paths *ons*, and their logarithms.

    A path through both is as slow as the slower of them.
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
