"""Links between devices, which replace a network's dimensions if congestion is modelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import ConfigError
from . import _limits as limits
from ._values import shown

__all__ = ["Link", "check_devices", "check_links", "read_links"]


class Link(NamedTuple):
    """A full-duplex link of the devices *a* and *b*, numbered ranks first, then switches.

    *bandwidth* is in units of 2^30 bytes per second, *latency* in ns. Numbers stay as the file has them, 10
    or 10.0.
    """

    a: int
    b: int
    bandwidth: float
    latency: float


def read_links(data: Any, where: str) -> tuple[Link, ...]:
    """Return the links of the list read from *where*; none for ``None``. Raises `ConfigError`."""
    if data is None:
        return ()
    if not isinstance(data, (list, tuple)):
        raise ConfigError(
            f"{where}: 'links' must be a list of [device, device, bandwidth, latency], not {shown(data)}."
        )
    check_links(data, where)
    return tuple(Link(*link) for link in data)


def check_links(links: Sequence[Any], where: str) -> None:
    """Raise `ConfigError` for an entry of *links* that joins no two devices."""
    for link in links:
        if not isinstance(link, (list, tuple)) or len(link) != 4 or not all(map(_is_number, link)):
            raise ConfigError(
                f"{where}: every entry of 'links' must be [device, device, bandwidth, latency], not "
                f"{shown(link)}."
            )
        a, b, bandwidth, latency = link
        valid = all(isinstance(device, int) and 0 <= device < limits.MOST_RANKS for device in (a, b))
        if not valid or a == b:
            raise ConfigError(
                f"{where}: a link of 'links' joins two devices by their numbers, ranks first and then "
                f"switches, and not {shown(a)} and {shown(b)}."
            )
        limits.check_range(bandwidth, limits.BANDWIDTH, "links", where)
        limits.check_range(latency, limits.DELAY_NS, "links", where)


def check_devices(names: Sequence[str], links: Sequence[Link], where: str) -> None:
    """Raise `ConfigError` unless *names* has every device of *links* exactly once."""
    devices = 1 + max((max(link.a, link.b) for link in links), default=-1)
    if names and (len(names) < devices or len(set(names)) < len(names)):
        raise ConfigError(
            f"{where}: 'devices' must name all {devices} devices of 'links', each once; it has "
            f"{len(set(names))} names."
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
