"""The transports that there are, by name."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ConfigError, did_you_mean
from ._rank import Entrance, Rank
from ._tcp import TcpEntrance

__all__ = ["TRANSPORTS", "check_transport", "entrance_of"]

# Behind a colon a name may have a word of its own, such as a provider's.
_ENTRANCES: dict[str, Callable[[Rank], Entrance]] = {"tcp": TcpEntrance}
TRANSPORTS = tuple(_ENTRANCES)


def check_transport(name: str, where: str) -> str:
    """Return *name* if there is such a transport; raises `ConfigError`, naming *where*."""
    if name.partition(":")[0] not in TRANSPORTS:
        raise ConfigError(f"{where}: there is no transport '{name}'{did_you_mean(name, TRANSPORTS)}")
    return name


def entrance_of(rank: Rank) -> Entrance:
    """Return the way of *rank* into the network of its transport; raises `ConfigError`."""
    return _ENTRANCES[check_transport(rank.transport, f"Rank {rank.number}").partition(":")[0]](rank)
