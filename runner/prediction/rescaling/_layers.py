"""Scale a captured job to more layers or micro-batches, to other devices, or to more replicas."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ....converter.building import COMPUTED_FOR, computed_on_host
from ....converter.chakra import (
    DEVICE_LANE,
    CollectiveType,
    EdgeKind,
    Graph,
    NodeType,
    Workload,
    have_messages,
    recognise,
)
from ....errors import UsageError, WorkloadError
from ._periods import Layers, Periods, alike, messages_of, metadata_with, operation_of, repeated
from ._stages import with_stages

_INSTEAD = "Capture the deeper model, or record its script."


def with_layers(workload: Workload, count: int) -> Workload:
    """Return *workload* for a model of *count* layers, all equal to the captured middle layers.

    Layers are modules with a number in their path. For pipelines and several micro-batches, `with_stages`
    assembles the passes. A *count* below the captured number of layers raises `UsageError`. The function
    raises `WorkloadError` if no two consecutive layers are equal, or if gradients of several layers are
    reduced together.
    """
    graphs = workload.graphs
    replicas = recognise(graphs, workload.program_of_rank, workload.groups).replicas
    if have_messages(graphs):
        return with_stages(workload, layers=count)
    layers_of_graphs = [Layers.of(graph) for graph in graphs]
    (present,) = (
        {layers.count for layers in layers_of_graphs}
        if len({layers.count for layers in layers_of_graphs}) == 1
        else (0,)
    )
    if not present:
        raise WorkloadError(f"The ranks of the workload have different numbers of layers. {_INSTEAD}")
    if count < present:
        raise UsageError(
            f"The captured model has {present} layers, and --layers {count} is less. Use --layers {present} "
            "or more, or capture a smaller model."
        )
    if count == present:
        return workload
    if any(layers.passes() > 1 for layers in layers_of_graphs):
        return with_stages(workload, layers=count)
    made = tuple(_deeper(layers, count - present, replicas) for layers in layers_of_graphs)
    assumption = (
        f"{count} layers instead of {present}: a layer from the middle is repeated, and the work after "
        "the backward pass (the optimizer) takes longer in proportion to the weights"
    )
    return replace(workload, graphs=made, metadata=metadata_with(workload, assumption))


def _deeper(layers: Layers, times: int, replicas: frozenset[int]) -> Graph:
    """Return the graph of *layers* with the last identical layer repeated *times* more times."""
    graph, name = layers.graph, layers.name_of()
    cuts = {phase: layers.cuts(phase) for phase in ("forward", "backward")}
    forward = _periods(graph, cuts["forward"], name, "forward")
    share = _share(graph, forward)
    if not cuts["backward"]:  # an inference job has no backward pass
        return repeated(_scaled(graph, cuts["forward"][-1], 1 + times * share), forward, times)
    backward = _periods(graph, cuts["backward"], name, "backward")
    if replicas:
        _check_gradients(graph, backward, replicas)
    result = _without_saved_tensors(_scaled(graph, cuts["backward"][-1], 1 + times * share), forward)
    return repeated(repeated(result, backward, times), forward, times)


def _periods(graph: Graph, cuts: Sequence[int], name: Callable[[int], object], phase: str) -> Periods:
    periods = alike(graph, cuts, name)
    if periods is None:
        raise WorkloadError(
            f"No two consecutive layers of rank {graph.rank} are equal in the {phase} pass, so the cost of "
            f"an additional layer is unknown. {_INSTEAD}"
        )
    return periods


def _check_gradients(graph: Graph, backward: Periods, replicas: frozenset[int]) -> None:
    """Refuse gradients that several layers reduce together, because more layers would change the buckets."""
    last = backward.found[-1]
    nodes = graph.node_columns
    inside = slice(last.begin, last.end)
    kinds = (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER)
    of_data = np.isin(nodes["group"][inside], list(replicas)) & np.isin(nodes["comm_type"][inside], kinds)
    if not of_data.any():
        raise WorkloadError(
            f"The gradients of several layers of rank {graph.rank} are reduced together, in buckets that "
            f"other layers would fill differently. {_INSTEAD}"
        )


def _share(graph: Graph, forward: Periods) -> float:
    """Return a layer's share of the weights, measured by gathered bytes or by forward operations."""
    nodes = graph.node_columns
    phase = nodes["phase"]
    is_forward = phase == "forward"
    gathers = (nodes["comm_type"] == CollectiveType.ALL_GATHER) & (np.arange(graph.num_nodes) < forward.end)
    amounts = np.where(gathers, nodes["comm_size_bytes"], 0)
    if not amounts.any():
        amounts = np.where(is_forward & (nodes["type"] == NodeType.COMP), nodes["num_ops"], 0)
    last = forward.found[-1]
    return float(amounts[last.begin : last.end].sum() / max(1, amounts.sum()))


