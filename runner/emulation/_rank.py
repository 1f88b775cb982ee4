"""A rank as its agent starts it, and the interface by which it joins the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from .. import engine

__all__ = ["JOIN_S", "Entrance", "Rank"]

JOIN_S = 20.0  # for all ranks to meet


@dataclass(frozen=True)
class Rank:
    """The agent's instructions for one of its ranks: its number, its addresses, and its host's namespace.

    *key* is known only to the ranks of one run. *transport* names the transport of messages.
    """

    number: int
    addresses: tuple[str, ...]
    key: bytes
    transport: str = "tcp"
    namespace: str | None = None


class Entrance(Protocol):
    """The preparation of a transport before a run: ranks exchange addresses, and then connect."""

    def listen(self) -> Any:
        """Return the addresses of this rank for other ranks, as plain JSON."""
        ...

    def connect(self, ends: dict[int, Any]) -> engine.Transport:
        """Connect to the others, whose `listen` returned *ends* (including this rank's), by rank.

        Raises `BackendError` after `JOIN_S`, or for a rank that does not know the key.
        """
        ...
