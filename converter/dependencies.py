"""What waits for what: data through storages, and the main thread for its communications."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from ._native import last_writers
from .collectives import Communication
from .columns import spans
from .host_trace import HostTrace
from .timeline import Ops, Pieces

__all__ = ["WAIT_OPS", "data_dependencies", "touching", "wait_piece"]

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


def wait_piece(
    comm: Communication,
    ops: Ops,
    pieces: Pieces,
    users: dict[int, list[int]],
) -> int | None:
    """Return the index of the piece in which the thread waited for *comm*, or None if it never did.

    That is the piece it evidently idled in until the communication ended; else the piece before the first
    operator that uses its tensors afterwards, or the wait operator itself. *users* are the operators that
    have each storage as an argument.
    """
    issued = int(ops.end_ns[comm.op])
    consumer = _consumer(comm, ops, users, issued)
    limit = ops.start_ns[consumer] if consumer is not None else pieces.end_ns[-1]
    at = int(np.searchsorted(pieces.start_ns, comm.end_ns - 1, side="right")) - 1
    idle_op, idle_start = int(pieces.op[at]), int(pieces.start_ns[at])
    if issued <= idle_start < limit and (idle_op < 0 or not ops.is_leaf[idle_op]):
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
