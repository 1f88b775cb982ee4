"""Scale a captured workload out to more ranks, as more data parallelism would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ._graph import CollectiveType, Graph, NodeType
from ._splits import SPLITS

__all__ = ["replicate"]


def replicate(
    graphs: Sequence[Graph],
    program_of_rank: np.ndarray,
    groups: Mapping[int, tuple[int, ...]],
    num_ranks: int,
) -> tuple[tuple[Graph, ...], np.ndarray, dict[int, tuple[int, ...]], list[str]]:
    """Return graphs, programs, groups and assumptions for *num_ranks*, a multiple of the present ranks.

    The captured ranks are one block, repeated. A group of all ranks stays a group of all ranks; a proper
    subgroup exists once in every block; point-to-point peers stay inside their block. A block needs graphs of
    its own only if it has subgroups or peers.
    """
    world = len(program_of_rank)
    blocks = num_ranks // world
    everywhere = {key for key, ranks in groups.items() if len(ranks) == world}
    new_groups = {key: _spread(groups[key], blocks, world) for key in sorted(everywhere)}
    proper = sorted(set(groups) - everywhere)
    new_groups.update({key: groups[key] for key in proper})
    next_group = max(groups, default=0) + 1
    base = [_grown(graph, {0} | everywhere, blocks) for graph in graphs]
    result = list(base)
    programs = [np.asarray(program_of_rank, dtype=np.int32)]
    for block in range(1, blocks):
        renamed: dict[int, int] = {}
        for key in proper:
            renamed[key] = next_group
            new_groups[next_group] = tuple(rank + block * world for rank in groups[key])
            next_group += 1
        moved = [_moved(graph, renamed, block * world) for graph in base]
        own = np.empty(len(base), dtype=np.int32)
        for index, graph in enumerate(moved):
            own[index] = index if graph is None else len(result)
            if graph is not None:
                result.append(graph)
        programs.append(own[program_of_rank])
    return (
        tuple(result),
        np.concatenate(programs),
        new_groups,
        _assumptions(world, blocks, bool(proper), _are_uneven(graphs)),
    )


def _spread(ranks: tuple[int, ...], blocks: int, world: int) -> tuple[int, ...]:
    return tuple(rank + block * world for block in range(blocks) for rank in ranks)


def _grown(graph: Graph, world_groups: set[int], blocks: int) -> Graph:
    """Return *graph* with the shards of its world-wide all-gathers shrunk, so that they gather the same."""
    nodes = graph.node_columns
    shards = (
        (nodes["type"] == NodeType.COMM_COLL)
        & (nodes["comm_type"] == CollectiveType.ALL_GATHER)
        & np.isin(nodes["group"], list(world_groups))
    )
    if not shards.any():
        return graph
    sizes = nodes["comm_size_bytes"]
    return graph.with_columns(comm_size_bytes=np.where(shards, -(-sizes // blocks), sizes))


def _moved(graph: Graph, renamed: Mapping[int, int], offset: int) -> Graph | None:
    """Return *graph* as the ranks *offset* higher run it, or None when that is the same graph."""
    nodes = graph.node_columns
    in_group = np.isin(nodes["group"], list(renamed)) & (nodes["type"] == NodeType.COMM_COLL)
    peers = np.isin(nodes["type"], [NodeType.COMM_SEND, NodeType.COMM_RECV])
    if not in_group.any() and not peers.any():
        return None
    group = nodes["group"].copy()
    group[in_group] = [renamed[number] for number in group[in_group].tolist()]
    ends = {
        column: np.where(peers & (nodes[column] >= 0), nodes[column] + offset, nodes[column])
        for column in ("comm_src", "comm_dst")
    }
    return graph.as_rank(graph.rank + offset).with_columns(group=group, **ends)


def _are_uneven(graphs: Sequence[Graph]) -> bool:
    return any(SPLITS.encode() in kept for graph in graphs for kept in graph.extra.values())


def _assumptions(world: int, blocks: int, has_proper: bool, are_uneven: bool) -> list[str]:
    lines = [
        f"Scaled out from {world} to {world * blocks} ranks as data parallelism: the {world} captured ranks "
        f"are repeated {blocks} times with unchanged computation (the batch of each rank stays).",
        "Collectives of all ranks keep their buffer size and now span all ranks; their all-gathers keep "
        "the size they gather, so each rank's shard shrinks.",
    ]
    if has_proper:
        lines.append(
            "Groups smaller than the captured world, and point-to-point peers, stay within each repetition."
        )
    if are_uneven:
        lines.append(
            "Uneven collectives of all ranks become even, as large as that of the rank that has most: what "
            "each rank would have for the new ones is not known."
        )
    return lines
