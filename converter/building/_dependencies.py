"""Find dependencies of operators: data in storages, buffers of collectives, and waits."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from .._columns import spans, which
from .._native import last_writers
from ..chakra import BUFFERS, NodeType
from ..readers import FUNCTIONAL, Communication, HostTrace, Ops, Pieces

WAIT_OPS = frozenset({f"{FUNCTIONAL}wait_tensor"})
_ATEN = "aten::"
# Operators that use only the shape of a tensor or replace its storage, and do not access the tensor's data.
_OF_SHAPES = re.compile(r"aten::(\w+_(like|as)|new_\w+|set_|resize_)$")


def data_dependencies(ops: Ops, host: HostTrace) -> np.ndarray:
    """Return pairs (writer, reader) of leaf operators: the last writer of each storage an operator reads.

    Storage ids are addresses, which the allocator may reuse after a free. The rule of the last writer
    accounts for this reuse. A view operator returns the storage of its input without writing to it, and does
    not count as a writer.
    """
    rows = host.rows(ops.record_id)
    leaves = np.flatnonzero((rows >= 0) & ops.is_leaf.astype(bool))
    rows = rows[leaves]
    views = ~host.changing()[rows]
    writes = np.column_stack([host.inputs_end[rows], host.end[rows]]).ravel()
    source, target = last_writers(host.reads(rows), writes, views.view(np.uint8), host.storages)
    return np.column_stack([leaves[source], leaves[target]])


class Uses(NamedTuple):
    """The operators that use a communication's storage; those in *needed* need the communicated data."""

    users: Mapping[int, Sequence[int]]
    needed: Mapping[int, Sequence[int]]


def uses_of(comms: Sequence[Communication], ops: Ops, host: HostTrace) -> Uses:
    """Return the operators that use the tensors of *comms*, by storage, in order."""
    users = _touching(ops, host, frozenset().union(*(comm.storages for comm in comms)))
    return Uses(users, _needing(comms, ops, host, users))


def _touching(ops: Ops, host: HostTrace, storages: frozenset[int]) -> dict[int, list[int]]:
    """Return, for each of *storages*, the operators with the storage as an argument, in order."""
    users: dict[int, list[int]] = {storage: [] for storage in storages}
    rows = host.rows(ops.record_id)
    known = np.flatnonzero(rows >= 0)
    rows = rows[known]
    count = host.end[rows] - host.begin[rows]
    flat, op = host.storages[spans(host.begin[rows], count)], np.repeat(known, count)
    wanted = np.isin(flat, np.fromiter(storages, dtype=np.int64, count=len(storages)))
    pairs = np.unique(np.column_stack([op[wanted], flat[wanted]]), axis=0)
    for index, storage in pairs.tolist():
        users[storage].append(index)
    return users


def _needing(
    comms: Sequence[Communication], ops: Ops, host: HostTrace, users: Mapping[int, Sequence[int]]
) -> dict[int, list[int]]:
    """Return, for each storage that *comms* write, the operators among its *users* that need the data.

    Operators that need the data cannot run before it has arrived. Storages that several communications write
    in parts are omitted, because a user of such a storage need not wait for all parts.
    """
    written: dict[int, int] = {}
    shared: set[int] = set()
    for comm in comms:
        shared |= {s for s in comm.written if ops.start_ns[comm.op] < written.get(s, 0)}
        written |= {s: max(comm.end_ns, written.get(s, 0)) for s in comm.written}
    rows, changing = host.rows(ops.record_id), host.changing()

    def needs(index: int, storage: int) -> bool:
        row = rows[index]
        name = ops[index].name
        if not (ops.is_leaf[index] and name.startswith(_ATEN)) or _OF_SHAPES.match(name):
            return False
        # An operator that returns the storage of its input without changing the storage is a view.
        passed_on = host.storages[host.inputs_end[row] : host.end[row]]
        return bool(changing[row]) or storage not in passed_on

    return {
        storage: [index for index in users[storage] if needs(index, storage)]
        for storage in written.keys() - shared
    }


