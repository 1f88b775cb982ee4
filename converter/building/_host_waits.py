"""Find waits of host threads for the device: synchronisation, blocking copies, full queues, spinning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from .._columns import groups_of, which
from ..linking import MEMCPY, Lane, Launches, Linked
from ..readers import DeviceTrace
from ._issue_order import IssueOrder
from ._spin_waits import spin_waits

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
    """A host thread (*lane*) that waited from *start_ns* to *resume_ns* for the launches *sources*.

    Without any, it waited for work issued before the window. *name* is that of the call it waited in, which
    returned at *return_ns*; nothing and -1 where that only issues work.
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
    called = launches.call < len(trace.calls)
    blocking = (launches.category == MEMCPY) & (launches.end_ns <= launches.call_end_ns) & called
    for index in np.flatnonzero(blocking).tolist():
        cut = int(launches.cut_ns[index])
        resume = max(cut, int(launches.end_ns[index]))
        name = trace.texts[int(trace.calls.name[launches.call[index]])]
        returned = int(launches.call_end_ns[index])
        found.append(HostWait(int(launches.lane[index]), cut, resume, (index,), name, returned))
    for spin in spin_waits(launches, trace, lanes):
        resume = min(spin.end_ns, int(launches.end_ns[spin.source]))
        found.append(HostWait(spin.lane, spin.start_ns, resume, (spin.source,), spin.name, spin.end_ns))
    return sorted(found, key=lambda wait: (wait.lane, wait.start_ns, wait.sources))


def _synchronisations(linked: Linked, trace: DeviceTrace, lanes: Sequence[Lane]) -> Iterator[HostWait]:
    """Yield the waits of calls that synchronise.

    What a call waited for that was issued before the window is time the call took, unless the device runs
    behind the host from step to step: then it is the lead the host had, not part of this step.
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
        if not wait.sources and linked.overruns and call.end_ns - call.start_ns >= _WAITED_NS:
            ends = linked.carried.end_ns
            ended = ends[(ends > call.start_ns) & (ends <= call.end_ns)]
            wait = replace(wait, resume_ns=int(ended.max(initial=call.start_ns)))
        yield wait


def _full_queues(linked: Linked) -> Iterator[HostWait]:
    """Yield the waits of calls that could issue work only after the device had taken some from its queue.

    A call takes one place in the queue, also for all kernels of a CUDA graph.
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
    """Return the first of *works* that each call issued, and the one that ended last, in order of issue."""
    fresh = np.ones(len(works), dtype=bool)
    fresh[1:] = launches.call[works[1:]] != launches.call[works[:-1]]
    number = np.cumsum(fresh) - 1
    by_end = np.lexsort((launches.end_ns[works], number))
    return works[fresh], works[by_end[np.append(np.flatnonzero(fresh)[1:], len(works)) - 1]]


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
    """Finds the work that a synchronising call waited for."""

    def __init__(self, launches: Launches, trace: DeviceTrace) -> None:
        self._launches, self._issued = launches, IssueOrder.of(launches)
        syncs, calls = trace.syncs, trace.calls
        self._records = {correlation: index for index, correlation in enumerate(syncs.correlation.tolist())}
        self._syncs = syncs
        self._calls: dict[int, int] = {}
        if len(syncs):
            self._calls = dict(zip(calls.correlation.tolist(), calls.start_ns.tolist(), strict=True))

    def awaited(self, call: _SyncCall, lane: Lane) -> list[int]:
        """Return the launches that *call* waited for, if known."""
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

    def _last_of_its_stream(self, call: _SyncCall, lane: Lane, last: Sequence[int]) -> list[int]:
        """Return which of the *last* works of all streams *call* waited for, where the stream is not told.

        If it waited, that which ended just before it returned, else the last one of its thread.
        """
        launches = self._launches
        ends = {int(launches.end_ns[index]): index for index in last}
        if call.end_ns - call.start_ns >= _WAITED_NS:
            just = [end for end in ends if max(call.start_ns, call.end_ns - _WAITED_NS) < end <= call.end_ns]
            if just:
                return [ends[max(just)]]
        own = [index for index in last if launches.lane[index] == lane.number]
        return [max(own)] if own else []


def _host_wait(lane: Lane, call: _SyncCall, sources: Sequence[int], launches: Launches) -> HostWait:
    """Return the wait of *call* for *sources*, without those that the measurement contradicts.

    The call that issued a source came before it, though clocks of limited resolution may let it return a
    moment after *call* began.
    """
    ended = [i for i in sources if launches.end_ns[i] <= call.end_ns + _NOTICED_WITHIN_NS]
    issued = [int(launches.cut_ns[i]) for i in ended if launches.lane[i] == lane.number]
    start = max([call.start_ns, *issued])
    last = int(launches.end_ns[ended].max(initial=0))
    resume = max(start, min(call.end_ns, last))
    returned = max(resume, call.end_ns)
    return HostWait(lane.number, start, resume, tuple(sorted(ended)), call.name, returned)
