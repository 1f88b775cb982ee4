"""The messages of a result for a diagnosis, and the suspects (NICs, hosts, and paths between NICs)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....support.table import Flags, Ints
from ..._result import Result

MAX_MESSAGES = 100_000
"""Maximum number of analysed messages, which are the first: concurrency depends on earlier ones."""
_RANK = "\0rank"  # marks a rank number used as a host name


@dataclass(frozen=True, eq=False)
class Messages:
    """Messages between two NICs, in the order of sending.

    *row* is the row in the table ``flows``. *src* and *dst* are indices into *nics*, the names of NICs, and
    *host_of* is each NIC's index into *hosts*. Times are in ns. From *begun_ns*, the later of *start_ns* and
    the arrival of the previous message on the path, a message has the path to itself. *arriving_ns* is the
    arrival of its first byte on the receiver's clock, if recorded and later.
    """

    row: Ints
    src: Ints
    dst: Ints
    size_bytes: Ints
    start_ns: Ints
    end_ns: Ints
    begun_ns: Ints
    arriving_ns: Ints
    nics: tuple[str, ...]
    host_of: Ints
    hosts: tuple[str, ...]
    left_out: int = 0

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.row)

    def chosen(self, which: npt.NDArray[np.bool_]) -> Messages:
        """Return the messages selected by the mask *which*."""
        names = ("row", "src", "dst", "size_bytes", "start_ns", "end_ns", "begun_ns", "arriving_ns")
        return dataclasses.replace(self, **{name: getattr(self, name)[which] for name in names})


def messages_of(result: Result) -> Messages:
    """Return the messages in the table ``flows`` of *result* that leave a host.

    ``src_nic`` and ``dst_nic`` are indices into the NICs in an emulation's provenance
    (``interfaces``); in other runs, each rank is a host with one NIC. If known, the departure of
    the first byte (``begun_ns``) counts as the start of a message.
    """
    flows = result.flows.reset_index(drop=True)
    ends = [_ends(flows, end, _interfaces(result)) for end in ("src", "dst")]
    number = {name: place for place, name in enumerate(sorted({*ends[0], *ends[1]}))}
    nics = list(number)
    hosts = sorted({host for host, _ in nics})
    host_of = np.array([hosts.index(host) for host, _ in nics], np.int64)
    src, dst = (np.array([number[name] for name in end], np.int64) for end in ends)
    start = flows.get("begun_ns", flows["start_ns"]).to_numpy(np.int64)
    end = flows["end_ns"].to_numpy(np.int64)
    arriving = flows.get("arriving_ns", flows["start_ns"]).to_numpy(np.int64)
    size = flows["bytes"].to_numpy(np.int64)
    outside = host_of[src] != host_of[dst] if len(flows) else np.zeros(0, bool)
    rows = np.flatnonzero(outside & (size > 0) & (end > start))
    rows = rows[np.lexsort((end[rows], start[rows]))]
    taken = rows[:MAX_MESSAGES]
    src, dst, size, start, end, arriving = (
        column[taken] for column in (src, dst, size, start, end, arriving)
    )
    begun = _begun_ns(src * max(1, len(nics)) + dst, start, end)
    return Messages(
        taken, src, dst, size, start, end, begun, np.maximum(begun, arriving),
        tuple(_nic_name(host, nic, hosts, nics) for host, nic in nics), host_of,
        tuple(_host_name(host) for host in hosts), len(rows) - len(taken),
    )  # fmt: skip


def hosts_of_ranks(result: Result) -> dict[int, str]:
    """Return each rank's host; without known hosts, each rank is one."""
    hosts = {int(rank): _host_name(_own(int(rank))) for rank in result.ranks["rank"]}
    return hosts | {int(one["rank"]): str(one["host"]) for one in _interfaces(result)}


def _interfaces(result: Result) -> Sequence[Mapping[str, Any]]:
    measured = result.provenance.get("emulation")
    interfaces = measured.get("interfaces", ()) if isinstance(measured, Mapping) else ()
    return interfaces if isinstance(interfaces, Sequence) else ()


def _own(rank: int) -> str:
    return f"{_RANK}{rank:09}"  # names are padded, so that they sort as numbers


def _ends(flows: pd.DataFrame, end: str, interfaces: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the (host, NIC) at one *end* of each message; without recorded hosts, the rank is the host."""
    if not interfaces or f"{end}_nic" not in flows:
        return [(_own(int(rank)), "") for rank in flows[end]]
    names = [(str(one["host"]), str(one["address"])) for one in interfaces]
    return [names[int(nic)] for nic in flows[f"{end}_nic"]]


def _host_name(host: str) -> str:
    return f"rank {int(host.removeprefix(_RANK))}" if host.startswith(_RANK) else host


def _nic_name(host: str, nic: str, hosts: Sequence[str], nics: Sequence[tuple[str, str]]) -> str:
    several = len(nics) > len(hosts)
    return f"NIC {nic} of {_host_name(host)}" if several else f"NIC of {_host_name(host)}"


def _begun_ns(path: Ints, start: Ints, end: Ints) -> Ints:
    """Return the time from which each message has its path to itself, for messages sent in sequence."""
    table = pd.DataFrame({"path": path, "end": end})
    before = table.groupby("path")["end"].transform(lambda ends: ends.cummax().shift(fill_value=-1))
    begun: Ints = np.maximum(start, before.to_numpy(np.int64))
    return begun


@dataclass(frozen=True, eq=False)
class Suspect:
    """A suspect of some *kind*: NICs slow to send (*sends*) or to receive, or a *path*.

    *on* marks the paths through it. *others* names suspects with the same messages.
    """

    kind: str
    name: str
    hosts: tuple[str, ...]
    on: Flags
    sends: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()
    path: int = -1
    others: tuple[str, ...] = ()

    def rates(self, factor: float, num_nics: int) -> tuple[np.ndarray, np.ndarray, dict[int, float]]:
        """Return the rates of all NICs, and of slow paths, relative to a healthy NIC."""
        sends, receives = np.ones(num_nics), np.ones(num_nics)
        sends[list(self.sends)] = factor
        receives[list(self.receives)] = factor
        return sends, receives, {self.path: factor} if self.path >= 0 else {}


def suspects_of(messages: Messages, paths: Ints) -> list[Suspect]:
    """Return all suspects for slow *messages* on *paths* (n, 2).

    A suspect on every message's path is left out, because nothing remains to compare it with. Of
    suspects with the same messages, the first lists the others.
    """
    src, dst = paths[:, 0], paths[:, 1]
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
    for path, (a, b) in enumerate(paths.tolist()):
        ends = tuple(dict.fromkeys(messages.hosts[messages.host_of[nic]] for nic in (a, b)))
        on = np.arange(len(paths)) == path
        suspects.append(Suspect("link", f"{messages.nics[a]} to {messages.nics[b]}", ends, on, path=path))
    return _distinguishable(suspects)


def _distinguishable(suspects: Sequence[Suspect]) -> list[Suspect]:
    """Drop suspects with no path, with all paths, or with the same paths as another.

    If a NIC has a single path in a direction, the path remains as the suspect, because nothing else
    was observed.
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
            Suspect(first.kind, first.name, hosts, first.on, first.sends, first.receives, first.path, names)
        )
    return kept
