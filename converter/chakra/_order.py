"""The order in which a graph is executed, its times without a network, and its dependency cycles.

The search for cycles is implemented here: a single backward edge can make a cycle of a whole program, and for
a million nodes networkx needs gigabytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import DependencyError
from .._native import order_by_dependency
from .._native import replay as replay_times
from ._graph import EdgeKind, Graph, NodeType

# Edges that are inferred from measured times; all others are certain.
_CONCLUDED = (EdgeKind.EVENT_SYNC, EdgeKind.COMM_WAIT, EdgeKind.DATA)
_SEARCHED_FROM = 200


def consistent(starts_ns: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, int]:
    """Return *edges* without inferred ones that close a dependency cycle, and the number of removed edges.

    Of the inferred edges within a cycle, those whose target did not start later than their source are
    removed.
    """
    order = np.argsort(starts_ns, kind="stable")
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    sources, targets = edges[:, 0], edges[:, 1]
    if (position[sources] < position[targets]).all():
        return edges, 0
    free = order_by_dependency(position, *dependencies(sources, targets, len(order)))
    if len(free) == len(order):
        return edges, 0
    stuck = np.ones(len(order), dtype=bool)
    stuck[free] = False
    closes = stuck[sources] & stuck[targets] & np.isin(edges[:, 2], _CONCLUDED)
    closes &= starts_ns[sources] >= starts_ns[targets]
    return edges[~closes], int(closes.sum())


def execution_order(
    starts_ns: Sequence[int] | np.ndarray, edges: Sequence[tuple[int, int, int]] | np.ndarray
) -> np.ndarray:
    """Return the nodes 0, 1, ... in order of start, but never before one of their dependencies.

    *edges* are (source, target, kind). Raises `DependencyError` if there is a dependency cycle.
    """
    starts = np.asarray(starts_ns, dtype=np.int64)
    order = np.argsort(starts, kind="stable")
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 3)[:, :2]
    if (position[pairs[:, 0]] < position[pairs[:, 1]]).all():
        return order
    bounds, sources = dependencies(pairs[:, 0], pairs[:, 1], len(order))
    order = order_by_dependency(position, bounds, sources)
    if len(order) < len(position):
        raise DependencyError(
            f"{len(position) - len(order)} nodes wait for each other in a dependency cycle, so none of them "
            "can ever start. The file contradicts itself: convert its traces again, or capture again."
        )
    return order


def dependencies(sources: np.ndarray, targets: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sources by target: those of node i start at the i-th entry of the first array.

    Both arrays cover *count* nodes.
    """
    order = np.argsort(targets, kind="stable")
    bounds = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(targets, minlength=count), out=bounds[1:])
    return bounds, sources[order].astype(np.int64, copy=False)


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


def unreachable(count: int, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Return which of the nodes 0..*count*-1 can never start: those on cycles, and all that depend on them.

    *src* and *dst* are the edges' ends as indices.
    """
    stuck = np.ones(count, dtype=bool)
    stuck[order_by_dependency(np.zeros(count, np.int64), *dependencies(src, dst, count))] = False
    return stuck


def shortest_cycle(src: Sequence[int], dst: Sequence[int]) -> list[int]:
    """Return the nodes of a shortest cycle in order, each a predecessor of the next, or [] if there is none.

    Every cycle has an edge to a node with the same or a lower number. The search starts from the targets of
    such edges; if there are more than 200, from the first ones, so that the cycle may not be the shortest.
    """
    successors: dict[int, list[int]] = {}
    for source, target in zip(src, dst, strict=True):
        successors.setdefault(source, []).append(target)
    best: list[int] = []
    starts = {target for source, target in zip(src, dst, strict=True) if source >= target}
    for start in sorted(starts)[:_SEARCHED_FROM]:
        found = _back_to(start, successors, len(best) or len(successors) + 1)
        if found:
            best = found
    return best


def _back_to(start: int, successors: dict[int, list[int]], below: int) -> list[int]:
    """Return a shortest path from *start* back to it with fewer than *below* nodes, or []."""
    came_from: dict[int, int] = {}
    queue = deque([(start, 1)])
    while queue:
        node, length = queue.popleft()
        if length >= below:
            return []
        for target in successors.get(node, ()):
            if target == start:
                path = [node]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if target not in came_from:
                came_from[target] = node
                queue.append((target, length + 1))
    return []
