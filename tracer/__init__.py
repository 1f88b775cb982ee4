"""Capture training steps of unmodified PyTorch jobs.

:func:`trace` runs a training command as it stands and leaves a :class:`TraceSet`; :func:`capture` does the
same from inside a script whose steps no torch optimizer marks; :func:`collect` merges what the hosts of one
job left.
"""

from __future__ import annotations

from ._capture import Capture, capture
from ._collect import collect
from ._launcher import trace
from ._trace_set import MANIFEST_NAME, MAX_RANKS, Manifest, ProcessGroup, RankEntry, StepRange, TraceSet

__all__ = [
    "MANIFEST_NAME",
    "MAX_RANKS",
    "Capture",
    "Manifest",
    "ProcessGroup",
    "RankEntry",
    "StepRange",
    "TraceSet",
    "capture",
    "collect",
    "trace",
]
