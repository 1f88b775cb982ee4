"""List the suspects of a diagnosis: NICs, hosts, and paths between two NICs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ._messages import Ints, Messages

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Suspect:
    """A suspect of some *kind*: NICs that may be slow to send (*sends*) or receive, or a path (*way*).

    *on* marks the paths through the suspect. *others* are the names of indistinguishable suspects, which have
    the same messages.
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
        """Return the rates of all NICs and of slow paths, as shares of a healthy NIC's rate."""
        sends, receives = np.ones(num_nics), np.ones(num_nics)
        sends[list(self.sends)] = factor
        receives[list(self.receives)] = factor
        return sends, receives, {self.way: factor} if self.way >= 0 else {}


def suspects_of(messages: Messages, ways: Ints) -> list[Suspect]:
    """Return all suspects for slow *messages* on the paths *ways* (n, 2).

    A suspect on the path of all messages is excluded, because no other messages exist for a comparison. Among
    suspects with the same messages, the first suspect is kept and lists the names of the others.
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
    return _distinguishable(suspects)


def _distinguishable(suspects: Sequence[Suspect]) -> list[Suspect]:
    """Drop suspects with no paths, with all paths, or with the same paths as another suspect.

    If a direction of a NIC has a single path, the suspect that remains is the path, because only the path was
    observed.
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
