"""Who waits for whom between streams, and when the host waits for the device.

Traces taken with ``enable_cuda_sync_events`` say which event each wait is for. All others name the calls
only; then a wait is told from where it stands: in a collective's own operator it makes the collective wait
for the stream the thread works on; elsewhere it makes that stream wait for the oldest collective of the
thread that nobody waited for yet. What the measured times contradict is never assumed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .collectives import COMM_OPS
from .device_links import Launch
from .host_lanes import Lane
from .host_trace import HostTrace
from .kineto import Call, DeviceTrace, Sync
from .nccl import PARAMETERS, parameters
from .timeline import Op

__all__ = ["HostWait", "host_waits", "stream_waits"]

# Names of the runtimes' calls; further ones are data, not code.
STREAM_WAIT_CALLS = frozenset({"cudaStreamWaitEvent", "hipStreamWaitEvent", "cuStreamWaitEvent"})
DEVICE_SYNC_CALLS = frozenset(
    {"cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize", "cudaThreadSynchronize"}
)
STREAM_SYNC_CALLS = frozenset({"cudaStreamSynchronize", "hipStreamSynchronize", "cuStreamSynchronize"})
EVENT_SYNC_CALLS = frozenset({"cudaEventSynchronize", "hipEventSynchronize", "cuEventSynchronize"})
_HOST_SYNC_CALLS = DEVICE_SYNC_CALLS | STREAM_SYNC_CALLS | EVENT_SYNC_CALLS
# The host notices the end of the work it waits for this much later at most.
_NOTICED_WITHIN_NS = 100_000
# An event synchronisation shorter than this did not wait.
_WAITED_NS = 20_000

_Queue = tuple[int, int]


@dataclass(frozen=True)
class HostWait:
    """A host thread (*lane*) that could not go on from *start_ns* to *resume_ns*, for launches *sources*."""

    lane: int
    start_ns: int
    resume_ns: int
    sources: tuple[int, ...]


@dataclass
class _Issued:
    """The launches of each stream in order of issue: when, and which."""

    times: dict[_Queue, list[int]] = field(default_factory=dict)
    launches: dict[_Queue, list[int]] = field(default_factory=dict)
    ends: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, launches: Sequence[Launch]) -> _Issued:
        issued = cls()
        for index, launch in enumerate(launches):
            issued.times.setdefault(launch.queue, []).append(launch.call.start_ns)
            issued.launches.setdefault(launch.queue, []).append(index)
        issued.ends = sorted((launch.work.end_ns, index) for index, launch in enumerate(launches))
        return issued

    def last_before(self, queue: _Queue, time_ns: int) -> int | None:
        """Return the last launch on *queue* issued before *time_ns*."""
        at = bisect_left(self.times.get(queue, ()), time_ns)
        return self.launches[queue][at - 1] if at else None

    def first_after(self, queue: _Queue, time_ns: int) -> int | None:
        """Return the first launch on *queue* issued at or after *time_ns*."""
        times = self.times.get(queue, ())
        at = bisect_left(times, time_ns)
        return self.launches[queue][at] if at < len(times) else None

    def last_ended_within(self, start_ns: int, end_ns: int) -> int | None:
        """Return the launch that ended last in (*start_ns*, *end_ns*]."""
        at = bisect_left(self.ends, (end_ns + 1, -1)) - 1
        return self.ends[at][1] if at >= 0 and self.ends[at][0] > start_ns else None

    def on_stream(self, stream: int) -> list[_Queue]:
        return [queue for queue in self.times if queue[1] == stream]


def stream_waits(
    launches: Sequence[Launch], trace: DeviceTrace, lanes: Sequence[Lane], host: HostTrace
) -> list[tuple[int, int]]:
    """Return (source, waiting), indices into *launches*: the second did not start before the first ended."""
    calls = {call.correlation: call for call in trace.calls}
    recorded = [sync for sync in trace.syncs if "wait" in sync.kind.lower() and sync.record_correlation > 0]
    issued = _Issued.of(launches)
    if recorded:
        found = list(_recorded_waits(recorded, calls, issued))
    else:
        found = []
        for lane in lanes:
            waits = [c for c in trace.calls if c.thread == lane.thread and c.name in STREAM_WAIT_CALLS]
            found += _LaneWaits(lane, host, launches, issued).edges(waits)
    return [
        (source, waiting)
        for source, waiting in found
        if launches[source].work.end_ns <= launches[waiting].work.start_ns
    ]


def _recorded_waits(
    syncs: Iterable[Sync], calls: dict[int, Call], issued: _Issued
) -> Iterable[tuple[int, int]]:
    """Yield the waits the trace records: the event's stream up to its record, the waiting stream from now."""
    for sync in syncs:
        wait, record = calls.get(sync.correlation), calls.get(sync.record_correlation)
        if wait is None or record is None:
            continue
        for queue in issued.on_stream(sync.on_stream):
            source = issued.last_before(queue, record.start_ns)
            waiting = issued.first_after((queue[0], sync.stream), wait.start_ns)
            if source is not None and waiting is not None:
                yield source, waiting


