"""Number nodes so that everything a node waits for comes before it."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from ..errors import DependencyError

__all__ = ["execution_order"]


def execution_order(
    starts_ns: Sequence[int] | np.ndarray, edges: Sequence[tuple[int, int, int]] | np.ndarray
) -> list[int]:
    """Return the nodes 0, 1, ... in order of start, but never before a node they wait for.

    *edges* are (source, target, kind). Raises `DependencyError` if nodes wait for each other in a circle.
    """
    starts = np.asarray(starts_ns, dtype=np.int64)
    order = np.argsort(starts, kind="stable")
    if not len(edges):
        return [int(node) for node in order]
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    pairs = np.asarray(edges, dtype=np.int64)[:, :2]
    if (position[pairs[:, 0]] < position[pairs[:, 1]]).all():
        return [int(node) for node in order]
    return _sorted_by_dependency(position, pairs)


def _sorted_by_dependency(priority: np.ndarray, pairs: np.ndarray) -> list[int]:
    """Return the nodes so that each pair's first comes first; of several, that of lowest *priority*."""
    pairs = np.unique(pairs, axis=0)
    waiting = np.bincount(pairs[:, 1], minlength=len(priority)).tolist()
    bounds = np.searchsorted(pairs[:, 0], np.arange(len(priority) + 1)).tolist()
    targets = pairs[:, 1].tolist()
    rank = priority.tolist()
    ready = [(rank[node], node) for node, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, node = heapq.heappop(ready)
        order.append(node)
        for target in targets[bounds[node] : bounds[node + 1]]:
            waiting[target] -= 1
            if not waiting[target]:
                heapq.heappush(ready, (rank[target], target))
    if len(order) < len(rank):
        raise DependencyError(
            f"{len(rank) - len(order)} nodes wait for each other in a circle. "
            "The clocks of host and device may disagree; capture again."
        )
    return order
