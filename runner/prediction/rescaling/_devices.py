"""Other devices: another chip, or more data-parallel replicas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....converter.building import computed_on_host
from ....converter.chakra import DEVICE_LANE, Graph, NodeType, Workload, recognise
from ....errors import UsageError, WorkloadError

__all__ = ["with_chip", "with_data_parallelism"]


def with_chip(workload: Workload, operations_per_ns: float, bytes_per_ns: float, name: str) -> Workload:
    """Return *workload* with the times of its operators on a chip with the given peaks.

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
    for measured in ("accounting", "operators", "repeated", "shared_inputs", "chips"):
        metadata.pop(measured, None)
    return replace(workload, graphs=graphs, metadata=metadata)


def _timed(graph: Graph, operations_per_ns: float, bytes_per_ns: float, on_host: bool) -> Graph:
    nodes = graph.node_columns
    longest = np.maximum(nodes["num_ops"] / operations_per_ns, nodes["tensor_size_bytes"] / bytes_per_ns)
    costs = (nodes["num_ops"] > 1) | (nodes["tensor_size_bytes"] > 1)
    computes = (nodes["type"] == NodeType.COMP) & (on_host | (nodes["stream"] >= DEVICE_LANE))
    times = np.where(costs, np.maximum(1, np.rint(longest)), 0).astype(np.int64)
    return graph.with_columns(duration_ns=np.where(computes, times, nodes["duration_ns"]))


_MOST_RANKS = 65_536


def with_data_parallelism(workload: Workload, degree: int) -> Workload:
    """Return *workload* with *degree* data-parallel replicas, a multiple of those it has.

    Each replica computes what it did; what is exchanged keeps its size, in groups of more ranks. Raises
    `UsageError` for another degree, and `WorkloadError` where nothing shows what replicas exchange.
    """
    found = recognise(workload.graphs, workload.program_of_rank, workload.groups)
    if found.why_not:
        raise WorkloadError(found.why_not)
    sizes = {len(workload.groups.get(key, range(workload.num_ranks))) for key in found.replicas}
    if not sizes:
        raise WorkloadError(
            f"The {workload.num_ranks} rank(s) of the workload exchange no gradients, so nothing shows what "
            "more replicas would exchange. Capture the job with two data-parallel replicas, or record its "
            "script as a job of more ranks."
        )
    now = max(sizes)
    if degree < now or degree % now:
        raise UsageError(
            f"The captured job has {now} data-parallel replicas, and --dp {degree} is not a multiple of "
            f"that. Ask for {now}, {2 * now}, {3 * now}, ...; for fewer, capture fewer."
        )
    ranks = workload.num_ranks * (degree // now)
    if ranks > _MOST_RANKS:
        raise UsageError(
            f"--dp {degree:,} makes a job of {ranks:,} ranks, each with a file; at most {_MOST_RANKS:,} are "
            f"made. Ask for --dp {_MOST_RANKS * now // workload.num_ranks} or less."
        )
    return workload.scale_out(workload.num_ranks * (degree // now))
