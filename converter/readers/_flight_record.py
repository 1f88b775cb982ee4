"""Read torch's flight record of a rank's collectives and messages."""

from __future__ import annotations

from pathlib import Path

import msgspec

from .._files import read_json

__all__ = ["Entry", "Flight", "read_flight_record"]

# A collective: the name of its group, and which of the group's it is.
Entry = tuple[str, int]


class Flight(msgspec.Struct, frozen=True):
    """A collective or message of the flight record: when it was enqueued (Unix ns), and its group.

    *time_ended_ns* is the return of the call, if recorded (for messages, and in a fake world).
    *collective_seq_id* counts the group's collectives: it is the same on every rank.
    """

    time_created_ns: int = 0
    time_ended_ns: int = 0
    process_group: list[str] = msgspec.field(default_factory=list)
    is_p2p: bool = False
    collective_seq_id: int = 0

    @property
    def entry(self) -> Entry | None:
        """The key of the same collective on every rank; None for a message, or if unknown."""
        if self.is_p2p or self.collective_seq_id < 1:
            return None
        return self.process_group[0], self.collective_seq_id


class _FlightRecord(msgspec.Struct):
    entries: list[Flight] = msgspec.field(default_factory=list)


def read_flight_record(path: Path) -> list[Flight]:
    """Read a flight record; returns its entries that name a group, in order of time."""
    entries = read_json(path, _FlightRecord).entries
    return sorted(
        (entry for entry in entries if entry.process_group), key=lambda entry: entry.time_created_ns
    )
