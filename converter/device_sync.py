"""Who waits for whom between streams.

Traces taken with ``enable_cuda_sync_events`` say which event each wait is for. All others name the calls
only; then a wait is told from where it stands: in a collective's own operator it makes the collective wait
for the stream the thread works on; elsewhere it makes that stream wait for the oldest collective of the
thread that nobody waited for yet. What the measured times contradict is never assumed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from .collectives import COMM_OPS
from .device_links import Launch, Linked
from .host_lanes import Lane
from .host_trace import HostTrace
from .issue_order import IssueOrder, Queue
from .kineto import Call, DeviceTrace, Sync
from .nccl import PARAMETERS, parameters
from .timeline import Op

__all__ = ["coinciding_waits", "stream_waits"]

# Names of the runtimes' calls; further ones are data, not code.
STREAM_WAIT_CALLS = frozenset({"cudaStreamWaitEvent", "hipStreamWaitEvent", "cuStreamWaitEvent"})
# A stream that stood still this long, and went on this soon after another's work ended, waited for that.
_STOOD_STILL_NS = 20_000
_WENT_ON_WITHIN_NS = 10_000


def stream_waits(
    launches: Sequence[Launch], trace: DeviceTrace, lanes: Sequence[Lane], host: HostTrace
) -> list[tuple[int, int]]:
    """Return (source, waiting), indices into *launches*: the second did not start before the first ended."""
    calls = {call.correlation: call for call in trace.calls}
    recorded = [sync for sync in trace.syncs if "wait" in sync.kind.lower() and sync.record_correlation > 0]
    issued = IssueOrder.of(launches)
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
    syncs: Iterable[Sync], calls: dict[int, Call], issued: IssueOrder
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

    def __init__(self, lane: Lane, host: HostTrace, launches: Sequence[Launch], issued: IssueOrder) -> None:
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
        if waited is not None and waited >= 0:
            earlier = [i for i in self._by_sequence.get(waited, ()) if self._issued_before(i, call)]
            if earlier:
                self._pending.append(earlier[-1])
                self._unwaited.pop(earlier[-1], None)
        elif waited is None and any(op.event.name == PARAMETERS or op.event.name in COMM_OPS for op in chain):
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
        """Return the number of the collective that the operator around a call waits for, if it does.

        -1 if the trace does not say which.
        """
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


def coinciding_waits(
    linked: Linked, waits: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """Return the waits between streams that only the measured times tell, beside the known *waits*.

    A stream that stood still although the host had issued its next work, and went on just when another
    stream's earlier work had ended, waited for that. Second, by launch, until when work issued before the
    window held it up in this way.
    """
    launches = linked.launches
    known: dict[int, int] = {}
    for source, waiting in waits:
        known[waiting] = max(known.get(waiting, 0), launches[source].work.end_ns)
    ends = sorted(
        [(launch.work.end_ns, index) for index, launch in enumerate(launches)]
        + [(work.end_ns, -1) for work in linked.carried]
    )
    stream_end: dict[Queue, int] = {}
    for work in linked.carried:
        queue = (work.device, work.stream)
        stream_end[queue] = max(stream_end.get(queue, 0), work.end_ns)
    found: list[tuple[int, int]] = []
    held: dict[int, int] = {}
    for index, launch in enumerate(launches):
        start = launch.work.start_ns
        ready = max(launch.cut_ns, stream_end.get(launch.queue, 0), known.get(index, 0))
        stream_end[launch.queue] = max(stream_end.get(launch.queue, 0), launch.work.end_ns)
        if start - ready <= _STOOD_STILL_NS:
            continue
        end, source = ends[max(0, bisect_right(ends, (start, len(launches))) - 1)]
        if start - _WENT_ON_WITHIN_NS <= end <= start and source < index:
            if source < 0:
                held[index] = end
            else:
                found.append((source, index))
    return found, held
