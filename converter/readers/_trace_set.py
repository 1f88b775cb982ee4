"""Trace sets: the manifest one capture leaves, and the flight record of its collectives."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...errors import TraceError
from .._files import read_json

__all__ = [
    "Flight",
    "ProcessGroup",
    "RankEntry",
    "StepRange",
    "TraceSet",
    "read_flight_record",
    "read_trace_set",
]

_NAMED_AT_MOST = 8


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
    """What one rank left.

    The host trace covers *structure_step*; None means that it covers all *steps*. *all_groups* are the ranks
    of every group the script made, where one process posed as many.
    """

    rank: int
    device_trace: str | None = None
    host_trace: str | None = None
    flight_record: str | None = None
    complete: bool = True
    device: str = ""
    process_groups: list[ProcessGroup] = msgspec.field(default_factory=list)
    steps: list[StepRange] = msgspec.field(default_factory=list)
    structure_step: StepRange | None = None
    all_groups: list[list[int]] = msgspec.field(default_factory=list)


class TraceSet(msgspec.Struct, frozen=True):
    """The manifest of one capture; *reasons* say why it is *partial*, one sentence each.

    In a *fake_world* one process posed as rank 0 of all; *notes* say what that and the like mean.
    """

    world_size: int
    ranks: list[RankEntry]
    partial: bool = False
    reasons: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    torch_version: str = ""
    fake_world: bool = False

    @property
    def why_partial(self) -> str:
        """The reasons as one text."""
        return "; ".join(reason.rstrip(". ") for reason in self.reasons) or "its manifest does not say why"


class Flight(msgspec.Struct, frozen=True):
    """A collective or message of the flight record: when it was enqueued (Unix nanoseconds), and its group.

    *time_ended_ns* is when the call returned, where that was recorded (of messages, and in a fake world).
    """

    time_created_ns: int = 0
    time_ended_ns: int = 0
    process_group: list[str] = msgspec.field(default_factory=list)
    is_p2p: bool = False


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
    present = {entry.rank for entry in manifest.ranks if entry.device_trace and entry.host_trace}
    if len({entry.rank for entry in manifest.ranks}) < len(manifest.ranks):
        raise TraceError(f"{path} lists a rank twice. Merge the captures into one, or capture again.")
    if manifest.fake_world and present == {0}:
        return manifest
    if len(present) < manifest.world_size or not present or max(present) >= manifest.world_size:
        raise TraceError(_missing(path, manifest, present))
    return manifest


def _missing(path: Path, manifest: TraceSet, present: set[int]) -> str:
    """Return the message for a manifest whose ranks are not 0 to world size - 1."""
    missing = [rank for rank in range(min(manifest.world_size, 10_000)) if rank not in present]
    named = ", ".join(map(str, missing[:_NAMED_AT_MOST])) or "0"
    more = manifest.world_size - len(present) - min(len(missing), _NAMED_AT_MOST)
    reasons = f" ({manifest.why_partial})" if manifest.reasons else ""
    return (
        f"{path}: the job had {manifest.world_size} ranks, but there is no usable trace of rank {named}"
        f"{f' and {more} more' if more > 0 else ''}{reasons}. "
        "Capture again if it died; if another 'chakrascope trace' captured it, merge both with "
        "'chakrascope trace --collect'."
    )


def read_flight_record(path: Path) -> list[Flight]:
    """Read a flight record; returns its entries that name a group, in order of time."""
    entries = read_json(path, _FlightRecord).entries
    return sorted(
        (entry for entry in entries if entry.process_group), key=lambda entry: entry.time_created_ns
    )
