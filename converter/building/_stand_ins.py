"""Replace a rank without usable traces by one of the same data-parallel group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...errors import TraceError
from ..chakra import Graph, NodeType, recognise
from ._rank_graph import RankGraph

__all__ = ["replicas_text", "with_stand_ins"]

_PEERS = {NodeType.COMM_SEND: "comm_dst", NodeType.COMM_RECV: "comm_src"}
_Groups = Mapping[int, tuple[int, ...]]


class _Refused(Exception):
    """Why no rank can stand in for another, as the end of a sentence."""


def with_stand_ins(
    ranks: Sequence[RankGraph], groups: _Groups, world_size: int, why_missing: str
) -> tuple[list[RankGraph], dict[int, tuple[int, ...]], dict[int, int]]:
    """Return all ranks, all groups, and the replacement of each rank without a graph.

    A replica of the same model does the same with another part of the batch: a data-parallel group is one of
    the *groups*, or all ranks, in which gradients or parameters are exchanged. Raises `TraceError`, which
    says *why_missing*, for a rank without a replica, or whose replicas do different things.
    """
    found = recognise([one.graph for one in ranks], np.zeros(world_size, dtype=np.int32), groups)
    everyone = tuple(range(world_size))
    replicas = sorted((groups.get(key, everyone) for key in found.replicas), key=len)
    survivors = {one.rank: one for one in ranks}
    known = {0: everyone, **groups}
    made: dict[int, RankGraph] = {}
    stand_ins: dict[int, int] = {}
    for rank in sorted(set(everyone) - set(survivors)):
        try:
            stand_ins[rank], made[rank] = _stand_in(rank, survivors, replicas, known)
        except _Refused as refusal:  # noqa: PERF203 - names the rank
            raise TraceError(
                f"{why_missing}. No other rank can stand in for rank {rank}: {refusal}. Capture again, and "
                "let every rank get through the captured steps; if another `chakrascope trace` captured it, "
                "merge both with `chakrascope trace --collect`."
            ) from None
    complete = {**survivors, **made}
    del known[0]
    return [complete[rank] for rank in everyone], known, stand_ins


def replicas_text(stand_ins: Mapping[int, int]) -> str:
    """Return the assumption about the *stand_ins*."""
    if len(stand_ins) == 1:
        ((rank, other),) = stand_ins.items()
        return (
            f"there is no usable trace of rank {rank}: rank {other}, of the same data-parallel group, stands "
            "in for it, as if both took the same times"
        )
    return (
        f"there are no usable traces of ranks {_named([*stand_ins])}: ranks {_named([*stand_ins.values()])}, "
        "of the same data-parallel groups, stand in for them, as if both took the same times"
    )


def _stand_in(
    rank: int,
    survivors: Mapping[int, RankGraph],
    replicas: Sequence[tuple[int, ...]],
    known: dict[int, tuple[int, ...]],
) -> tuple[int, RankGraph]:
    """Return the first replica of *rank* that has a graph, and that graph as that of *rank*."""
    own = next((ranks for ranks in replicas if rank in ranks), None)
    if own is None:
        raise _Refused("none that left traces exchanges gradients with it, so none is known to do the same")
    alike = [other for other in own if other in survivors]
    first = survivors[alike[0]]
    if any(len(set(sizes)) > 1 for other in alike for sizes in survivors[other].splits.values()):
        raise _Refused("what its data-parallel group exchanges is uneven, so its own part is not known")
    if len({_traffic(survivors[other].graph) for other in alike}) > 1:
        raise _Refused(f"the ranks of its data-parallel group ({_named(own)}) communicate differently")
    graph = _as_rank(first.graph, rank, _Moved(first.rank, rank, own, replicas), known)
    _check_partners(graph, {other: one.graph for other, one in survivors.items()}, known)
    return first.rank, replace(first, graph=graph)


class _Moved:
    """Where the ranks around *source* are around *target*, its replica in the group *own*."""

    def __init__(
        self, source: int, target: int, own: tuple[int, ...], replicas: Sequence[tuple[int, ...]]
    ) -> None:
        self._target = target
        self._own = own
        self._replicas = replicas
        self._from, self._to = own.index(source), own.index(target)

    def rank(self, member: int) -> int:
        """Return the rank that corresponds to *member* for the target."""
        group = next((ranks for ranks in self._replicas if member in ranks), ())
        if len(group) != len(self._own) or group.index(member) != self._from:
            raise _Refused(f"what rank {member} is to its replica, no rank is known to be to it")
        return group[self._to]

    def group(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Return the target's group that corresponds to the source's group of *ranks*."""
        return ranks if self._target in ranks else tuple(self.rank(member) for member in ranks)


