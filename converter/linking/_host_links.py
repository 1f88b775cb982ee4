"""Match events with records of the host trace, for device traces too old to name these."""

from __future__ import annotations

import numpy as np

from .._columns import groups_of, which
from ..readers import DeviceTrace, HostTrace

__all__ = ["with_records"]

_STEP = "ProfilerStep#"
_AGREEING_SHARE = 0.98


def with_records(trace: DeviceTrace, host: HostTrace) -> DeviceTrace:
    """Return *trace* with record-function ids of its events, which device traces before torch 2.4 lack.

    Both traces list a thread's operators and annotations in the same order, so the n-th of one is the n-th of
    the other; threads are paired by the names of their events. Events of unpaired threads stay unchanged.
    """
    events = trace.events
    if events.record_id.any() or not len(host):
        return trace
    is_step = which(trace.texts, lambda text: text.startswith(_STEP))
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
