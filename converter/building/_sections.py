"""Divide a thread's step into sections, such as modules and backward passes, with sampled states."""

from __future__ import annotations

import re
import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from ...tracer import StepRange
from ..readers import PHASES, Ops
from ._cause_rules import ACTIVITIES
from ._host_causes import DISPATCH_NS, GAPS, OPERATIONS, Span, clipped
from ._overhead import CLOCK_PHASES
from ._steps import Window

_LOADER, _FORWARD, _BACKWARD, _OPTIMIZER = range(len(CLOCK_PHASES))


class Elements(NamedTuple):
    """The outermost operators of a thread and the gaps between them, as a sorted list of their edges."""

    edges: list[int]

    @classmethod
    def of(cls, ops: Ops, window: Window, *, nested: bool = False) -> Elements:
        """Return the elements of *window*; with *nested*, include the edges of inner operators."""
        outer = (ops.parent < 0) | nested
        edges = np.unique(
            np.concatenate([ops.start_ns[outer], ops.end_ns[outer], [window.start_ns, window.end_ns]])
        )
        return cls(edges.tolist())

    def longest(self, start_ns: int, end_ns: int, delay_ns: int) -> list[tuple[int, int]]:
        """Return where a delay lies within an interval: at the ends of the interval's longest elements.

        A thread that loses its processor gets a processor back milliseconds later, so short elements were not
        delayed. The longest elements are assumed to have equal lengths without the delay.
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
        """Return the time at which the state sampled at *earlier_ns* changed to the state at *later_ns*.

        The earlier state began at *since_ns* at the latest. If possible, states begin and end with operators.
        """
        middle = min((earlier_ns + later_ns) // 2, max(since_ns, earlier_ns))
        at = bisect_left(self.edges, middle)
        if not 0 < at < len(self.edges):
            return middle
        start, end = self.edges[at - 1], self.edges[at]
        inside = [edge for edge in (start, end) if earlier_ns <= edge <= max(later_ns, middle)]
        return min(inside, key=lambda edge: abs(edge - middle)) if inside else middle


class LongGaps:
    """The gaps between the outermost operators of a thread in which the thread runs Python code."""

    def __init__(self, ops: Ops, start_ns: int, end_ns: int) -> None:
        outer = ops.parent < 0
        starts = np.append(ops.start_ns[outer], end_ns)
        ends = np.insert(np.maximum.accumulate(ops.end_ns[outer]), 0, start_ns)
        is_long = starts - ends >= DISPATCH_NS
        self.starts: list[int] = ends[is_long].tolist()
        self.ends: list[int] = starts[is_long].tolist()

    def contain(self, state: State) -> bool:
        """Return whether the thread was in a gap for some time when *state* was sampled.

        Sampling itself stops a thread for a short time, even in a loop of short operators.
        """
        asked_ns = state.time_ns if state.is_exact else state.since_ns
        number = bisect_right(self.starts, asked_ns - DISPATCH_NS) - 1
        return number >= 0 and state.time_ns <= self.ends[number]

    def joined(self, inside: Iterable[Span], outside: Iterable[Span]) -> list[Span]:
        """Return the parts of the spans *inside* in the gaps, and of the spans *outside* in other time."""
        edges = [0, *(edge for gap in zip(self.starts, self.ends, strict=True) for edge in gap), sys.maxsize]
        parts = [
            *clipped(inside, self.starts, self.ends),
            *clipped(outside, edges[::2], edges[1::2]),
        ]
        return sorted(parts)


def phase_edges(ops: Ops, start_ns: int, end_ns: int) -> list[int]:
    """Return the start and end of a step on a thread, and the edges of its phases except modules."""
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
    """Return the index in `CLOCK_PHASES` of the phase at each of *times_ns*, or -1 outside *steps*.

    The latest operator of *ops* before a time determines the phase.
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


