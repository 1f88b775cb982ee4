"""Find dependency cycles: nodes that wait for each other.

The search is implemented here: a single backward edge can make a cycle of a whole program, and for a million
nodes networkx needs gigabytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from .._native import order_by_dependency
from ._order import dependencies

__all__ = ["shortest_cycle", "unreachable"]

_SEARCHED_FROM = 200


def unreachable(count: int, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Return which of the nodes 0..*count*-1 never become free: those on cycles, and all that depend on them.

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
