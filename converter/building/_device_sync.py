"""Find waits between streams.

Traces taken with ``enable_cuda_sync_events`` name the event of each wait. All others have only the calls,
whose place decides: a wait in a collective's own operator makes the collective wait for the stream that the
thread works on; elsewhere it makes that stream wait for the thread's oldest collective without a wait. Waits
that contradict the measured times are never assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from .._columns import groups_of, which
from ..linking import Lane, Launches, Linked
from ..readers import COMM_OPS, PARAMETERS, DeviceTrace, HostTrace, Op, parameters
from ._issue_order import IssueOrder

__all__ = ["coinciding_waits", "stream_waits"]

# Names of the runtimes' calls; further ones are data, not code.
STREAM_WAIT_CALLS = frozenset({"cudaStreamWaitEvent", "hipStreamWaitEvent", "cuStreamWaitEvent"})
# A stream that stood still this long, and went on this soon after another's work ended, waited for that.
_STOOD_STILL_NS = 20_000
_WENT_ON_WITHIN_NS = 10_000


def stream_waits(
    launches: Launches, trace: DeviceTrace, lanes: Sequence[Lane], host: HostTrace
) -> list[tuple[int, int]]:
    """Return (source, waiting), indices into *launches*: the second did not start before the first ended."""
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
    told = launches.end_ns[pairs[:, 0]] <= launches.start_ns[pairs[:, 1]]
    return [(source, waiting) for source, waiting in pairs[told].tolist()]


def _recorded_waits(
    trace: DeviceTrace, recorded: np.ndarray, issued: IssueOrder
) -> Iterator[tuple[int, int]]:
    """Yield the waits the trace records: the event's stream up to its record, the waiting stream from now."""
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
    """The stream waits that one host thread requested, inferred from the places of the calls."""

    def __init__(self, lane: Lane, host: HostTrace, launches: Launches, issued: IssueOrder) -> None:
        self._lane, self._host, self._launches, self._issued = lane, host, launches, issued
        self._own = np.flatnonzero(launches.lane == lane.number)
        self._by_sequence: dict[int, list[int]] = {}
        for index in sorted(launches.comms):
            for comm in launches.comms[index]:
                self._by_sequence.setdefault(comm.sequence, []).append(index)
        self._unwaited: dict[int, None] = {}  # in order of issue
        self._pending: list[tuple[bool, int]] = []  # (is a launch, launch or when the wait was asked for)
        self._last = -1

    def edges(self, asked_ns: Sequence[int]) -> list[tuple[int, int]]:
        """Return (source, waiting); *asked_ns* is when the thread asked for a stream to wait, in order."""
        found: list[tuple[int, int]] = []
        starts, asked = self._launches.call_start_ns[self._own].tolist(), list(asked_ns)
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

    def _wait(self, asked_ns: int) -> None:
        """Note a stream wait; what it waits for is known when the stream's next work is."""
        chain = self._lane.operators(asked_ns)
        waited = self._waited_sequence(chain)
        if waited is not None and waited >= 0:
            starts = self._launches.call_start_ns
            earlier = [i for i in self._by_sequence.get(waited, ()) if starts[i] < asked_ns]
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
            self._pending.append((False, asked_ns))

    def _waited_sequence(self, chain: Sequence[Op]) -> int | None:
        """Return the number of the collective that the operator around a call waits for, if it does.

        -1 if the trace does not say which.
        """
        if not chain:
            return None
        stated = parameters(self._host.operator(chain[0].record_id))
        return stated.sequence if stated is not None and stated.name == "wait" else None

    def _sources(self, is_launch: bool, item: int, waiting: int) -> Iterable[int]:
        """Return the launches *item* stands for: itself, or the newest work of another stream."""
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
    """Return waits between streams that follow from measured times only, in addition to *waits*.

    A stream that was idle although the host had issued its next work, and continued just when another
    stream's earlier work had ended, waited for that. Second, by launch, until when work issued before the
    window held it up in this way.
    """
    launches, carried = linked.launches, linked.carried
    known = np.zeros(len(launches), dtype=np.int64)
    told = np.array(waits, dtype=np.int64).reshape(-1, 2)
    np.maximum.at(known, told[:, 1], launches.end_ns[told[:, 0]])
    ready = np.maximum(np.maximum(launches.cut_ns, _free_ns(linked)), known)
    ends = np.concatenate([carried.end_ns, launches.end_ns])
    owners = np.concatenate([np.full(len(carried), -1), np.arange(len(launches))])
    order = np.lexsort((owners, ends))
    ends, owners = ends[order], owners[order]
    found: list[tuple[int, int]] = []
    held: dict[int, int] = {}
    for index in np.flatnonzero(launches.start_ns - ready > _STOOD_STILL_NS).tolist():
        start = launches.start_ns[index]
        at = max(0, int(np.searchsorted(ends, start, side="right")) - 1)
        end, source = int(ends[at]), int(owners[at])
        if start - _WENT_ON_WITHIN_NS <= end <= start and source < index:
            if source < 0:
                held[index] = end
            else:
                found.append((source, index))
    return found, held


def _free_ns(linked: Linked) -> np.ndarray:
    """Return when each launch's stream had done all that was issued to it before."""
    launches = linked.launches
    free = np.zeros(len(launches), dtype=np.int64)
    for queue, own in groups_of(launches.queue).items():
        before = linked.carried.end_ns[linked.carried_queue == queue].max(initial=0)
        free[own] = np.maximum.accumulate(np.append(before, launches.end_ns[own]))[:-1]
    return free
