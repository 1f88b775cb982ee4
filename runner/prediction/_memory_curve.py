"""The memory use of a rank over the step, computed from its schedule and the times of its passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...converter import Workload
from .._result import Result
from ._prices import Links
from .models import (
    LANES,
    Memory,
    Plan,
    Prices,
    Span,
    Stage,
    Transformer,
    Turn,
    in_flight,
    rank_memory,
    turn_spans,
)

_POINTS = 400  # the maximum number of points of a curve in JSON


@dataclass(frozen=True)
class MemoryCurve:
    """The memory of a rank of *stage* in bytes at *times_ns*, interpolated linearly between these times.

    *weights*, *gradients*, *optimizer* and *buffers* are constant. *activations* grow with each forward pass,
    and shrink with the corresponding backward pass. *workspace* is the memory of the logits, of gathered
    layers of sharded weights, and of recomputed activations.
    """

    stage: int
    weights: int
    gradients: int
    optimizer: int
    buffers: int
    times_ns: tuple[int, ...]
    activations: tuple[int, ...]
    workspace: tuple[int, ...]

    @property
    def total(self) -> tuple[int, ...]:
        """The total memory in bytes at each of the times."""
        fixed = self.weights + self.gradients + self.optimizer + self.buffers
        return tuple(fixed + kept + work for kept, work in zip(self.activations, self.workspace, strict=True))

    @property
    def peak(self) -> int:
        """The peak of the total memory in bytes."""
        return max(self.total)

    def to_json(self) -> dict[str, Any]:
        """Return the memory curve as JSON; a long curve is reduced to the highest point of each interval."""
        chosen = self._highest()
        return {
            "stage": self.stage,
            "weights_bytes": self.weights,
            "gradients_bytes": self.gradients,
            "optimizer_bytes": self.optimizer,
            "buffers_bytes": self.buffers,
            "peak_bytes": self.peak,
            "times_ns": [self.times_ns[place] for place in chosen],
            "activations_bytes": [self.activations[place] for place in chosen],
            "workspace_bytes": [self.workspace[place] for place in chosen],
        }

    def _highest(self) -> list[int]:
        count = len(self.times_ns)
        if count <= _POINTS:
            return list(range(count))
        total = np.array(self.total)
        parts = np.array_split(np.arange(1, count - 1), _POINTS - 2)
        return [0, *(int(part[np.argmax(total[part])]) for part in parts), count - 1]


def memory_curves(
    model: Transformer, plan: Plan, prices: Prices, links: Links, *, workload: Workload, result: Result
) -> tuple[MemoryCurve, ...]:
    """Return the memory curve of one rank of each pipeline stage, from the simulated *workload* of *plan*."""
    nodes = result.nodes.sort_values(["rank", "node_id"])
    rank_of = nodes["rank"].to_numpy()
    starts, ends = nodes["start_ns"].to_numpy(), nodes["end_ns"].to_numpy()
    graphs = {graph.rank: graph for graph in workload.graphs}
    curves = []
    for number in range(plan.pp):
        stage = Stage(plan, prices, links.node_size, number)
        first, last = np.searchsorted(rank_of, [stage.rank, stage.rank + 1])
        computes = np.asarray(graphs[stage.rank].nodes["stream"]) == LANES["compute"]
        times = _Times(starts[first:last], ends[first:last], computes)
        turns = [(span.turn, *times.of(span)) for span in turn_spans(model, stage)]
        curves.append(_curve(plan, rank_memory(model, plan, number), turns, result.makespan_ns))
    return tuple(curves)


@dataclass(frozen=True)
class _Times:
    """The start and end times of a rank's nodes, and a mask of the nodes that compute."""

    starts: np.ndarray
    ends: np.ndarray
    computes: np.ndarray

    def of(self, span: Span) -> tuple[int, int]:
        """Return the start and the end (ns) of the computation of the pass *span*."""
        part = slice(span.first, span.first + span.length)
        computes = self.computes[part]
        return int(self.starts[part][computes].min()), int(self.ends[part][computes].max())


def _curve(plan: Plan, memory: Memory, turns: Sequence[tuple[Turn, int, int]], end_ns: int) -> MemoryCurve:
    each = memory.activations / in_flight(plan, memory.stage)
    waiting = 0
    points = [(0, 0, 0)]
    for turn, start, end in turns:
        is_last = memory.stage == plan.pp - 1 and turn.chunk == plan.chunks - 1
        output = memory.output if is_last else 0
        before = round(waiting * each)
        waiting += {"F": 1, "B": -1, "I": 0, "W": -1}[turn.kind]
        after = round(waiting * each)
        if turn.kind == "F":
            points += [(start, before, 0), (end, after, output)]
        elif turn.kind == "W":
            points += [(start, before, 0), (end, after, 0)]
        else:
            points += [(start, before, max(output, memory.working)), (end, after, memory.working)]
            points.append((end, after, 0))
    points.append((end_ns, 0, 0))
    times, activations, workspace = zip(*points, strict=True)
    parts = memory.weights, memory.gradients, memory.optimizer, memory.buffers
    return MemoryCurve(memory.stage, *parts, times, activations, workspace)
