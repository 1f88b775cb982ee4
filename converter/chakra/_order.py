"""Number nodes so that everything a node waits for comes before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import DependencyError
from .._native import order_by_dependency

__all__ = ["dependencies", "execution_order"]


def execution_order(
    starts_ns: Sequence[int] | np.ndarray, edges: Sequence[tuple[int, int, int]] | np.ndarray
) -> np.ndarray:
    """Return the nodes 0, 1, ... in order of start, but never before a node they wait for.

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
            f"{len(position) - len(order)} nodes wait for each other in a dependency cycle. "
            "The clocks of host and device may disagree; capture again."
        )
    return order


def dependencies(sources: np.ndarray, targets: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sources by target: those of node i stand from the i-th to the next of the first array on.

    Both arrays count *count* nodes.
    """
    order = np.argsort(targets, kind="stable")
    bounds = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(targets, minlength=count), out=bounds[1:])
    return bounds, sources[order].astype(np.int64, copy=False)