class _LaneWaits:
    """The waits that one host thread asked for, told from where the calls stand."""

    def __init__(self, lane: Lane, host: HostTrace, launches: Sequence[Launch], issued: _Issued) -> None:
        self._lane, self._host, self._launches, self._issued = lane, host, launches, issued
        self._own = [index for index, launch in enumerate(launches) if launch.lane == lane.number]
        self._by_sequence: dict[int, list[int]] = {}
        for index, launch in enumerate(launches):
            for comm in launch.comms:
                self._by_sequence.setdefault(comm.sequence, []).append(index)
        self._unwaited: dict[int, None] = {}  # in order of issue
        self._pending: list[int | Call] = []
        self._last: int | None = None

    def edges(self, waits: Sequence[Call]) -> list[tuple[int, int]]:
        """Return (source, waiting) for *waits*, the thread's stream-wait calls in order."""
        found: list[tuple[int, int]] = []
        steps: list[tuple[int, int, int | Call]] = [
            (self._launches[index].call.start_ns, 1, index) for index in self._own
        ]
        steps += [(call.start_ns, 0, call) for call in waits]
        for _, _, step in sorted(steps, key=lambda item: item[:2]):
            if isinstance(step, Call):
                self._wait(step)
            else:
                found += self._launch(step)
        return found

    def _launch(self, index: int) -> list[tuple[int, int]]:
        """Note a launch and return what it waits for."""
        if self._launches[index].is_comm:
            self._unwaited[index] = None
            return [(self._last, index)] if self._last is not None else []
        self._last = index
        sources = [source for item in self._pending for source in self._sources(item, index)]
        self._pending.clear()
        return [(source, index) for source in sources]

    def _wait(self, call: Call) -> None:
        """Note a stream wait; what it waits for is known when the stream's next work is."""
        chain = self._lane.chain(call.start_ns)
        waited = self._waited_sequence(chain)
        if waited is not None:
            earlier = [i for i in self._by_sequence.get(waited, ()) if self._issued_before(i, call)]
            if earlier:
                self._pending.append(earlier[-1])
                self._unwaited.pop(earlier[-1], None)
        elif any(op.event.name == PARAMETERS or op.event.name in COMM_OPS for op in chain):
            return
        elif self._unwaited:
            oldest = next(iter(self._unwaited))
            del self._unwaited[oldest]
            self._pending.append(oldest)
        else:
            self._pending.append(call)

    def _issued_before(self, index: int, call: Call) -> bool:
        return self._launches[index].call.start_ns < call.start_ns

    def _waited_sequence(self, chain: Sequence[Op]) -> int | None:
        """Return the number of the collective that the operator around a call waits for, if it does."""
        if not chain:
            return None
        stated = parameters(self._host.operators.get(chain[0].event.record_id))
        return stated.sequence if stated is not None and stated.name == "wait" else None

    def _sources(self, item: int | Call, waiting: int) -> Iterable[int]:
        """Return the launches *item* stands for: itself, or the newest work of another stream."""
        if not isinstance(item, Call):
            return [item]
        start = self._launches[waiting].work.start_ns
        others = [
            source
            for queue in self._issued.times
            if queue != self._launches[waiting].queue
            and (source := self._issued.last_before(queue, item.start_ns)) is not None
            and not self._launches[source].is_comm
            and self._launches[source].work.end_ns <= start
        ]
        return [max(others)] if others else []


