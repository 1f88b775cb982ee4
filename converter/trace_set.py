"""Trace sets: the manifest one capture leaves, and the flight record of its collectives."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..errors import TraceError
from .files import read_json

__all__ = [
    "Flight",
    "ProcessGroup",
    "RankEntry",
    "StepRange",
    "TraceSet",
    "read_flight_record",
    "read_trace_set",
]


class StepRange(msgspec.Struct, frozen=True):
    """One captured step in Unix nanoseconds."""

    index: int
    start_ns: int
    end_ns: int


class ProcessGroup(msgspec.Struct, frozen=True):
    """A communicator and its global ranks."""

    name: str
    ranks: list[int]
    description: str = ""


class RankEntry(msgspec.Struct, frozen=True):
    """What one rank left."""

    rank: int
    device_trace: str | None = None
    host_trace: str | None = None
    flight_record: str | None = None
    complete: bool = True
    process_groups: list[ProcessGroup] = msgspec.field(default_factory=list)
    steps: list[StepRange] = msgspec.field(default_factory=list)


class TraceSet(msgspec.Struct, frozen=True):
    """The manifest of one capture."""

    world_size: int
    ranks: list[RankEntry]
    partial: bool = False
    torch_version: str = ""


class Flight(msgspec.Struct, frozen=True):
    """One collective in the flight record: when it was enqueued (Unix nanoseconds) and its group's name."""

    time_created_ns: int = 0
    process_group: list[str] = msgspec.field(default_factory=list)


class _FlightRecord(msgspec.Struct):
    entries: list[Flight] = msgspec.field(default_factory=list)


def read_trace_set(folder: Path) -> TraceSet:
    """Read ``manifest.json`` in *folder*; raises `TraceError` when a rank is missing or died."""
    path = folder / "manifest.json"
    if not path.exists():
        raise TraceError(
            f"{folder} is no trace set: it has no manifest.json, which a capture writes last. "
            "Capture with 'chakrascope trace', or let it finish."
        )
    manifest = read_json(path, TraceSet)
    present = sorted(entry.rank for entry in manifest.ranks if entry.device_trace and entry.host_trace)
    missing = sorted(set(range(manifest.world_size)) - set(present))
    if missing or not present:
        raise TraceError(
            f"{path}: the job had {manifest.world_size} ranks, but there is no usable trace of rank "
            f"{', '.join(map(str, missing)) or '0'}. That rank probably died; capture again."
        )
    return manifest


def read_flight_record(path: Path) -> list[Flight]:
    """Read a flight record; returns its entries that name a group, in order of time."""
    entries = read_json(path, _FlightRecord).entries
    return sorted(
        (entry for entry in entries if entry.process_group), key=lambda entry: entry.time_created_ns
    )
