"""A plug-in that carries messages over libfabric (verbs, EFA, Slingshot, TCP and shared memory)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .... import errors
from ... import engine
from .._wire import JOIN_S, Rank


class LibfabricEntrance:
    """Connects a rank with all other ranks by a libfabric endpoint for each network interface.

    If a provider uses IP addresses, its endpoints are bound to the addresses of the interfaces.
    """

    argument = "PROVIDER"

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        provider = rank.transport.partition(":")[2]
        self._transport = fabric_transport(provider, rank.addresses, rank.number, rank.key)

    def listen(self) -> list[str]:
        """Return the name of each libfabric endpoint of the rank, in hexadecimal digits."""
        return [name.hex() for name in self._transport.names()]

    def connect(self, ends: dict[int, Any]) -> engine.Transport:
        """Connect with all other ranks over libfabric, and return the transport."""
        peers = {
            peer: [bytes.fromhex(name) for name in names]
            for peer, names in ends.items()
            if peer != self.rank.number
        }
        deadline_ns = time.monotonic_ns() + round(JOIN_S * 1e9)
        return join_fabric(self._transport, peers, deadline_ns)


def fabric_transport(
    provider: str, addresses: Iterable[str], rank: int, key: bytes
) -> engine.FabricTransport:
    """Return the transport of *rank* over libfabric's *provider*, and the names of its endpoints.

    The transport is not usable until `join_fabric` is called. The transport has an endpoint for each address.
    All ranks of a job share *key*, and messages of other processes are ignored. Raises `ConfigError` for an
    unknown provider, and `BackendUnavailable` if the engine was built without libfabric.
    """
    if not engine.FabricTransport.is_built():
        raise errors.BackendUnavailable(
            "This engine was built without libfabric. Next: install libfabric-dev (or the headers of "
            "your network's libfabric) on every host, and build again: pip install ."
        )
    try:
        return engine.FabricTransport.open(errors, provider, list(addresses), rank, key)
    except errors.ConfigError:
        providers = engine.FabricTransport.providers(errors)
        if provider.partition(";")[0] in providers:
            raise
        raise errors.ConfigError(
            f"libfabric has no provider '{provider}' on this host{errors.did_you_mean(provider, providers)}"
        ) from None


def join_fabric(
    transport: engine.FabricTransport, peers: Mapping[int, Sequence[bytes]], deadline_ns: int
) -> engine.FabricTransport:
    """Return *transport* after connecting to its *peers*, which map ranks to endpoint names.

    Raises `BackendError` for a peer that has not answered by *deadline_ns* of the monotonic clock.
    """
    transport.join(errors, {peer: list(names) for peer, names in peers.items()}, deadline_ns)
    return transport
