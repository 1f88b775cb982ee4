"""Failed and slow links of a network, and their effect on its list of links."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ...errors import ConfigError, did_you_mean
from ...support import count_text, duration_text, parse_duration, share_text
from .._traits import backends_that
from . import _values as values
from ._fabric import FabricLink, LinkChange
from ._values import read_keys, shown, wrong

_WHOLE = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class Failure:
    """A failure of the links between two *devices*, or of all links of one device.

    The links keep the fraction *rate* of their bandwidth; 0 means down. Devices are numbered as in
    `Link`. *count* is how many parallel links fail (None: all). The failure lasts from *at_ns* to
    *until_ns* (None: the end of the simulation). *written* is the entry in the file.
    """

    devices: tuple[int, ...]
    rate: float = 0.0
    count: int | None = None
    at_ns: int = 0
    until_ns: int | None = None
    written: tuple[tuple[str, Any], ...] = ()

    @property
    def timed(self) -> bool:
        """Whether it begins or ends during the simulation."""
        return self.at_ns > 0 or self.until_ns is not None

    def lasts(self, time_ns: int) -> bool:
        """Return whether the failure is active at *time_ns*."""
        return self.at_ns <= time_ns and (self.until_ns is None or time_ns < self.until_ns)

    def of(self, devices: tuple[int, ...], count: int | None) -> Failure:
        """Return the same failure for *count* links of other *devices*."""
        own: list[tuple[str, Any]] = [("link", devices) if len(devices) > 1 else ("device", devices[0])]
        own += [("count", count)] if count is not None else []
        rest = tuple(pair for pair in self.written if pair[0] not in ("count", "device", "link"))
        return replace(self, devices=devices, count=count, written=(*own, *rest))

    def to_dict(self) -> dict[str, Any]:
        """Return the entry for a network YAML."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in self.written}

    def hits(self, a: int, b: int) -> bool:
        """Return whether links between the devices *a* and *b* are affected."""
        return {a, b} == set(self.devices) if len(self.devices) > 1 else self.devices[0] in (a, b)

    def text(self, names: Sequence[str], num_ranks: int) -> str:
        """Describe the failure in a sentence; unnamed devices from number *num_ranks* are switches."""

        def name(device: int) -> str:
            if device < len(names):
                return names[device]
            return f"rank {device}" if device < num_ranks else f"{device} (switch {device - num_ranks})"

        ends = " - ".join(map(name, self.devices))
        which = f"link {ends}" if len(self.devices) > 1 else f"every link of {ends}"
        state = "down" if self.rate == 0 else f"at {share_text(self.rate)} of its bandwidth"
        some = "" if self.count is None else f" ({self.count} of it)"
        return f"Failure: {which}{some} is {state}{self._time()}."

    def short_text(self, names: Sequence[str]) -> str:
        """Describe the failure briefly, for the name of a run: ``64-72 at 25.0 % from 5.00 ms``."""
        ends = "-".join(names[device] if device < len(names) else str(device) for device in self.devices)
        some = "" if self.count is None else f" ({self.count} of it)"
        state = "down" if self.rate == 0 else f"at {share_text(self.rate)}"
        begins = f" from {duration_text(self.at_ns)}" if self.timed else ""
        ends_at = "" if self.until_ns is None else f" to {duration_text(self.until_ns)}"
        return f"{ends}{some} {state}{begins}{ends_at}"

    def _time(self) -> str:
        if not self.timed:
            return " from the start"
        until = "" if self.until_ns is None else f" until {self.until_ns} ns"
        return f" from {self.at_ns} ns{until}"


