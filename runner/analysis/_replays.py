"""Replay a run with something changed, as often as that can be afforded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from .._experiment import Detail, Experiment
from .._result import Result
from ._advice import Replays
from ._what_if import MEASURED, what_if

__all__ = ["replays_of"]

_MOST_EVENTS = 12_000_000
"""Of all replays for one answer together, which takes some ten seconds once."""
_MOST_REPLAYS = 9
_MOST_PATH_NODES = 200_000
# Backends that take time in proportion to their events and need nothing but the engine.
_QUICK = (*MEASURED, "analytical-unaware", "analytical-aware")


def replays_of(result: Result, experiment: Callable[[], Experiment]) -> Replays | None:
    """Return the replays of the *experiment* of *result* that can be afforded; None where not even one."""
    events = int(result.provenance.get("events", result.num_nodes))
    if result.backend not in _QUICK or not 0 < events <= _MOST_EVENTS:
        return None
    detail = Detail.EVERYTHING if result.num_nodes <= _MOST_PATH_NODES else Detail.TOTALS
    asked = dataclasses.replace(experiment(), detail=detail)
    return Replays(
        lambda target, times: what_if(asked, [(target, times)]), min(_MOST_REPLAYS, _MOST_EVENTS // events)
    )
