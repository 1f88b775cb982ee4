"""Change a workload: nodes that take less time, collectives with less data, a dependency less."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from ....converter import CollectiveType, Graph, NodeType, Workload
from ....errors import UsageError, did_you_mean
from .._path_facts import collective_label
from ._target import Target

__all__ = ["with_faster_nodes", "without_edge"]

Flags = npt.NDArray[np.bool_]
_FACTS = ["type", "comm_type", "comm_size_bytes", "group"]


def with_faster_nodes(workload: Workload, target: Target, times: float, *, measured: bool) -> Workload:
    """Return *workload* with the durations of the target's nodes divided by *times*, rounded.

    Of a collective it is the data that gets less, unless communication takes its *measured* time anyway.
    Raises `UsageError` if there are no such nodes, or if the network alone says how long they take.
    """
    column = "comm_size_bytes" if target.what == "collective" and not measured else "duration_ns"
    graphs, found, changed = [], 0, 0
    for graph in workload.graphs:
        chosen = _nodes_of(graph, target)
        found += int(chosen.sum())
        if column == "duration_ns" and not measured:
            chosen = chosen & (graph.nodes["type"] < NodeType.COMM_SEND).to_numpy()
        changed += int(chosen.sum())
        graphs.append(_divided(graph, column, chosen, times))
    if not found:
        raise UsageError(
            f"The workload has no {target.what} '{target.name[:60]}'"
            f"{did_you_mean(target.name, _names(workload, target))}"
        )
    if not changed:
        raise UsageError(
            f"How long the {target.what} '{target.name[:60]}' takes is up to the network; change that "
            "(bandwidth:0), or the collective (collective:all_reduce)."
        )
    return dataclasses.replace(workload, graphs=tuple(graphs))


def _divided(graph: Graph, column: str, chosen: Flags, times: float) -> Graph:
    values = graph.nodes[column].to_numpy()
    positive = chosen & (values > 0)
    unit = _units(values) if column == "comm_size_bytes" else 1
    smaller = np.rint(values / times / unit).astype(np.int64) * unit
    if column == "comm_size_bytes":
        smaller = np.maximum(smaller, unit)
    return graph.with_columns(**{column: np.where(positive, smaller, values)})


def _units(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the power of two, at most 1024, that divides each size.

    Of a size that cannot be cut into equal chunks, ASTRA-sim makes one chunk more out of the rest, which can
    take longer than the whole of a larger size.
    """
    units: npt.NDArray[np.int64] = np.minimum(sizes & -sizes, 1024)
    return units


def _nodes_of(graph: Graph, target: Target) -> Flags:
    if target.what != "collective":
        chosen: Flags = (graph.nodes[target.what] == target.name).to_numpy()
        return chosen
    found: Flags = np.zeros(len(graph.nodes), bool)
    for facts, rows in _collectives(graph):
        found[rows] = target.name in facts
    return found


def _collectives(graph: Graph) -> list[tuple[tuple[str, str], npt.NDArray[np.int64]]]:
    """Return for each kind of collective its type and its description, with the rows of its nodes."""
    rows = np.flatnonzero(graph.nodes["type"] == NodeType.COMM_COLL)
    groups = graph.nodes[_FACTS].iloc[rows].groupby(_FACTS, sort=False).indices
    found = []
    for key, places in groups.items():
        facts = dict(zip(_FACTS, (int(value) for value in key), strict=True))
        kind = CollectiveType(facts["comm_type"]).name.lower()
        names = kind, collective_label(kind, facts["comm_size_bytes"], facts["group"])
        found.append((names, rows[places]))
    return found


def _names(workload: Workload, target: Target) -> list[str]:
    if target.what == "collective":
        return sorted(
            {name for graph in workload.graphs for names, _ in _collectives(graph) for name in names}
        )
    return sorted(
        {str(name) for graph in workload.graphs for name in graph.nodes[target.what].unique()} - {""}
    )


def without_edge(workload: Workload, rank: int, source: int, target: int) -> Workload:
    """Return *workload* without the dependency of node *target* of *rank* on its node *source*.

    Ranks that run the same program lose it too. Raises `UsageError` if there is no such dependency.
    """
    if rank >= workload.num_ranks:
        raise UsageError(f"There is no rank {rank}: the workload has ranks 0 to {workload.num_ranks - 1}.")
    program = int(workload.program_of_rank[rank])
    graph = workload.graphs[program]
    edges = graph.edges
    dropped = ((edges["src"] == source) & (edges["dst"] == target)).to_numpy()
    if not dropped.any():
        others = ", ".join(map(str, edges.loc[edges["dst"] == target, "src"].head(8)))
        raise UsageError(
            f"Node {target} of rank {rank} does not depend on node {source}; it depends on "
            f"{'the nodes ' + others if others else 'none'}."
        )
    graphs = list(workload.graphs)
    graphs[program] = graph.with_edges(edges[~dropped].to_numpy(np.int64))
    return dataclasses.replace(workload, graphs=tuple(graphs))
