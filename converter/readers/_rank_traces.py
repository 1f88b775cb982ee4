"""Name the trace files of one rank, and what is known about them beside."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...tracer import StepRange

__all__ = ["RankTraces"]


class RankTraces(msgspec.Struct, frozen=True):
    """Where the traces of one rank are, and what is known about them beside.

    *groups* map names to global ranks, () being all. *steps* are empty if only the trace itself knows; the
    host trace, if there is one, covers all of them, or *structure* alone. *evidence_path* is what the tracer
    observed beside the traces. *device* is what the rank computed on, such as ``cuda:0`` ("" if unknown).
    *linked* says that the host trace is the public linker's, and if it is the device trace as well, that
    there is no other. *process* is the one recorded (0 if unknown), *host* the machine it ran on ("").
    *capture_paths* are traces of the capture of graphs that this one launches; unless *captures_given*, those
    that cannot be read are left out.
    *annotation* marks the steps, if one was asked for; of *steps* then those that hold it count.
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
