"""Find waits of host threads for the device: synchronisation, blocking copies, full queues, spinning.

A thread that polls memory until a kernel writes to it records no event. However, intervals of the thread
without calls and operators repeatedly end together with a kernel of the same class. A loop that polls an
event appears in the trace as a series of queries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import exp, log

import msgspec
import numpy as np
from msgspec.structs import replace

from .._columns import groups_of, which
from ..chakra import SPIN
from ..kernels import function_name
from ..linking import KERNEL, Lane, Launches, Linked, blocks_host
from ..readers import Call, DeviceTrace
from ._device_sync import IssueOrder

# The names of runtime calls that block until the device has finished all work.
DEVICE_SYNC_CALLS = frozenset(
    {"cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize", "cudaThreadSynchronize"}
)
STREAM_SYNC_CALLS = frozenset({"cudaStreamSynchronize", "hipStreamSynchronize", "cuStreamSynchronize"})
EVENT_SYNC_CALLS = frozenset({"cudaEventSynchronize", "hipEventSynchronize", "cuEventSynchronize"})
_HOST_SYNC_CALLS = DEVICE_SYNC_CALLS | STREAM_SYNC_CALLS | EVENT_SYNC_CALLS
# The maximum delay until the host notices that the awaited work has ended.
_NOTICED_WITHIN_NS = 100_000
# An event synchronisation shorter than this did not wait.
_WAITED_NS = 20_000
# The usual duration of a call that issues work, and the number of outstanding launches in a full queue. A
# longer call with a full queue waits for space in the queue.
_ISSUES_WITHIN_NS = 20_000
_QUEUE_LENGTH = 900
EVENT_QUERIES = frozenset({"cudaEventQuery", "hipEventQuery", "cuEventQuery"})
# The minimum number and duration of consecutive queries in a polling loop. Fewer or faster queries only scan
# a list of events.
_QUERIES, _QUERIED_NS = 8, 100_000
# The maximum delay until a spinning thread notices the end of work. A kernel may signal its end early: by
# at most the second time, and by at most the given share of its duration.
_SPIN_NOTICED_WITHIN_NS = 20_000
_SIGNALS_BEFORE_END_NS, _SIGNALS_BEFORE_END = 100_000, 0.1
# The minimum length of a long interval, in ns and as a multiple of the thread's usual interval.
_LONG_NS, _LONG = 200_000, 20
# A thread waits for a class of kernels if its long intervals often end together with these kernels: a
# minimum number of times, in a minimum share of cases, and with a maximum probability of a coincidence.
_OFTEN, _MOST, _BY_CHANCE = 3, 0.8, 0.01
# Intervals of equal length count as a single random trial. Lengths count as different if their range
# exceeds this multiple of the tolerance within which two ends coincide.
_DIFFER, _ONE_CHANCE = 10, 0.1


class HostWait(msgspec.Struct, frozen=True):
    """A host thread (*lane*) that waited from *start_ns* to *resume_ns* for the launches *sources*.

    If *sources* is empty, the thread waited for work that was issued before the window. *name* is the call in
    which the thread waited, and *return_ns* is the time at which this call returned. Calls that only issue
    work have the name "" and the return time -1.
    """

    lane: int
    start_ns: int
    resume_ns: int
    sources: tuple[int, ...]
    name: str = ""
    return_ns: int = -1


def host_waits(linked: Linked, trace: DeviceTrace, lanes: Sequence[Lane]) -> list[HostWait]:
    """Return the waits of host threads for the device: blocking calls, full queues, spinning."""
    found = [*_synchronisations(linked, trace, lanes), *_full_queues(linked)]
    launches = linked.launches
    blocking = blocks_host(launches, launches.call_end_ns) & (launches.call < len(trace.calls))
    for index in np.flatnonzero(blocking).tolist():
        cut = int(launches.cut_ns[index])
        returned = int(launches.call_end_ns[index])
        resume = max(cut, min(returned, int(launches.end_ns[index])))
        name = trace.texts[int(trace.calls.name[launches.call[index]])]
        found.append(HostWait(int(launches.lane[index]), cut, resume, (index,), name, returned))
    found += _spin_waits(launches, trace, lanes)
    return sorted(found, key=lambda wait: (wait.lane, wait.start_ns, wait.sources))


def _synchronisations(linked: Linked, trace: DeviceTrace, lanes: Sequence[Lane]) -> Iterator[HostWait]:
    """Yield the waits of synchronising calls.

    A wait for work that was issued before the window counts as time of the call. However, if the device runs
    behind the host from step to step, this wait is the host's lead and not part of the step.
    """
    waits = _Waits(linked.launches, trace)
    lane_of = {lane.thread: lane for lane in lanes}
    calls = trace.calls
    asks = which(trace.texts, _HOST_SYNC_CALLS.__contains__)[calls.name]
    for index in np.flatnonzero(asks).tolist():
        call = trace.call(index)
        lane = lane_of.get(int(calls.thread[index]))
        if lane is None or not _covers(lane, call.start_ns):
            continue
        wait = _host_wait(lane, call, waits.awaited(call, lane), linked.launches)
        if not wait.sources and linked.overruns and call.end_ns - call.start_ns >= _WAITED_NS:
            ends = linked.carried.end_ns
            ended = ends[(ends > call.start_ns) & (ends <= call.end_ns)]
            wait = replace(wait, resume_ns=int(ended.max(initial=call.start_ns)))
        yield wait


def _full_queues(linked: Linked) -> Iterator[HostWait]:
    """Yield the waits of calls for space in the device's full queue.

    A call takes one place in the queue, even if the call launches all kernels of a CUDA graph.
    """
    launches, carried = linked.launches, linked.carried
    for queue, works in groups_of(launches.queue).items():
        own, last = _calls(launches, works)
        before = np.flatnonzero(linked.carried_queue == queue)
        if len(before) + len(own) <= _QUEUE_LENGTH:
            continue
        starts = np.maximum.accumulate(np.concatenate([carried.start_ns[before], launches.start_ns[own]]))
        ends = np.maximum.accumulate(np.concatenate([carried.end_ns[before], launches.end_ns[last]]))
        places = len(before) + np.arange(len(own))
        begun = np.searchsorted(starts, launches.call_start_ns[own], side="right")
        lasted = launches.call_end_ns[own] - launches.call_start_ns[own]
        full = (places - begun >= _QUEUE_LENGTH) & (lasted >= _ISSUES_WITHIN_NS)
        full &= launches.end_ns[last] > launches.call_end_ns[own]
        for place in places[full].tolist():
            index = own[place - len(before)]
            end = int(launches.call_end_ns[index])
            source = min(place, int(np.searchsorted(ends, end))) - 1 - len(before)
            sources = (int(last[source]),) if source >= 0 else ()
            resume = end - _ISSUES_WITHIN_NS // 4
            yield HostWait(int(launches.lane[index]), int(launches.call_start_ns[index]), resume, sources)


def _calls(launches: Launches, works: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each call among *works*, the first and the last-ending launch, in order of issue."""
    fresh = np.ones(len(works), dtype=bool)
    fresh[1:] = launches.call[works[1:]] != launches.call[works[:-1]]
    number = np.cumsum(fresh) - 1
    by_end = np.lexsort((launches.end_ns[works], number))
    return works[fresh], works[by_end[np.append(np.flatnonzero(fresh)[1:], len(works)) - 1]]