def with_message_ends(
    comms: Sequence[Communication], ops: Ops, pieces: Pieces, gaps: Gaps
) -> list[Communication]:
    """Return *comms* in which messages end when their data arrived or departed, if this time is known.

    Gloo's annotation of a message lasts until the call that waits for the message returns. This call may
    return long after the message, and may wait for many messages. The end of the annotation is the end of the
    message only if the waiting call blocked the thread. Otherwise, the data of a send left when the send was
    issued, if the socket accepted the data. If the issuing call blocked for longer than the waiting call, the
    data of a receive had arrived when the receive was issued.
    """
    settled = list(comms)
    messages = [
        index
        for index, comm in enumerate(comms)
        if comm.spec.collective is None and not ended_in_call(comm, ops)
    ]
    returned_ns = 0
    for index in sorted(messages, key=lambda index: comms[index].end_ns):
        comm, returned = comms[index], int(ops.end_ns[comms[index].op])
        in_call = comm.end_ns - returned < returned - comm.issued_ns
        if not in_call and _is_blocking(comm, max(returned, returned_ns), ops, pieces, gaps):
            settled[index] = replace(comm, awaited_ns=comm.end_ns)
        elif in_call or comm.spec.node_type is NodeType.COMM_SEND:
            settled[index] = replace(comm, end_ns=comm.issued_ns, awaited_ns=comm.end_ns)
        returned_ns = comm.end_ns
    return settled


def _is_blocking(comm: Communication, since_ns: int, ops: Ops, pieces: Pieces, gaps: Gaps) -> bool:
    """Return whether the wait for message *comm* blocked the thread from *since_ns* or the piece's start."""
    at, issued = _piece_at(comm.end_ns, pieces), int(ops.end_ns[comm.op])
    start, end = int(pieces.start_ns[at]), int(pieces.end_ns[at])
    if not _is_idle(at, ops, pieces) or start < issued or end < comm.end_ns:
        return False
    since_ns = max(start, since_ns)
    return since_ns == issued or gaps.returned(at, since_ns, comm.end_ns)


def wait_pieces(
    comms: Sequence[Communication], ops: Ops, pieces: Pieces, uses: Uses, gaps: Gaps
) -> list[int | None]:
    """Return the piece in which the thread waited for each of *comms*, or None if the thread did not wait.

    The wait is the first existing piece in this list:

    1. the rest of the issuing call, if the communication ended in this call;
    2. the recorded piece;
    3. the piece in which the communication ended, if the thread evidently idled until that end;
    4. the piece before the next operator that uses the communication's tensors, or the wait operator itself.

    The thread evidently idled if it had done nothing since the issuing call, or continued with an operator
    that uses the result. Other waits are identified by the usual time that threads take to continue after
    such waits.
    """
    consumers = [_consumer(comm, ops, pieces, uses) for comm in comms]
    ended = [
        _ended_idle(comm, consumer, ops, pieces) for comm, consumer in zip(comms, consumers, strict=True)
    ]
    certain = {
        index: at
        for index, (comm, consumer, at) in enumerate(zip(comms, consumers, ended, strict=True))
        if at is not None
        and (pieces.start_ns[at] == ops.end_ns[comm.op] or _leads_to(consumer, at, ops, pieces))
    }
    gaps = gaps.resuming([(at, comms[index].end_ns) for index, at in certain.items()])
    return [
        _piece_at(comm.end_ns, pieces)
        if ended_in_call(comm, ops)
        else _recorded_wait(comm, ops, pieces)
        if comm.awaited_ns is not None
        else at
        if at is not None and (index in certain or gaps.ended_in(at, comm.end_ns))
        else _wait_for_use(comm, consumer, ops, pieces)
        for index, (comm, consumer, at) in enumerate(zip(comms, consumers, ended, strict=True))
    ]


def _recorded_wait(comm: Communication, ops: Ops, pieces: Pieces) -> int | None:
    """Return the piece in which the thread waited for *comm* according to the record of *comm*."""
    assert comm.awaited_ns is not None
    at = _piece_at(comm.awaited_ns, pieces)
    reached = ops.end_ns[comm.op] <= pieces.start_ns[at] and comm.awaited_ns <= pieces.end_ns[at]
    return at if reached and _is_idle(at, ops, pieces) else None


