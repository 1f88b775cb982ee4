"""Find the call and host thread that issued each piece of device work, and describe communications."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

import msgspec
import numpy as np
from msgspec.structs import replace

from ...support.table import positions
from .._columns import groups_of, which
from .._native import last_writers
from ..readers import (
    MESSAGE_OPS,
    STEP_MARK,
    DeviceComm,
    DeviceTrace,
    HostTrace,
    Works,
    describe,
    is_communication,
    peer_to_peer,
)
from ._captured import KERNEL, MEMCPY, CapturedGraph, Origin, graph_origins, is_graph_launch
from ._host_lanes import Lane

_ISSUED_WITHIN_NS = 5_000
# The maximum time until an idle device begins work that has been issued.
_BEGINS_WITHIN_NS = 1_000_000
# The maximum share of a copy that may remain when a blocking call returns. A copy from pageable memory goes
# through a buffer, and the call returns before the last part of the buffer has been copied.
_LEFT_TO_COPY = 0.1
# Parts of the names of calls that issue work: cudaLaunchKernel, hipMemcpyWithStream, cuMemsetD8Async, ...
_ISSUING_WORDS = ("Launch", "Memcpy", "Memset")
_UNTOLD = (
    "the trace lacks the sizes of some communication kernels: they keep their measured time on any network"
)


class Launches(msgspec.Struct):
    """Columns of device work in order of issue, with the host thread, operator and time of issue.

    *work*, *queue* and *call* are indices into the trace's works, the *queues* (device and stream) and the
    trace's calls. For work without a call, larger values of *call* refer to operators. *lane* is the host
    thread, and *op* is the thread's innermost operator (-1: none). The work may start when the host has
    reached *cut_ns*. *comms* contains the communication of each launch: one collective, the sends and
    receives of one kernel, or nothing for computation. *origins* are the origins of a graph's work from its
    capture, if known. *notes* are sentences on limitations.
    """

    work: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    category: np.ndarray
    queue: np.ndarray
    call: np.ndarray
    call_start_ns: np.ndarray
    call_end_ns: np.ndarray
    lane: np.ndarray
    op: np.ndarray
    cut_ns: np.ndarray
    is_comm: np.ndarray
    queues: list[tuple[int, int]]
    comms: dict[int, list[DeviceComm]] = msgspec.field(default_factory=dict)
    origins: dict[int, Origin] = msgspec.field(default_factory=dict)
    notes: set[str] = msgspec.field(default_factory=set)

    def __len__(self) -> int:
        return len(self.work)


class Linked(msgspec.Struct, frozen=True):
    """The work issued in the window, and earlier work that the device executed after the window began.

    *carried* is the earlier work. If the device began the first work of a capture on a stream much later than
    possible, *carried* has an item for the work that the trace lacks. *carried_queue* uses the same numbers
    of queues as the launches. *overruns* means that the device was still executing the earlier work when the
    host's step ended.
    """

    launches: Launches
    carried: Works
    carried_queue: np.ndarray
    overruns: bool = False


class _Issuers(msgspec.Struct, frozen=True):
    """The issuing call of each work of a trace (-1: unknown), with its thread and times."""

    number: np.ndarray
    thread: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray


def link(
    trace: DeviceTrace,
    lanes: Sequence[Lane],
    host: HostTrace,
    window: tuple[int, int],
    *,
    groups: Mapping[str, tuple[int, ...]],
    world_size: int,
    captured: Sequence[CapturedGraph] = (),
) -> Linked:
    """Match device work with its issuing calls (by correlation) and the operators around these calls.

    Work without a call is matched with the operator of its ``External id``. Work of a CUDA graph is matched
    with the *captured* graph.
    """
    start_ns, end_ns = window
    works, issuers = trace.works, _issuers(trace)
    known = issuers.number >= 0
    before = ~known | (issuers.start_ns < start_ns)
    lane_of = np.full(len(trace.texts), -1, dtype=np.int64)
    for lane in lanes:
        lane_of[lane.thread] = lane.number
    issued = np.flatnonzero(~before & (issuers.start_ns < end_ns) & (lane_of[issuers.thread] >= 0))
    issued = issued[np.lexsort((works.start_ns[issued], issuers.start_ns[issued]))]
    cuts = _cuts(works.take(issued), issuers, issued)
    until_ns = max(end_ns, int(works.start_ns[issued].min(initial=2**62)) if len(issued) else 0)
    carried = works.take(before & (works.end_ns >= start_ns) & (known | (works.start_ns < until_ns)))
    carried = carried.joined(_unrecorded(works, issued, cuts, issuers.end_ns[issued]))
    queues, numbers = np.unique(
        np.concatenate([np.column_stack([w.device, w.stream]) for w in (works.take(issued), carried)]),
        axis=0,
        return_inverse=True,
    )
    numbers = numbers.ravel()
    own_lane, call_start = lane_of[issuers.thread[issued]], issuers.start_ns[issued]
    op = np.full(len(issued), -1, dtype=np.int64)
    for lane in lanes:
        mine = own_lane == lane.number
        op[mine] = lane.ops_at(call_start[mine])
    communicates = _communicates(trace, works.name[issued]) & (works.category[issued] == KERNEL)
    launches = Launches(
        work=issued,
        start_ns=works.start_ns[issued],
        end_ns=works.end_ns[issued],
        category=works.category[issued],
        queue=numbers[: len(issued)],
        call=issuers.number[issued],
        call_start_ns=call_start,
        call_end_ns=issuers.end_ns[issued],
        lane=own_lane,
        op=op,
        cut_ns=cuts,
        is_comm=communicates | (works.comm[issued] >= 0),
        queues=[(device, stream) for device, stream in queues.tolist()],
    )
    _describe(launches, trace, lanes, host, groups=groups, world_size=world_size)
    if captured:
        _trace_back(launches, trace, captured)
    overruns = bool((launches.end_ns > end_ns).any())
    return Linked(launches, carried, numbers[len(issued) :], overruns)


def _trace_back(launches: Launches, trace: DeviceTrace, captured: Sequence[CapturedGraph]) -> None:
    """Set the origins of launches whose work belongs to *captured* graphs."""
    launches.origins = graph_origins(trace, launches.work, launches.call, captured)
    of_graphs = int(is_graph_launch(trace, launches.call).sum())
    if of_graphs:
        launches.notes.add(
            f"the capture trace gives the operators of {len(launches.origins):,} of {of_graphs:,} "
            "kernels and copies of graphs; the others have the operator of the launch, if there is one"
        )
    else:
        launches.notes.add("the capture trace is not used: the step launches no graph")


def _unrecorded(works: Works, issued: np.ndarray, cuts: np.ndarray, call_ends: np.ndarray) -> Works:
    """Return stand-ins for work issued before the capture, which last until the first recorded work.

    A stand-in is added only if the whole device seems idle at that time.
    """
    rows = []
    queue = np.column_stack([works.device, works.stream])
    ends = np.maximum.accumulate(works.end_ns)
    for place in np.unique(queue[issued], axis=0, return_index=True)[1].tolist():
        first, cut = issued[place], int(cuts[place])
        start = int(works.start_ns[first])
        earlier = int(np.searchsorted(works.start_ns, start))
        is_first = not (queue[:earlier] == queue[first]).all(axis=1).any()
        idle = earlier == 0 or int(ends[earlier - 1]) <= cut
        returned = int(call_ends[place]) <= start
        if is_first and idle and returned and start - cut > _BEGINS_WITHIN_NS:
            rows.append((first, cut, start))
    found = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return replace(works.take(found[:, 0]), start_ns=found[:, 1], end_ns=found[:, 2])


def _issuers(trace: DeviceTrace) -> _Issuers:
    """Return the issuing call of each work; of several calls with its correlation, return the first call.

    A runtime call may make a driver call with the same correlation. Works without correlation are matched by
    external id: with the calls of the same id, in order, or otherwise with the operator.
    """
    calls, works, events = trace.calls, trace.works, trace.events
    call = trace.issuing_calls()
    lost = np.flatnonzero((call < 0) & (works.external_id != 0))
    if len(lost):
        call[lost] = _called_with(trace, works.take(lost), np.isin(np.arange(len(calls)), call))
    operators = np.flatnonzero(events.is_operator)[::-1]
    external, last = np.unique(events.external_id[operators], return_index=True)
    asked = (call < 0) & (works.external_id != 0)
    at = positions(external, np.where(asked, works.external_id, -1))
    wanted = asked & (at >= 0)
    event = operators[last[at[wanted]]]
    number = np.where(wanted, len(calls), call)
    number[wanted] += event
    thread, start, end = (_at(column, call) for column in (calls.thread, calls.start_ns, calls.end_ns))
    thread[wanted] = events.thread[event]
    start[wanted] = end[wanted] = events.start_ns[event]
    return _Issuers(number, thread, start, end)


def _communicates(trace: DeviceTrace, names: np.ndarray) -> np.ndarray:
    """Return whether each kernel communicates; *names* are numbers of the trace's texts."""
    different, place = np.unique(names, return_inverse=True)
    return which(trace.names(different), is_communication)[place.ravel()]


