"""More micro-batches in a pipeline: the steady part of the schedule takes longer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ....converter.chakra import Graph, NodeType, Workload
from ....errors import WorkloadError
from ._periods import Periods, alike, repeated
from ._stages import with_stages

__all__ = ["with_micro_batches"]

_ENDS = ((NodeType.COMM_SEND, "comm_dst"), (NodeType.COMM_RECV, "comm_src"))


def with_micro_batches(workload: Workload, count: int) -> Workload:
    """Return *workload*, a pipeline's, with *count* micro-batches, each as large as those it has.

    In the steady part of a schedule with one forward and one backward pass in turn (1F1B), each stage repeats
    the same; it repeats it more often. Fewer, or another schedule, are put together by `with_stages`. Raises
    `WorkloadError` for graphs that show neither.
    """
    now = {_micro_batches(graph) for graph in workload.graphs}
    if now == {0}:
        raise WorkloadError(
            "The ranks of the workload send each other nothing, so it is not a pipeline. Capture the job "
            "with stages, or record its script with the option that cuts it into them."
        )
    if len(now) != 1 or 0 in now:
        raise WorkloadError(
            "The ranks of the workload do not exchange the same number of messages in each direction, so its "
            "schedule is none of one forward and one backward pass in turn (1F1B). Capture the job with the "
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
        f"{count} micro-batches instead of {present}, each as large as before: every stage repeats what it "
        "does between others, so a step has more samples"
    )
    metadata = {**workload.metadata, "assumptions": [*workload.metadata.get("assumptions", []), assumption]}
    metadata.pop("accounting", None)
    return replace(workload, graphs=graphs, metadata=metadata)


def _recut(workload: Workload, count: int) -> Workload:
    """Return the pipeline with *count* micro-batches, put together of its passes."""
    try:
        return with_stages(workload, micro_batches=count)
    except WorkloadError as error:
        raise WorkloadError(
            "What other micro-batches add is not known: its stages do not repeat one forward and one "
            "backward pass in the middle of a step (1F1B), and passes cannot be distinguished. "
            f"{error.message}"
        ) from error


def _messages(graph: Graph) -> dict[tuple[int, int], np.ndarray]:
    """Return the rows of messages by direction and partner."""
    nodes = graph.node_columns
    found = {}
    for kind, end in _ENDS:
        rows = np.flatnonzero(nodes["type"] == kind)
        for partner in np.unique(nodes[end][rows]).tolist():
            found[int(kind), partner] = rows[nodes[end][rows] == partner]
    return found


def _micro_batches(graph: Graph) -> int:
    """Return how many messages the rank exchanges in each direction with each partner; 0 if they differ."""
    counts = {len(rows) for rows in _messages(graph).values()}
    return counts.pop() if len(counts) == 1 else 0


def _steady(graph: Graph) -> Periods | None:
    """Return the periods of one forward and one backward pass in the middle of the step."""
    messages = _messages(graph)
    cuts = _ends_of_backward_passes(graph)
    found: Periods | None = None
    run: list[int] = []
    for begin, end in [*itertools.pairwise(cuts), (0, 0)]:
        if end and all(((rows >= begin) & (rows < end)).sum() == 1 for rows in messages.values()):
            run = [*(run or [begin]), end]
            continue
        one = alike(graph, run, _name_of(graph)) if run else None
        if one is not None and (found is None or len(one.found) > len(found.found)):
            found = one
        run = []
    return found


def _ends_of_backward_passes(graph: Graph) -> list[int]:
    """Return the rows behind each stretch of backward operators; messages end a stretch, too."""
    nodes = graph.node_columns
    phase, kind, operator = nodes["phase"], nodes["kind"], nodes["operator"]
    backward = phase == "backward"
    gap = kind == "host"
    gap &= operator == ""
    message = np.isin(nodes["type"], [kind for kind, _ in _ENDS])
    computes = (nodes["type"] == NodeType.COMP) & ~gap
    seen = np.flatnonzero(computes | message)
    here, following = seen[:-1], seen[1:]
    return (here[backward[here] & ~backward[following]] + 1).tolist()  # type: ignore[no-any-return]


def _name_of(graph: Graph) -> Callable[[int], object]:
    nodes = graph.node_columns
    operator, phase, module = nodes["operator"], nodes["phase"], nodes["module"]

    def name_of(row: int) -> object:
        words = tuple(column.texts[column.numbers[row]] for column in (operator, phase, module))
        numbers = ("type", "stream", "comm_type", "comm_size_bytes", "group", "num_ops", "tensor_size_bytes")
        return (*words, *(int(nodes[name][row]) for name in numbers))

    return name_of
