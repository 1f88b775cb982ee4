"""Capture training steps of unmodified PyTorch jobs.

:func:`trace` runs a training command as it stands and leaves a :class:`TraceSet`; :func:`capture` does the
same from inside a script whose steps no torch optimizer marks; :func:`collect` merges what the hosts of one
job left.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._trace_set import MANIFEST_NAME, MAX_RANKS, Manifest, ProcessGroup, RankEntry, StepRange, TraceSet

if TYPE_CHECKING:
    from ._capture import Capture, capture
    from ._collect import collect
    from ._launcher import trace

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

# To capture takes multiprocessing and its like: a twentieth of a conversion, which only reads trace sets.
_LATE = {"Capture": "_capture", "capture": "_capture", "collect": "_collect", "trace": "_launcher"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_LATE[name]}", __name__), name)
