"""Find communication that is repeated for every micro-batch, although a step needs it only once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...converter import CollectiveType, Graph, NodeType, Workload
from ...support.table import CodedColumns, Ints
from ._candidate import MAJORITY, Candidate, sum_ns
from ._critical_path import CriticalPath
from ._what_if import Target

_REDUCTIONS = (int(CollectiveType.ALL_REDUCE), int(CollectiveType.REDUCE_SCATTER))
_TYPES = (*_REDUCTIONS, int(CollectiveType.ALL_GATHER))


def accumulation(path: CriticalPath, workload: Workload, rows: Ints) -> Iterator[Candidate]:
    """Yield one candidate for gradient reductions and parameter gathers repeated in every micro-batch.

    *rows* are the communication segments of the critical path.
    """
    segments = path.columns
    programs = path.program_of_rank[segments["rank"][rows]]
    own, batches = np.zeros(len(rows), bool), 0
    for program in np.unique(programs).tolist():
        count, node_ids = _repeated_nodes(workload.graphs[program])
        own |= (programs == program) & np.isin(segments["node_id"][rows], node_ids)
        batches = max(batches, count)
    if own.any():
        yield _candidate(segments, rows[own], batches)


def _candidate(segments: CodedColumns, own: Ints, batches: int) -> Candidate:
    types = sorted({str(label).partition(" of ")[0] for label in segments["collective"][own].tolist()})
    what = f"{' and '.join(types)} in each of {batches} micro-batches"
    target = Target("collective", types[0]) if len(types) == 1 else Target("kind", "communication")
    path_ns = sum_ns(segments, own)
    return Candidate(
        what, "communication", "", "accumulation", target, float(batches), own, path_ns,
        round(path_ns * (1 - 1 / batches)),
    )  # fmt: skip


def _repeated_nodes(graph: Graph) -> tuple[int, Ints]:
    """Return the number of micro-batches of *graph*, and the ids of collectives repeated in all of them.

    A group of ranks reduces gradients if most of its reductions are in backward passes. Reductions of
    tensor parallelism are equally frequent in forward and backward passes.
    """
    nodes = graph.node_columns
    batch, batches, is_backward = _micro_batches(graph)
    nothing = np.zeros(0, np.int64)
    if batches < 2 or len(np.unique(nodes["step"])) > 1:
        return 0, nothing
    types, groups = np.asarray(nodes["comm_type"]), np.asarray(nodes["group"])
    rows = np.flatnonzero((np.asarray(nodes["type"]) == NodeType.COMM_COLL) & np.isin(types, _TYPES))
    keys = np.column_stack([types[rows], np.asarray(nodes["comm_size_bytes"])[rows], groups[rows]])
    if not len(keys):
        return 0, nothing
    names, key = np.unique(keys, axis=0, return_inverse=True)
    pairs = np.unique(np.column_stack([key.ravel(), batch[rows]]), axis=0)
    in_all = np.bincount(pairs[:, 0], minlength=len(names)) == batches
    reduces = np.isin(types[rows], _REDUCTIONS)
    chosen = np.zeros(len(rows), bool)
    for group in np.unique(groups[rows][reduces & in_all[key.ravel()]]).tolist():
        of_group = groups[rows] == group
        if is_backward[rows][of_group & reduces].mean() >= MAJORITY:
            chosen |= of_group & in_all[key.ravel()]
    return batches, np.asarray(nodes["node_id"])[rows[chosen]]


def _micro_batches(graph: Graph) -> tuple[Ints, int, np.ndarray]:
    """Return each node's micro-batch, their number, and a mask of nodes in or after a backward pass.

    A micro-batch ends when a module computes after a backward pass.
    """
    nodes = graph.node_columns
    computes = np.asarray(nodes["type"]) < NodeType.COMM_SEND
    backward = (nodes["phase"] == "backward") & computes
    forward = (nodes["phase"] == "forward") & nodes["module"].passes(bool) & computes
    marks = np.flatnonzero(backward | forward)
    is_backward = backward[marks]
    begins = marks[1:][is_backward[:-1] & ~is_backward[1:]]
    every = np.arange(len(computes))
    batch = np.searchsorted(begins, every, side="right")
    passes = int((np.diff(is_backward.astype(np.int8), prepend=0) > 0).sum())
    before = np.searchsorted(marks, every, side="right") - 1
    return batch, passes, (before >= 0) & np.append(is_backward, False)[before]