def read_failures(
    data: Any, names: Sequence[str], where: str, entries: Sequence[str] = ()
) -> tuple[Failure, ...]:
    """Parse the failures in the list *data*; *names* are the device names.

    Error messages call the entries *entries*; the default is their index in ``failures`` of
    *where*. Raises `ConfigError`.
    """
    if data is None:
        return ()
    if not isinstance(data, (list, tuple)):
        raise wrong(f"{where}: 'failures'", "a list such as [{link: [0, 8], rate: 0}]", data)
    called = entries or [f"{where}: failures[{number}]" for number in range(len(data))]
    failures = tuple(_read(entry, names, place) for entry, place in zip(data, called, strict=True))
    ordered = sorted(failures, key=lambda failure: (sorted(failure.devices), failure.at_ns))
    for one, other in pairwise(ordered):
        if set(one.devices) == set(other.devices) and one.lasts(other.at_ns):
            raise ConfigError(
                f"{where}: 'failures' has two entries of the same link or device at the same time; keep one, "
                "or let one end ('until') before the other begins ('at')."
            )
    return failures


def failure_of_text(text: str) -> dict[str, Any]:
    """Parse an argument of ``--fail``, ``A,B[=SHARE][@TIME]``, to an entry of ``failures``.

    A and B are device numbers or names, and a single device means all its links. Two numbers may be
    written ``64-72``, as in names of runs. TIME is ``5ms`` or ``5ms..8ms``. Raises `ConfigError`.
    """
    what, at, time = text.strip().partition("@")
    ends, equals, share = what.partition("=")
    ends = re.sub(r"^\s*(\d+)-(\d+)\s*$", r"\1,\2", ends)
    devices = [int(name) if _WHOLE.fullmatch(name) else name for name in map(str.strip, ends.split(","))]
    if len(devices) > 2 or "" in devices:
        raise ConfigError(
            f"{shown(text)} is not A,B or A,B=SHARE, with or without a time: 64,72=0.25@5ms..8ms."
        )
    failure: dict[str, Any] = {"link": devices} if len(devices) == 2 else {"device": devices[0]}
    if equals:
        try:
            failure["rate"] = float(share)
        except ValueError:
            raise ConfigError(
                f"{shown(text)}: {shown(share)} is not a share of the bandwidth, such as 0.25."
            ) from None
    return failure | (_lasting(text, time) if at else {})


def _lasting(text: str, time: str) -> dict[str, str]:
    begin, dots, end = time.partition("..")
    moments = {"at": begin} | ({"until": end} if dots else {})
    other = next((moment for moment in moments.values() if not _is_time(moment)), None)
    if other is not None:
        raise ConfigError(
            f"{shown(text)}: {shown(other)} is not a time of the simulation; write the start of the failure, "
            "or its start and end, with units: @5ms or @5ms..8ms."
        )
    return moments


def _is_time(text: str) -> bool:
    try:
        parse_duration(text)
    except ValueError:
        return False
    return True


def _read(entry: Any, names: Sequence[str], where: str) -> Failure:
    given = read_keys(entry, _READERS, where)
    if ("link" in given) == ("device" in given):
        raise ConfigError(
            f"{where}: a failure is of a 'link' (two devices) or of a 'device'; give one of them."
        )
    ends: list[Any] = given.get("link") or [given["device"]]
    at_ns, until_ns = given.get("at", 0), given.get("until")
    if until_ns is not None and until_ns <= at_ns:
        raise ConfigError(f"{where}: 'until' must be later than 'at'.")
    written = tuple((key, tuple(ends) if key == "link" else value) for key, value in entry.items())
    rate, count = given.get("rate", 0.0), given.get("count")
    return Failure(_numbers(ends, names, where), rate, count, at_ns, until_ns, written)


def _rate(value: Any, where: str) -> float:
    if not values.is_number(value) or not 0 <= value < 1:
        raise wrong(where, "the remaining share of the bandwidth, from 0 (down) to below 1", value)
    return float(value)


def _ends(value: Any, where: str) -> list[Any]:
    if not isinstance(value, (list, tuple)) or len(value) != 2 or value[0] == value[1]:
        raise wrong(where, "its two devices, such as [0, 8]", value)
    return list(value)


def _optional(read: values.Reader) -> values.Reader:
    return lambda value, where: None if value is None else read(value, where)