def host_waits(launches: Sequence[Launch], trace: DeviceTrace, lanes: Sequence[Lane]) -> list[HostWait]:
    """Return when host threads waited for the device: synchronising calls, and copies that block."""
    issued = _Issued.of(launches)
    records = {sync.correlation: sync for sync in trace.syncs}
    calls = {call.correlation: call for call in trace.calls}
    lane_of = {lane.thread: lane for lane in lanes}
    found = []
    for call in trace.calls:
        lane = lane_of.get(call.thread)
        if lane is None or call.name not in _HOST_SYNC_CALLS or not _covers(lane, call):
            continue
        sources = _awaited(call, lane, launches, issued, record=records.get(call.correlation), calls=calls)
        wait = _host_wait(lane, call, sources, launches)
        if wait is not None:
            found.append(wait)
    for index, launch in enumerate(launches):
        if launch.work.category == "memcpy" and launch.work.end_ns <= launch.call.end_ns:
            resume = max(launch.cut_ns, launch.work.end_ns)
            found.append(HostWait(launch.lane, launch.cut_ns, resume, (index,)))
    return sorted(found, key=lambda wait: (wait.lane, wait.start_ns, wait.sources))


def _covers(lane: Lane, call: Call) -> bool:
    return bool(lane.pieces) and lane.pieces[0].start_ns <= call.start_ns < lane.pieces[-1].end_ns


def _awaited(
    call: Call,
    lane: Lane,
    launches: Sequence[Launch],
    issued: _Issued,
    *,
    record: Sync | None,
    calls: dict[int, Call],
) -> list[int]:
    """Return the launches that *call* waited for, as far as the trace tells."""
    last = {queue: issued.last_before(queue, call.start_ns) for queue in issued.times}
    if call.name in DEVICE_SYNC_CALLS:
        return [index for index in last.values() if index is not None]
    if call.name in STREAM_SYNC_CALLS:
        if record is not None and record.stream >= 0:
            queues = issued.on_stream(record.stream)
        else:
            own = [i for i in last.values() if i is not None and launches[i].lane == lane.number]
            queues = [launches[max(own)].queue] if own else []
        return [index for queue in queues if (index := last[queue]) is not None]
    recorded = calls.get(record.record_correlation) if record is not None else None
    if record is not None and recorded is not None:
        found = [issued.last_before(q, recorded.start_ns) for q in issued.on_stream(record.on_stream)]
        return [index for index in found if index is not None]
    if call.end_ns - call.start_ns < _WAITED_NS:
        return []
    ended = issued.last_ended_within(call.start_ns, call.end_ns)
    return [ended] if ended is not None and launches[ended].call.start_ns < call.start_ns else []


def _host_wait(lane: Lane, call: Call, sources: Sequence[int], launches: Sequence[Launch]) -> HostWait | None:
    """Return the wait of *call* for *sources*, without those that the measurement contradicts."""
    ended = [i for i in sources if launches[i].work.end_ns <= call.end_ns + _NOTICED_WITHIN_NS]
    if not ended:
        return None
    last = max(launches[index].work.end_ns for index in ended)
    resume = max(call.start_ns, min(call.end_ns, last))
    return HostWait(lane.number, call.start_ns, resume, tuple(sorted(ended)))
