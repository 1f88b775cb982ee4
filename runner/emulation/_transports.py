"""The transports that there are, by name."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ConfigError, did_you_mean
from ._gloo import GlooEntrance
from ._libfabric import LibfabricEntrance
from ._rank import Entrance, Rank
from ._tcp import TcpEntrance

__all__ = ["TRANSPORTS", "check_transport", "entrance_of"]

_ENTRANCES: dict[str, Callable[[Rank], Entrance]] = {
    "tcp": TcpEntrance,
    "gloo": GlooEntrance,
    "libfabric": LibfabricEntrance,
}
TRANSPORTS = ("tcp", "gloo", "libfabric:PROVIDER")


def check_transport(name: str, where: str) -> str:
    """Return *name* if there is such a transport; raises `ConfigError`, naming *where*.

    Which providers there are, only a host can say.
    """
    kind, colon, provider = name.partition(":")
    if kind not in _ENTRANCES or (colon and kind != "libfabric"):
        raise ConfigError(f"{where}: there is no transport '{name}'{did_you_mean(name, TRANSPORTS)}")
    if kind == "libfabric" and not provider:
        raise ConfigError(f"{where}: '{kind}' needs a provider, such as {kind}:tcp or {kind}:verbs.")
    return name


def entrance_of(rank: Rank) -> Entrance:
    """Return the way of *rank* into the network of its transport; raises `ConfigError`."""
    return _ENTRANCES[check_transport(rank.transport, f"Rank {rank.number}").partition(":")[0]](rank)
