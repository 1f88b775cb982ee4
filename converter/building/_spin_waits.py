"""Find host threads that spin until device work completes, which no call records.

A thread that polls memory until a kernel writes to it records no event, but its intervals without calls and
operators repeatedly end when such a kernel does. Polling an event in a loop records the queries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import exp, log

import msgspec
import numpy as np

from .._columns import groups_of, which
from ..kernels import function_name
from ..linking import KERNEL, Lane, Launches
from ..readers import DeviceTrace
from ._conventions import SPIN
from ._issue_order import IssueOrder

__all__ = ["SpinWait", "spin_waits"]

EVENT_QUERIES = frozenset({"cudaEventQuery", "hipEventQuery", "cuEventQuery"})
# Fewer queries, or a shorter row of them, look through a list of events.
_QUERIES, _QUERIED_NS = 8, 100_000
# A thread sees the end of work this much later at most; a kernel that told it ends this much later at most,
# and within this share of its own time.
_NOTICED_WITHIN_NS = 20_000
_TOLD_BEFORE_END_NS, _TOLD_BEFORE_END = 100_000, 0.1
# A stretch is long if it takes this much, and so many times what the thread's stretches usually take.
_LONG_NS, _LONG = 200_000, 20
# A class of kernels is waited for if most of its long stretches end with it, this often at least, and if so
# many would by chance in one of this many traces.
_OFTEN, _MOST, _BY_CHANCE = 3, 0.8, 0.01
# Stretches as long as each other are a single chance; they differ if by so many times the width of it.
_DIFFER, _ONE_CHANCE = 10, 0.1


class SpinWait(msgspec.Struct, frozen=True):
    """A *lane* that spun from *start_ns* to *end_ns*, for the launch *source*; *name* tells how."""

    lane: int
    start_ns: int
    end_ns: int
    source: int
    name: str


def spin_waits(launches: Launches, trace: DeviceTrace, lanes: Sequence[Lane]) -> Iterator[SpinWait]:
    """Yield the waits of threads that spin on memory, or query events in a loop."""
    yield from _query_loops(launches, trace, lanes)
    for lane in lanes:
        yield from _memory_spins(launches, trace, lane)


def _query_loops(launches: Launches, trace: DeviceTrace, lanes: Sequence[Lane]) -> Iterator[SpinWait]:
    """Yield the rows of queries that ended soon after work did that had been issued before them."""
    calls, issued = trace.calls, IssueOrder.of(launches)
    asks = which(trace.texts, EVENT_QUERIES.__contains__)[calls.name]
    for lane in lanes if asks.any() else ():
        own = np.flatnonzero(calls.thread == lane.thread)
        own = own[np.argsort(calls.start_ns[own], kind="stable")]
        changes = np.flatnonzero(np.diff(asks[own])) + 1
        for row in np.split(own, changes):
            if len(row) < _QUERIES or not asks[row[0]]:
                continue
            start, end = int(calls.start_ns[row[0]]), int(calls.end_ns[row[-1]])
            source = issued.last_ended_within(start, end)
            if source is None or end - start < _QUERIED_NS or launches.call_start_ns[source] >= start:
                continue
            if int(launches.end_ns[source]) >= int(calls.start_ns[row[-2]]) - _NOTICED_WITHIN_NS:
                yield SpinWait(lane.number, start, end, source, trace.texts[int(calls.name[row[-1]])])


class _Ends(msgspec.Struct, frozen=True):
    """Distances from the ends of intervals to those of the latest kernels of one class.

    *near* means that both end together, *chance* is the share of the interval that counts as together.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    source: np.ndarray
    near: np.ndarray
    chance: np.ndarray

    def are_waits(self, classes: int) -> bool:
        """Return whether the stretches end with the kernels more often than chance has it.

        As many *classes* are asked about. If the stretches take the same time each, all coincide or none.
        """
        hits = int(self.near.sum())
        if hits < _OFTEN or hits < _MOST * len(self.near):
            return False
        chance = self.chance[self.near]
        lengths = (self.end_ns - self.start_ns)[self.near]
        differ = np.ptp(lengths) > _DIFFER * (chance * lengths).max()
        if not differ and classes * chance.max() > _ONE_CHANCE:
            return False
        return classes * _at_least(hits, len(self.near), float(self.chance.mean())) < _BY_CHANCE


