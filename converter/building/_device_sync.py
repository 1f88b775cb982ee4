"""Order the work of a device: the waits of streams, and the earliest start of each piece of work.

Traces taken with ``enable_cuda_sync_events`` name the event of each wait. Other traces contain only the
calls. In a call inside a collective's own operator, the collective waits for the thread's stream. In all
other calls, the thread's stream waits for the thread's oldest collective without a wait. Waits that
contradict the measured times are never assumed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from .._columns import Columns, groups_of, which
from ..linking import Lane, Launches, Linked
from ..readers import COMM_OPS, PARAMETERS, DeviceTrace, HostTrace, Op, parameters

# The names of runtime calls that make a stream wait.
STREAM_WAIT_CALLS = frozenset({"cudaStreamWaitEvent", "hipStreamWaitEvent", "cuStreamWaitEvent"})
# A stream counts as having waited for work of another stream if it was idle for at least the first time, and
# continued within the second time after the end of this work.
_IDLE_NS = 20_000
_RESUMED_WITHIN_NS = 10_000
# Unexplained time between pieces of work accumulates to this length before it becomes a node.
_GAP_NS = 5_000
_LAG = 4


Queue = tuple[int, int]


class IssueOrder(msgspec.Struct):
    """The launches of each stream in order of issue, with issue times, and all launches in order of end."""

    times: dict[Queue, list[int]] = msgspec.field(default_factory=dict)
    launches: dict[Queue, list[int]] = msgspec.field(default_factory=dict)
    ends: list[tuple[int, int]] = msgspec.field(default_factory=list)

    @classmethod
    def of(cls, launches: Launches) -> IssueOrder:
        """Return the issue order of *launches*, which must be sorted by issue."""
        issued = cls()
        for own in sorted(groups_of(launches.queue).values(), key=lambda own: int(own[0])):
            queue = launches.queues[int(launches.queue[own[0]])]
            issued.times[queue] = launches.call_start_ns[own].tolist()
            issued.launches[queue] = own.tolist()
        order = np.argsort(launches.end_ns, kind="stable")
        issued.ends = list(zip(launches.end_ns[order].tolist(), order.tolist(), strict=True))
        return issued

    def last_before(self, queue: Queue, time_ns: int) -> int | None:
        """Return the last launch on *queue* issued before *time_ns*."""
        at = bisect_left(self.times.get(queue, ()), time_ns)
        return self.launches[queue][at - 1] if at else None

    def first_after(self, queue: Queue, time_ns: int) -> int | None:
        """Return the first launch on *queue* issued at or after *time_ns*."""
        times = self.times.get(queue, ())
        at = bisect_left(times, time_ns)
        return self.launches[queue][at] if at < len(times) else None

    def last_ended_within(self, start_ns: int, end_ns: int) -> int | None:
        """Return the launch that ended last in (*start_ns*, *end_ns*]."""
        at = bisect_left(self.ends, (end_ns + 1, -1)) - 1
        return self.ends[at][1] if at >= 0 and self.ends[at][0] > start_ns else None

    def on_stream(self, stream: int) -> list[Queue]:
        """Return the queues called *stream*, one per device."""
        return [queue for queue in self.times if queue[1] == stream]


def stream_waits(
    launches: Launches, trace: DeviceTrace, lanes: Sequence[Lane], host: HostTrace
) -> list[tuple[int, int]]:
    """Return pairs of *launches* (source, waiting): the second waits for the end of the first."""
    syncs, calls = trace.syncs, trace.calls
    waits = which(trace.texts, lambda text: "wait" in text.lower())[syncs.kind]
    recorded = np.flatnonzero(waits & (syncs.record_correlation > 0))
    issued = IssueOrder.of(launches)
    if len(recorded):
        found = list(_recorded_waits(trace, recorded, issued))
    else:
        found = []
        asks = which(trace.texts, STREAM_WAIT_CALLS.__contains__)[calls.name]
        for lane in lanes:
            asked = calls.start_ns[asks & (calls.thread == lane.thread)]
            found += _LaneWaits(lane, host, launches, issued).edges(asked.tolist())
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    consistent = launches.end_ns[pairs[:, 0]] <= launches.start_ns[pairs[:, 1]]
    return [(source, waiting) for source, waiting in pairs[consistent].tolist()]


def _recorded_waits(
    trace: DeviceTrace, recorded: np.ndarray, issued: IssueOrder
) -> Iterator[tuple[int, int]]:
    """Yield the waits that the trace records.

    The next work of the waiting stream waits for the work that was on the event's stream before the event.
    """
    syncs, calls = trace.syncs.take(recorded), trace.calls
    start_of = dict(zip(calls.correlation.tolist(), calls.start_ns.tolist(), strict=True))
    columns = (syncs.stream, syncs.on_stream, syncs.correlation, syncs.record_correlation)
    for stream, on_stream, waiter, recorder in zip(*(column.tolist() for column in columns), strict=True):
        wait_ns, record_ns = start_of.get(waiter), start_of.get(recorder)
        if wait_ns is None or record_ns is None:
            continue
        for queue in issued.on_stream(on_stream):
            source = issued.last_before(queue, record_ns)
            waiting = issued.first_after((queue[0], stream), wait_ns)
            if source is not None and waiting is not None:
                yield source, waiting


class _LaneWaits:
    """The stream waits that one host thread requested, inferred from the operators around the calls."""

    def __init__(self, lane: Lane, host: HostTrace, launches: Launches, issued: IssueOrder) -> None:
        self._lane, self._host, self._launches, self._issued = lane, host, launches, issued
        self._own = np.flatnonzero(launches.lane == lane.number)
        self._by_sequence: dict[tuple[str, int], list[int]] = {}
        for index in sorted(launches.comms):
            for comm in launches.comms[index]:
                for group in {"", comm.group_name}:  # waits in old traces do not name a group
                    self._by_sequence.setdefault((group, comm.sequence), []).append(index)
        self._unwaited: dict[int, None] = {}  # in order of issue
        self._pending: list[tuple[bool, int]] = []  # (True, launch) or (False, time of a wait request)
        self._last = -1

    def edges(self, request_ns: Sequence[int]) -> list[tuple[int, int]]:
        """Return pairs (source, waiting); *request_ns* are the times of the thread's wait requests."""
        found: list[tuple[int, int]] = []
        starts, asked = self._launches.call_start_ns[self._own].tolist(), list(request_ns)
        is_comm = self._launches.is_comm[self._own].tolist()
        at = 0
        for index, start, communicates in zip(self._own.tolist(), starts, is_comm, strict=True):
            while at < len(asked) and asked[at] <= start:
                self._wait(asked[at])
                at += 1
            if communicates:
                self._unwaited[index] = None
                found += [(self._last, index)] if self._last >= 0 else []
                continue
            self._last = index
            if self._pending:
                found += [(source, index) for item in self._pending for source in self._sources(*item, index)]
                self._pending.clear()
        return found

    def _wait(self, request_ns: int) -> None:
        """Record a stream wait; the stream's next work determines the source of the wait."""
        chain = self._lane.operators(request_ns)
        waited = self._waited_sequence(chain)
        if waited is not None and waited[1] >= 0:
            starts = self._launches.call_start_ns
            earlier = [i for i in self._by_sequence.get(waited, ()) if starts[i] < request_ns]
            if earlier:
                self._pending.append((True, earlier[-1]))
                self._unwaited.pop(earlier[-1], None)
        elif waited is None and any(op.name == PARAMETERS or op.name in COMM_OPS for op in chain):
            return
        elif self._unwaited:
            oldest = next(iter(self._unwaited))
            del self._unwaited[oldest]
            self._pending.append((True, oldest))
        else:
            self._pending.append((False, request_ns))

    def _waited_sequence(self, chain: Sequence[Op]) -> tuple[str, int] | None:
        """Return group and sequence number of the collective that the operator around a call awaits.

        The number is -1 if the trace does not record the collective. The result is None if the operator does
        not wait.
        """
        if not chain:
            return None
        stated = parameters(self._host.operator(chain[0].record_id))
        if stated is None or stated.name != "wait":
            return None
        return stated.group_name, stated.sequence

    def _sources(self, is_launch: bool, item: int, waiting: int) -> Iterable[int]:
        """Return the launches to which *item* refers: the launch *item*, or other streams' newest work."""
        if is_launch:
            return [item]
        launches = self._launches
        start, own = launches.start_ns[waiting], launches.queues[launches.queue[waiting]]
        others = [
            source
            for queue in self._issued.times
            if queue != own
            and (source := self._issued.last_before(queue, item)) is not None
            and not launches.is_comm[source]
            and launches.end_ns[source] <= start
        ]
        return [max(others)] if others else []