# Pattern of a source location, and the minimum number of times that a function in a loop returns to an
# earlier line.
_PLACE = re.compile(r"(?P<function>.+:)(?P<line>\d+)\)")
_TURNS = 2
# A section with fewer samples than the first number also gets the samples of other steps whose phases differ
# in length by at most the second number (a ratio).
_ENOUGH, _ALIKE = 4, 1.5
ACROSS_THE_MODEL = "validation"
"""The activity that includes runs of the model."""


class State(NamedTuple):
    """The stepping thread's activity at a sample; its start is the latest possible start, or *is_exact*.

    *in_gap* means that the sample is in one of the `LongGaps`. *in_module* states whether a module was being
    called, and *is_misplaced* that the section of the sample contradicts this.
    """

    since_ns: int
    time_ns: int
    is_exact: bool
    cause: str
    place: str
    in_gap: bool = False
    in_module: bool = False
    is_misplaced: bool = False


def states_of_other_steps(
    own: Sequence[State],
    others: Sequence[tuple[Sequence[int], Sequence[State]]],
    edges: Sequence[int],
    steps: Sequence[Sequence[int]],
) -> Iterator[State]:
    """Yield states from *others* (phases and states of other steps) for sections with few samples in *own*.

    A sample of another step applies to a section if its distances from the start and end of the phase fit the
    section. The sample also applies if the phase is a single section, and all its samples show the same
    source location. *steps* are the phases of the steps to describe.

    A few samples say little about a long section, so a section with few samples also gets the samples of
    phases of about the same length. This does not apply to activities, such as checkpoints, which seldom
    recur.
    """
    seen: dict[int, list[State]] = {}
    for state in own:
        if steps and state.time_ns < steps[-1][-1]:
            seen.setdefault(bisect_right(edges, state.time_ns), []).append(state)
    certain = {
        section
        for section, sampled in seen.items()
        if len(sampled) >= _ENOUGH or any(state.cause in ACTIVITIES for state in sampled)
    }
    for phases, (other, states) in product(steps, others):
        here, there = phases, other
        if len(here) != len(there):  # steps with different phases are compared as a whole
            here, there = [here[0], here[-1]], [there[0], there[-1]]
        else:
            yield from (
                state
                for number, state in _alike_in_phases(here, there, states)
                if bisect_right(edges, state.time_ns) not in seen
                and bisect_right(edges, here[number]) == bisect_left(edges, here[number + 1])
            )
        for state in states:
            number = bisect_right(there, state.time_ns) - 1
            if not 0 <= number < len(there) - 1:
                continue
            times = [state.time_ns + here[number + one] - there[number + one] for one in (0, 1)]
            sections = {bisect_right(edges, time_ns) for time_ns in times}
            is_inside = here[number] <= min(times) and max(times) < here[number + 1]
            lengths = [after - before for before, after in (here[number:][:2], there[number:][:2])]
            known = certain if max(lengths) <= _ALIKE * min(lengths) else seen.keys()
            if is_inside and len(sections) == 1 and sections.isdisjoint(known):
                time_ns = sum(times) // 2
                yield State(time_ns, time_ns, False, *state[3:])


def _alike_in_phases(
    here: Sequence[int], there: Sequence[int], states: Sequence[State]
) -> Iterator[tuple[int, State]]:
    """Yield number and state of each phase in which all *states* of another step have the same location.

    *here* and *there* are the edges of the phases in the two steps.
    """
    for number, (start, end) in enumerate(pairwise(there)):
        own = [state for state in states if start <= state.time_ns < end]
        if len(own) > 1 and len({state.place for state in own}) == 1:
            cause = Counter(state.cause for state in own).most_common(1)[0][0]
            middle = (here[number] + here[number + 1]) // 2
            yield number, own[0]._replace(since_ns=middle, time_ns=middle, is_exact=False, cause=cause)