def _at_least(hits: int, trials: int, chance: float) -> float:
    """Return a bound of the probability of so many *hits* or more (Chernoff's, of the binomial)."""
    share = hits / trials
    if share <= chance:
        return 1.0
    miss = (1 - share) * log((1 - share) / (1 - chance)) if share < 1 else 0.0
    return exp(-trials * (share * log(share / chance) + miss))


def _memory_spins(launches: Launches, trace: DeviceTrace, lane: Lane) -> Iterator[SpinWait]:
    """Yield the long stretches of *lane* that end with kernels it had issued, class by class of these."""
    starts, ends = _stretches(launches, trace, lane)
    lengths = ends - starts
    if not len(lengths):
        return
    long = lengths >= max(_LONG_NS, _LONG * int(np.median(lengths)))
    classes = _classes(launches, trace, lane, starts[long], ends[long])
    waited: dict[int, tuple[int, SpinWait]] = {}
    for name, found in classes.items():
        if not found.are_waits(len(classes)):
            continue
        rows = (found.start_ns, found.end_ns, found.source)
        for start, end, source in zip(*(column[found.near].tolist() for column in rows), strict=True):
            off_ns = abs(end - int(launches.end_ns[source]))
            wait = SpinWait(lane.number, start, end, source, f"{SPIN}{name}")
            waited[start] = min(waited.get(start, (off_ns, wait)), (off_ns, wait), key=lambda one: one[0])
    yield from (wait for _, wait in waited.values())


def _stretches(launches: Launches, trace: DeviceTrace, lane: Lane) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and ends of intervals in which *lane* began or ended no operator or call."""
    calls, pieces = trace.calls, lane.pieces
    own, mine = calls.thread == lane.thread, launches.lane == lane.number
    begun = np.concatenate([calls.start_ns[own], launches.call_start_ns[mine]])
    done = np.concatenate([calls.end_ns[own], launches.call_end_ns[mine]])
    points = np.unique(np.concatenate([pieces.start_ns, pieces.end_ns, begun, done]))
    if len(points) < 2:
        return points[:0], points[:0]
    order = np.argsort(begun, kind="stable")
    latest = np.maximum.accumulate(np.append(points[0], done[order]))
    in_call = latest[np.searchsorted(begun[order], points[:-1], side="right")] > points[:-1]
    covered = np.searchsorted(pieces.start_ns, points[:-1], side="right") - 1
    outside = (covered < 0) | (pieces.end_ns[np.maximum(0, covered)] <= points[:-1])
    free = ~in_call & ~outside
    return points[:-1][free], points[1:][free]


def _classes(
    launches: Launches, trace: DeviceTrace, lane: Lane, starts: np.ndarray, ends: np.ndarray
) -> dict[str, _Ends]:
    """Return by function how the stretches end beside the latest kernel that *lane* issued to each stream.

    Those that were done before the stretch began held up nothing.
    """
    rows: dict[str, list[np.ndarray]] = defaultdict(list)
    for works in groups_of(launches.queue).values():
        mine = works[launches.lane[works] == lane.number]
        at = np.searchsorted(launches.call_end_ns[mine], starts, side="right") - 1
        known = np.flatnonzero(at >= 0)
        source = mine[at[known]]
        known = known[ok := launches.end_ns[source] > starts[known]]
        for stretch, kernel in zip(known.tolist(), source[ok].tolist(), strict=True):
            if launches.category[kernel] == KERNEL:
                name = trace.texts[int(trace.works.name[launches.work[kernel]])]
                rows[function_name(name)[1] or name].append(np.array([stretch, kernel]))
    found: dict[str, _Ends] = {}
    for name, pairs in rows.items():
        stretch, kernel = np.array(pairs).T
        begin, end, done = starts[stretch], ends[stretch], launches.end_ns[kernel]
        told = np.minimum(_TOLD_BEFORE_END_NS, (_TOLD_BEFORE_END * (done - launches.start_ns[kernel])))
        near = (end >= done - told) & (end <= done + _NOTICED_WITHIN_NS)
        chance = np.minimum(1, (told + _NOTICED_WITHIN_NS) / (end - begin))
        found[name] = _Ends(begin, end, kernel, near, chance)
    return found
