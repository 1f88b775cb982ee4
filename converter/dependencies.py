"""What waits for what: data through storages, and the main thread for its communications."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from .collectives import Communication
from .host_trace import HostTrace, tensors
from .timeline import Op, Piece

__all__ = ["WAIT_OPS", "data_dependencies", "touching", "wait_piece"]

WAIT_OPS = frozenset({"_c10d_functional::wait_tensor"})
# A consumer may start this much before the annotation of its communication closes on the other thread.
_CLOSE_SLACK_NS = 50_000
# A gap that began this long before a communication ended, and was left this soon after, waited for it.
_IDLE_BEFORE_NS = 100_000
_RESUMED_WITHIN_NS = 500_000


def data_dependencies(ops: Sequence[Op], host: HostTrace) -> Iterator[tuple[int, int]]:
    """Yield (writer, reader) among the leaf operators: the last writer of each storage that is read.

    Storage ids are addresses and may be reused after a free, which the last writer accounts for. An operator
    whose output shares its input's storage without writing it (a view, by its schema) is no writer.
    """
    writer: dict[int, int] = {}
    for index, op in enumerate(ops):
        record = host.operators.get(op.event.record_id)
        if record is None or not op.is_leaf:
            continue
        read = {tensor.storage for tensor in tensors(record.inputs)}
        yield from sorted({(writer[storage], index) for storage in read if storage in writer})
        mutates = "!" in record.schema
        for tensor in tensors(record.outputs):
            if mutates or tensor.storage not in read:
                writer[tensor.storage] = index


def touching(ops: Sequence[Op], host: HostTrace, storages: frozenset[int]) -> dict[int, list[int]]:
    """Return, for each of *storages*, the operators that have it as an argument, in order."""
    users: dict[int, list[int]] = {storage: [] for storage in storages}
    for index, op in enumerate(ops):
        record = host.operators.get(op.event.record_id)
        if record is None:
            continue
        for storage in {
            tensor.storage for tensor in [*tensors(record.inputs), *tensors(record.outputs)]
        } & storages:
            users[storage].append(index)
    return users


def wait_piece(
    comm: Communication,
    ops: Sequence[Op],
    pieces: Sequence[Piece],
    starts: Sequence[int],
    users: dict[int, list[int]],
) -> int | None:
    """Return the index of the piece in which the thread waited for *comm*, or None if it never did.

    That is the piece it evidently idled in until the communication ended; else the piece before the first
    operator that uses its tensors afterwards, or the wait operator itself. *starts* are the pieces' starts,
    *users* the operators that have each storage as an argument.
    """
    issued = ops[comm.op].end_ns
    consumer = _consumer(comm, ops, users, issued)
    limit = ops[consumer].start_ns if consumer is not None else pieces[-1].end_ns
    at = bisect_right(starts, comm.end_ns - 1) - 1
    idle = pieces[at]
    if issued <= idle.start_ns < limit and (idle.op < 0 or not ops[idle.op].is_leaf):
        waited, resumed = comm.end_ns - idle.start_ns, idle.end_ns - comm.end_ns
        if idle.start_ns == issued or (waited >= _IDLE_BEFORE_NS and resumed <= _RESUMED_WITHIN_NS):
            return at
    if consumer is None:
        return None
    before = bisect_right(starts, ops[consumer].start_ns - 1) - 1
    if ops[consumer].event.name in WAIT_OPS:
        before += 1
    return before if pieces[before].start_ns >= issued else None


def _consumer(comm: Communication, ops: Sequence[Op], users: dict[int, list[int]], issued: int) -> int | None:
    """Return the first operator that uses the tensors of *comm* once it is over, or that waits for it."""
    candidates = [
        index
        for storage in comm.storages
        for index in users[storage][bisect_right(users[storage], comm.op) :]
        if ops[index].start_ns >= issued
        and (ops[index].event.name in WAIT_OPS or ops[index].start_ns >= comm.end_ns - _CLOSE_SLACK_NS)
    ]
    return min(candidates, default=None)
