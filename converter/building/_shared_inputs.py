"""Tensors that elementwise operators read after each other: one kernel for both reads them once."""

from __future__ import annotations

import numpy as np

from .._columns import spans
from ..readers import HostTrace, tensors
from ._costs import Work, operator_work
from ._operator_classes import FUSIBLE_CLASSES


def shared_inputs(records: np.ndarray, host: HostTrace) -> np.ndarray:
    """Return rows of two places in *records* and the bytes that the first operator reads after the second.

    *records* are those of operators in the order in which they ran. Both operators of a row are elementwise
    or copies, and no other operator reads or writes the tensor between them. Empty if *host* does not
    identify tensors.
    """
    rows = host.rows(records)
    places = np.flatnonzero(rows >= 0)
    rows = rows[places]
    kinds, kind = np.unique(host.kind[rows], return_inverse=True)
    work = [operator_work(host.kinds[number]) for number in kinds.tolist()]
    touches = np.array([one != Work("", 0, 0, 0) for one in work], dtype=bool)[kind]
    places, rows, kind = places[touches], rows[touches], kind[touches]
    if not len(host.offsets) or not len(rows):
        return np.empty((0, 3), dtype=np.int64)
    fusible = np.array([one.kind in FUSIBLE_CLASSES for one in work], dtype=bool)[kind]
    entry, op, reads = _accesses(rows, host)
    order = np.lexsort((~reads, op, host.storages[entry]))
    entry, op, reads = entry[order], op[order], reads[order]
    last, this = slice(None, -1), slice(1, None)
    is_repeated = reads[this] & reads[last] & (op[this] != op[last]) & fusible[op[this]] & fusible[op[last]]
    for column in (host.storages, host.offsets):
        is_repeated &= column[entry[this]] == column[entry[last]]
    sizes = [
        [tensor.size_bytes for tensor in tensors(host.kinds[number].inputs)] for number in kinds.tolist()
    ]
    found = [
        (here, before, sizes[number][argument])
        for here, before, number, argument in zip(
            places[op[this][is_repeated]].tolist(),
            places[op[last][is_repeated]].tolist(),
            kind[op[this][is_repeated]].tolist(),
            (entry[this][is_repeated] - host.begin[rows[op[this][is_repeated]]]).tolist(),
            strict=True,
        )
        if argument < len(sizes[number])
    ]
    return np.array(sorted(found), dtype=np.int64).reshape(-1, 3)


def _accesses(rows: np.ndarray, host: HostTrace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the storages that *rows* access, as places in *host*, with the place of the row, and reads."""
    begins, ends = zip(
        *(bounds.reshape(-1, 2).T for bounds in (host.reads(rows), host.writes(rows))), strict=True
    )
    counts = [end - begin for begin, end in zip(begins, ends, strict=True)]
    entry = np.concatenate([spans(begin, count) for begin, count in zip(begins, counts, strict=True)])
    op = np.concatenate([np.repeat(np.arange(len(rows)), count) for count in counts])
    return entry, op, np.arange(len(entry)) < counts[0].sum()
