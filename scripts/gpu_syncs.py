"""Hold the dependencies that synchronisations make in HTA's critical path against those of a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpu_intervals import CLASSES, DeviceEvents

from chakrascope.converter import EdgeKind, Workload

__all__ = ["Edges", "compare_edges"]

# HTA's times are floating-point microseconds since 1970: they are off by up to a quarter of one.
_CLOSE_NS = 1_500
_SYNCS = (EdgeKind.EVENT_SYNC, EdgeKind.COMM_WAIT)


@dataclass(frozen=True)
class Edges:
    """How many edges of HTA the graph has, directly or through others, what it lacks, and its own."""

    theirs: int
    missing: tuple[str, ...]
    ours: int


def compare_edges(
    pairs: Sequence[Sequence[int]], trace: Mapping[str, Any], events: DeviceEvents, workload: Workload
) -> Edges:
    """Return which of HTA's *pairs* (start of source, start of target) the first graph of *workload* has.

    *events* are those device events of *trace* that were converted.
    """
    nodes = workload.graphs[0].nodes
    device = ~nodes["is_cpu_op"].to_numpy(bool) & nodes["kind"].isin(CLASSES).to_numpy(bool)
    start = nodes["measured_start_ns"].to_numpy(np.int64)
    start = start + int(events.start.min()) - int(start[device].min())
    end = start + nodes["duration_ns"].to_numpy(np.int64)
    links = workload.graphs[0].edges
    after = defaultdict(list)
    for source, target in zip(links["src"].tolist(), links["dst"].tolist(), strict=True):
        after[source].append(target)
    calls = {
        round(event["ts"] * 1000): event
        for event in trace["traceEvents"]
        if event.get("ph") == "X" and "cuda_" in str(event.get("cat"))
    }
    missing = []
    for source_ns, target_ns in pairs:
        sources = np.flatnonzero(device & (abs(start - source_ns) <= _CLOSE_NS))
        targets = np.flatnonzero(device & (abs(start - target_ns) <= _CLOSE_NS))
        name = "a kernel"
        if not len(targets):
            call = min(calls.values(), key=lambda event: abs(event["ts"] * 1000 - target_ns))
            name = str(call["name"])
            until = (call["ts"] + call["dur"]) * 1000 + _CLOSE_NS
            # What lies after the steps' own time stands at its end.
            reached = min(target_ns, int(end.max()))
            targets = np.flatnonzero(~device & (end >= reached) & (start <= until))
        if not _reaches(sources.tolist(), set(targets.tolist()), after):
            missing.append(f"{nodes['name'].iloc[int(sources[0])] if len(sources) else 'nothing'} -> {name}")
    kinds = np.isin(links["kind"].to_numpy(), [int(kind) for kind in _SYNCS])
    own = kinds | (device[links["src"].to_numpy()] & ~device[links["dst"].to_numpy()])
    return Edges(len(pairs), tuple(missing), int(own.sum()))


def _reaches(sources: list[int], targets: set[int], after: Mapping[int, list[int]]) -> bool:
    seen, waiting = set(sources), list(sources)
    while waiting:
        for node in after.get(waiting.pop(), ()):
            if node in targets:
                return True
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return False
