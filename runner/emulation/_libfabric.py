"""Messages over libfabric, whose providers reach verbs, EFA, Slingshot, TCP and shared memory."""

from __future__ import annotations

import time
from typing import Any

from .. import engine
from ._rank import JOIN_S, Rank

__all__ = ["LibfabricEntrance"]


class LibfabricEntrance:
    """Joins a rank to the others by an endpoint for each network interface.

    Providers whose endpoints have addresses of the Internet's bind those of the interfaces.
    """

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        provider = rank.transport.partition(":")[2]
        self._transport = engine.fabric_transport(provider, rank.addresses, rank.number, rank.key)

    def listen(self) -> list[str]:
        """Return the name of each endpoint, in hexadecimal digits."""
        return [name.hex() for name in self._transport.names()]

    def connect(self, ends: dict[int, Any]) -> engine.Transport:
        """Return the transport once all ranks have greeted each other."""
        peers = {
            peer: [bytes.fromhex(name) for name in names]
            for peer, names in ends.items()
            if peer != self.rank.number
        }
        deadline_ns = time.monotonic_ns() + round(JOIN_S * 1e9)
        return engine.join_fabric(self._transport, peers, deadline_ns)
