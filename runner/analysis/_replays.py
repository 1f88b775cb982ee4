"""Replay a run with something changed, where that does not take long."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from .._experiment import Detail, Experiment
from .._result import Result
from ._advice import Simulate
from ._what_if import MEASURED

__all__ = ["replays_of"]

_MOST_EVENTS = 700_000
"""A replay of so many events takes about a second; of larger runs bounds stand in for up to nine of them."""
_MOST_PATH_NODES = 200_000
# Backends that take time in proportion to their events and need nothing but the engine.
_QUICK = (*MEASURED, "analytical-unaware", "analytical-aware")


def replays_of(result: Result, experiment: Callable[[], Experiment]) -> Simulate | None:
    """Return what simulates the *experiment* of *result* with one change; None if that takes long."""
    events = int(result.provenance.get("events", result.num_nodes))
    if result.backend not in _QUICK or not 0 < events <= _MOST_EVENTS:
        return None
    from ._what_if import what_if  # noqa: PLC0415 - what simulates; the other answers do without

    detail = Detail.EVERYTHING if result.num_nodes <= _MOST_PATH_NODES else Detail.TOTALS
    asked = dataclasses.replace(experiment(), detail=detail)
    return lambda target, times: what_if(asked, [(target, times)])