def _covers(lane: Lane, time_ns: int) -> bool:
    pieces = lane.pieces
    return len(pieces) > 0 and bool(pieces.start_ns[0] <= time_ns < pieces.end_ns[-1])


class _Waits:
    """Finds the work for which a synchronising call waited."""

    def __init__(self, launches: Launches, trace: DeviceTrace) -> None:
        self._launches, self._issued = launches, IssueOrder.of(launches)
        syncs, calls = trace.syncs, trace.calls
        self._records = {correlation: index for index, correlation in enumerate(syncs.correlation.tolist())}
        self._syncs = syncs
        self._calls: dict[int, int] = {}
        if len(syncs):
            self._calls = dict(zip(calls.correlation.tolist(), calls.start_ns.tolist(), strict=True))

    def awaited(self, call: Call, lane: Lane) -> list[int]:
        """Return the launches for which *call* waited, if they are known."""
        issued, launches = self._issued, self._launches
        sync = self._records.get(call.correlation)
        last = {queue: issued.last_before(queue, call.start_ns) for queue in issued.times}
        if call.name in DEVICE_SYNC_CALLS:
            return [index for index in last.values() if index is not None]
        if call.name in STREAM_SYNC_CALLS:
            if sync is not None and self._syncs.stream[sync] >= 0:
                queues = issued.on_stream(int(self._syncs.stream[sync]))
            else:
                return self._last_of_its_stream(call, lane, [i for i in last.values() if i is not None])
            return [index for queue in queues if (index := last[queue]) is not None]
        recorded = self._calls.get(int(self._syncs.record_correlation[sync])) if sync is not None else None
        if sync is not None and recorded is not None:
            queues = issued.on_stream(int(self._syncs.on_stream[sync]))
            return [i for queue in queues if (i := issued.last_before(queue, recorded)) is not None]
        if call.end_ns - call.start_ns < _WAITED_NS:
            return []
        ended = issued.last_ended_within(call.start_ns, call.end_ns)
        return [ended] if ended is not None and launches.call_start_ns[ended] < call.start_ns else []

    def _last_of_its_stream(self, call: Call, lane: Lane, last: Sequence[int]) -> list[int]:
        """Return the awaited launch among the *last* launches of all streams, if *call* names no stream.

        If the call waited, the awaited launch ended just before the call returned. Otherwise, the awaited
        launch is the last launch of the call's thread.
        """
        launches = self._launches
        ends = {int(launches.end_ns[index]): index for index in last}
        if call.end_ns - call.start_ns >= _WAITED_NS:
            just = [end for end in ends if max(call.start_ns, call.end_ns - _WAITED_NS) < end <= call.end_ns]
            if just:
                return [ends[max(just)]]
        own = [index for index in last if launches.lane[index] == lane.number]
        return [max(own)] if own else []


