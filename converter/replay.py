"""Replay one rank's graph with its measured durations: what the conversion claims the rank did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import DependencyError
from .graph import Graph
from .order import execution_order

__all__ = ["Replay", "replay"]


@dataclass(frozen=True)
class Replay:
    """When each node of a graph starts and ends, in nanoseconds, in the order of ``graph.nodes``."""

    start_ns: np.ndarray
    end_ns: np.ndarray

    @property
    def makespan_ns(self) -> int:
        """Return when the last node ends."""
        return int(self.end_ns.max(initial=0))


def replay(graph: Graph) -> Replay:
    """Start every node when its dependencies and its predecessor on its lane (``stream``) have ended.

    Nodes are taken in id order, which is program order; in files of others, in which a node may wait for one
    with a higher id, in the nearest order that dependencies allow. Raises `DependencyError` when a node waits
    for a missing one or for itself.
    """
    ids = graph.nodes["node_id"].to_numpy()
    sources, targets = graph.edges["src"].to_numpy(), graph.edges["dst"].to_numpy()
    src, dst = np.searchsorted(ids, sources), np.searchsorted(ids, targets)
    bad = (src >= len(ids)) | (ids[np.minimum(src, len(ids) - 1)] != sources) if len(ids) else src >= 0
    if bad.any():
        where = int(np.argmax(bad))
        raise DependencyError(
            f"Node {targets[where]} of rank {graph.rank} waits for node {sources[where]}, which does not "
            "exist. Convert the trace set again."
        )
    turns = np.arange(len(ids))
    if (src >= dst).any():
        pairs = np.column_stack([src, dst, np.zeros_like(src)])
        turns = np.array(execution_order(turns, pairs), dtype=np.int64)
    order = np.argsort(dst, kind="stable")
    src, dst = src[order], dst[order]
    bounds = np.searchsorted(dst, np.arange(len(ids) + 1)).tolist()
    src_list = src.tolist()
    streams, durations = graph.nodes["stream"].tolist(), graph.nodes["duration_ns"].tolist()
    start, end = [0] * len(ids), [0] * len(ids)
    lane_end: dict[int, int] = {}
    for index in turns.tolist():
        ready = lane_end.get(streams[index], 0)
        for source in src_list[bounds[index] : bounds[index + 1]]:
            ready = max(ready, end[source])
        start[index] = ready
        end[index] = lane_end[streams[index]] = ready + durations[index]
    return Replay(np.array(start, dtype=np.int64), np.array(end, dtype=np.int64))
