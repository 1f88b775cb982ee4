"""Make the graphs of all ranks from that of rank 0, captured by one process in a fake world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ...errors import TraceError
from ..chakra import Graph, NodeType, Workload

__all__ = ["MAX_PROGRAMS", "groups_like", "pose_for_all"]

MAX_PROGRAMS = 1024


def pose_for_all(
    workload: Workload, num_ranks: int, made_groups: Sequence[Sequence[int]], place: str
) -> Workload:
    """Return a workload of *num_ranks* ranks like rank 0 of *workload*.

    *made_groups* are the ranks of every group the script made, in order; each rank gets the group that
    corresponds to that of rank 0. Raises `TraceError` naming *place* if rank 0 cannot represent the others:
    it sends to single ranks, or made groups that do not cover all ranks.
    """
    (graph,) = workload.graphs
    if graph.nodes["type"].isin([NodeType.COMM_SEND, NodeType.COMM_RECV]).any():
        raise TraceError(
            f"{place}: rank 0 exchanges messages with single ranks, as stages of a pipeline do, so it cannot "
            "stand for the others. Capture this job on real ranks."
        )
    everyone = tuple(range(num_ranks))
    families = {
        number: [everyone] if ranks == everyone else groups_like(ranks, made_groups, num_ranks, place)
        for number, ranks in workload.groups.items()
    }
    groups = sorted({ranks for family in families.values() for ranks in family} - {everyone})
    numbers = {everyone: 0, **{ranks: number for number, ranks in enumerate(groups, start=1)}}
    own = [_numbers_of(rank, families, numbers) for rank in range(num_ranks)]
    programs = sorted(set(own))
    if len(programs) > MAX_PROGRAMS:
        raise TraceError(
            f"{place}: the {num_ranks} ranks need {len(programs)} different graphs, and {MAX_PROGRAMS} is "
            "the limit. Capture a fake world of fewer ranks."
        )
    index = {program: position for position, program in enumerate(programs)}
    return Workload(
        graphs=tuple(
            _renumbered(graph, sorted(families), program, own.index(program)) for program in programs
        ),
        program_of_rank=np.array([index[program] for program in own], dtype=np.int32),
        groups={number: ranks for ranks, number in numbers.items() if number},
        metadata=workload.metadata,
    )


def groups_like(
    ranks: tuple[int, ...], made_groups: Sequence[Sequence[int]], num_ranks: int, place: str
) -> list[tuple[int, ...]]:
    """Return the groups made together with that of *ranks* so that each rank is in one of them.

    Raises `TraceError` naming *place* if there are none.
    """
    made = [tuple(group) for group in made_groups]
    own = tuple(sorted(ranks))
    first = made.index(own) if own in made else len(made)
    for groups in (*_partitions(made, num_ranks), *_partitions(made[first:], num_ranks)):
        if own in groups:
            return groups
    raise TraceError(
        f"{place}: the script made the group of ranks {', '.join(map(str, ranks))}, but none like it "
        f"for every other of the {num_ranks} ranks, so rank 0 cannot stand for them. Capture this job on "
        "real ranks."
    )


def _partitions(made: Sequence[tuple[int, ...]], num_ranks: int) -> Iterator[list[tuple[int, ...]]]:
    """Yield the runs of consecutive groups in which each rank is once."""
    groups: list[tuple[int, ...]] = []
    covered: set[int] = set()
    for group in made:
        if not covered.isdisjoint(group):
            groups, covered = [], set()
        groups.append(group)
        covered.update(group)
        if len(covered) == num_ranks:
            yield groups
            groups, covered = [], set()


def _numbers_of(
    rank: int, families: Mapping[int, Sequence[tuple[int, ...]]], numbers: Mapping[tuple[int, ...], int]
) -> tuple[int, ...]:
    """Return the numbers of the groups that *rank* uses where rank 0 uses its own, in their order."""
    return tuple(
        next(numbers[group] for group in families[number] if rank in group) for number in sorted(families)
    )


def _renumbered(graph: Graph, old: Sequence[int], new: Sequence[int], rank: int) -> Graph:
    table = np.arange(max(old, default=0) + 1, dtype=np.int64)
    table[list(old)] = list(new)
    return graph.as_rank(rank).with_columns(group=table[graph.node_columns["group"]])
