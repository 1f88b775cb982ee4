"""Capture training steps of unmodified PyTorch jobs.

:func:`trace` runs an unchanged training command and writes a :class:`TraceSet`. :func:`capture` writes a
:class:`TraceSet` from inside a script, for steps that do not end with a torch optimizer. :func:`collect`
merges the trace sets of a job's hosts. :func:`record_script` records the work of a script without devices,
peers or data.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._evidence import Evidence, Frame, read_evidence
from ._recordings import RecordedEntry, Recording
from ._step_times import StepTimes, read_step_times
from ._trace_set import MANIFEST_NAME, MAX_RANKS, Manifest, ProcessGroup, RankEntry, StepRange, TraceSet

if TYPE_CHECKING:
    from ._capture import Capture, capture
    from ._launcher import trace
    from ._merge import collect
    from ._scripts import record_script

__all__ = [
    "MANIFEST_NAME",
    "MAX_RANKS",
    "Capture",
    "Evidence",
    "Frame",
    "Manifest",
    "ProcessGroup",
    "RankEntry",
    "RecordedEntry",
    "Recording",
    "StepRange",
    "StepTimes",
    "TraceSet",
    "capture",
    "collect",
    "read_evidence",
    "read_step_times",
    "record_script",
    "trace",
]

# These names are imported on first use, because the imports for a capture, such as multiprocessing, would
# take 5 % of the time of a conversion.
_LATE = {
    "Capture": "_capture",
    "capture": "_capture",
    "collect": "_merge",
    "record_script": "_scripts",
    "trace": "_launcher",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_LATE[name]}", __name__), name)