def _ended_idle(comm: Communication, consumer: int | None, ops: Ops, pieces: Pieces) -> int | None:
    """Return the piece before *consumer* in which the collective *comm* ended, if the thread was idle then.

    A thread waits inside a wait operator, and not before it.
    """
    if comm.spec.collective is None:
        return None
    limit = ops.start_ns[consumer] if consumer is not None else pieces.end_ns[-1]
    at = _piece_at(comm.end_ns, pieces)
    between = ops.end_ns[comm.op] <= pieces.start_ns[at] < limit and comm.end_ns <= pieces.end_ns[at]
    for_operator = consumer is not None and ops[consumer].name in WAIT_OPS
    return at if between and not for_operator and _is_idle(at, ops, pieces) else None


def _leads_to(consumer: int | None, at: int, ops: Ops, pieces: Pieces) -> bool:
    """Return whether only operators around *consumer* began between piece *at* and *consumer*."""
    if consumer is None:
        return False
    around, op = set(), int(ops.parent[consumer])
    while op >= 0:
        around.add(op)
        op = int(ops.parent[op])
    return around.issuperset(pieces.op[at + 1 : _piece_before(consumer, ops, pieces) + 1].tolist())


def _piece_before(op: int, ops: Ops, pieces: Pieces) -> int:
    return int(np.searchsorted(pieces.start_ns, ops.start_ns[op] - 1, side="right")) - 1


def _wait_for_use(comm: Communication, consumer: int | None, ops: Ops, pieces: Pieces) -> int | None:
    """Return the piece before the operator *consumer* of *comm*, or the piece of a wait operator itself."""
    if consumer is None:
        return None
    before = _piece_before(consumer, ops, pieces)
    if ops[consumer].name in WAIT_OPS:
        before += 1
    return before if pieces.start_ns[before] >= ops.end_ns[comm.op] else None


def _consumer(comm: Communication, ops: Ops, pieces: Pieces, uses: Uses) -> int | None:
    """Return the operator with which the thread continued after *comm*, or None if no operator needs *comm*.

    The result is the first operator that waits for *comm*, or that uses its tensors after its annotation has
    ended. Gloo's thread wakes waiting threads before it ends the annotation, so the annotation ends late on a
    busy machine. An earlier operator with the result as an argument is therefore chosen under two conditions.
    First, the last rank had entered the collective before this operator. Second, the thread's idle time
    before this operator is longer than the time until the annotation ended or the data was needed.
    """
    issued = int(ops.end_ns[comm.op])
    after = [
        index
        for index in _later(comm.storages, uses.users, comm.op)
        if ops.start_ns[index] >= issued
        and (ops[index].name in WAIT_OPS or ops.start_ns[index] >= comm.end_ns)
    ]
    first = min(after, default=None)
    if first is not None and (
        ops[first].name in WAIT_OPS or issued <= _idle_since(first, ops, pieces) <= comm.end_ns
    ):
        return first
    entered = max(issued, comm.entered_ns)
    needs = [int(ops.start_ns[index]) for index in _later(comm.written, uses.needed, comm.op)]
    over_ns = min([comm.end_ns, *(start_ns for start_ns in needs if start_ns >= entered)])
    woken: dict[int, int] = {}
    for index in _later(comm.written, uses.users, comm.op):
        start_ns = int(ops.start_ns[index])
        since_ns = _idle_since(index, ops, pieces)
        if entered <= start_ns <= over_ns and issued <= since_ns <= 2 * start_ns - over_ns:
            woken[index] = start_ns - since_ns
    return max(woken, key=lambda index: (woken[index], -index), default=first)


def _later(storages: frozenset[int], users: Mapping[int, Sequence[int]], op: int) -> list[int]:
    """Return the operators among the *users* of *storages* that come after operator *op*."""
    return [
        index
        for storage in storages
        for index in users.get(storage, ())[bisect_right(users.get(storage, ()), op) :]
    ]