def _called_with(trace: DeviceTrace, works: Works, taken: np.ndarray) -> np.ndarray:
    """Return the call that issued each of *works* by external id, or -1 if there is no call.

    The n-th work with an id belongs to the n-th call with this id that issues work and is not *taken*. The
    remaining works belong to the last call.
    """
    calls = trace.calls
    issues = which(trace.texts, lambda text: any(word in text for word in _ISSUING_WORDS))
    free = np.flatnonzero(issues[calls.name] & ~taken)
    own = {external: free[places] for external, places in groups_of(calls.external_id[free]).items()}
    found = np.full(len(works), -1, dtype=np.int64)
    for external, places in groups_of(works.external_id).items():
        if external in own:
            issued = own[external]
            ordered = places[np.argsort(works.start_ns[places], kind="stable")]
            found[ordered] = issued[np.minimum(np.arange(len(ordered)), len(issued) - 1)]
    return found


def _at(column: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the values of *column* at *places*, or 0 for a place of -1."""
    values = np.zeros(len(places), dtype=np.int64)
    values[places >= 0] = column[places[places >= 0]]
    return values


def _cuts(works: Works, issuers: _Issuers, issued: np.ndarray) -> np.ndarray:
    """Return the time at which the host had completely issued each of *works*.

    This is the time at which the call returned, or at which the work started on the device if the start was
    earlier. A copy that blocks the host had been issued long before the call returned.
    """
    call_start, call_end = issuers.start_ns[issued], issuers.end_ns[issued]
    numbers, place = np.unique(issuers.number[issued], return_inverse=True)
    began = np.full(len(numbers), np.iinfo(np.int64).max)
    np.minimum.at(began, place, works.start_ns)
    cut = np.minimum(call_end, np.maximum(call_start, began[place]))
    blocks = blocks_host(works, call_end)
    cuts: np.ndarray = np.where(blocks, np.minimum(cut, call_start + _ISSUED_WITHIN_NS), cut)
    return cuts


def blocks_host(works: Works | Launches, call_end_ns: np.ndarray) -> np.ndarray:
    """Return whether each of *works* is a copy that is done, or nearly done, when its call returns."""
    left_ns = works.end_ns - call_end_ns
    blocks: np.ndarray = works.category == MEMCPY
    blocks &= left_ns <= _LEFT_TO_COPY * (works.end_ns - works.start_ns)
    return blocks


def _describe(
    launches: Launches,
    trace: DeviceTrace,
    lanes: Sequence[Lane],
    host: HostTrace,
    *,
    groups: Mapping[str, tuple[int, ...]],
    world_size: int,
) -> None:
    """Set the communication of the communication kernels in *launches*."""
    is_peer = which(trace.texts, MESSAGE_OPS.__contains__)
    callers = list(zip(launches.lane.tolist(), launches.op.tolist(), strict=True))
    calls = Counter(callers[index] for index in np.flatnonzero(launches.is_comm).tolist())
    waiting_of = [dict.fromkeys(np.flatnonzero(is_peer[lane.ops.name]).tolist()) for lane in lanes]
    for index in np.flatnonzero(launches.is_comm).tolist():
        lane, waiting = lanes[launches.lane[index]], waiting_of[launches.lane[index]]
        called = int(launches.call_start_ns[index])
        around = lane.chain(called)
        chain = [lane.ops[op] for op in around]
        mine = [op for op in around if op in waiting] or _issued_before(waiting, lane, called)
        work = trace.work(int(launches.work[index]))
        alone = calls[callers[index]] == 1
        comm, members = describe(work, chain, host, groups, world_size, alone=alone)
        if comm is not None:
            launches.comms[index] = [comm]
            continue
        ranks = members or tuple(range(world_size))
        messages = (peer_to_peer(lane.ops[op], host, ranks) for op in mine)
        launches.comms[index] = [comm for comm in messages if comm is not None]
        for op in mine:
            del waiting[op]
        if not launches.comms[index]:
            launches.notes.add(_UNTOLD)


def _issued_before(waiting: Iterable[int], lane: Lane, time_ns: int) -> list[int]:
    """Return the sends and receives that were gathered before the issue of the batch's kernel (*time_ns*)."""
    return list(takewhile(lambda op: bool(lane.ops.start_ns[op] <= time_ns), waiting))


def data_edges(launches: Launches, lanes: Sequence[Lane], host: HostTrace) -> np.ndarray:
    """Return pairs (writer, reader) of *launches*: the last writer of each storage that a launch reads.

    The first piece of work of an operator reads, and the last piece writes. Pairs that contradict the
    measured times are omitted, because storage ids are addresses, which the allocator reuses.
    """
    first, last = _accesses(launches)
    rows = host_rows(launches, lanes, host)[first]
    reads, writes, storages = (
        host.reads(rows).reshape(-1, 2),
        host.writes(rows).reshape(-1, 2),
        [host.storages],
    )
    size = len(host.storages)
    for at in np.flatnonzero(np.isin(first, list(launches.comms))).tolist():
        comms = launches.comms[int(first[at])]
        if comms:
            moved = sorted(frozenset().union(*(comm.storages for comm in comms)))
            storages.append(np.array(moved, dtype=np.int64))
            reads[at] = writes[at] = size, size + len(moved)
            size += len(moved)
    views = np.zeros(len(first), dtype=np.uint8)
    source, target = last_writers(reads.ravel(), writes.ravel(), views, np.concatenate(storages))
    pairs = np.column_stack([last[source], first[target]])
    consistent: np.ndarray = pairs[launches.end_ns[pairs[:, 0]] <= launches.start_ns[pairs[:, 1]]]
    return consistent


def _accesses(launches: Launches) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and last launch of each operator with device work, in order."""
    fresh = np.ones(len(launches), dtype=bool)
    same = (launches.lane[1:] == launches.lane[:-1]) & (launches.op[1:] == launches.op[:-1])
    fresh[1:] = ~same | (launches.op[1:] < 0) | launches.is_comm[1:]
    first = np.flatnonzero(fresh)
    return first, np.append(first[1:], len(launches))[: len(first)] - 1


def host_rows(launches: Launches, lanes: Sequence[Lane], host: HostTrace) -> np.ndarray:
    """Return the row in the host trace of each launch's operator, or -1 if there is no row."""
    return host.rows(record_ids(launches, lanes))


def record_ids(launches: Launches, lanes: Sequence[Lane]) -> np.ndarray:
    """Return the record-function id of each launch's operator, or -1 if there is no operator."""
    records = np.full(len(launches), -1, dtype=np.int64)
    for lane in lanes:
        mine = (launches.lane == lane.number) & (launches.op >= 0)
        records[mine] = lane.ops.record_id[launches.op[mine]]
    return records


_AGREEING_SHARE = 0.98


def with_records(trace: DeviceTrace, host: HostTrace) -> DeviceTrace:
    """Return *trace* with record-function ids of its events, which device traces before torch 2.4 lack.

    Both traces list a thread's operators and annotations in the same order, so the n-th events of both traces
    match. Threads are paired by the names of their events. Events of unpaired threads stay unchanged.
    """
    events = trace.events
    if events.record_id.any() or not len(host):
        return trace
    is_step = which(trace.texts, lambda text: text.startswith(STEP_MARK))
    named = np.flatnonzero(~is_step[events.name])
    own_names, host_names = np.array(trace.texts, dtype=object)[events.name], host.names()
    records = events.record_id.copy()
    for part in groups_of(events.thread[named]).values():
        indices = named[part]
        indices = indices[np.argsort(events.external_id[indices], kind="stable")]
        for rows in groups_of(host.thread).values():
            if len(rows) == len(indices) and _agree(own_names[indices], host_names[rows]):
                records[indices] = host.records[rows]
    return trace.with_records(records)


def _agree(names: np.ndarray, others: np.ndarray) -> bool:
    """Return whether nearly all of the paired names are equal."""
    return bool((names == others).sum() >= _AGREEING_SHARE * len(others))
