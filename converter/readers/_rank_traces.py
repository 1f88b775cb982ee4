"""The trace files of one rank, with their facts."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...tracer import StepRange

__all__ = ["RankTraces"]


class RankTraces(msgspec.Struct, frozen=True):
    """The trace files of one rank, with their facts.

    *groups* maps names to global ranks, () meaning all. *steps* are empty if only the trace has them; a host
    trace covers all of them, or *structure* alone. *evidence_path* is the file of the tracer's other
    observations. *device* is the device of the rank, such as ``cuda:0`` ("" if unknown). *linked* means that
    the host trace is the public linker's; if it is the device trace too, there is no other. *process* is the
    recorded process (0 if unknown), *host* its machine ("" if unknown). *capture_paths* are traces of the
    capture of the graphs that this trace launches; unreadable ones are omitted unless *captures_given*.
    *annotation* marks the steps, if requested; only *steps* that contain it count.
    """

    rank: int
    host_path: Path | None
    device_path: Path
    flight_path: Path | None = None
    evidence_path: Path | None = None
    groups: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    steps: tuple[StepRange, ...] = ()
    structure: StepRange | None = None
    device: str = ""
    linked: bool = False
    process: int = 0
    host: str = ""
    annotation: str = ""
    capture_paths: tuple[Path, ...] = ()
    captures_given: bool = False
