"""When the last rank entered each collective, as the flight records of all ranks tell together."""

from __future__ import annotations

from collections.abc import Sequence

from ..readers import Entry, Flight, RankTraces, read_flight_record

__all__ = ["flights_of", "last_entries"]

_HOST_DEVICES = frozenset({"", "cpu"})


def flights_of(traces: RankTraces) -> Sequence[Flight]:
    """Return the flight record of a rank, empty if it has none."""
    if traces.flight_path is None:
        return ()
    return read_flight_record(traces.flight_path)


def last_entries(ranks: Sequence[RankTraces]) -> list[dict[Entry, int]]:
    """Return, for each of *ranks*, when the last rank entered each collective of its flight record.

    The times are Unix nanoseconds of the ranks' own clocks. Ranks that compute on a device have none: there
    the device's work tells when a collective ran.
    """
    own = [_entries(rank) for rank in ranks]
    latest: dict[tuple[tuple[int, ...], Entry], int] = {}
    for entries in own:
        for key, time_ns in entries.items():
            latest[key] = max(time_ns, latest.get(key, 0))
    return [{entry: latest[ranks_of, entry] for ranks_of, entry in entries} for entries in own]


def _entries(rank: RankTraces) -> dict[tuple[tuple[int, ...], Entry], int]:
    """Return when *rank* entered each collective, by the ranks of its group: names may not be unique."""
    if rank.device not in _HOST_DEVICES:
        return {}
    return {
        (rank.groups.get(flight.process_group[0], ()), flight.entry): flight.time_created_ns
        for flight in flights_of(rank)
        if flight.entry is not None
    }