def lines_of_loops(steps: Sequence[Sequence[State]]) -> dict[str, str]:
    """Return, for each source location in a loop, the location of the loop's most frequent line.

    A loop is a function that returns to an earlier line at least twice within one of *steps*.
    """
    joined: dict[str, str] = {}
    for states in steps:
        visits: dict[str, list[int]] = {}
        for match in filter(None, (_PLACE.fullmatch(state.place) for state in states)):
            visits.setdefault(match["function"], []).append(int(match["line"]))
        for function, lines in visits.items():
            back = [(later, earlier) for earlier, later in pairwise(lines) if later < earlier]
            loop: list[int] = []
            for line, following in pairwise([*sorted(set(lines)), 0]):
                loop.append(line)
                if (
                    sum(first <= line and following <= last for first, last in back) * bool(following)
                    < _TURNS
                ):
                    usual = max(loop, key=lines.count)
                    joined |= {f"{function}{line})": f"{function}{usual})" for line in loop if line != usual}
                    loop = []
    return joined


def fitting(states: Iterable[State], ops: Ops, edges: Sequence[int]) -> Iterator[State]:
    """Yield the *states* that can lie in their sections: calls of modules do not run operators of other code.

    Samples of a thread are late and rare, and samples of other steps are only about at the same place. In a
    long gap, however, a call of a module may just begin or end. Activities may call modules.
    """
    kinds: dict[int, bool] = {}
    is_forward = (ops.parent < 0) & (ops.phase == PHASES.index("forward"))
    if ops.module.any():
        sections = np.searchsorted(edges, ops.start_ns[is_forward], side="right").tolist()
        kinds = dict(zip(sections, (ops.module[is_forward] != 0).tolist(), strict=True))
    for state in states:
        kind = kinds.get(bisect_right(edges, state.time_ns), state.in_module)
        if state.in_module == kind or state.cause in ACTIVITIES:
            yield state
        elif state.in_gap:
            yield state._replace(is_misplaced=True)


def of_gaps(states: Sequence[State], edges: Sequence[int], in_gap: bool) -> list[State]:
    """Return the *states* that apply to long gaps (if *in_gap*) or to other time.

    Long gaps between operators often run other code (such as hooks of modules) than the code that calls the
    operators. Activities apply to both, and so do all states of a section without a sample of the other kind,
    except misplaced states.
    """
    sections = [bisect_right(edges, state.time_ns) for state in states]
    certain = {
        section
        for section, state in zip(sections, states, strict=True)
        if state.in_gap == in_gap and state.cause not in ACTIVITIES
    }
    return [
        state
        for section, state in zip(sections, states, strict=True)
        if state.in_gap == in_gap
        or state.cause in ACTIVITIES
        or (section not in certain and not state.is_misplaced)
    ]


def spans_around(
    states: Sequence[State], elements: Elements, edges: Sequence[int], window: Window
) -> Iterator[Span]:
    """Yield a span around each run of equal *states*; a state applies only to its section.

    Validation runs modules, so a state of validation applies to all sections up to the next sample.
    """
    sections = [bisect_right(edges, state.time_ns) for state in states]
    begin = window.start_ns
    for number, state in enumerate(states):
        low = edges[sections[number] - 1] if sections[number] else window.start_ns
        high = edges[sections[number]] if sections[number] < len(edges) else window.end_ns
        following = states[number + 1] if number + 1 < len(states) else None
        if state.cause == ACROSS_THE_MODEL:
            low, high = window.start_ns, window.end_ns
        if state.time_ns >= window.end_ns or state.is_exact:
            low = max(low, state.since_ns)
        end = min(high, window.end_ns)
        if following is not None and following.is_exact:
            end = min(end, following.since_ns)
        elif following is not None and (
            sections[number] == sections[number + 1] or ACROSS_THE_MODEL in (state.cause, following.cause)
        ):
            end = min(end, elements.boundary(state.time_ns, following.since_ns, following.time_ns))
        begin = max(begin, low)
        if end > begin:
            claims = OPERATIONS if state.cause in ACTIVITIES else GAPS
            yield Span(begin, end, state.cause, state.place, claims)
            begin = end
