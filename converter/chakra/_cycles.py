"""Find nodes that wait for each other in a circle."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

__all__ = ["shortest_cycle", "unreachable"]

_SEARCHED_FROM = 200


def unreachable(count: int, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Return which of the nodes 0..*count*-1 never become free: those on cycles, and all behind them.

    *src* and *dst* are the edges' ends as positions. Works in rounds, each freeing all nodes whose
    predecessors are free, until none is left.
    """
    order = np.argsort(src, kind="stable")
    bounds = np.searchsorted(src[order], np.arange(count + 1))
    targets = dst[order]
    waiting = np.bincount(dst, minlength=count).astype(np.int64)
    free = [int(node) for node in np.flatnonzero(waiting == 0)]
    left = waiting.tolist()
    target_list, bound_list = targets.tolist(), bounds.tolist()
    while free:
        node = free.pop()
        for target in target_list[bound_list[node] : bound_list[node + 1]]:
            left[target] -= 1
            if not left[target]:
                free.append(target)
    stuck: np.ndarray = np.array(left, dtype=np.int64) > 0
    return stuck


def shortest_cycle(src: Sequence[int], dst: Sequence[int]) -> list[int]:
    """Return the nodes of a shortest cycle in order, each a predecessor of the next, or [] if there is none.

    Searched from the first few hundred nodes that have both predecessors and successors.
    """
    successors: dict[int, list[int]] = {}
    for source, target in zip(src, dst, strict=True):
        successors.setdefault(source, []).append(target)
    best: list[int] = []
    for start in sorted(set(successors) & set(dst))[:_SEARCHED_FROM]:
        found = _back_to(start, successors, len(best) or len(successors) + 1)
        if found and (not best or len(found) < len(best)):
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
