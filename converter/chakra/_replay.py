"""Replay one rank's graph with its measured durations, to compare it with the measured rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import DependencyError
from .._native import replay as replay_times
from ._graph import Graph, NodeType
from ._order import dependencies, execution_order

__all__ = ["Replay", "replay"]


@dataclass(frozen=True)
class Replay:
    """Start and end of each node of a graph, in nanoseconds, in the order of ``graph.nodes``."""

    start_ns: np.ndarray
    end_ns: np.ndarray

    @property
    def makespan_ns(self) -> int:
        """Return the end of the last node."""
        return int(self.end_ns.max(initial=0))


def replay(graph: Graph) -> Replay:
    """Start every node when its dependencies and its predecessor on its lane (``stream``) have ended.

    Receives occupy no lane, as in simulations: any number of them may be pending. Nodes start in id order,
    which is program order. In foreign files, in which a node may depend on one with a higher id, they start
    in the nearest possible order. Raises `DependencyError` when a node waits for a missing one or for itself.
    """
    nodes, edges = graph.node_columns, graph.edge_columns
    ids, sources, targets = nodes["node_id"], edges["src"], edges["dst"]
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
        turns = execution_order(turns, pairs)
    _, lanes = np.unique(nodes["stream"], return_inverse=True)
    lanes = np.where(nodes["type"] == NodeType.COMM_RECV, len(ids) + np.arange(len(ids)), lanes)
    start, end = replay_times(turns, lanes, nodes["duration_ns"], *dependencies(src, dst, len(ids)))
    return Replay(start, end)