def _idle_since(op: int, ops: Ops, pieces: Pieces) -> int:
    """Return the start of a possible wait of the thread immediately before *op*, or the start of *op*."""
    start_ns = int(ops.start_ns[op])
    at = _piece_at(start_ns, pieces)
    ends_there = int(pieces.end_ns[at]) == start_ns
    return int(pieces.start_ns[at]) if ends_there and _is_idle(at, ops, pieces) else start_ns


def _piece_at(time_ns: int, pieces: Pieces) -> int:
    """Return the piece that contains the end time *time_ns*."""
    return max(0, int(np.searchsorted(pieces.start_ns, time_ns - 1, side="right")) - 1)


def _is_idle(at: int, ops: Ops, pieces: Pieces) -> bool:
    """Return whether the thread may have waited in piece *at*: outside operators, or between inner operators.

    ATen operators compute between their inner operators, so a thread does not wait there.
    """
    op = int(pieces.op[at])
    return op < 0 or not (ops.is_leaf[op] or ops[op].name.startswith(_ATEN))


class Gaps(msgspec.Struct, frozen=True):
    """The usual time of a thread from one operator to the next, and from a wait to the next operator.

    *between* and *within* are the sorted lengths of gaps between and within operators that have no relation
    to communication. *resumed* are the remainders of gaps after certain waits. The tests depend only on the
    order of lengths, so a slower machine gives the same result. *trials* is one more than the number of
    tested gaps. A gap counts as a wait only if chance would produce fewer than one equally long gap among the
    tested gaps.
    """

    pieces: Pieces
    between: np.ndarray
    within: np.ndarray
    resumed: np.ndarray
    trials: int

    @classmethod
    def of(cls, comms: Sequence[Communication], ops: Ops, pieces: Pieces) -> Gaps:
        """Return the gaps of a thread that issued *comms*, still without certain waits."""
        named_aten = np.array([name.startswith(_ATEN) for name in ops.trace.names(ops.name)], dtype=bool)
        works = ops.is_leaf.astype(bool) | named_aten
        outside = pieces.op < 0
        usual = np.ones(len(pieces.op), dtype=bool)
        usual[[_piece_at(comm.end_ns, pieces) for comm in comms]] = False
        usual &= ~np.isin(pieces.start_ns, [int(ops.end_ns[comm.op]) for comm in comms])
        within = ~outside
        within[within] = ~works[pieces.op[within]]
        lengths = pieces.end_ns - pieces.start_ns
        nothing = np.zeros(0, dtype=lengths.dtype)
        between, within = (np.sort(lengths[kind & usual]) for kind in (outside, within))
        return cls(pieces, between, within, nothing, len(comms) + 1)

    def resuming(self, certain: Collection[tuple[int, int]]) -> Gaps:
        """Return a copy of the gaps with *certain* waits, which are given as pairs of piece and end."""
        left = [int(self.pieces.end_ns[at]) - over_ns for at, over_ns in certain]
        return replace(self, resumed=np.sort(np.array(left, dtype=self.between.dtype)))

    def returned(self, at: int, since_ns: int, until_ns: int) -> bool:
        """Return whether a call that returned at *until_ns* in piece *at* blocked its thread from *since_ns*.

        The call blocked the thread if fewer than one gap of this length is expected by chance among the
        tested gaps.
        """
        return self.trials * _share(until_ns - since_ns, self._alike(at)) < 1

    def ended_in(self, at: int, over_ns: int) -> bool:
        """Return whether the thread left piece *at* because a communication ended at *over_ns*.

        If the communication was the reason, the remaining gap is as long as usual after a wait, or as long as
        a usual gap. Otherwise, the end soon after *over_ns* is a coincidence, and the whole gap has a usual
        length.
        """
        whole, left = (int(self.pieces.end_ns[at]) - since for since in (self.pieces.start_ns[at], over_ns))
        alike = self._alike(at)
        by_chance = _share(whole, alike) * left / whole
        as_after_waits = _longer(left, self.resumed) / (1 + len(self.resumed))
        return self.trials * by_chance < max(_share(left, alike), as_after_waits)

    def _alike(self, at: int) -> np.ndarray:
        return self.between if self.pieces.op[at] < 0 else self.within