_TIME = values.duration(*values.DELAY_NS)
_READERS: dict[str, values.Reader] = {
    "at": _TIME,
    "count": _optional(values.whole(1, values.MAX_RANKS)),
    "device": lambda value, _where: value,
    "link": _ends,
    "rate": _rate,
    "until": _optional(_TIME),
}


def _numbers(devices: Sequence[Any], names: Sequence[str], where: str) -> tuple[int, ...]:
    """Return the numbers of *devices*; a rank behind a router means the router."""
    number = {name: place for place, name in enumerate(names)}
    numbers = []
    for device in devices:
        if isinstance(device, str) and device in number:
            numbers.append(number.get(f"{device}.router", number[device]))
        elif type(device) is int and 0 <= device < values.MAX_RANKS:
            numbers.append(device)
        elif isinstance(device, str) and names:
            raise ConfigError(f"{where}: there is no device {shown(device)}{did_you_mean(device, names)}")
        else:
            raise ConfigError(
                f"{where}: a device is its number, ranks first and then switches (or its name, where "
                f"'devices' names them), not {shown(device)}."
            )
    if len(set(numbers)) < len(devices):
        raise ConfigError(f"{where}: the two ends of the link, {shown(list(devices))}, are the same device.")
    return tuple(numbers)


def check_failures(failures: Iterable[Failure], where: str) -> None:
    """Raise `ConfigError` for timed failures, which few backends support."""
    for failure in failures:
        if failure.timed:
            raise ConfigError(
                f"{where} has a failure with 'at' or 'until', which only "
                f"{backends_that('changes_links', 'and')} support. Next: use one of these backends, or leave "
                "out 'at' and 'until', so that the failure lasts for the whole simulation."
            )


def fail_links(
    failures: Sequence[Failure], links: Sequence[FabricLink], ends: Sequence[tuple[int, int]], where: str
) -> tuple[tuple[FabricLink, ...], tuple[LinkChange, ...]]:
    """Return *links* after permanent failures, and the rate changes that timed failures cause.

    *ends* are the devices of each link. Several failures of a link multiply their rates, which stay
    above 0 unless the link is down. Raises `ConfigError` for a failure of a missing link.
    """
    hits = [(failure, _hit(failure, ends, where)) for failure in failures]

    def rate_bps(place: int, time_ns: int | None) -> int:
        rate = links[place].rate_bps
        for failure, places in hits:
            if place in places and (not failure.timed if time_ns is None else failure.lasts(time_ns)):
                if failure.rate == 0:
                    return 0
                rate = max(1, round(rate * failure.rate))
        return rate

    now = [rate_bps(place, None) for place in range(len(links))]
    left = [place for place, rate in enumerate(now) if rate > 0]
    lasting = tuple(links[place]._replace(rate_bps=now[place]) for place in left)
    timed = [(failure, places) for failure, places in hits if failure.timed]
    touched = [(new, old) for new, old in enumerate(left) if any(old in places for _, places in timed)]
    times = {failure.at_ns for failure, _ in timed} | {failure.until_ns for failure, _ in timed}
    changes: list[LinkChange] = []
    for time_ns in sorted(time_ns for time_ns in times if time_ns is not None):
        for new, old in touched:
            rate = rate_bps(old, time_ns)
            if rate != now[old]:
                now[old] = rate
                changes.append(LinkChange(time_ns, new, rate))
    return lasting, tuple(changes)


def _hit(failure: Failure, ends: Sequence[tuple[int, int]], where: str) -> set[int]:
    """Return the indices of the links that *failure* affects."""
    links = [place for place, pair in enumerate(ends) if failure.hits(*pair)]
    if len(links) < (failure.count or 1):
        named = " and ".join(map(str, failure.devices))
        which = f"between {named}" if len(failure.devices) > 1 else f"of {named}"
        asked = "" if failure.count is None else f", and a failure is of {failure.count}"
        there = count_text(len(links), "link") if links else "no link"
        raise ConfigError(
            f"{where} has {there} {which}{asked}. Switches are numbered after the ranks; "
            "`chakrascope network NETWORK --links` lists all links."
        )
    return set(links[: failure.count])
