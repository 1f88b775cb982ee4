"""Recognise the parallelism of a captured workload, and scale it out to more ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import WorkloadError
from ...support.table import TextColumn
from ._graph import MESSAGES, SPLITS, CollectiveType, EdgeKind, Graph, NodeType


def replicate(
    graphs: Sequence[Graph],
    program_of_rank: np.ndarray,
    groups: Mapping[int, tuple[int, ...]],
    num_ranks: int,
    *,
    first_only: bool = False,
) -> tuple[tuple[Graph, ...], np.ndarray, dict[int, tuple[int, ...]], list[str]]:
    """Return graphs, programs, groups and assumptions for *num_ranks*, a multiple of the current number.

    The captured ranks are one block, which is repeated. Groups of data parallelism, and of all ranks, span
    all blocks. Other groups, all-to-alls and point-to-point peers stay inside their block. Blocks need
    separate graphs only if some communication stays inside the block. If *first_only* is true, the graphs and
    programs of the first block are returned, with all its groups. Raises `WorkloadError` for a job that shows
    no data parallelism.
    """
    found = recognise(graphs, program_of_rank, groups)
    if found.why_not:
        raise WorkloadError(found.why_not)
    world = len(program_of_rank)
    blocks = num_ranks // world
    everyone = {0} | {key for key, ranks in groups.items() if len(ranks) == world}
    new_groups = {
        key: tuple(rank + block * world for block in range(blocks) for rank in ranks)
        if key in found.growing
        else ranks
        for key, ranks in groups.items()
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
    """Return the ranks of groups that stay inside a block, by (group, whether only all-to-alls stay)."""
    staying: dict[tuple[int, bool], tuple[int, ...]] = {}
    for key in {0, *groups}:
        ranks = groups.get(key, tuple(range(world)))
        counted = 0 if key in everyone else key
        if key not in found.growing and (key or counted in found.tensor):
            staying[key, False] = ranks
        elif key in found.growing and counted in found.exchanging:
            staying[key, True] = ranks
    return staying


def _grown(graph: Graph, growing: frozenset[int], blocks: int) -> Graph:
    """Return *graph* with smaller shards in all-gathers of *growing* groups; outputs keep their size."""
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
    """Return *graph* for ranks that are shifted by *offset*, or None if the graph does not change."""
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
    """Return whether any node of *graph* communicates, including communication of unknown size."""
    kinds = graph.node_columns["kind"]
    return isinstance(kinds, TextColumn) and "communication" in kinds.texts


def _assumptions(
    world: int, blocks: int, found: Parallelism, *, stays: bool, even: bool, unsized: bool
) -> list[str]:
    lines = [
        f"Scaled out from {world} to {world * blocks} ranks by data parallelism: the {world} captured ranks "
        f"are repeated {blocks} times with unchanged computation and batch size per rank.",
        "Collectives across all captured ranks now span all ranks and keep their buffer size; all-gathers "
        "keep the size of their result, so each rank's shard shrinks.",
    ]
    if found.growing - {0} and stays:
        lines.append("Data-parallel groups span the repetitions, like groups of all ranks.")
    if stays:
        lines.append("Other groups, all-to-alls and point-to-point messages stay within each repetition.")
    if found.exchanging:
        lines.append(
            "Data distributed by an all-to-all (experts, embedding tables) has a copy in each repetition; "
            "the reduction of the copies' gradients is not simulated, because no captured collective shows "
            "it."
        )
    if found.alone and unsized:
        lines.append(
            "The traces lack the sizes of communication, so communication keeps its measured time, and the "
            "repetitions do not communicate with each other."
        )
    elif found.alone:
        lines.append("The captured ranks never communicate, so the repetitions do not either.")
    if even:
        lines.append(
            "Uneven collectives across all ranks become even, with the largest size of any rank, because the "
            "amounts of the new ranks are unknown."
        )
    return lines


# Minimum share of forward-pass reductions in the traffic of a tensor-parallel group. In tensor parallelism,
# reductions of the forward pass are half of the traffic. A logged loss or batch-normalisation statistics are
# below this share of a data-parallel group's traffic.
_TENSOR_SHARE = 0.01
# Minimum share of gradients in the job's traffic. Norms, losses and flags that all ranks reduce have a lower
# share of the traffic.
_GRADIENT_SHARE = 0.001
_REDUCTIONS = (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK)
_EXCHANGES = (*_REDUCTIONS, CollectiveType.ALL_GATHER)
_INSTEAD = (
    "Next: capture the job on as many ranks as you want to simulate, or with at least two data-parallel "
    "replicas, which can be repeated."
)


@dataclass
class _Traffic:
    """The traffic of one process group in bytes, by purpose."""

    total: int = 0
    forward: int = 0
    gathered: int = 0
    exchanged: int = 0
    to_all: int = 0


@dataclass(frozen=True)
class Parallelism:
    """The purposes of a job's groups; group 0 (all ranks) is included if the job uses it.

    *growing* groups span the repetitions: they are *replicas* (data parallelism), and groups of all ranks.
    *tensor* groups share the work on a tensor. *exchanging* groups exchange tokens or samples (all-to-all),
    with or without other communication. *why_not* is the reason why the job cannot be repeated, or "".
    """

    growing: frozenset[int] = frozenset()
    tensor: frozenset[int] = frozenset()
    exchanging: frozenset[int] = frozenset()
    why_not: str = ""
    alone: bool = False
    replicas: frozenset[int] = frozenset()


def recognise(
    graphs: Sequence[Graph], program_of_rank: np.ndarray, groups: Mapping[int, tuple[int, ...]]
) -> Parallelism:
    """Return the purposes of the *groups* of the job, from their traffic and the phase of this traffic.

    All-reduces and reduce-scatters of the forward pass move activations, which indicates tensor parallelism.
    All-to-alls move tokens or samples of experts, tables or sequences. Sends belong to pipeline stages. Other
    all-reduces, reduce-scatters and all-gathers move gradients and parameters, which indicates data
    parallelism.
    """
    world = len(program_of_rank)
    everyone = {0} | {key for key, ranks in groups.items() if len(ranks) == world}
    traffic: dict[int, _Traffic] = {}
    for graph in graphs:
        _add_traffic(traffic, graph, everyone)
    peers = sum(_peer_bytes(graph) for graph in graphs)
    tensor = {key for key, moved in traffic.items() if moved.forward > _TENSOR_SHARE * moved.total}
    exchanging = {key for key, moved in traffic.items() if moved.to_all}
    job = peers + sum(moved.total for moved in traffic.values())
    data = {
        key: moved
        for key, moved in traffic.items()
        if key not in tensor and moved.exchanged > _GRADIENT_SHARE * job
    }
    has_peers = have_messages(graphs)
    growing = _axis(data, groups, world, has_peers=has_peers)
    if 0 not in tensor:
        growing |= everyone
    alone = not traffic and not has_peers
    why_not = ""
    if not alone and world > 1:
        covered = {rank for key in growing & set(data) for rank in _members(key, groups, world)}
        if len(covered) < world:
            why_not = _refusal(tensor, exchanging, groups, covered, world, has_peers=has_peers)
    replicas = frozenset(growing & set(data))
    return Parallelism(frozenset(growing), frozenset(tensor), frozenset(exchanging), why_not, alone, replicas)


def have_messages(graphs: Iterable[Graph]) -> bool:
    """Return whether ranks exchange point-to-point messages in any of *graphs*."""
    return any(np.isin(graph.node_columns["type"], MESSAGES).any() for graph in graphs)


def collective_kinds(graph: Graph, group: int) -> bytes:
    """Return the kinds of the collectives of *graph* in a *group*, in order, for a comparison of ranks."""
    nodes = graph.node_columns
    rows = (nodes["type"] == NodeType.COMM_COLL) & (nodes["group"] == group)
    kinds: bytes = nodes["comm_type"][rows].tobytes()
    return kinds


def _members(key: int, groups: Mapping[int, tuple[int, ...]], world: int) -> tuple[int, ...]:
    return groups[key] if key in groups else tuple(range(world))


def _peer_bytes(graph: Graph) -> int:
    nodes = graph.node_columns
    sends = nodes["type"] == NodeType.COMM_SEND
    return int(np.maximum(nodes["comm_size_bytes"][sends], 1).sum())


def _add_traffic(traffic: dict[int, _Traffic], graph: Graph, everyone: set[int]) -> None:
    """Add the traffic of *graph* to *traffic* by group; all groups of all ranks count as group 0."""
    nodes = graph.node_columns
    rows = np.flatnonzero(nodes["type"] == NodeType.COMM_COLL)
    rows = rows[nodes["comm_type"][rows] != CollectiveType.BARRIER]
    if not len(rows):
        return
    forward = _in_forward(graph, rows)
    for row, is_forward in zip(rows.tolist(), forward.tolist(), strict=True):
        group = int(nodes["group"][row])
        moved = traffic.setdefault(0 if group in everyone else group, _Traffic())
        size, kind = max(1, int(nodes["comm_size_bytes"][row])), int(nodes["comm_type"][row])
        moved.total += size
        moved.forward += size if is_forward and kind in _REDUCTIONS else 0
        moved.gathered += size if kind != CollectiveType.ALL_REDUCE else 0
        moved.exchanged += size if kind in _EXCHANGES else 0
        moved.to_all += size if kind == CollectiveType.ALL_TO_ALL else 0


def _in_forward(graph: Graph, rows: np.ndarray) -> np.ndarray:
    """Return whether each node of *rows* was issued in the forward pass, before the backward pass.

    Nodes after the first backward operator of a step may belong to gradients.
    """
    nodes, edges = graph.node_columns, graph.edge_columns
    ids, phase = nodes["node_id"], nodes["phase"]
    is_forward = phase == "forward"
    is_backward = phase == "backward"
    issues = np.isin(edges["dst"], ids[rows]) & np.isin(edges["src"], ids[is_forward])
    issues &= ~np.isin(edges["kind"], [EdgeKind.STREAM_ORDER, EdgeKind.EVENT_SYNC])
    issued = np.isin(ids[rows], edges["dst"][issues]) & ~is_backward[rows]
    # Unmeasured nodes use their position in the file in place of the time.
    moment = np.where(nodes["measured_start_ns"] >= 0, nodes["measured_start_ns"], np.arange(len(ids)))
    source_moment = dict(
        zip(
            edges["dst"][issues].tolist(),
            moment[np.searchsorted(ids, edges["src"][issues])].tolist(),
            strict=True,
        )
    )
    alike = np.column_stack([nodes[name][rows] for name in ("step", "group", "comm_type", "comm_size_bytes")])
    _, kind, count = np.unique(alike, axis=0, return_inverse=True, return_counts=True)
    early = (
        count[kind.ravel()] > 1
    )  # without a backward pass, equal traffic belongs to layers, and a single result is unclear
    begun = np.array([source_moment.get(node, 0) for node in ids[rows].tolist()], dtype=np.int64)
    for step in np.unique(nodes["step"][rows]).tolist():
        starts = moment[is_backward & (nodes["step"] == step)]
        if len(starts):
            own = nodes["step"][rows] == step
            early[own] = begun[own] < starts.min()
    result: np.ndarray = issued & early
    return result


def _axis(
    data: Mapping[int, _Traffic], groups: Mapping[int, tuple[int, ...]], world: int, *, has_peers: bool
) -> set[int]:
    """Return the *data* groups that grow: one per rank, which replicates the rank's whole state.

    If parameters are sharded in one group and replicated over another group, the replicating group grows.
    """
    proper = [key for key in data if key in groups and len(groups[key]) < world]
    of_rank: dict[int, list[int]] = {}
    for key in proper:
        for rank in groups[key]:
            of_rank.setdefault(rank, []).append(key)
    plain = {key for key in proper if not data[key].gathered}
    hybrid = not has_peers and all(plain & set(keys) for keys in of_rank.values())
    chosen = set()
    for keys in of_rank.values():
        candidates = [key for key in keys if key in plain] if hybrid else keys
        chosen.add(max(candidates, key=lambda key: data[key].total))
    whole = {key for key in proper for other in chosen if set(groups[other]) <= set(groups[key])}
    return chosen | whole | (set(data) & {0})


def _refusal(
    tensor: set[int],
    exchanging: set[int],
    groups: Mapping[int, tuple[int, ...]],
    covered: set[int],
    world: int,
    *,
    has_peers: bool,
) -> str:
    """Return why the communication of more replicas cannot be derived."""
    seen = []
    if tensor:
        seen.append(
            f"{_named(tensor, groups, world)} reduce activations in the forward pass (tensor parallelism)"
        )
    if exchanging - tensor:
        named = _named(exchanging - tensor, groups, world)
        seen.append(f"{named} exchange tokens or samples by all-to-all (expert parallelism)")
    if has_peers:
        seen.append("ranks send to each other (pipeline stages)")
    shown = "; ".join(seen) or "its collectives reduce no gradients"
    which = "" if not covered else f" of rank {min(set(range(world)) - covered)}"
    return (
        f"The {world} ranks of the workload cannot be repeated as data parallelism: {shown}, and no "
        f"group{which} reduces gradients across replicas, so the communication of more replicas is unknown. "
        f"{_INSTEAD}"
    )


def _named(keys: set[int], groups: Mapping[int, tuple[int, ...]], world: int) -> str:
    if 0 in keys:
        return f"all {world} ranks"
    first = min(keys)
    listed = ", ".join(map(str, groups.get(first, ())[:8])) + (
        ", ..." if len(groups.get(first, ())) > 8 else ""
    )
    more = f" and {len(keys) - 1} more groups" if len(keys) > 1 else ""
    return f"the ranks of group {first} ({listed}){more}"