def coinciding_waits(
    linked: Linked, waits: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """Return additional waits between streams (not in *waits*) that follow only from measured times.

    A stream waited for another stream's work if the stream was idle although the host had issued its next
    work, and continued just when the other stream's work ended. The function also returns, for each launch,
    the time at which work from before the window stopped delaying it.
    """
    launches, carried = linked.launches, linked.carried
    known = np.zeros(len(launches), dtype=np.int64)
    pairs = np.array(waits, dtype=np.int64).reshape(-1, 2)
    np.maximum.at(known, pairs[:, 1], launches.end_ns[pairs[:, 0]])
    ready = np.maximum(np.maximum(launches.cut_ns, _free_ns(linked)), known)
    ends = np.concatenate([carried.end_ns, launches.end_ns])
    owners = np.concatenate([np.full(len(carried), -1), np.arange(len(launches))])
    order = np.lexsort((owners, ends))
    ends, owners = ends[order], owners[order]
    found: list[tuple[int, int]] = []
    held: dict[int, int] = {}
    for index in np.flatnonzero(launches.start_ns - ready > _IDLE_NS).tolist():
        start = launches.start_ns[index]
        at = max(0, int(np.searchsorted(ends, start, side="right")) - 1)
        end, source = int(ends[at]), int(owners[at])
        if start - _RESUMED_WITHIN_NS <= end <= start and source < index:
            if source < 0:
                held[index] = end
            else:
                found.append((source, index))
    return found, held


def _free_ns(linked: Linked) -> np.ndarray:
    """Return the time at which each launch's stream had completed all earlier work."""
    launches = linked.launches
    free = np.zeros(len(launches), dtype=np.int64)
    for queue, own in groups_of(launches.queue).items():
        before = linked.carried.end_ns[linked.carried_queue == queue].max(initial=0)
        free[own] = np.maximum.accumulate(np.append(before, launches.end_ns[own]))[:-1]
    return free


class StreamSlots(Columns, frozen=True):
    """The position of each launch on its stream, with gaps and delays.

    *before* is the previous launch on the stream (-1: the first in the window). *start_ns* is the time at
    which the launch began, never before the previous launch. *busy_ns* is the time that the launch adds to
    its stream: a kernel with programmatic dependent launch begins before the previous kernel ends, and their
    common time counts once. *gap_ns* is the time before the launch that no known wait explains; a gap is a
    separate node. *lag_ns* is the difference between the measured start and the start in the graph, including
    gaps.
    """

    before: np.ndarray
    start_ns: np.ndarray
    busy_ns: np.ndarray
    gap_ns: np.ndarray
    lag_ns: np.ndarray


class _Stream(msgspec.Struct):
    """The state of a stream after the launches that have been processed so far."""

    end_ns: int = 0
    start_ns: int = 0
    lag_ns: int = 0
    last: int = -1


def stream_slots(
    linked: Linked, waits: np.ndarray, held_ns: Mapping[int, int], behind_ns: int
) -> StreamSlots:
    """Return the slot of every launch.

    *waits* are pairs of launches. The second launch of a pair waits for the first, in addition to the order
    of its stream. *held_ns* is the time until which work from before the window delayed a launch. A launch
    begins after the host has issued it, the stream has finished its earlier work, and the launch's waits have
    ended. The remaining delay is a latency. Latencies accumulate along a chain of device work and become a
    gap when their sum exceeds a few microseconds. If the host's issue determines the start, the sum restarts
    at 0. Device work of another step, which lasts until *behind_ns*, delays no launch.
    """
    launches, carried = linked.launches, linked.carried
    streams = [_Stream() for _ in launches.queues]
    for queue, end in zip(linked.carried_queue.tolist(), carried.end_ns.tolist(), strict=True):
        streams[queue].end_ns = max(streams[queue].end_ns, end)
    sources: dict[int, list[int]] = {}
    for source, target in waits.tolist():
        sources.setdefault(target, []).append(source)
    ends = launches.end_ns.tolist()
    columns = (launches.queue, launches.cut_ns, launches.start_ns)
    slots: list[tuple[int, int, int, int, int]] = []
    for index, (queue, cut, began) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        stream = streams[queue]
        ready, lag = max(
            (cut, 0),
            (stream.end_ns, stream.lag_ns),
            (max(held_ns.get(index, 0), min(behind_ns, began)), 0),
            *((ends[source], slots[source][_LAG]) for source in sources.get(index, ())),
        )
        lag += max(0, began - ready)
        gap = lag if lag >= _GAP_NS else 0
        alone = began if began < stream.start_ns else min(max(began, stream.end_ns), ends[index])
        start, busy = max(alone, cut, stream.start_ns), ends[index] - alone
        slots.append((stream.last, start, busy, gap, lag - gap))
        stream.end_ns = max(stream.end_ns, ends[index])
        stream.start_ns, stream.lag_ns, stream.last = start, lag - gap, index
    return StreamSlots(*np.array(slots, dtype=np.int64).reshape(-1, 5).T)