def _share(length_ns: int, ordered: np.ndarray) -> float:
    """Return the share of the *ordered* lengths and *length_ns* that are at least *length_ns*."""
    return (1 + _longer(length_ns, ordered)) / (1 + len(ordered))


def _longer(length_ns: int, ordered: np.ndarray) -> int:
    """Return the number of *ordered* lengths of at least *length_ns*."""
    return len(ordered) - int(np.searchsorted(ordered, length_ns))


# Names of copies to and from the buffers of collectives. The names are ranges of
# torch/csrc/distributed/c10d/reducer.cpp and operators of
# torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py.
_BUFFER_COPIES = {
    "torch::distributed::reducer::mul_out": "all_reduce",
    "torch.distributed.ddp.reducer::copy_bucket_to_grad": "all_reduce",
    "fsdp::all_gather_copy_in": "all_gather",
    "fsdp::split_with_sizes_copy": "all_gather",
    "fsdp::chunk_cat": "reduce_scatter",
}


def buffers_of(ops: Ops) -> list[str]:
    """Return the label in `BUFFERS` of each operator that copies to or from a collective's buffer, or ""."""
    places = [""] * len(ops)
    for collective, place in BUFFERS.items():
        copying = {name for name, of in _BUFFER_COPIES.items() if of == collective}
        named = which(ops.trace.texts, copying.__contains__)[ops.name]
        for row in np.flatnonzero(_inside(ops, named)).tolist():
            places[row] = place
    return places


def _inside(ops: Ops, chosen: np.ndarray) -> np.ndarray:
    """Return a mask of the *ops* that are *chosen* or inside a chosen operator."""
    inside, outer = np.zeros_like(chosen), chosen
    while (outer & ~inside).any():
        inside = inside | outer
        outer = (ops.parent >= 0) & inside[ops.parent]
    return inside


# The maximum time in which a call issues its communication. A call that takes longer is blocked.
_LONGEST_ISSUE_NS = 100_000


def with_issue_times(
    comms: Sequence[Communication], ops: Ops, pieces: Pieces
) -> tuple[list[Communication], Pieces]:
    """Return *comms* with their times of issue, and *pieces* cut at these times.

    A call issues its communication as fast as the fastest call of the same operator. If a call returns much
    later, its thread was blocked: it waited for the communication or for a processor.
    """
    last = {op: place for place, op in enumerate(pieces.op.tolist())}
    quickest: dict[int, int] = {}
    names = ops.trace.events.name[ops.event]
    for comm in comms:
        took = min(comm.begun_ns, int(ops.end_ns[comm.op])) - int(ops.start_ns[comm.op])
        name = int(names[comm.op])
        quickest[name] = min(max(1, took), quickest.get(name, _LONGEST_ISSUE_NS))
    issued, cuts = list(comms), {}
    for index, comm in enumerate(comms):
        place = last.get(comm.op)
        if place is None or comm.begun_ns == comm.end_ns:  # the library recorded no end in the call
            continue
        own_ns = int(pieces.start_ns[place])
        at_ns = max(int(ops.start_ns[comm.op]) + quickest[int(names[comm.op])], own_ns + 1)
        if int(pieces.end_ns[place]) - at_ns > _LONGEST_ISSUE_NS:
            issued[index], cuts[place] = replace(comm, issued_ns=at_ns), at_ns
    return issued, _cut(pieces, cuts)


def _cut(pieces: Pieces, cuts: dict[int, int]) -> Pieces:
    """Return *pieces* in which *cuts* split pieces in two; *cuts* maps indices of pieces to times."""
    places = np.repeat(np.arange(len(pieces.op)), 1 + np.isin(np.arange(len(pieces.op)), list(cuts)))
    halves = pieces.take(places)
    second = np.flatnonzero(places[1:] == places[:-1]) + 1
    halves.start_ns[second] = halves.end_ns[second - 1] = [cuts[place] for place in places[second].tolist()]
    return halves


def ended_in_call(comm: Communication, ops: Ops) -> bool:
    """Return whether the issuing call of *comm* waited: *comm* ended before the call returned."""
    return comm.issued_ns < comm.end_ns <= int(ops.end_ns[comm.op])
