"""Find the host trace's record of every event in device traces too old to name it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .host_trace import HostTrace
from .kineto import Event

__all__ = ["with_records"]

_STEP = "ProfilerStep#"
_AGREEING_SHARE = 0.98


def with_records(events: Sequence[Event], host: HostTrace) -> list[Event]:
    """Return *events* with record-function ids, which device traces before torch 2.4 lack.

    Both traces list a thread's operators and annotations in the same order, so that the n-th of one is the
    n-th of the other; threads are paired by their names agreeing. Events of a thread without a counterpart
    stay as they are.
    """
    if any(event.record_id for event in events) or not host.operators:
        return list(events)
    threads: dict[str, list[int]] = {}
    for index, event in enumerate(events):
        if not event.name.startswith(_STEP):
            threads.setdefault(event.thread, []).append(index)
    records: dict[int, list[int]] = {}
    for record in sorted(host.operators):
        records.setdefault(host.operators[record].thread, []).append(record)
    found = list(events)
    for indices in threads.values():
        indices.sort(key=lambda index: events[index].external_id)
        for own in records.values():
            if len(own) == len(indices) and _agree(indices, own, events, host):
                for index, record in zip(indices, own, strict=True):
                    found[index] = msgspec.structs.replace(events[index], record_id=record)
    return found


def _agree(indices: Sequence[int], records: Sequence[int], events: Sequence[Event], host: HostTrace) -> bool:
    """Return whether nearly all of the paired names are equal."""
    equal = sum(
        events[index].name == host.operators[record].name
        for index, record in zip(indices, records, strict=True)
    )
    return equal >= _AGREEING_SHARE * len(records)
