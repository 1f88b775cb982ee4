"""Which call of which host thread issued each piece of device work, and what it communicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from .host_lanes import Lane
from .host_trace import HostTrace, tensors
from .kineto import Call, DeviceTrace, Event, Work
from .nccl import DeviceComm, describe, group_of, is_communication, peer_to_peer
from .timeline import Op

__all__ = ["Launch", "Linked", "data_edges", "link"]

_ISSUED_WITHIN_NS = 5_000
_PEER_OPS = frozenset({"c10d::send", "c10d::recv_"})


@dataclass
class Launch:
    """Device work, and when and where the host issued it.

    *lane* numbers the host thread, *op* is the innermost operator on it (-1: none). The work may start once
    the host has come to *cut_ns*. *comms* says what it communicates: one collective, or several sends and
    receives of one kernel; empty for computation. *notes* say what could not be told.
    """

    work: Work
    call: Call
    lane: int
    op: int
    cut_ns: int
    is_comm: bool
    comms: list[DeviceComm] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    @property
    def queue(self) -> tuple[int, int]:
        """The device and the stream on it."""
        return (self.work.device, self.work.stream)


@dataclass(frozen=True)
class Linked:
    """The work issued in the window, in order of issue, and the work that was *carried* into it.

    *overruns* tells that the device still worked on what was issued when the host's step was over.
    """

    launches: list[Launch]
    carried: list[Work]
    overruns: bool = False


def link(
    trace: DeviceTrace,
    lanes: Sequence[Lane],
    host: HostTrace,
    window: tuple[int, int],
    *,
    groups: Mapping[str, tuple[int, ...]],
    world_size: int,
) -> Linked:
    """Match device work with the calls that issued it (by correlation) and the operators around them.

    Work of traces that lack the call is matched with the operator of its ``External id``.
    """
    start_ns, end_ns = window
    calls = _calls(trace)
    operators = _operators_by_external_id(trace, calls)
    lane_of = {lane.thread: lane for lane in lanes}
    first_start: dict[int, int] = {}
    pairs: list[tuple[Work, Call]] = []
    carried = []
    for work in trace.works:
        call = calls.get(work.correlation) or operators.get(work.external_id)
        if call is None or call.start_ns < start_ns:
            if start_ns <= work.end_ns and work.start_ns < end_ns:
                carried.append(work)
        elif call.start_ns < end_ns and call.thread in lane_of:
            first_start.setdefault(id(call), work.start_ns)
            pairs.append((work, call))
    pairs.sort(key=lambda pair: (pair[1].start_ns, pair[0].start_ns))
    launches = [
        Launch(
            work,
            call,
            lane_of[call.thread].number,
            lane_of[call.thread].op_at(call.start_ns),
            _cut(work, call, first_start[id(call)]),
            is_communication(work),
        )
        for work, call in pairs
    ]
    _describe(launches, lanes, host, groups, world_size)
    return Linked(launches, carried, any(launch.work.end_ns > end_ns for launch in launches))


def _calls(trace: DeviceTrace) -> dict[int, Call]:
    """Return the calls by correlation; the first one where a runtime call made a driver call."""
    calls: dict[int, Call] = {}
    for call in trace.calls:
        if call.correlation > 0:
            calls.setdefault(call.correlation, call)
    return calls


def _operators_by_external_id(trace: DeviceTrace, calls: Mapping[int, Call]) -> dict[int, Call]:
    """Return, as calls, the operators named by work whose own call the trace lacks."""
    wanted = {work.external_id for work in trace.works if work.correlation not in calls} - {0}
    if not wanted:
        return {}
    return {
        event.external_id: _as_call(event)
        for event in trace.events
        if event.is_operator and event.external_id in wanted
    }


def _as_call(event: Event) -> Call:
    return Call(event.name, event.thread, event.start_ns, event.start_ns, -1, event.external_id)


def _cut(work: Work, call: Call, first_start_ns: int) -> int:
    """Return when the host had issued *work*: when the call returned, or the device began, if earlier.

    A copy that ends within its call blocks the host, which had issued it long before.
    """
    cut = min(call.end_ns, max(call.start_ns, first_start_ns))
    if work.category == "memcpy" and work.end_ns <= call.end_ns:
        cut = min(cut, call.start_ns + _ISSUED_WITHIN_NS)
    return cut


def _describe(
    launches: Sequence[Launch],
    lanes: Sequence[Lane],
    host: HostTrace,
    groups: Mapping[str, tuple[int, ...]],
    world_size: int,
) -> None:
    """Fill in what the communication kernels among *launches* do."""
    peers = {lane.number: _peer_ops(lane) for lane in lanes}
    for launch in launches:
        if not launch.is_comm:
            continue
        lane = lanes[launch.lane]
        chain = lane.chain(launch.call.start_ns)
        waiting = peers[launch.lane]
        mine = [op for op in chain if id(op) in waiting] or _issued_before(waiting, launch)
        comm = describe(launch.work, chain, host, groups, world_size)
        if comm is not None:
            launch.comms = [comm]
            continue
        ranks = group_of(launch.work, chain, host, groups, world_size) or tuple(range(world_size))
        launch.comms = [found for op in mine if (found := peer_to_peer(op, host, ranks)) is not None]
        for op in mine:
            del waiting[id(op)]
        if not launch.comms:
            launch.notes = (
                "the trace does not tell what some communication kernels move: they keep their measured time "
                "on any network",
            )


def _peer_ops(lane: Lane) -> dict[int, Op]:
    """Return the sends and receives of *lane* in order, by identity; a kernel takes out its own."""
    return {id(op): op for op in lane.ops if op.event.name in _PEER_OPS}


def _issued_before(waiting: Mapping[int, Op], launch: Launch) -> list[Op]:
    """Return the sends and receives gathered before *launch*, the kernel of a batch."""
    return list(takewhile(lambda op: op.start_ns <= launch.call.start_ns, waiting.values()))


def data_edges(launches: Sequence[Launch], lanes: Sequence[Lane], host: HostTrace) -> list[tuple[int, int]]:
    """Return (writer, reader) as indices into *launches*: the last writer of each storage that is read.

    The work of one operator reads at its first and writes at its last piece. A pair that the measurement
    contradicts (storage ids are addresses, which are reused) is left out.
    """
    writer: dict[int, int] = {}
    found: list[tuple[int, int]] = []
    for first, last, reads, writes in _accesses(launches, lanes, host):
        sources = {writer[storage] for storage in reads if storage in writer}
        start = launches[first].work.start_ns
        found += [(src, first) for src in sorted(sources) if launches[src].work.end_ns <= start]
        writer.update(dict.fromkeys(writes, last))
    return found


def _accesses(
    launches: Sequence[Launch], lanes: Sequence[Lane], host: HostTrace
) -> list[tuple[int, int, frozenset[int], frozenset[int]]]:
    """Return first and last work, storages read and storages written of each operator with work, in order."""
    accesses = []
    index = 0
    while index < len(launches):
        launch, last = launches[index], index
        same = (launch.lane, launch.op)
        while launch.op >= 0 and last + 1 < len(launches):
            following = launches[last + 1]
            if (following.lane, following.op) != same or following.is_comm:
                break
            last += 1
        accesses.append((index, last, *_storages(launch, lanes, host)))
        index = last + 1
    return accesses


def _storages(
    launch: Launch, lanes: Sequence[Lane], host: HostTrace
) -> tuple[frozenset[int], frozenset[int]]:
    """Return the storages that *launch* reads and writes."""
    if launch.comms:
        moved = frozenset().union(*(comm.storages for comm in launch.comms))
        return moved, moved
    record = host.operators.get(lanes[launch.lane].ops[launch.op].event.record_id) if launch.op >= 0 else None
    if record is None:
        return frozenset(), frozenset()
    reads = frozenset(tensor.storage for tensor in tensors(record.inputs))
    written = tensors(record.outputs)
    if not written and "!" in record.schema:
        written = tensors(record.inputs[:1])
    return reads, frozenset(tensor.storage for tensor in written)
