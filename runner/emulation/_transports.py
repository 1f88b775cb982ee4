"""The transports of an emulation by name: TCP sockets, gloo, and transports from plug-ins."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ConfigError, did_you_mean
from ...support import load_plugin, plugin_names
from ._gloo import GlooEntrance
from ._tcp import TcpEntrance
from ._wire import Entrance, Rank

_PLUGINS = "transports"
_ENTRANCES: dict[str, Callable[[Rank], Entrance]] = {"tcp": TcpEntrance, "gloo": GlooEntrance}


def transport_names() -> list[str]:
    """Return the names of all transports; ``NAME:ARGUMENT`` stands for a transport with an argument."""
    kinds = [*_ENTRANCES, *plugin_names(_PLUGINS)]
    return [kind + (f":{_argument(kind)}" if _argument(kind) else "") for kind in kinds]


def check_transport(name: str, where: str) -> str:
    """Return *name* if a transport has this name; raises `ConfigError` that names *where*.

    The argument of a transport can only be checked on the host that uses the transport.
    """
    kind, colon, argument = name.partition(":")
    exists = kind in _ENTRANCES or kind in plugin_names(_PLUGINS)
    if not exists or (colon and not _argument(kind)):
        names = transport_names()
        raise ConfigError(f"{where}: there is no transport '{name}'{did_you_mean(name, names)}")
    if _argument(kind) and not argument:
        raise ConfigError(f"{where}: '{kind}' needs an argument: {kind}:{_argument(kind)}.")
    return name


def entrance_of(rank: Rank) -> Entrance:
    """Return the object that connects *rank* to its transport's network; raises `ConfigError`."""
    kind = check_transport(rank.transport, f"Rank {rank.number}").partition(":")[0]
    return _entrance(kind)(rank)


def _entrance(kind: str) -> Callable[[Rank], Entrance]:
    entrance: Callable[[Rank], Entrance] = _ENTRANCES.get(kind) or load_plugin(_PLUGINS, kind)
    return entrance


def _argument(kind: str) -> str:
    """Return the argument that must follow the colon in names of *kind*, or ``""`` without an argument."""
    return str(getattr(_entrance(kind), "argument", ""))
