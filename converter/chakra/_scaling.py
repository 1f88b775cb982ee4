"""Scale a captured workload out to more ranks by data parallelism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...errors import WorkloadError
from ...support.table import TextColumn
from ._extra import SPLITS
from ._graph import MESSAGES, CollectiveType, Graph, NodeType
from ._parallelism import Parallelism, have_messages, recognise


def replicate(
    graphs: Sequence[Graph],
    program_of_rank: np.ndarray,
    groups: Mapping[int, tuple[int, ...]],
    num_ranks: int,
    *,
    first_only: bool = False,
) -> tuple[tuple[Graph, ...], np.ndarray, dict[int, tuple[int, ...]], list[str]]:
    """Return graphs, programs, groups and assumptions for *num_ranks*, a multiple of the present ranks.

    The captured ranks are one block, which is repeated. Groups of data parallelism, and of all ranks, span
    all blocks; other groups, all-to-alls and point-to-point peers stay inside their block. A block needs
    separate graphs only if it has some of these. With *first_only*, the graphs and programs of the first
    block are returned, with all its groups. Raises `WorkloadError` for a job that shows no data parallelism.
    """
    found = recognise(graphs, program_of_rank, groups)
    if found.why_not:
        raise WorkloadError(found.why_not)
    world = len(program_of_rank)
    blocks = num_ranks // world
    everyone = {0} | {key for key, ranks in groups.items() if len(ranks) == world}
    new_groups = {
        key: _spread(ranks, blocks, world) if key in found.growing else ranks for key, ranks in groups.items()
    }
    staying = _staying(found, groups, everyone, world)
    base = [_grown(graph, found.growing, blocks) for graph in graphs]
    result: list[Graph] = []
    programs = []
    next_group = max(groups, default=0) + 1
    for block in range(1 if first_only else blocks):
        renamed: dict[tuple[int, bool], int] = {}
        for (key, is_exchange), ranks in sorted(staying.items()):
            if block == 0 and key in groups and key not in found.growing:
                continue
            renamed[key, is_exchange] = next_group
            new_groups[next_group] = tuple(rank + block * world for rank in ranks)
            next_group += 1
        own = np.empty(len(base), dtype=np.int32)
        for index, graph in enumerate(base):
            moved = _moved(graph, renamed, block * world)
            own[index] = index if moved is None and block else len(result)
            if moved is not None or not block:
                result.append(graph if moved is None else moved)
        programs.append(own[program_of_rank])
    even = _become_even(graphs, found, everyone)
    return (
        tuple(result),
        np.concatenate(programs),
        new_groups,
        _assumptions(
            world,
            blocks,
            found,
            stays=bool(staying) or have_messages(graphs),
            even=even,
            unsized=any(map(_communicates, graphs)),
        ),
    )


def _staying(
    found: Parallelism, groups: Mapping[int, tuple[int, ...]], everyone: set[int], world: int
) -> dict[tuple[int, bool], tuple[int, ...]]:
    """Return the ranks of groups that stay within a block (False), or only of their all-to-alls (True)."""
    staying: dict[tuple[int, bool], tuple[int, ...]] = {}
    for key in {0, *groups}:
        ranks = groups.get(key, tuple(range(world)))
        counted = 0 if key in everyone else key
        if key not in found.growing and (key or counted in found.tensor):
            staying[key, False] = ranks
        elif key in found.growing and counted in found.exchanging:
            staying[key, True] = ranks
    return staying


def _spread(ranks: tuple[int, ...], blocks: int, world: int) -> tuple[int, ...]:
    return tuple(rank + block * world for block in range(blocks) for rank in ranks)


def _grown(graph: Graph, growing: frozenset[int], blocks: int) -> Graph:
    """Return *graph* with smaller shards in all-gathers of *growing* groups: the output keeps its size."""
    nodes = graph.node_columns
    shards = (
        (nodes["type"] == NodeType.COMM_COLL)
        & (nodes["comm_type"] == CollectiveType.ALL_GATHER)
        & np.isin(nodes["group"], list(growing))
    )
    if not shards.any():
        return graph
    sizes = nodes["comm_size_bytes"]
    return graph.with_columns(comm_size_bytes=np.where(shards, -(-sizes // blocks), sizes))


def _moved(graph: Graph, renamed: Mapping[tuple[int, bool], int], offset: int) -> Graph | None:
    """Return *graph* for the ranks *offset* higher, or None if it is the same graph."""
    nodes = graph.node_columns
    collectives = nodes["type"] == NodeType.COMM_COLL
    exchanges = collectives & (nodes["comm_type"] == CollectiveType.ALL_TO_ALL)
    peers = np.isin(nodes["type"], MESSAGES)
    group = nodes["group"].copy()
    for (key, only_exchanges), number in renamed.items():
        group[(exchanges if only_exchanges else collectives) & (nodes["group"] == key)] = number
    if (group == nodes["group"]).all() and not (offset and peers.any()):
        return None
    ends = {
        column: np.where(peers & (nodes[column] >= 0), nodes[column] + offset, nodes[column])
        for column in ("comm_src", "comm_dst")
    }
    return graph.as_rank(graph.rank + offset).with_columns(group=group, **ends)


def _become_even(graphs: Sequence[Graph], found: Parallelism, everyone: set[int]) -> bool:
    """Return whether uneven collectives, other than all-to-alls, get more members."""
    spread = list(found.growing | (everyone if 0 in found.growing else set()))
    for graph in graphs:
        nodes = graph.node_columns
        grow = np.isin(nodes["group"], spread) & (nodes["comm_type"] != CollectiveType.ALL_TO_ALL)
        ids = set(nodes["node_id"][grow & (nodes["type"] == NodeType.COMM_COLL)].tolist())
        if any(node in ids and SPLITS.encode() in kept for node, kept in graph.extra.items()):
            return True
    return False


def _communicates(graph: Graph) -> bool:
    """Return whether a node communicates, even if its size is unknown."""
    kinds = graph.node_columns["kind"]
    return isinstance(kinds, TextColumn) and "communication" in kinds.texts


def _assumptions(
    world: int, blocks: int, found: Parallelism, *, stays: bool, even: bool, unsized: bool
) -> list[str]:
    lines = [
        f"Scaled out from {world} to {world * blocks} ranks as data parallelism: the {world} captured ranks "
        f"are repeated {blocks} times with unchanged computation (the batch of each rank stays).",
        "Collectives of all ranks keep their buffer size and now span all ranks; their all-gathers keep "
        "the size they gather, so each rank's shard shrinks.",
    ]
    if found.growing - {0} and stays:
        lines.append("Groups of data parallelism span the repetitions, as those of all ranks do.")
    if stays:
        lines.append("Other groups, all-to-alls and point-to-point peers stay within each repetition.")
    if found.exchanging:
        lines.append(
            "The parts of an all-to-all (experts, embedding tables) have a copy in each repetition; "
            "reductions of the copies' gradients are not simulated, as no captured collective shows "
            "them."
        )
    if found.alone and unsized:
        lines.append(
            "The traces have no sizes of communication: it keeps its measured time, and the "
            "repetitions do not communicate with each other."
        )
    elif found.alone:
        lines.append("The captured ranks never communicate, so the repetitions do not either.")
    if even:
        lines.append(
            "Uneven collectives that span all ranks become even, as large as that of the rank that has most: "
            "the amounts for the new ranks are unknown."
        )
    return lines