def _as_rank(graph: Graph, rank: int, moved: _Moved, known: dict[int, tuple[int, ...]]) -> Graph:
    """Return *graph* as that of *rank*, with its own groups, added to those *known*, and partners."""
    nodes = graph.node_columns
    numbers = {ranks: number for number, ranks in reversed([*known.items()])}
    group = nodes["group"].copy()
    communications = np.isin(nodes["type"], [NodeType.COMM_COLL, *_PEERS])
    for number in np.unique(nodes["group"][communications]).tolist():
        ranks = moved.group(known[number])
        if ranks not in numbers:
            numbers[ranks] = max(known) + 1
            known[numbers[ranks]] = ranks
        group[communications & (nodes["group"] == number)] = numbers[ranks]
    columns = {"group": group}
    for kind, column in _PEERS.items():
        partners = nodes[column].copy()
        rows = np.flatnonzero((nodes["type"] == kind) & (partners >= 0))
        partners[rows] = [moved.rank(partner) for partner in partners[rows].tolist()]
        columns[column] = partners
    peers = np.isin(nodes["type"], list(_PEERS))
    for own, other in (("comm_src", NodeType.COMM_SEND), ("comm_dst", NodeType.COMM_RECV)):
        columns[own] = np.where(peers & (nodes["type"] == other) & (columns[own] >= 0), rank, columns[own])
    return graph.as_rank(rank).with_columns(**columns)


def _check_partners(graph: Graph, survivors: Mapping[int, Graph], known: _Groups) -> None:
    """Refuse a *graph* whose collectives and messages are not those that the survivors have with its rank."""
    for number, ranks in known.items():
        if graph.rank not in ranks:
            continue
        for other in (survivors[rank] for rank in ranks if rank in survivors):
            if _kinds(graph, number) != _kinds(other, number):
                raise _Refused(f"rank {other.rank} communicates with it otherwise than with its replica")
    for other in survivors.values():
        for kind, back in (
            (NodeType.COMM_SEND, NodeType.COMM_RECV),
            (NodeType.COMM_RECV, NodeType.COMM_SEND),
        ):
            if _messages(graph, kind, other.rank) != _messages(other, back, graph.rank):
                raise _Refused(f"rank {other.rank} exchanges other messages with it than with its replica")


def _traffic(graph: Graph) -> bytes:
    """Return what *graph* communicates, in order, but with whom."""
    nodes = graph.node_columns
    rows = np.isin(nodes["type"], [NodeType.COMM_COLL, *_PEERS])
    return b"".join(nodes[name][rows].tobytes() for name in ("type", "comm_type", "comm_size_bytes"))


def _kinds(graph: Graph, group: int) -> bytes:
    nodes = graph.node_columns
    rows = (nodes["type"] == NodeType.COMM_COLL) & (nodes["group"] == group)
    kinds: bytes = nodes["comm_type"][rows].tobytes()
    return kinds


def _messages(graph: Graph, kind: NodeType, partner: int) -> int:
    nodes = graph.node_columns
    return int(((nodes["type"] == kind) & (nodes[_PEERS[kind]] == partner)).sum())


def _named(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
