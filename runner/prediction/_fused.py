"""The memory traffic of pointwise operators that torch.compile fuses: only external inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...converter.building import counts_whole
from ...converter.readers import tensors
from ...tracer import RecordedEntry, Recording

__all__ = ["fused_bytes"]

_FUSIBLE = "aten::"


def fused_bytes(recording: Recording) -> dict[int, int]:
    """Return the bytes that each operator moves, by place, of those that would be fused with others.

    Operators that follow each other in a compiled module, with no product, convolution or attention between,
    become one kernel: it reads what comes from elsewhere once, and writes what is used elsewhere.
    """
    entries = recording.entries
    last_use = _last_uses(entries)
    found: dict[int, int] = {}
    for group in _groups(recording):
        end = group[-1]
        inside: set[int] = set()
        for place in group:
            entry = entries[place]
            reads = {one.storage: one.size_bytes for one in tensors(entry.inputs)}
            writes = {one.storage: one.size_bytes for one in tensors(entry.outputs)}
            if entry.changes:
                writes |= {one.storage: one.size_bytes for one in tensors(entry.inputs[:1])}
            moved = sum(size for storage, size in reads.items() if storage not in inside)
            kept = (size for storage, size in writes.items() if last_use.get(storage, place) > end)
            dead = all(last_use.get(storage, place) == place for storage in writes)
            inside |= reads.keys() | writes.keys()
            found[place] = max(1, moved + (sum(writes.values()) if dead else sum(kept)))
    return found


def _groups(recording: Recording) -> Iterator[list[int]]:
    """Yield the places of the operators of each kernel."""
    regions = [_region(name, set(recording.compiled)) for name in recording.modules]
    group: list[int] = []
    known: object = None
    for place, entry in enumerate(recording.entries):
        region = regions[entry.module]
        fusible = region and entry.name.startswith(_FUSIBLE) and not counts_whole(entry.name)
        key = (region, entry.stream, entry.phase) if fusible else None
        if key != known and len(group) > 1:
            yield group
        group = ([*group, place] if key == known else [place]) if fusible else []
        known = key
    if len(group) > 1:
        yield group


def _region(module: str, compiled: set[str]) -> str:
    """Return the outermost compiled module around *module*, ``""`` for none."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((name for name in names if name in compiled), "")


def _last_uses(entries: Sequence[RecordedEntry]) -> dict[int, int]:
    """Return for each storage the last place at which it is used."""
    found: dict[int, int] = {}
    for place, entry in enumerate(entries):
        for one in (*tensors(entry.inputs), *tensors(entry.outputs)):
            found[one.storage] = place
    return found
