"""Cut the part of a dependency graph around one node that a person can read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ._labels import edge_label

__all__ = ["Neighbour", "Neighbourhood", "neighbourhood", "neighbours"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Neighbourhood:
    """Nodes (node_id, hops, layer), edges (src, dst, kind); ``cut`` says that the limit bit.

    Every edge leads to a later layer.
    """

    nodes: pd.DataFrame
    edges: pd.DataFrame
    cut: bool


def neighbourhood(
    edges: pd.DataFrame, focus: int, hops: int, limit: int = 300, opened: Sequence[int] = ()
) -> Neighbourhood:
    """Return the nodes at most *hops* edges from *focus*, at most *limit*, in layers.

    Neighbours of those *opened* are among them as well, wherever these are drawn.
    """
    src, dst = edges["src"].to_numpy(np.int64), edges["dst"].to_numpy(np.int64)
    distance, cut = _reach(src, dst, focus, hops, limit)
    for node in opened:
        if node in distance:
            near, more = _reach(src, dst, node, 1, limit)
            fresh = [each for each in near if each not in distance][: max(0, limit - len(distance))]
            distance |= dict.fromkeys(fresh, distance[node] + 1)
            cut = cut or more
    ids = np.array(list(distance), dtype=np.int64)
    inside = np.isin(src, ids) & np.isin(dst, ids)
    kept = edges[inside].reset_index(drop=True)
    layers = _layers(ids, kept["src"].to_numpy(np.int64), kept["dst"].to_numpy(np.int64))
    nodes = pd.DataFrame({"node_id": ids, "hops": list(distance.values()), "layer": layers})
    nodes = nodes.sort_values(["layer", "hops", "node_id"], kind="stable").reset_index(drop=True)
    return Neighbourhood(nodes, kept, cut)


@dataclass(frozen=True)
class Neighbour:
    """A direct neighbour: whether it comes *before*, which it is, and why there is an edge."""

    before: bool
    node_id: int
    name: str
    why: str


def neighbours(
    edges: pd.DataFrame, name_of: Callable[[int], str], focus: int, count: int = 8
) -> list[Neighbour]:
    """Return the nodes that *focus* waits for, and those that wait for it, at most *count* of each."""
    found = []
    for before, here, there in ((True, "dst", "src"), (False, "src", "dst")):
        near = edges[edges[here] == focus].head(count)
        for kind, node in zip(near["kind"].tolist(), near[there].tolist(), strict=True):
            found.append(Neighbour(before, node, name_of(node), edge_label(kind)))
    return found


def _reach(src: Ints, dst: Ints, focus: int, hops: int, limit: int) -> tuple[dict[int, int], bool]:
    """Return the hops to each node; by hand, as the edges are the whole graph's, too many for networkx."""
    distance, front = {focus: 0}, np.array([focus])
    for hop in range(1, hops + 1):
        near = np.union1d(dst[np.isin(src, front)], src[np.isin(dst, front)])
        fresh = [int(node) for node in near if int(node) not in distance]
        for node in fresh:
            if len(distance) >= limit:
                return distance, True
            distance[node] = hop
        front = np.array(fresh, dtype=np.int64)
    return distance, False


def _layers(ids: Ints, src: Ints, dst: Ints) -> list[int]:
    """Return the longest path that leads to each node inside the cut; every edge goes to a later layer.

    Nodes that wait for each other share one.
    """
    import networkx as nx  # noqa: PLC0415 - slow to import, and one page in twenty needs it

    graph = nx.DiGraph()
    graph.add_nodes_from(ids.tolist())
    graph.add_edges_from(zip(src.tolist(), dst.tolist(), strict=True))
    knots = nx.condensation(graph)
    layer = {
        knot: number for number, knots_of in enumerate(nx.topological_generations(knots)) for knot in knots_of
    }
    return [layer[knots.graph["mapping"][node]] for node in ids.tolist()]
