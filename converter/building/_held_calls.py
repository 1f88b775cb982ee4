"""Split calls that blocked after they had issued their communication."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from ..readers import Communication, Ops, Pieces

# A call takes at most this long to hand its communication over, and is held up if it then takes longer.
_HANDED_OVER_WITHIN_NS = 100_000


def with_held_calls(
    comms: Sequence[Communication], ops: Ops, pieces: Pieces
) -> tuple[list[Communication], Pieces]:
    """Return *comms* with the times at which they were issued, and *pieces* cut there.

    A call issues its communication as fast as the fastest call of the same operator. If it returns much
    later, its thread was blocked: it waited for the communication, or had no processor.
    """
    last = {op: place for place, op in enumerate(pieces.op.tolist())}
    quickest: dict[int, int] = {}
    names = ops.trace.events.name[ops.event]
    for comm in comms:
        took = min(comm.begun_ns, int(ops.end_ns[comm.op])) - int(ops.start_ns[comm.op])
        name = int(names[comm.op])
        quickest[name] = min(max(1, took), quickest.get(name, _HANDED_OVER_WITHIN_NS))
    issued, cuts = list(comms), {}
    for index, comm in enumerate(comms):
        place = last.get(comm.op)
        if place is None or comm.begun_ns == comm.end_ns:  # the library noted nothing that ended in the call
            continue
        own_ns = int(pieces.start_ns[place])
        at_ns = max(int(ops.start_ns[comm.op]) + quickest[int(names[comm.op])], own_ns + 1)
        if int(pieces.end_ns[place]) - at_ns > _HANDED_OVER_WITHIN_NS:
            issued[index], cuts[place] = replace(comm, issued_ns=at_ns), at_ns
    return issued, _cut(pieces, cuts)


def _cut(pieces: Pieces, cuts: dict[int, int]) -> Pieces:
    """Return *pieces*, those at the places of *cuts* in two."""
    places = np.repeat(np.arange(len(pieces.op)), 1 + np.isin(np.arange(len(pieces.op)), list(cuts)))
    halves = pieces.take(places)
    second = np.flatnonzero(places[1:] == places[:-1]) + 1
    halves.start_ns[second] = halves.end_ns[second - 1] = [cuts[place] for place in places[second].tolist()]
    return halves


def ended_in_call(comm: Communication, ops: Ops) -> bool:
    """Return whether *comm* ended before the call that issued it returned, which thus waited for it."""
    return comm.issued_ns < comm.end_ns <= int(ops.end_ns[comm.op])
