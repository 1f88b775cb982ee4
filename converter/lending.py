"""Lend the records of a step that the host trace covers to steps that it does not.

The observer behind the host trace slows operators down, small ones several times, so a capture has it on for
one step only. Steps do the same things in the same order: the n-th operator of a thread is the same in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import msgspec

from .collectives import COMM_OPS
from .host_trace import HostOp, HostTrace
from .kineto import Event
from .trace_set import StepRange

__all__ = ["lend_records"]

_GLOO = "gloo:"
_STEP = "ProfilerStep#"
_ALIGNED_AT_MOST = 1000  # beyond it this takes long, and the steps are hardly the same
_APART = 1 << 48  # between the record ids of one step and the next; they count from 1 in a process


def lend_records(
    events: Sequence[Event], host: HostTrace, structure: StepRange, steps: Sequence[StepRange]
) -> tuple[list[Event], HostTrace] | None:
    """Return *events*, in order of start, and *host* so that those of *steps* have records of *structure*.

    None if the steps differ in what they communicate, so that a collective would remain without record;
    computation without a counterpart merely has no record.
    """
    lenders = _lanes(events, structure)
    found = list(events)
    operators: dict[int, HostOp] = dict(host.operators)
    for number, step in enumerate(steps, start=1):
        for lane, indices in _lanes(events, step).items():
            borrowed = _pairs(events, lenders.get(lane, []), indices)
            for own, lender in borrowed:
                record = events[lender].record_id
                found[own] = msgspec.structs.replace(events[own], record_id=record + number * _APART)
                if record in host.operators:
                    operators[record + number * _APART] = host.operators[record]
            left = set(indices) - {own for own, _ in borrowed}
            if any(events[index].name in COMM_OPS for index in left):
                return None
    return found, HostTrace(operators, host.groups, host.schema)


def _lanes(events: Sequence[Event], step: StepRange) -> dict[str, list[int]]:
    """Return the indices of the events in *step*, by thread, in the order in which they began.

    Gloo's annotations, which may end on any of its threads, are one lane.
    """
    lanes: dict[str, list[int]] = {}
    for index, event in enumerate(events):
        if step.start_ns <= event.start_ns < step.end_ns and not event.name.startswith(_STEP):
            lane = _GLOO if event.name.startswith(_GLOO) else event.thread
            lanes.setdefault(lane, []).append(index)
    return lanes


def _pairs(events: Sequence[Event], lenders: Sequence[int], own: Sequence[int]) -> list[tuple[int, int]]:
    """Return which of *own* is the same as which of *lenders*, by names in order."""
    mine = [events[index].name for index in own]
    theirs = [events[index].name for index in lenders]
    head = _common(mine, theirs)
    tail = _common(mine[head:][::-1], theirs[head:][::-1])
    middle = _aligned(mine[head : len(mine) - tail], theirs[head : len(theirs) - tail])
    pairs = [(i, i) for i in range(head)]
    pairs += [(head + i, head + j) for i, j in middle]
    pairs += [(len(mine) - i, len(theirs) - i) for i in range(tail, 0, -1)]
    return [(own[i], lenders[j]) for i, j in pairs]


def _common(mine: Sequence[str], theirs: Sequence[str]) -> int:
    """Return how many names both begin with."""
    differs = (i for i, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other)
    return next(differs, min(len(mine), len(theirs)))


def _aligned(mine: Sequence[str], theirs: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of the same names in both, most of them, in order."""
    if max(len(mine), len(theirs)) > _ALIGNED_AT_MOST:
        return []
    blocks = SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks()
    return [(block.a + i, block.b + i) for block in blocks for i in range(block.size)]
