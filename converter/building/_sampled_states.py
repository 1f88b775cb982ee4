"""Spans of a thread from its sampled states: what it did at each sample, and from when to when."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import NamedTuple

from ._cause_rules import ACTIVITIES
from ._host_causes import GAPS, OPERATIONS, Span
from ._sections import Elements
from ._steps import Window

# A place, and how often a function has to go back to an earlier line for what is between to be a loop.
_PLACE = re.compile(r"(?P<function>.+:)(?P<line>\d+)\)")
_TURNS = 2
ACROSS_THE_MODEL = "validation"
"""The activity in which the model runs, too."""


class State(NamedTuple):
    """The activity of the stepping thread at a sample, and its start, at the latest or *is_exact*."""

    since_ns: int
    time_ns: int
    is_exact: bool
    cause: str
    place: str


def states_of_other_steps(
    own: Sequence[State],
    others: Sequence[tuple[Sequence[int], Sequence[State]]],
    edges: Sequence[int],
    steps: Sequence[Sequence[int]],
) -> Iterator[State]:
    """Yield spans from *others*, steps by their phases and states, for sections without samples of *own*.

    A sample of another step applies to a section if its distances from the start and end of the phase fit
    the section; or if the phase is a single section, and all its samples show one place. *steps* are the
    phases of those to describe.
    """
    seen = {bisect_right(edges, state.time_ns) for state in own if steps and state.time_ns < steps[-1][-1]}
    for phases, (other, states) in product(steps, others):
        here, there = phases, other
        if len(here) != len(there):  # steps of other phases are compared as a whole
            here, there = [here[0], here[-1]], [there[0], there[-1]]
        else:
            yield from (
                state
                for number, state in _alike_in_phases(here, there, states)
                if seen.isdisjoint({bisect_right(edges, state.time_ns)})
                and bisect_right(edges, here[number]) == bisect_left(edges, here[number + 1])
            )
        for state in states:
            number = bisect_right(there, state.time_ns) - 1
            if not 0 <= number < len(there) - 1:
                continue
            times = [state.time_ns + here[number + one] - there[number + one] for one in (0, 1)]
            sections = {bisect_right(edges, time_ns) for time_ns in times}
            is_inside = here[number] <= min(times) and max(times) < here[number + 1]
            if is_inside and len(sections) == 1 and sections.isdisjoint(seen):
                time_ns = sum(times) // 2
                yield State(time_ns, time_ns, False, state.cause, state.place)


def _alike_in_phases(
    here: Sequence[int], there: Sequence[int], states: Sequence[State]
) -> Iterator[tuple[int, State]]:
    """Yield the number of each phase in which all *states* of another step are at one place, and that state.

    *here* and *there* are the edges of the phases in the two steps.
    """
    for number, (start, end) in enumerate(pairwise(there)):
        own = [state for state in states if start <= state.time_ns < end]
        if len(own) > 1 and len({state.place for state in own}) == 1:
            cause = Counter(state.cause for state in own).most_common(1)[0][0]
            middle = (here[number] + here[number + 1]) // 2
            yield number, State(middle, middle, False, cause, own[0].place)


def lines_of_loops(steps: Sequence[Sequence[State]]) -> dict[str, str]:
    """Return for each place the line that represents its loop: the most frequent one.

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


def spans_around(
    states: Sequence[State], elements: Elements, edges: Sequence[int], window: Window
) -> Iterator[Span]:
    """Yield a span around each run of equal *states*: a state only applies to its section between *edges*.

    Validation runs modules: its state is that of all sections up to the next sample.
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
