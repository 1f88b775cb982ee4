"""Apply the host trace's records of one step to steps that it does not cover.

The observer of host traces slows operators down, small ones several times, so a capture enables it, and the
ranges of modules, for one step only. Steps are alike: the n-th operator of a thread is the same in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
from msgspec.structs import replace

from ...tracer import StepRange
from .._columns import groups_of, which
from ..readers import COMM_OPS, GLOO, OWN_RANGES, STEP_MARK, DeviceTrace, Events, HostTrace

__all__ = ["lend_records"]

_ALIGNED_AT_MOST = 1000  # beyond it this takes long, and the steps are hardly the same
_NONE = np.empty(0, dtype=np.int64)
_APART = 1 << 48  # between the record ids of one step and the next; they count from 1 in a process


def lend_records(
    trace: DeviceTrace, host: HostTrace, structure: StepRange, steps: Sequence[StepRange]
) -> tuple[DeviceTrace, HostTrace] | None:
    """Return *trace* and *host* with the records and modules of *structure* for the events of *steps*.

    None if the communication of the steps differs, so that a collective would have no record; computation may
    have none.
    """
    events = trace.events
    communicates = which(trace.texts, COMM_OPS.__contains__)[events.name]
    lenders = _lanes(trace, structure)
    modules = _module_ranges(trace)
    modules_lent = [events.take(_NONE)]
    lent = events.record_id.copy()
    rows, records = [np.arange(len(host))], [host.records]
    for number, step in enumerate(steps, start=1):
        for lane, indices in _lanes(trace, step).items():
            own, lender = _pairs(events.name, lenders.get(lane, _NONE), indices)
            if not _within(events, modules, step).any():
                ranges = modules[_within(events, modules, structure) & (events.thread[modules] == lane)]
                modules_lent.append(_lent_ranges(events, ranges, own, lender))
            lent[own] = events.record_id[lender] + number * _APART
            found = host.rows(events.record_id[lender])
            rows.append(found[found >= 0])
            records.append(lent[own][found >= 0])
            if communicates[np.setdiff1d(indices, own)].any():
                return None
    all_rows, all_records = np.concatenate(rows), np.concatenate(records)
    _, first = np.unique(all_records, return_index=True)
    lending = trace.with_records(lent).with_annotations(modules_lent)
    return lending, host.subset(all_rows[first], all_records[first])


def _module_ranges(trace: DeviceTrace) -> np.ndarray:
    """Return the indices of the ranges of modules and of calls of models."""
    return np.flatnonzero(which(trace.texts, lambda text: text.startswith(OWN_RANGES))[trace.events.name])


def _within(events: Events, indices: np.ndarray, step: StepRange) -> np.ndarray:
    inside: np.ndarray = (events.start_ns[indices] >= step.start_ns) & (
        events.start_ns[indices] < step.end_ns
    )
    return inside


def _lent_ranges(events: Events, ranges: np.ndarray, own: np.ndarray, lender: np.ndarray) -> Events:
    """Return the *ranges* of a thread moved to its *own* events, the counterparts of the *lender* ones."""
    begins = np.searchsorted(events.start_ns[lender], events.start_ns[ranges])
    ends = np.searchsorted(events.start_ns[lender], events.end_ns[ranges])
    holding = begins < ends
    spans = zip(begins[holding].tolist(), ends[holding].tolist(), strict=True)
    bounds = [
        (int(events.start_ns[own[begin]]), int(events.end_ns[own[begin:end]].max())) for begin, end in spans
    ]
    found = events.take(ranges[holding])
    starts_ns, ends_ns = np.array(bounds, dtype=np.int64).reshape(-1, 2).T
    return replace(found, start_ns=starts_ns, end_ns=ends_ns)


def _lanes(trace: DeviceTrace, step: StepRange) -> dict[int, np.ndarray]:
    """Return the indices of the events in *step*, by thread, without ranges of steps and modules.

    Gloo's annotations, which may end on any of its threads, are one lane.
    """
    events = trace.events
    is_step = which(trace.texts, lambda text: text.startswith((STEP_MARK, *OWN_RANGES)))[events.name]
    of_gloo = which(trace.texts, lambda text: text.startswith(GLOO))[events.name]
    inside = (events.start_ns >= step.start_ns) & (events.start_ns < step.end_ns) & ~is_step
    indices = np.flatnonzero(inside)
    lanes = np.where(of_gloo, -1, events.thread)[indices]
    return {lane: indices[part] for lane, part in groups_of(lanes).items()}


def _pairs(names: np.ndarray, lenders: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of equal events of *own* and *lenders*, by names in order."""
    mine, theirs = names[own].tolist(), names[lenders].tolist()
    head = _common(mine, theirs)
    tail = _common(mine[head:][::-1], theirs[head:][::-1])
    middle = _aligned(mine[head : len(mine) - tail], theirs[head : len(theirs) - tail])
    pairs = [(i, i) for i in range(head)]
    pairs += [(head + i, head + j) for i, j in middle]
    pairs += [(len(mine) - i, len(theirs) - i) for i in range(tail, 0, -1)]
    found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return own[found[:, 0]], lenders[found[:, 1]]


def _common(mine: Sequence[int], theirs: Sequence[int]) -> int:
    """Return the length of the common prefix of names."""
    differs = (i for i, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other)
    return next(differs, min(len(mine), len(theirs)))


def _aligned(mine: Sequence[int], theirs: Sequence[int]) -> list[tuple[int, int]]:
    """Return the positions of a long common subsequence of names in both."""
    if max(len(mine), len(theirs)) > _ALIGNED_AT_MOST:
        return []
    blocks = SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks()
    return [(block.a + i, block.b + i) for block in blocks for i in range(block.size)]
