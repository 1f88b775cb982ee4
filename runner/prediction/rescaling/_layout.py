"""The placement of pipeline stages among the ranks, and that of another pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....converter.chakra import Graph, NodeType, Workload
from ....errors import WorkloadError

__all__ = ["INSTEAD", "NO_GROUP", "Layout", "regrouped"]

# The group of messages that no capture has: all ranks.
NO_GROUP = -1
# What to do where a pipeline cannot be cut into other stages.
INSTEAD = "Capture the job with the stages you want, or record its script with its own option for them."


@dataclass(frozen=True)
class Layout:
    """*world* ranks in pipelines of *stages*, whose neighbours are *stride* ranks apart."""

    world: int
    stages: int
    stride: int

    @classmethod
    def of(cls, workload: Workload) -> Layout:
        """Find the pipelines of *workload*; raises `WorkloadError` if they are not laid out evenly."""
        peers = {rank: _peers(workload.graph_of(rank)) for rank in range(workload.num_ranks)}
        if not any(peers.values()):
            return cls(workload.num_ranks, 1, workload.num_ranks)
        strides = {abs(rank - other) for rank, near in peers.items() for other in near}
        stride = min(strides)
        ends = [rank for rank, near in peers.items() if len(near) == 1]
        stages = 2 * workload.num_ranks // max(1, len(ends))
        found = cls(workload.num_ranks, stages, stride)
        if len(strides) != 1 or any(found.neighbours(rank) != near for rank, near in peers.items()):
            raise WorkloadError(
                "The ranks of the workload do not form pipelines whose stages send to the next one and back, "
                f"so they are not cut into others. {INSTEAD}"
            )
        return found

    def with_stages(self, stages: int) -> Layout:
        """Return the layout with another number of stages."""
        return Layout(self.world // self.stages * stages, stages, self.stride)

    def place(self, rank: int) -> tuple[tuple[int, int], int]:
        """Return which pipeline *rank* is in, and which stage of it."""
        block, rest = divmod(rank, self.stages * self.stride)
        stage, inner = divmod(rest, self.stride)
        return (block, inner), stage

    def rank(self, pipeline: tuple[int, int], stage: int) -> int:
        """Return the rank of *stage* of *pipeline*."""
        return pipeline[0] * self.stages * self.stride + stage * self.stride + pipeline[1]

    def neighbours(self, rank: int) -> set[int]:
        """Return the ranks of the stages before and behind that of *rank*."""
        pipeline, stage = self.place(rank)
        near = {stage - 1, stage + 1} & set(range(self.stages))
        return {self.rank(pipeline, other) for other in near}


def regrouped(
    workload: Workload, layout: Layout, new: Layout
) -> tuple[dict[int, tuple[int, ...]], list[dict[int, int]]]:
    """Return the groups of the *new* layout, and for each of its stages the new number of each old group.

    A group of ranks of one stage becomes one of each new stage; one of whole pipelines spans the new ones.
    Raises `WorkloadError` for others that are used.
    """
    used = {int(key) for graph in workload.graphs for key in np.unique(_groups_used(graph)).tolist()}
    members: dict[tuple[int, int], tuple[int, ...]] = {}  # of (old group, new stage)
    everyone = tuple(range(workload.num_ranks))
    for key, ranks in {0: everyone, **workload.groups}.items():
        if key == 0 and layout.stages > 1:
            continue
        stages = {layout.place(rank)[1] for rank in ranks}
        pipelines = {layout.place(rank)[0] for rank in ranks}
        whole = len(stages) == layout.stages and len(ranks) == len(stages) * len(pipelines)
        if len(stages) > 1 and not whole:
            if key in used:
                raise WorkloadError(
                    f"Group {key} of the workload joins some stages of a pipeline and not others (as tied "
                    f"embeddings do), and which ones of other stages it would join is not known. {INSTEAD}"
                )
            continue
        for stage in range(new.stages):
            chosen = range(new.stages) if len(stages) > 1 else [stage]
            members[key, stage] = tuple(sorted(new.rank(one, each) for one in pipelines for each in chosen))
    alone = layout.world == 1
    ordered = sorted({ranks for ranks in members.values() if len(ranks) > 1 or not alone})
    groups = {number: ranks for number, ranks in enumerate(ordered, 1) if len(ranks) < new.world}
    numbers: Mapping[tuple[int, ...], int] = {ranks: number for number, ranks in groups.items()}
    renamed: list[dict[int, int]] = []
    for stage in range(new.stages):
        own = {key: numbers.get(ranks, 0) for (key, each), ranks in members.items() if each == stage}
        renamed.append({0: 0, **own, NO_GROUP: 0})
    return groups, renamed


def _groups_used(graph: Graph) -> np.ndarray:
    nodes = graph.node_columns
    used: np.ndarray = nodes["group"][nodes["type"] == NodeType.COMM_COLL]
    return used


def _peers(graph: Graph) -> set[int]:
    nodes = graph.node_columns
    ends = [(NodeType.COMM_SEND, "comm_dst"), (NodeType.COMM_RECV, "comm_src")]
    return {int(peer) for kind, end in ends for peer in np.unique(nodes[end][nodes["type"] == kind])}
