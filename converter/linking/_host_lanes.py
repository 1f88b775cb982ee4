"""Find the host threads of a rank with a device, with their operators, pieces of time and handovers."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from ...tracer import StepRange
from .._columns import Columns, groups_of, which
from ..readers import (
    CALL_RANGE,
    COMM_OPS,
    GLOO,
    MODULE_RANGE,
    OWN_RANGES,
    STEP_MARK,
    DeviceTrace,
    Events,
    Frames,
    HostTrace,
    Op,
    Ops,
    Pieces,
    Threads,
    cut_pieces,
)

_BACKWARD = "autograd::engine::"
_Ranges = TypeVar("_Ranges", Events, Frames)


class Lane(msgspec.Struct):
    """One host thread within the window: operators in order of start, and pieces of its active time.

    Lane 0 is the main thread. The pieces of lane 0 cover the whole window. *thread* is the index of the
    thread's name.
    """

    number: int
    thread: int
    ops: Ops
    pieces: Pieces

    def ops_at(self, times_ns: np.ndarray) -> np.ndarray:
        """Return the innermost operator at each of *times_ns*, or -1 outside operators."""
        if not len(self.pieces):
            return np.full(len(times_ns), -1, dtype=np.int64)
        at = np.searchsorted(self.pieces.start_ns, times_ns, side="right") - 1
        inside = (at >= 0) & (times_ns <= self.pieces.end_ns[at])
        return np.where(inside, self.pieces.op[at], -1)

    def chain(self, time_ns: int) -> list[int]:
        """Return the indices of the operators around *time_ns*, innermost first."""
        index = int(self.ops_at(np.array([time_ns]))[0])
        found = []
        while index >= 0:
            found.append(index)
            index = int(self.ops.parent[index])
        return found

    def operators(self, time_ns: int) -> list[Op]:
        """Return the operators around *time_ns* as objects, innermost first."""
        return [self.ops[index] for index in self.chain(time_ns)]


class Bursts(Columns, frozen=True):
    """Intervals in which a thread other than the main thread works, in order.

    *is_awaited* means that the main thread started the burst and waited for its end, as in ``backward()``.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    is_awaited: np.ndarray


def host_lanes(trace: DeviceTrace, start_ns: int, end_ns: int) -> list[Lane]:
    """Return the threads that run operators or issue device work in the window, with the main thread first.

    The main thread is the thread with the step annotations. If there are no step annotations, the thread with
    the most operators outside autograd is the main thread. If there are no operators, the thread that issues
    the most work is the main thread.
    """
    events, calls = _by_thread(trace, start_ns, end_ns)
    of_backward = which(trace.texts, lambda text: text.startswith(_BACKWARD))
    main = _main_thread(trace, events, calls, of_backward)
    threads = Threads(trace)
    lanes: list[Lane] = []
    nothing = np.empty(0, dtype=np.int64)
    for thread in sorted(
        {*events, *calls, main} - {-1}, key=lambda number: (number != main, trace.texts[number])
    ):
        own_events, own_calls = events.get(thread, nothing), calls.get(thread, nothing)
        begin, end = start_ns, end_ns
        phase = "forward"
        if thread != main:
            own_events = own_events[trace.events.start_ns[own_events] >= start_ns]
            if not len(own_calls) and not trace.events.is_operator[own_events].any():
                continue
            begin, end = _extent(trace, own_events, own_calls)
            if of_backward[trace.events.name[own_events]].any():
                phase = "backward"
        ops = threads.operators(own_events, begin, end, phase=phase)
        lanes.append(Lane(len(lanes), thread, ops, cut_pieces(ops, begin, end)))
    return lanes


