"""Estimate the profiler's cost per recorded event, and subtract it from host time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median, quantiles

import numpy as np

from ...tracer import Evidence, StepRange
from ..chakra import NodeType
from ..readers import Events
from ._rank_graph import RankGraph
from ._window import Window

__all__ = ["cost_of_recording", "without_recording"]

# Of a run's steps the first ones allocate and compile; fewer than the least are no baseline.
_FIRST, _LEAST_STEPS = 3, 5
# A step this many times the median did other work than the usual ones.
_LONG = 1.5
# A normal distribution's median is known to 0.93 interquartile ranges over the root of the number of values.
_MEDIAN_ERROR = 0.93
# A median that is known no better is no baseline; a difference of fewer errors may be chance.
_MOST_ERROR, _ERRORS = 0.1, 2
# PyTorch's profiler takes 1 to 5 us for an event, with its Python part; what is beyond has other reasons.
_MOST_NS = 10_000


def cost_of_recording(evidence: Evidence | None, events: Events, captured: Sequence[StepRange]) -> float:
    """Return what recording one of the *events* of the stepping thread adds to it (ns), 0.0 if unknown.

    That is the processor time of the *captured* steps beyond that of steps that nothing recorded, over the
    events in them. It is unknown without *evidence*, or where such steps are few or too different.
    """
    if evidence is None:
        return 0.0
    steps = evidence.steps
    used = {index: steps.cpu_ns[end] - steps.cpu_ns[begin] for index, begin, end in steps.steps()}
    recorded = {index for index, _, end in steps.steps() if steps.recorded[end]}
    plain = [used[index] for index in sorted(used.keys() - recorded)]
    plain = plain[_FIRST:] if len(plain) >= _FIRST + _LEAST_STEPS else plain
    usual = [one for one in plain if one <= _LONG * median(plain)]
    if len(usual) < _LEAST_STEPS:
        return 0.0
    low, middle, high = quantiles(usual, n=4, method="inclusive")
    error = _MEDIAN_ERROR * (high - low) / len(usual) ** 0.5
    if error > _MOST_ERROR * middle:
        return 0.0
    costs, excesses = [], []
    for step in captured:
        count = int(np.diff(np.searchsorted(events.start_ns, [step.start_ns, step.end_ns]))[0])
        if step.index in used and count:
            excesses.append(used[step.index] - middle)
            costs.append((used[step.index] - middle) / count)
    if not costs or median(excesses) < _ERRORS * error:
        return 0.0
    return min(median(costs), _MOST_NS)


def without_recording(
    own: RankGraph, events: Mapping[int, Events], window: Window, cost_ns: float
) -> RankGraph:
    """Return *own* with *cost_ns* taken from its host nodes for each of the *events* of their lane.

    The profiler works before it notes an event's start and after it notes its end: half of the cost is taken
    from the node that ran until the start, and half from the one that ran from the end on.
    """
    if not cost_ns:
        return own
    nodes = own.graph.node_columns
    durations = np.array(nodes["duration_ns"])
    starts = nodes["measured_start_ns"] + window.start_ns
    ends, halves = starts + durations, np.zeros(len(durations), dtype=np.int64)
    for lane, recorded in events.items():
        rows = np.flatnonzero((nodes["stream"] == lane) & (nodes["type"] == NodeType.COMP))
        before, after = recorded.start_ns, np.sort(recorded.end_ns)
        halves[rows] = (
            np.searchsorted(before, ends[rows], side="right")
            - np.searchsorted(before, starts[rows], side="right")
            + np.searchsorted(after, ends[rows])
            - np.searchsorted(after, starts[rows])
        )
    removed = np.minimum(durations, np.rint(halves * cost_ns / 2).astype(np.int64))
    accounting = {**own.accounting, "profiler_ns": int(removed.sum())}
    return replace(own, graph=own.graph.with_columns(duration_ns=durations - removed), accounting=accounting)
