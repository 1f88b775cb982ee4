"""When host threads wait for the device: synchronising calls, copies that block, and full queues."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .device_links import Launch, Linked
from .host_lanes import Lane
from .issue_order import IssueOrder, Queue
from .kineto import Call, DeviceTrace, Sync, Work

__all__ = ["HostWait", "host_waits"]

# Names of the runtimes' calls; further ones are data, not code.
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
# A call that issues work takes about this long; with this much work outstanding, a longer one waits for room.
_ISSUES_WITHIN_NS = 20_000
_QUEUE_LENGTH = 900


@dataclass(frozen=True)
class HostWait:
    """A host thread (*lane*) that could not go on from *start_ns* to *resume_ns*, for launches *sources*.

    Without any, it waited for work that was issued before the window.
    """

    lane: int
    start_ns: int
    resume_ns: int
    sources: tuple[int, ...]


def host_waits(linked: Linked, trace: DeviceTrace, lanes: Sequence[Lane]) -> list[HostWait]:
    """Return when host threads waited for the device: synchronising calls, blocking copies, full queues."""
    found = [*_synchronisations(linked, trace, lanes), *_full_queues(linked)]
    for index, launch in enumerate(linked.launches):
        if launch.work.category == "memcpy" and launch.work.end_ns <= launch.call.end_ns:
            resume = max(launch.cut_ns, launch.work.end_ns)
            found.append(HostWait(launch.lane, launch.cut_ns, resume, (index,)))
    return sorted(found, key=lambda wait: (wait.lane, wait.start_ns, wait.sources))


def _synchronisations(linked: Linked, trace: DeviceTrace, lanes: Sequence[Lane]) -> Iterator[HostWait]:
    """Yield the waits of calls that synchronise.

    If the device runs behind the host from step to step, the time the host waits for work of the last step
    is the lead it had, not part of this step.
    """
    issued = IssueOrder.of(linked.launches)
    records = {sync.correlation: sync for sync in trace.syncs}
    calls = {call.correlation: call for call in trace.calls}
    lane_of = {lane.thread: lane for lane in lanes}
    for call in trace.calls:
        lane = lane_of.get(call.thread)
        if lane is None or call.name not in _HOST_SYNC_CALLS or not _covers(lane, call):
            continue
        record = records.get(call.correlation)
        sources = _awaited(call, lane, linked.launches, issued, record=record, calls=calls)
        wait = _host_wait(lane, call, sources, linked.launches)
        if wait is not None:
            yield wait
        elif linked.overruns and call.end_ns - call.start_ns >= _WAITED_NS:
            ended = [work.end_ns for work in linked.carried if call.start_ns < work.end_ns <= call.end_ns]
            if ended:
                yield HostWait(lane.number, call.start_ns, max(ended), ())


def _full_queues(linked: Linked) -> Iterator[HostWait]:
    """Yield the waits of calls that could issue work only when the device had taken some from its queue."""
    queued: dict[Queue, list[tuple[Work, int]]] = {}
    for work in linked.carried:
        queued.setdefault((work.device, work.stream), []).append((work, -1))
    for index, launch in enumerate(linked.launches):
        queued.setdefault(launch.queue, []).append((launch.work, index))
    for items in queued.values():
        starts, ends = [work.start_ns for work, _ in items], [work.end_ns for work, _ in items]
        for position, (work, index) in enumerate(items):
            if index < 0:
                continue
            call = linked.launches[index].call
            blocks = work.end_ns <= call.end_ns
            if blocks or call.end_ns - call.start_ns < _ISSUES_WITHIN_NS:
                continue
            if position - bisect_right(starts, call.start_ns) < _QUEUE_LENGTH:
                continue
            source = items[min(position, bisect_left(ends, call.end_ns)) - 1][1]
            resume = call.end_ns - _ISSUES_WITHIN_NS // 4
            yield HostWait(
                linked.launches[index].lane, call.start_ns, resume, (source,) if source >= 0 else ()
            )


def _covers(lane: Lane, call: Call) -> bool:
    return bool(lane.pieces) and lane.pieces[0].start_ns <= call.start_ns < lane.pieces[-1].end_ns


def _awaited(
    call: Call,
    lane: Lane,
    launches: Sequence[Launch],
    issued: IssueOrder,
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
