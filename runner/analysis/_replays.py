"""Replay a run with a change, unless the run is too large."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...converter import Workload
from .._result import Result
from .._traits import about_backend

if TYPE_CHECKING:
    from .._experiment import Experiment
    from ._advice import Simulate

# The largest run that is replayed. A run is replayed up to 14 times. To change the columns of nodes, a replay
# takes over 1 µs per node of a program. Each event of each rank takes a twentieth of this time.
_MOST_NODES, _MOST_EVENTS = 125_000, 2_000_000
_MOST_PATH_NODES = 200_000


def replays_of(result: Result, workload: Workload, experiment: Callable[[], Experiment]) -> Simulate | None:
    """Return a function that replays the *experiment* of *result*, a run of *workload*.

    The result is None if the run is too large or its backend is slow.
    """
    events = int(result.provenance.get("events", result.num_nodes))
    nodes = sum(graph.num_nodes for graph in workload.graphs)
    if not about_backend(result.backend).quick or not 0 < events <= _MOST_EVENTS or nodes > _MOST_NODES:
        return None
    from .._experiment import Detail  # noqa: PLC0415 - analyses of large runs do not need the simulator
    from ._what_if import what_if  # noqa: PLC0415

    detail = Detail.EVERYTHING if result.num_nodes <= _MOST_PATH_NODES else Detail.TOTALS
    asked = dataclasses.replace(experiment(), detail=detail)
    return lambda changes: what_if(asked, list(changes))