def _by_thread(
    trace: DeviceTrace, start_ns: int, end_ns: int
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Return, by thread, the events that overlap the window and its calls that issue device work."""
    events, calls = trace.events, trace.calls
    touching = np.flatnonzero((events.start_ns < end_ns) & (events.end_ns >= start_ns))
    inside = (calls.start_ns >= start_ns) & (calls.start_ns < end_ns)
    works = trace.works
    issues = np.isin(calls.correlation, works.correlation[works.correlation > 0])
    issues |= np.isin(
        calls.external_id, works.external_id[(works.correlation <= 0) & (works.external_id != 0)]
    )
    issuing = np.flatnonzero(inside & issues)
    return (
        {thread: touching[part] for thread, part in groups_of(events.thread[touching]).items()},
        {thread: issuing[part] for thread, part in groups_of(calls.thread[issuing]).items()},
    )


def _main_thread(
    trace: DeviceTrace,
    by_thread: dict[int, np.ndarray],
    calls: dict[int, np.ndarray],
    of_backward: np.ndarray,
) -> int:
    """Return the index of the main thread's name, or -1 if there are no threads."""
    events = trace.events
    marks = which(trace.texts, lambda text: text.startswith(STEP_MARK))[events.name]
    if marks.any():
        return int(events.thread[np.argmax(marks)])
    counts = {
        thread: int((events.is_operator[own] & ~of_backward[events.name[own]]).sum())
        for thread, own in by_thread.items()
    }
    if not any(counts.values()):
        counts = {thread: len(own) for thread, own in calls.items()}
    return max(sorted(counts, key=trace.texts.__getitem__), key=counts.__getitem__, default=-1)


def _extent(trace: DeviceTrace, events: np.ndarray, calls: np.ndarray) -> tuple[int, int]:
    """Return the interval in which a thread other than the main thread was active."""
    starts = np.concatenate([trace.events.start_ns[events], trace.calls.start_ns[calls]])
    ends = np.concatenate([trace.events.end_ns[events], trace.calls.end_ns[calls]])
    return int(starts.min()), int(ends.max())


def bursts(lane: Lane, call_start_ns: np.ndarray, call_end_ns: np.ndarray, main_points: np.ndarray) -> Bursts:
    """Return the bursts of *lane*, a thread other than the main thread.

    *call_start_ns* and *call_end_ns* are the times of the calls that issue work. *main_points* are the sorted
    times at which an operator or call of the main thread starts or ends. Between two of these times, the main
    thread may have waited for a burst.
    """
    outermost = lane.ops.parent < 0
    bare = lane.ops_at(call_start_ns) < 0
    starts = np.concatenate([lane.ops.start_ns[outermost], call_start_ns[bare]])
    ends = np.concatenate([lane.ops.end_ns[outermost], call_end_ns[bare]])
    order = np.lexsort((ends, starts))
    starts, ends = starts[order], ends[order]
    after = np.searchsorted(main_points, starts, side="right")
    alone = after == np.searchsorted(main_points, ends)
    # An interval joins the previous burst if the main thread handed over both intervals between the same
    # points, or handed over neither.
    joins = np.zeros(len(starts), dtype=bool)
    joins[1:] = (alone[1:] == alone[:-1]) & (~alone[1:] | (after[1:] == after[:-1]))
    first = np.flatnonzero(~joins)
    last_ends = np.maximum.reduceat(ends, first) if len(first) else ends
    return Bursts(starts[first], last_ends, alone[first])


_ALIGNED_AT_MOST = 1000  # maximum length of an alignment; longer alignments are slow, and hardly match
_NONE = np.empty(0, dtype=np.int64)
_APART = 1 << 48  # distance between the record ids of consecutive steps; record ids of a process count from 1


def lend_records(
    trace: DeviceTrace, host: HostTrace, structure: StepRange, steps: Sequence[StepRange]
) -> tuple[DeviceTrace, HostTrace] | None:
    """Return *trace* and *host* with the records, modules and lines of *structure* for the events of *steps*.

    The result is None if the communication of the steps differs, because a collective needs a record. A
    computation may lack a record.
    """
    events = trace.events
    communicates = which(trace.texts, COMM_OPS.__contains__)[events.name]
    lenders = _lanes(trace, structure)
    modules = _module_ranges(trace)
    modules_lent, lines_lent = [events.take(_NONE)], [trace.lines.take(_NONE)]
    lent = events.record_id.copy()
    rows, records = [np.arange(len(host))], [host.records]
    for number, step in enumerate(steps, start=1):
        for lane, indices in _lanes(trace, step).items():
            own, lender = _pairs(events.name, lenders.get(lane, _NONE), indices)
            if not _within(events, modules, step).any():
                ranges = modules[_within(events, modules, structure) & (events.thread[modules] == lane)]
                modules_lent.append(_lent_ranges(events, events.take(ranges), own, lender))
            lines = trace.lines.take(trace.lines.thread == lane)
            lines_lent.append(_lent_ranges(events, lines, own, lender))
            lent[own] = events.record_id[lender] + number * _APART
            found = host.rows(events.record_id[lender])
            rows.append(found[found >= 0])
            records.append(lent[own][found >= 0])
            if communicates[np.setdiff1d(indices, own)].any():
                return None
    all_rows, all_records = np.concatenate(rows), np.concatenate(records)
    _, first = np.unique(all_records, return_index=True)
    lending = trace.with_records(lent).with_annotations(modules_lent).with_lines(lines_lent)
    return lending, host.subset(all_rows[first], all_records[first])


def _module_ranges(trace: DeviceTrace) -> np.ndarray:
    """Return the indices of the ranges of modules and of model calls in *trace*."""
    return np.flatnonzero(
        which(trace.texts, lambda text: text.startswith((MODULE_RANGE, CALL_RANGE)))[trace.events.name]
    )


def _within(events: Events, indices: np.ndarray, step: StepRange) -> np.ndarray:
    inside: np.ndarray = (events.start_ns[indices] >= step.start_ns) & (
        events.start_ns[indices] < step.end_ns
    )
    return inside


def _lent_ranges(events: Events, ranges: _Ranges, own: np.ndarray, lender: np.ndarray) -> _Ranges:
    """Return the *ranges* of a thread, moved to the *own* events that correspond to *lender* events."""
    begins = np.searchsorted(events.start_ns[lender], ranges.start_ns)
    ends = np.searchsorted(events.start_ns[lender], ranges.end_ns)
    holding = begins < ends
    spans = zip(begins[holding].tolist(), ends[holding].tolist(), strict=True)
    bounds = [
        (int(events.start_ns[own[begin]]), int(events.end_ns[own[begin:end]].max())) for begin, end in spans
    ]
    starts_ns, ends_ns = np.array(bounds, dtype=np.int64).reshape(-1, 2).T
    return replace(ranges.take(holding), start_ns=starts_ns, end_ns=ends_ns)


def _lanes(trace: DeviceTrace, step: StepRange) -> dict[int, np.ndarray]:
    """Return the indices of the events in *step*, by thread, without ranges of steps and modules.

    Gloo's annotations form one lane because they may end on any of gloo's threads.
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
    """Return the length of the common prefix of two sequences of names."""
    differs = (i for i, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other)
    return next(differs, min(len(mine), len(theirs)))


def _aligned(mine: Sequence[int], theirs: Sequence[int]) -> list[tuple[int, int]]:
    """Return pairs of positions of a long common subsequence of two sequences of names."""
    if max(len(mine), len(theirs)) > _ALIGNED_AT_MOST:
        return []
    blocks = SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks()
    return [(block.a + i, block.b + i) for block in blocks for i in range(block.size)]
