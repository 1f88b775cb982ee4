"""A rank as its agent starts it, and how it comes into the network that joins it to others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from .. import engine

__all__ = ["JOIN_S", "Entrance", "Rank"]

JOIN_S = 20.0  # for all ranks to meet


@dataclass(frozen=True)
class Rank:
    """What an agent tells one of its ranks: which it is, where it may listen, and its host's namespace.

    *key* is known to all ranks of one run and to nobody else. *transport* names what carries messages.
    """

    number: int
    addresses: tuple[str, ...]
    key: bytes
    transport: str = "tcp"
    namespace: str | None = None


class Entrance(Protocol):
    """What a transport does before a run: ranks tell each other where they are, and then meet."""

    def listen(self) -> Any:
        """Return what other ranks need to reach this one, as plain JSON."""
        ...

    def connect(self, ends: dict[int, Any]) -> engine.Transport:
        """Join the others, whose `listen` returned *ends* (this rank's own included), by their numbers.

        Raises `BackendError` if that takes longer than `JOIN_S`, or for one that does not know the key.
        """
        ...