def _scaled(graph: Graph, behind: int, factor: float) -> Graph:
    """Return *graph* with compute durations multiplied by *factor*, starting at row *behind*."""
    nodes = graph.node_columns
    rows = (np.arange(graph.num_nodes) >= behind) & (nodes["type"] == NodeType.COMP)
    changed = {
        name: np.where(rows & (nodes[name] > 1), np.rint(nodes[name] * factor), nodes[name]).astype(np.int64)
        for name in ("duration_ns", "num_ops", "tensor_size_bytes")
    }
    return graph.with_columns(**changed)


def _without_saved_tensors(graph: Graph, forward: Periods) -> Graph:
    """Drop edges from the forward pass to later rows of the same stream, because a stream is ordered."""
    edges, nodes = graph.edge_columns, graph.node_columns
    rows = {number: row for row, number in enumerate(nodes["node_id"].tolist())}
    kept = []
    for src, dst, kind in zip(*(edges[name].tolist() for name in ("src", "dst", "kind")), strict=True):
        one, other = rows[src], rows[dst]
        inside = forward.begin <= one < forward.end <= other
        same = nodes["stream"][one] == nodes["stream"][other]
        if not (inside and same and kind in (EdgeKind.DATA, EdgeKind.AUTOGRAD)):
            kept.append((src, dst, kind))
    return graph.with_edges(kept)


def with_chip(workload: Workload, operations_per_ns: float, bytes_per_ns: float, name: str) -> Workload:
    """Return *workload* with the times of its operators on a chip with the given peaks.

    Each operator takes the longer of two times: for its operations, and for its bytes (roofline). If the
    job computed on a device, host work is unchanged. On a CPU rank, host work other than operators takes no
    time. The function raises `WorkloadError` if no operator has operations or bytes.
    """
    on_host = computed_on_host(workload)
    graphs = tuple(_timed(graph, operations_per_ns, bytes_per_ns, on_host) for graph in workload.graphs)
    if not any((graph.node_columns["num_ops"] > 1).any() for graph in workload.graphs):
        raise WorkloadError(
            "No operator of the workload has FLOPs or bytes, so its time on another chip is unknown. Convert "
            "it from traces with shapes, or capture it again."
        )
    assumption = (
        f"compute times are lower bounds from the peaks of {name}: operations or bytes, whichever takes "
        "longer"
    )
    measured = ("accounting", "operators", "repeated", "shared_inputs", "chips")
    metadata = metadata_with(workload, assumption, stale=measured)
    return replace(workload, graphs=graphs, metadata=metadata | {COMPUTED_FOR: name})


def _timed(graph: Graph, operations_per_ns: float, bytes_per_ns: float, on_host: bool) -> Graph:
    nodes = graph.node_columns
    longest = np.maximum(nodes["num_ops"] / operations_per_ns, nodes["tensor_size_bytes"] / bytes_per_ns)
    costs = (nodes["num_ops"] > 1) | (nodes["tensor_size_bytes"] > 1)
    computes = (nodes["type"] == NodeType.COMP) & (on_host | (nodes["stream"] >= DEVICE_LANE))
    times = np.where(costs, np.maximum(1, np.rint(longest)), 0).astype(np.int64)
    return graph.with_columns(duration_ns=np.where(computes, times, nodes["duration_ns"]))


_MAX_RANKS = 65_536


