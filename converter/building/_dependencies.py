"""What waits for what: data through storages, and the main thread for its communications."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from .._columns import spans
from .._native import last_writers
from ..chakra import NodeType
from ..readers import Communication, HostTrace, Ops, Pieces

__all__ = ["WAIT_OPS", "data_dependencies", "touching", "wait_piece", "with_settled_sends"]

WAIT_OPS = frozenset({"_c10d_functional::wait_tensor"})
# A consumer may start this much before the annotation of its communication closes on the other thread.
_CLOSE_SLACK_NS = 50_000
# A gap that began this long before a communication ended, and was left this soon after, waited for it.
_IDLE_BEFORE_NS = 100_000
_RESUMED_WITHIN_NS = 500_000


def data_dependencies(ops: Ops, host: HostTrace) -> np.ndarray:
    """Return pairs (writer, reader) among the leaf operators: the last writer of each storage that is read.

    Storage ids are addresses and may be reused after a free, which the last writer accounts for. An operator
    whose output shares its input's storage without writing it (a view, by its schema) is no writer.
    """
    rows = host.rows(ops.record_id)
    leaves = np.flatnonzero((rows >= 0) & ops.is_leaf.astype(bool))
    rows = rows[leaves]
    views = ~host.changing()[rows]
    writes = np.column_stack([host.inputs_end[rows], host.end[rows]]).ravel()
    source, target = last_writers(host.reads(rows), writes, views.view(np.uint8), host.storages)
    return np.column_stack([leaves[source], leaves[target]])


def touching(ops: Ops, host: HostTrace, storages: frozenset[int]) -> dict[int, list[int]]:
    """Return, for each of *storages*, the operators that have it as an argument, in order."""
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


def with_settled_sends(comms: Sequence[Communication], ops: Ops, pieces: Pieces) -> list[Communication]:
    """Return *comms* with sends that end when their data left, as far as that can be told.

    Gloo's annotation of a send lasts until the script has waited for it, maybe for many at once and long
    after. It tells the end only if the thread evidently idled for this one; else the data left during the
    call, as they do while the socket takes them.
    """
    settled = list(comms)
    messages = [index for index, comm in enumerate(comms) if comm.spec.collective is None]
    awaited_ns = 0
    for index in sorted(messages, key=lambda index: comms[index].end_ns):
        comm, issued = comms[index], int(ops.end_ns[comms[index].op])
        is_send = comm.spec.node_type is NodeType.COMM_SEND
        if is_send and not _idled(comm.end_ns, max(issued, awaited_ns), issued, ops, pieces):
            settled[index] = replace(comm, end_ns=issued, awaited_ns=comm.end_ns)
        awaited_ns = comm.end_ns
    return settled


def _idled(until_ns: int, since_ns: int, issued_ns: int, ops: Ops, pieces: Pieces) -> bool:
    """Return whether the thread evidently waited from *since_ns*, or the piece's start, to *until_ns*."""
    at = _piece_at(until_ns, pieces)
    start, end = int(pieces.start_ns[at]), int(pieces.end_ns[at])
    if not _is_idle(at, ops, pieces) or start < issued_ns or end < until_ns:
        return False
    since_ns = max(start, since_ns)
    long_enough = until_ns - since_ns >= _IDLE_BEFORE_NS and end - until_ns <= _RESUMED_WITHIN_NS
    return since_ns == issued_ns or long_enough


def _piece_at(time_ns: int, pieces: Pieces) -> int:
    """Return the piece in which *time_ns* is the end of something."""
    return max(0, int(np.searchsorted(pieces.start_ns, time_ns - 1, side="right")) - 1)


def _is_idle(at: int, ops: Ops, pieces: Pieces) -> bool:
    """Return whether the thread may have waited in this piece: in no operator, or between inner ones."""
    op = int(pieces.op[at])
    return op < 0 or not ops.is_leaf[op]


def wait_piece(
    comm: Communication,
    ops: Ops,
    pieces: Pieces,
    users: dict[int, list[int]],
) -> int | None:
    """Return the index of the piece in which the thread waited for *comm*, or None if it never did.

    That is the piece in which it had waited, if that is recorded, or evidently idled until the communication
    ended; else the piece before the first operator that uses its tensors afterwards, or the wait operator
    itself. *users* are the operators that
    have each storage as an argument.
    """
    issued = int(ops.end_ns[comm.op])
    if comm.awaited_ns is not None:
        at = _piece_at(comm.awaited_ns, pieces)
        reached = issued <= pieces.start_ns[at] and comm.awaited_ns <= pieces.end_ns[at]
        return at if reached and _is_idle(at, ops, pieces) else None
    consumer = _consumer(comm, ops, users, issued)
    limit = ops.start_ns[consumer] if consumer is not None else pieces.end_ns[-1]
    at = _piece_at(comm.end_ns, pieces)
    idle_start = int(pieces.start_ns[at])
    if issued <= idle_start < limit and _is_idle(at, ops, pieces):
        waited, resumed = comm.end_ns - idle_start, int(pieces.end_ns[at]) - comm.end_ns
        if idle_start == issued or (waited >= _IDLE_BEFORE_NS and resumed <= _RESUMED_WITHIN_NS):
            return at
    if consumer is None:
        return None
    before = int(np.searchsorted(pieces.start_ns, ops.start_ns[consumer] - 1, side="right")) - 1
    if ops[consumer].name in WAIT_OPS:
        before += 1
    return before if pieces.start_ns[before] >= issued else None


def _consumer(comm: Communication, ops: Ops, users: dict[int, list[int]], issued: int) -> int | None:
    """Return the first operator that uses the tensors of *comm* once it is over, or that waits for it."""
    candidates = [
        index
        for storage in comm.storages
        for index in users[storage][bisect_right(users[storage], comm.op) :]
        if ops.start_ns[index] >= issued
        and (ops[index].name in WAIT_OPS or ops.start_ns[index] >= comm.end_ns - _CLOSE_SLACK_NS)
    ]
    return min(candidates, default=None)
