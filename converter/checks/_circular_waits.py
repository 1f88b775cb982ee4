"""Find deadlocks: ranks that wait for each other through messages and collectives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._native import order_by_dependency
from ..chakra import (
    MESSAGES,
    EdgeKind,
    Graph,
    NodeType,
    Workload,
    dependencies,
    shortest_cycle,
    unreachable,
)

# A larger workload was scaled out from one that can be checked.
_MOST_NODES = 5_000_000
# The codes of the reasons that are not an `EdgeKind`.
_MESSAGE = -1


def circular_wait(workload: Workload) -> str | None:
    """Describe a shortest deadlock between ranks of *workload*, None if there is none.

    A receive waits for its send, a collective for the dependencies of all its members. Each program must be
    valid on its own: no cycle within a rank, no message or collective without its counterpart. Workloads of
    more than five million nodes are not checked.
    """
    counts = [graph.num_nodes for graph in workload.graphs]
    if sum(counts[program] for program in workload.program_of_rank.tolist()) > _MOST_NODES:
        return None
    nodes = _Nodes.of(workload)
    src, dst, kind = nodes.waits()
    stuck = unreachable(len(nodes), src, dst)
    among = stuck[src] & stuck[dst]
    if not among.any():
        return None
    waits = list(zip(src[among].tolist(), dst[among].tolist(), strict=True))
    circle = shortest_cycle(*zip(*waits, strict=True))
    reasons = dict(zip(waits, kind[among].tolist(), strict=True))
    steps = [nodes.describe(circle[place - 1], node, reasons) for place, node in enumerate(circle)]
    return f"Ranks wait for each other in a deadlock: {'; '.join(steps)}."


@dataclass(frozen=True)
class _Nodes:
    """The nodes of all ranks, one rank after the other; the first of rank *r* is ``first[r]``.

    *turn* is a possible execution order of the nodes of a rank.
    """

    workload: Workload
    first: np.ndarray
    rank: np.ndarray
    turn: np.ndarray
    columns: dict[str, np.ndarray]

    @classmethod
    def of(cls, workload: Workload) -> _Nodes:
        turns = [_turns(graph) for graph in workload.graphs]
        programs = workload.program_of_rank.tolist()
        sizes = [len(turns[program]) for program in programs]
        columns = {
            name: np.concatenate([workload.graphs[program].node_columns[name] for program in programs])
            for name in ("type", "group", "comm_src", "comm_dst", "comm_tag")
        }
        return cls(
            workload,
            first=np.cumsum([0, *sizes[:-1]]),
            rank=np.repeat(np.arange(len(programs)), sizes),
            turn=np.concatenate([turns[program] for program in programs]),
            columns=columns,
        )

    def __len__(self) -> int:
        return len(self.rank)

    def waits(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the waits and their reasons; the first node of a collective represents all of its nodes."""
        parts = [self._messages()]
        for first, program in zip(self.first.tolist(), self.workload.program_of_rank.tolist(), strict=True):
            src, dst = _ends(self.workload.graphs[program])
            kind = self.workload.graphs[program].edge_columns["kind"].astype(np.int64)
            parts.append((first + src, first + dst, kind))
        src, dst, kind = (np.concatenate(part) for part in zip(*parts, strict=True))
        leader = self._leaders()
        return leader[src], leader[dst], kind

    def _messages(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the matching sends and receives: the k-th of the same ends and tag match."""
        columns = self.columns
        sends, receives = (np.flatnonzero(columns["type"] == kind) for kind in MESSAGES)
        by = [
            (nodes, (self.turn[nodes], columns["comm_tag"][nodes], target, source))
            for nodes, target, source in (
                (sends, columns["comm_dst"][sends], self.rank[sends]),
                (receives, self.rank[receives], columns["comm_src"][receives]),
            )
        ]
        met = [nodes[np.lexsort(keys)] for nodes, keys in by]
        return met[0], met[1], np.full(len(sends), _MESSAGE)

    def _leaders(self) -> np.ndarray:
        """Return for each node itself, or the first node of its collective."""
        leader = np.arange(len(self))
        members = np.flatnonzero(self.columns["type"] == NodeType.COMM_COLL)
        group = self.columns["group"]
        members = members[np.lexsort((self.turn[members], group[members], self.rank[members]))]
        same = np.column_stack([self.rank[members], group[members]])
        begins = np.flatnonzero(np.any(np.diff(same, axis=0, prepend=-1) != 0, axis=1))
        number = np.arange(len(members)) - np.repeat(begins, np.diff([*begins, len(members)]))
        _, first, of = np.unique(
            np.column_stack([group[members], number]), axis=0, return_index=True, return_inverse=True
        )
        leader[members] = members[first][of.ravel()]
        return leader

    def describe(self, before: int, node: int, reasons: dict[tuple[int, int], int]) -> str:
        """Return a phrase: *node* waits for *before*, with the reason."""
        kind = reasons[before, node]
        reason = "message" if kind == _MESSAGE else EdgeKind(kind).name.lower().replace("_", " ")
        return f"{self._name(node)} waits for {self._name(before)} ({reason})"

    def _name(self, node: int) -> str:
        rank = int(self.rank[node])
        graph = self.workload.graphs[int(self.workload.program_of_rank[rank])]
        about = graph.nodes.iloc[node - int(self.first[rank])]
        return f"rank {rank}'s node {about['node_id']} '{about['name']}'"


def _count(graph: Graph) -> int:
    return len(graph.node_columns["node_id"])


def _ends(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the nodes at the ends of the graph's edges."""
    ids = graph.node_columns["node_id"]
    src, dst = (np.searchsorted(ids, graph.edge_columns[end]) for end in ("src", "dst"))
    return src, dst


def _turns(graph: Graph) -> np.ndarray:
    """Return the position of each node in a possible execution order."""
    src, dst = _ends(graph)
    count = _count(graph)
    turns = np.empty(count, dtype=np.int64)
    turns[order_by_dependency(np.arange(count), *dependencies(src, dst, count))] = np.arange(count)
    return turns
