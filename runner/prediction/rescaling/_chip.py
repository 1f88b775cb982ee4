"""Another chip: each operator takes what its operations or its bytes take there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....converter.building import DEVICE_LANE, computed_on_host
from ....converter.chakra import Graph, NodeType, Workload
from ....errors import WorkloadError

__all__ = ["with_chip"]


def with_chip(workload: Workload, operations_per_ns: float, bytes_per_ns: float, name: str) -> Workload:
    """Return *workload* with the times of its operators on a chip of so many operations and bytes per ns.

    Each takes the longer of both (a roofline). What the host does stays where a device computed; where the
    host computed itself, what is not an operator takes no time. Raises `WorkloadError` if no operator says
    what it computes.
    """
    on_host = computed_on_host(workload)
    graphs = tuple(_timed(graph, operations_per_ns, bytes_per_ns, on_host) for graph in workload.graphs)
    if not any((graph.node_columns["num_ops"] > 1).any() for graph in workload.graphs):
        raise WorkloadError(
            "No operator of the workload says how much it computes, so another chip's time is not known. "
            "Convert it from traces with shapes, or capture it anew."
        )
    assumption = (
        f"computation takes what the peaks of {name} allow: operations or bytes, whichever takes longer"
    )
    metadata = {**workload.metadata, "assumptions": [*workload.metadata.get("assumptions", []), assumption]}
    for measured in ("accounting", "operators", "chips"):
        metadata.pop(measured, None)
    return replace(workload, graphs=graphs, metadata=metadata)


def _timed(graph: Graph, operations_per_ns: float, bytes_per_ns: float, on_host: bool) -> Graph:
    nodes = graph.node_columns
    longest = np.maximum(nodes["num_ops"] / operations_per_ns, nodes["tensor_size_bytes"] / bytes_per_ns)
    costs = (nodes["num_ops"] > 1) | (nodes["tensor_size_bytes"] > 1)
    computes = (nodes["type"] == NodeType.COMP) & (on_host | (nodes["stream"] >= DEVICE_LANE))
    times = np.where(costs, np.maximum(1, np.rint(longest)), 0).astype(np.int64)
    return graph.with_columns(duration_ns=np.where(computes, times, nodes["duration_ns"]))
