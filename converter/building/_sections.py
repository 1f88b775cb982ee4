"""The sections of a thread's step: its operators, modules, backward passes, optimizers and data loaders."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...tracer import StepRange
from ..readers import PHASES, Ops
from ._overhead import CLOCK_PHASES
from ._steps import Window

_LOADER, _FORWARD, _BACKWARD, _OPTIMIZER = range(len(CLOCK_PHASES))


class Elements(NamedTuple):
    """The outermost operators of a thread and the gaps between them, each by its start and end."""

    edges: list[int]

    @classmethod
    def of(cls, ops: Ops, window: Window, *, nested: bool = False) -> Elements:
        """Return the elements of *window*; of *nested* operators each one's own pieces."""
        outer = (ops.parent < 0) | nested
        edges = np.unique(
            np.concatenate([ops.start_ns[outer], ops.end_ns[outer], [window.start_ns, window.end_ns]])
        )
        return cls(edges.tolist())

    def longest(self, start_ns: int, end_ns: int, delay_ns: int) -> list[tuple[int, int]]:
        """Return the place of a delay in an interval, in order: at the ends of its longest elements.

        A thread that loses a processor gets it back milliseconds later, so that short elements were not
        delayed. Without the delay the long ones are equally long.
        """
        inner = self.edges[bisect_right(self.edges, start_ns) : bisect_left(self.edges, end_ns)]
        elements = sorted(pairwise([start_ns, *inner, end_ns]), key=lambda one: one[0] - one[1])
        total_ns, level_ns = -delay_ns, 0
        for number, (begin, end) in enumerate(elements, 1):
            if end - begin <= level_ns:
                break
            total_ns += end - begin
            level_ns = max(0, -(-total_ns // number))
        return sorted((begin + level_ns, end) for begin, end in elements if end - begin > level_ns)

    def boundary(self, earlier_ns: int, since_ns: int, later_ns: int) -> int:
        """Return the time at which a state sampled at *earlier_ns* changed to one sampled at *later_ns*.

        The first state began at *since_ns* at the latest. States begin and end with operators if
        possible.
        """
        middle = min((earlier_ns + later_ns) // 2, max(since_ns, earlier_ns))
        at = bisect_left(self.edges, middle)
        if not 0 < at < len(self.edges):
            return middle
        start, end = self.edges[at - 1], self.edges[at]
        inside = [edge for edge in (start, end) if earlier_ns <= edge <= max(later_ns, middle)]
        return min(inside, key=lambda edge: abs(edge - middle)) if inside else middle


def phase_edges(ops: Ops, start_ns: int, end_ns: int) -> list[int]:
    """Return the start and end of a step on a thread, and those of its phases except modules."""
    inner = [edge for edge in section_edges(ops, has_modules=False) if start_ns < edge < end_ns]
    return [start_ns, *inner, end_ns]


def section_edges(ops: Ops, *, has_modules: bool = True) -> list[int]:
    """Return the starts and ends of modules, backward passes, optimizers and data loaders on the thread."""
    outer = ops.parent < 0
    phases, starts, ends = ops.phase[outer], ops.start_ns[outer], ops.end_ns[outer]
    outside = len(PHASES)
    is_forward = phases == PHASES.index("forward")
    kinds = np.where(is_forward & ((ops.module[outer] == 0) | (not has_modules)), outside, phases)
    first = np.flatnonzero(np.diff(kinds, prepend=outside) != 0)
    last = np.append(first[1:], len(kinds))[: len(first)] - 1
    inside = kinds[first] != outside
    edges: list[int] = np.unique(np.concatenate([starts[first][inside], ends[last][inside]])).tolist()
    return edges


def clock_phases(ops: Ops, times_ns: np.ndarray, steps: Sequence[StepRange]) -> np.ndarray:
    """Return the number among `CLOCK_PHASES` of each of *times_ns*, -1 outside *steps*.

    It is that of the latest of *ops*.
    """
    outer = ops.parent < 0
    starts, own = ops.start_ns[outer], ops.phase[outer]
    phases = np.full(len(times_ns), -1)
    for step in steps:
        rows = (starts >= step.start_ns) & (starts < step.end_ns)
        is_backward = own[rows] == PHASES.index("backward")
        numbers = np.where(np.logical_or.accumulate(is_backward), _OPTIMIZER, _FORWARD)
        numbers[is_backward] = _BACKWARD
        numbers[own[rows] == PHASES.index("other")] = _LOADER
        inside = (times_ns >= step.start_ns) & (times_ns < step.end_ns)
        begun = np.searchsorted(starts[rows], times_ns[inside], side="right")
        phases[inside] = np.append(_FORWARD, numbers)[begun]
    return phases