def with_data_parallelism(workload: Workload, degree: int) -> Workload:
    """Return *workload* with *degree* data-parallel replicas, which is a multiple of the captured number.

    The computation of a replica is unchanged. Collectives keep their sizes, but run in larger groups. A
    degree that is not a multiple raises `UsageError`. A workload without exchanges between replicas raises
    `WorkloadError`.
    """
    parallelism = recognise(workload.graphs, workload.program_of_rank, workload.groups)
    if parallelism.why_not:
        raise WorkloadError(parallelism.why_not)
    sizes = {len(workload.groups.get(key, range(workload.num_ranks))) for key in parallelism.replicas}
    if not sizes:
        raise WorkloadError(
            f"The {workload.num_ranks} rank(s) of the workload exchange no gradients, so the communication "
            "of additional replicas is unknown. Capture the job with two data-parallel replicas, or record "
            "its script as a job of more ranks."
        )
    now = max(sizes)
    if degree < now or degree % now:
        raise UsageError(
            f"The captured job has {now} data-parallel replicas, and --dp {degree} is not a multiple of "
            f"{now}. Use --dp {now}, {2 * now}, {3 * now}, ...; for fewer replicas, capture a smaller job."
        )
    ranks = workload.num_ranks * (degree // now)
    if ranks > _MAX_RANKS:
        raise UsageError(
            f"--dp {degree:,} makes a job of {ranks:,} ranks, each with a file; the limit is "
            f"{_MAX_RANKS:,} ranks. Use --dp {_MAX_RANKS * now // workload.num_ranks} or less."
        )
    return workload.scale_out(workload.num_ranks * (degree // now))


def with_micro_batches(workload: Workload, count: int) -> Workload:
    """Return the pipeline *workload* with *count* micro-batches of the captured size.

    In the steady phase of an alternating schedule (1F1B), each stage repeats one period. For more
    micro-batches, the period is repeated more often. For fewer micro-batches or another schedule,
    `with_stages` assembles the passes. The function raises `WorkloadError` if a graph allows neither a
    repetition of the period nor an assembly of passes.
    """
    now = {_micro_batches(graph) for graph in workload.graphs}
    if now == {0}:
        raise WorkloadError(
            "The ranks of the workload exchange no messages, so it is not a pipeline. Capture the job "
            "with stages, or record its script with its option for pipeline stages."
        )
    if len(now) != 1 or 0 in now:
        raise WorkloadError(
            "The ranks of the workload do not exchange the same number of messages in each direction, so its "
            "schedule is not 1F1B (one forward, then one backward pass). Capture the job with the "
            "number of micro-batches you want."
        )
    (present,) = now
    if count == present:
        return workload
    steady = [_steady(graph) for graph in workload.graphs] if count > present else []
    if not steady or None in steady:
        return _recut(workload, count)
    graphs = tuple(
        repeated(graph, periods, count - present)
        for graph, periods in zip(workload.graphs, steady, strict=True)
        if periods is not None
    )
    assumption = (
        f"{count} micro-batches instead of {present}, each as large as before: every stage repeats a "
        "micro-batch from the middle of its step, so a step has more samples"
    )
    return replace(workload, graphs=graphs, metadata=metadata_with(workload, assumption))


def _recut(workload: Workload, count: int) -> Workload:
    """Return the pipeline with *count* micro-batches, assembled from its passes."""
    try:
        return with_stages(workload, micro_batches=count)
    except WorkloadError as error:
        raise WorkloadError(
            "The cost of additional micro-batches is unknown: the stages do not repeat one forward and one "
            "backward pass in the middle of a step (1F1B), and passes cannot be distinguished. "
            f"{error.message}"
        ) from error


def _micro_batches(graph: Graph) -> int:
    """Return the rank's number of messages per direction and peer, or 0 if the numbers differ."""
    counts = {len(rows) for rows in messages_of(graph).values()}
    return counts.pop() if len(counts) == 1 else 0


def _steady(graph: Graph) -> Periods | None:
    """Return the periods of one forward and one backward pass in the middle of the step."""
    messages = messages_of(graph)
    name = operation_of(graph, graph.node_columns["module"].texts)
    cuts = _ends_of_backward_passes(graph)
    steady: Periods | None = None
    run: list[int] = []
    for begin, end in [*itertools.pairwise(cuts), (0, 0)]:
        if end and all(((rows >= begin) & (rows < end)).sum() == 1 for rows in messages.values()):
            run = [*(run or [begin]), end]
            continue
        one = alike(graph, run, name) if run else None
        if one is not None and (steady is None or len(one.found) > len(steady.found)):
            steady = one
        run = []
    return steady


def _ends_of_backward_passes(graph: Graph) -> list[int]:
    """Return the first row after each run of backward operators; messages also end a run."""
    nodes = graph.node_columns
    phase, kind, operator = nodes["phase"], nodes["kind"], nodes["operator"]
    backward = phase == "backward"
    gap = kind == "host"
    gap &= operator == ""
    message = np.isin(nodes["type"], (NodeType.COMM_SEND, NodeType.COMM_RECV))
    computes = (nodes["type"] == NodeType.COMP) & ~gap
    seen = np.flatnonzero(computes | message)
    here, following = seen[:-1], seen[1:]
    return (here[backward[here] & ~backward[following]] + 1).tolist()  # type: ignore[no-any-return]