def _host_wait(lane: Lane, call: Call, sources: Sequence[int], launches: Launches) -> HostWait:
    """Return the wait of *call* for *sources*, without sources that the measurement contradicts.

    The issuing call of a source precedes *call*. Clocks of limited resolution may show that the issuing call
    returned a moment after *call* began.
    """
    ended = [i for i in sources if launches.end_ns[i] <= call.end_ns + _NOTICED_WITHIN_NS]
    issued = [int(launches.cut_ns[i]) for i in ended if launches.lane[i] == lane.number]
    start = max([call.start_ns, *issued])
    last = int(launches.end_ns[ended].max(initial=0))
    resume = max(start, min(call.end_ns, last))
    returned = max(resume, call.end_ns)
    return HostWait(lane.number, start, resume, tuple(sorted(ended)), call.name, returned)


def _spin_waits(launches: Launches, trace: DeviceTrace, lanes: Sequence[Lane]) -> Iterator[HostWait]:
    """Yield the waits of threads that spin on memory, or query events in a loop."""
    yield from _query_loops(launches, trace, lanes)
    for lane in lanes:
        yield from _memory_spins(launches, trace, lane)


def _spun(launches: Launches, lane: Lane, span: tuple[int, int], source: int, name: str) -> HostWait:
    """Return the wait of the thread *lane* that spun during *span* (start, end) for the launch *source*."""
    start_ns, end_ns = span
    resume = min(end_ns, int(launches.end_ns[source]))
    return HostWait(lane.number, start_ns, resume, (source,), name, end_ns)


def _query_loops(launches: Launches, trace: DeviceTrace, lanes: Sequence[Lane]) -> Iterator[HostWait]:
    """Yield the waits of query loops that ended soon after work issued before the loop."""
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
            if int(launches.end_ns[source]) >= int(calls.start_ns[row[-2]]) - _SPIN_NOTICED_WITHIN_NS:
                yield _spun(launches, lane, (start, end), source, trace.texts[int(calls.name[row[-1]])])


class _Ends(msgspec.Struct, frozen=True):
    """The distances between the ends of intervals and the ends of the latest kernels of one class.

    *near* means that the interval and the kernel end together. *chance* is the share of the interval within
    which two ends count as together.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    source: np.ndarray
    near: np.ndarray
    chance: np.ndarray

    def are_waits(self, classes: int) -> bool:
        """Return whether intervals end when kernels end, more often than by chance in *classes* tests.

        If the intervals have equal lengths, either all intervals or none of them end when kernels end.
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
    """Return the Chernoff bound of the probability of at least *hits* hits in *trials* binomial trials."""
    share = hits / trials
    if share <= chance:
        return 1.0
    miss = (1 - share) * log((1 - share) / (1 - chance)) if share < 1 else 0.0
    return exp(-trials * (share * log(share / chance) + miss))


def _memory_spins(launches: Launches, trace: DeviceTrace, lane: Lane) -> Iterator[HostWait]:
    """Yield the waits in long intervals of *lane* that end with a class of kernels issued by *lane*."""
    starts, ends = _stretches(launches, trace, lane)
    lengths = ends - starts
    if not len(lengths):
        return
    long = lengths >= max(_LONG_NS, _LONG * int(np.median(lengths)))
    classes = _classes(launches, trace, lane, starts[long], ends[long])
    waited: dict[int, tuple[int, HostWait]] = {}
    for name, found in classes.items():
        if not found.are_waits(len(classes)):
            continue
        rows = (found.start_ns, found.end_ns, found.source)
        for start, end, source in zip(*(column[found.near].tolist() for column in rows), strict=True):
            off_ns = abs(end - int(launches.end_ns[source]))
            wait = _spun(launches, lane, (start, end), source, f"{SPIN}{name}")
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
    """Return, by kernel function, the ends of intervals relative to the last kernel per stream.

    Only kernels of *lane* count. Kernels that ended before the interval are ignored.
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
        early_ns = np.minimum(
            _SIGNALS_BEFORE_END_NS, (_SIGNALS_BEFORE_END * (done - launches.start_ns[kernel]))
        )
        near = (end >= done - early_ns) & (end <= done + _SPIN_NOTICED_WITHIN_NS)
        chance = np.minimum(1, (early_ns + _SPIN_NOTICED_WITHIN_NS) / (end - begin))
        found[name] = _Ends(begin, end, kernel, near, chance)
    return found
