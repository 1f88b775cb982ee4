"""How late each rank came to its collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...tracer import StepRange
from .._columns import which
from ..readers import COMM_OPS, HOST_DEVICES, DeviceTrace, Entry, Flight, RankTraces, read_flight_record

__all__ = ["arrivals", "flights_of", "is_usually_late", "last_entries", "lateness"]


_KEY = "lateness_ns"
# Of the captured steps, and of the time in question, so much makes a rank late.
_MOST_STEPS, _MOST_OF_IT = 0.75, 0.5
_FEWEST_STEPS = 2


def arrivals(trace: DeviceTrace, own: np.ndarray, steps: Sequence[StepRange]) -> dict[int, list[int]]:
    """Return for each of *steps* when the thread of the events *own* issued communications (Unix ns)."""
    events = trace.events.take(own)
    issues = events.is_operator & which(trace.texts, COMM_OPS.__contains__)[events.name]
    times = events.start_ns[issues]
    return {step.index: times[(times >= step.start_ns) & (times < step.end_ns)].tolist() for step in steps}


def lateness(of_ranks: Mapping[int, Mapping[int, Sequence[int]]]) -> dict[str, Any]:
    """Return the workload's metadata on how late each rank was, from their `arrivals` by one clock.

    For each captured step that is the most, over its collectives, that the rank came later than the median of
    the others. Steps in which the ranks did not issue equally many are left out; {} without any other.
    """
    ranks = sorted(of_ranks)
    if len(ranks) < 2:
        return {}
    late: dict[str, list[int]] = {str(rank): [] for rank in ranks}
    for step in sorted(set.intersection(*(set(times) for times in of_ranks.values()))):
        rows = [of_ranks[rank][step] for rank in ranks]
        if not rows[0] or len({len(row) for row in rows}) > 1:
            continue
        times = np.array(rows, dtype=np.int64)
        for place, rank in enumerate(ranks):
            others = np.median(np.delete(times, place, axis=0), axis=0)
            late[str(rank)].append(int((times[place] - others).max()))
    return {_KEY: late} if late[str(ranks[0])] else {}


def is_usually_late(metadata: Mapping[str, Any], rank: int, late_ns: int) -> bool:
    """Return whether *rank* was late by about *late_ns* in most captured steps; True if that is unknown."""
    stated = metadata.get(_KEY)
    own = stated.get(str(rank)) if isinstance(stated, Mapping) else None
    if not isinstance(own, list) or len(own) < _FEWEST_STEPS:
        return True
    return bool(sum(ns >= _MOST_OF_IT * late_ns for ns in own) >= _MOST_STEPS * len(own))


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
    if rank.device not in HOST_DEVICES:
        return {}
    return {
        (rank.groups.get(flight.process_group[0], ()), flight.entry): flight.time_created_ns
        for flight in flights_of(rank)
        if flight.entry is not None
    }
