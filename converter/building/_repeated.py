"""Find repeated work: copies of the same data, and tensors that two elementwise operators read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from .._columns import spans
from ..readers import HostTrace, Ops, tensors
from ._costs import Work, operator_work
from ._operator_classes import FUSIBLE_CLASSES
from ._steps import Window

# The operators that every cast, transfer and transposed copy of PyTorch calls with the copied tensor.
_COPIES = frozenset({"aten::_to_copy", "aten::clone"})


def repeated_copies(threads: Sequence[Ops], host: HostTrace, window: Window) -> np.ndarray:
    """Return the record ids of the copies that repeat an earlier copy of the same step.

    Both copies have the same arguments and copy the same part of a storage, to which no operator writes
    between the copies. Copies with a result that is changed in place are necessary, and therefore omitted.
    The result is empty if *host* does not identify tensors.
    """
    if not len(host.offsets) or not threads:
        return np.empty(0, dtype=np.int64)
    columns = ("record_id", "start_ns", "end_ns")
    records, starts, ends = (np.concatenate([getattr(ops, name) for ops in threads]) for name in columns)
    order = np.argsort(starts, kind="stable")
    order = order[host.rows(records[order]) >= 0]
    records, starts, ends = records[order], starts[order], ends[order]
    rows = host.rows(records)
    places = _copies(rows, host)
    sources = host.begin[rows[places]]
    steps, kinds = window.steps_at(starts[places]), host.kind[rows[places]]
    data = (places, steps, kinds, host.storages[sources], host.offsets[sources])
    alike: dict[tuple[int, ...], list[int]] = {}
    for place, *key in zip(*(column.tolist() for column in data), strict=True):
        alike.setdefault(tuple(key), []).append(place)
    groups = {key: own for key, own in alike.items() if len(own) > 1}
    results = {
        place: int(host.storages[host.inputs_end[rows[place]]]) for own in groups.values() for place in own
    }
    writes = _writes(rows, host, {key[2] for key in groups} | {*results.values()})
    repeated: list[int] = []
    for (_, _, source, _), own in groups.items():
        written_ns = [int(starts[place]) for place, _ in writes.get(source, [])]
        reusable = [
            place
            for place in own
            if not _is_changed(writes.get(results[place], []), starts, int(ends[place]))
        ]
        repeated += [
            int(records[later])
            for earlier, later in pairwise(reusable)
            if not any(starts[earlier] < ns < starts[later] for ns in written_ns)
        ]
    return np.array(sorted(repeated), dtype=np.int64)


def of_records(ops: Ops, records: np.ndarray) -> np.ndarray:
    """Return a mask of operators with a record id in *records*, or with such a direct caller."""
    own = np.isin(ops.record_id, records)
    return own | (own[ops.parent] & (ops.parent >= 0)) if len(own) else own


def _copies(rows: np.ndarray, host: HostTrace) -> np.ndarray:
    """Return the indices of operators that copy a single tensor into a new tensor."""
    is_copy = np.array([name in _COPIES for name in host.kinds.names], dtype=bool)
    single = (host.inputs_end - host.begin == 1) & (host.end - host.inputs_end == 1)
    return np.flatnonzero(is_copy[host.kind[rows]] & single[rows]) if len(rows) else rows


def _writes(rows: np.ndarray, host: HostTrace, storages: set[int]) -> dict[int, list[tuple[int, bool]]]:
    """Return the operators that write each of *storages* in order, and whether they write in place.

    Operators that return a view of their input do not count as writers.
    """
    if not storages:
        return {}
    changing = host.changing()[rows]
    begin, end = host.writes(rows).reshape(-1, 2).T
    flat, place = spans(begin, end - begin), np.repeat(np.arange(len(rows)), end - begin)
    wanted = np.isin(host.storages[flat], np.fromiter(storages, np.int64))
    writes: dict[int, list[tuple[int, bool]]] = {}
    for at, writer in zip(flat[wanted].tolist(), place[wanted].tolist(), strict=True):
        row, storage = rows[writer], int(host.storages[at])
        is_view = storage in host.storages[host.begin[row] : host.inputs_end[row]]
        if changing[writer] or not is_view:
            writes.setdefault(storage, []).append((writer, bool(changing[writer])))
    return writes


def _is_changed(writes: Sequence[tuple[int, bool]], starts: np.ndarray, copied_ns: int) -> bool:
    """Return whether the result of a copy that ended at *copied_ns* is changed in place.

    Storages are addresses. If an operator returns the storage as a new one, the result of the copy was freed
    earlier.
    """
    later = (in_place for writer, in_place in writes if starts[writer] >= copied_ns)
    return next(later, False)


def shared_inputs(records: np.ndarray, host: HostTrace) -> np.ndarray:
    """Return rows of two indices of *records*, and the bytes that the first operator reads after the second.

    *records* are the record ids of operators in the order of execution. Both operators of a row are
    elementwise operators or copies, and no other operator reads or writes the tensor between them. The result
    is empty if *host* does not identify tensors.
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
    """Return the accesses of operators *rows*: storage index in *host*, row index, and whether it reads."""
    begins, ends = zip(
        *(bounds.reshape(-1, 2).T for bounds in (host.reads(rows), host.writes(rows))), strict=True
    )
    counts = [end - begin for begin, end in zip(begins, ends, strict=True)]
    entry = np.concatenate([spans(begin, count) for begin, count in zip(begins, counts, strict=True)])
    op = np.concatenate([np.repeat(np.arange(len(rows)), count) for count in counts])
    return entry, op, np.arange(len(entry)) < counts[0].sum()
