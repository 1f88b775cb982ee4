"""When host threads wait for the device: synchronising calls, copies that block, and full queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from .._columns import groups_of, which
from ..linking import MEMCPY, Lane, Launches, Linked
from ..readers import DeviceTrace
from ._issue_order import IssueOrder

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


class HostWait(msgspec.Struct, frozen=True):
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
    launches = linked.launches
    blocking = (launches.category == MEMCPY) & (launches.end_ns <= launches.call_end_ns)
    for index in np.flatnonzero(blocking).tolist():
        cut = int(launches.cut_ns[index])
        resume = max(cut, int(launches.end_ns[index]))
        found.append(HostWait(int(launches.lane[index]), cut, resume, (index,)))
    return sorted(found, key=lambda wait: (wait.lane, wait.start_ns, wait.sources))


def _synchronisations(linked: Linked, trace: DeviceTrace, lanes: Sequence[Lane]) -> Iterator[HostWait]:
    """Yield the waits of calls that synchronise.

    If the device runs behind the host from step to step, the time the host waits for work of the last step
    is the lead it had, not part of this step.
    """
    waits = _Waits(linked.launches, trace)
    lane_of = {lane.thread: lane for lane in lanes}
    calls = trace.calls
    asks = which(trace.texts, _HOST_SYNC_CALLS.__contains__)[calls.name]
    for index in np.flatnonzero(asks).tolist():
        call = _SyncCall.of(trace, index)
        lane = lane_of.get(int(calls.thread[index]))
        if lane is None or not _covers(lane, call.start_ns):
            continue
        wait = _host_wait(lane, call, waits.awaited(call, lane), linked.launches)
        if wait is not None:
            yield wait
        elif linked.overruns and call.end_ns - call.start_ns >= _WAITED_NS:
            ends = linked.carried.end_ns
            ended = ends[(ends > call.start_ns) & (ends <= call.end_ns)]
            if len(ended):
                yield HostWait(lane.number, call.start_ns, int(ended.max()), ())


def _full_queues(linked: Linked) -> Iterator[HostWait]:
    """Yield the waits of calls that could issue work only when the device had taken some from its queue."""
    launches, carried = linked.launches, linked.carried
    calls = launches.call_end_ns - launches.call_start_ns
    for queue, own in groups_of(launches.queue).items():
        before = np.flatnonzero(linked.carried_queue == queue)
        if len(before) + len(own) <= _QUEUE_LENGTH:
            continue
        starts = np.concatenate([carried.start_ns[before], launches.start_ns[own]])
        ends = np.concatenate([carried.end_ns[before], launches.end_ns[own]])
        places = len(before) + np.arange(len(own))
        begun = np.searchsorted(starts, launches.call_start_ns[own], side="right")
        full = (places - begun >= _QUEUE_LENGTH) & (calls[own] >= _ISSUES_WITHIN_NS)
        full &= launches.end_ns[own] > launches.call_end_ns[own]
        for place in places[full].tolist():
            index = own[place - len(before)]
            end = int(launches.call_end_ns[index])
            source = min(place, int(np.searchsorted(ends, end))) - 1 - len(before)
            sources = (int(own[source]),) if source >= 0 else ()
            resume = end - _ISSUES_WITHIN_NS // 4
            yield HostWait(int(launches.lane[index]), int(launches.call_start_ns[index]), resume, sources)


def _covers(lane: Lane, time_ns: int) -> bool:
    pieces = lane.pieces
    return len(pieces) > 0 and bool(pieces.start_ns[0] <= time_ns < pieces.end_ns[-1])


class _SyncCall(msgspec.Struct, frozen=True):
    """A call that synchronises."""

    name: str
    start_ns: int
    end_ns: int
    correlation: int

    @classmethod
    def of(cls, trace: DeviceTrace, index: int) -> _SyncCall:
        values = trace.calls.row(index)
        name = trace.texts[values["name"]]
        return cls(name, values["start_ns"], values["end_ns"], values["correlation"])


class _Waits:
    """Tells what a synchronising call waited for."""

    def __init__(self, launches: Launches, trace: DeviceTrace) -> None:
        self._launches, self._issued = launches, IssueOrder.of(launches)
        syncs, calls = trace.syncs, trace.calls
        self._records = {correlation: index for index, correlation in enumerate(syncs.correlation.tolist())}
        self._syncs = syncs
        self._calls: dict[int, int] = {}
        if len(syncs):
            self._calls = dict(zip(calls.correlation.tolist(), calls.start_ns.tolist(), strict=True))

    def awaited(self, call: _SyncCall, lane: Lane) -> list[int]:
        """Return the launches that *call* waited for, as far as the trace tells."""
        issued, launches = self._issued, self._launches
        sync = self._records.get(call.correlation)
        last = {queue: issued.last_before(queue, call.start_ns) for queue in issued.times}
        if call.name in DEVICE_SYNC_CALLS:
            return [index for index in last.values() if index is not None]
        if call.name in STREAM_SYNC_CALLS:
            if sync is not None and self._syncs.stream[sync] >= 0:
                queues = issued.on_stream(int(self._syncs.stream[sync]))
            else:
                own = [i for i in last.values() if i is not None and launches.lane[i] == lane.number]
                queues = [launches.queues[launches.queue[max(own)]]] if own else []
            return [index for queue in queues if (index := last[queue]) is not None]
        recorded = self._calls.get(int(self._syncs.record_correlation[sync])) if sync is not None else None
        if sync is not None and recorded is not None:
            queues = issued.on_stream(int(self._syncs.on_stream[sync]))
            return [i for queue in queues if (i := issued.last_before(queue, recorded)) is not None]
        if call.end_ns - call.start_ns < _WAITED_NS:
            return []
        ended = issued.last_ended_within(call.start_ns, call.end_ns)
        return [ended] if ended is not None and launches.call_start_ns[ended] < call.start_ns else []


def _host_wait(lane: Lane, call: _SyncCall, sources: Sequence[int], launches: Launches) -> HostWait | None:
    """Return the wait of *call* for *sources*, without those that the measurement contradicts."""
    ended = [i for i in sources if launches.end_ns[i] <= call.end_ns + _NOTICED_WITHIN_NS]
    if not ended:
        return None
    last = int(launches.end_ns[ended].max())
    resume = max(call.start_ns, min(call.end_ns, last))
    return HostWait(lane.number, call.start_ns, resume, tuple(sorted(ended)))
