"""Find nodes that can never start: cycles of dependencies within a rank, and deadlocks between ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .._native import order_by_dependency
from ._codec import dependencies
from ._graph import MESSAGES, EdgeKind, Graph, NodeType

_SEARCHED_FROM = 200
# The code for a wait for a message, which has no `EdgeKind`.
_MESSAGE = -1


def unreachable(count: int, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Return a mask of the *count* nodes that can never start: they are on cycles, or depend on cycles.

    *src* and *dst* are the ends of edges as node indices.
    """
    stuck = np.ones(count, dtype=bool)
    stuck[order_by_dependency(np.zeros(count, np.int64), *dependencies(src, dst, count))] = False
    return stuck


def shortest_cycle(src: Sequence[int], dst: Sequence[int]) -> list[int]:
    """Return the nodes of a shortest cycle in order of dependency, or [] if there is no cycle.

    Every cycle has an edge to a node with the same or a lower number. The search starts from the targets of
    these edges. If there are more than 200 targets, the search starts from the first 200 only, so the cycle
    may not be the shortest.
    """
    successors: dict[int, list[int]] = {}
    for source, target in zip(src, dst, strict=True):
        successors.setdefault(source, []).append(target)
    best: list[int] = []
    starts = {target for source, target in zip(src, dst, strict=True) if source >= target}
    for start in sorted(starts)[:_SEARCHED_FROM]:
        found = _back_to(start, successors, len(best) or len(successors) + 1)
        if found:
            best = found
    return best


def _back_to(start: int, successors: dict[int, list[int]], below: int) -> list[int]:
    """Return a shortest cycle through *start* with fewer than *below* nodes, or [] without one."""
    came_from: dict[int, int] = {}
    queue = deque([(start, 1)])
    while queue:
        node, length = queue.popleft()
        if length >= below:
            return []
        for target in successors.get(node, ()):
            if target == start:
                path = [node]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if target not in came_from:
                came_from[target] = node
                queue.append((target, length + 1))
    return []


def deadlocks(graphs: Mapping[int, Graph]) -> bool:
    """Return whether ranks deadlock with each other; *graphs* are as for `circular_wait`."""
    return len(_Nodes.of(graphs).circular_waits()[0]) > 0


def circular_wait(graphs: Mapping[int, Graph]) -> str | None:
    """Describe a shortest deadlock between the ranks of *graphs*; return None if there is no deadlock.

    A receive waits for its send. A collective waits for the dependencies of all its members. Each graph must
    be valid: without a cycle within a rank, and without a message or collective that lacks its counterpart.
    """
    nodes = _Nodes.of(graphs)
    src, dst, kind = nodes.circular_waits()
    if not len(src):
        return None
    circle = shortest_cycle(src.tolist(), dst.tolist())
    reasons = dict(zip(zip(src.tolist(), dst.tolist(), strict=True), kind.tolist(), strict=True))
    steps = [nodes.describe(circle[place - 1], node, reasons) for place, node in enumerate(circle)]
    return f"Ranks wait for each other in a deadlock: {'; '.join(steps)}."


@dataclass(frozen=True)
class _Nodes:
    """The concatenated nodes of all ranks; ``first[r]`` is the first node of the rank *r* of *graphs*.

    *turn* is the position of each node in a possible execution order of its rank.
    """

    graphs: Mapping[int, Graph]
    first: Mapping[int, int]
    rank: np.ndarray
    turn: np.ndarray
    columns: dict[str, np.ndarray]

    @classmethod
    def of(cls, graphs: Mapping[int, Graph]) -> _Nodes:
        programs = {id(graph): graph for graph in graphs.values()}
        turns = {program: _turns(graph) for program, graph in programs.items()}
        sizes = [graph.num_nodes for graph in graphs.values()]
        columns = {
            name: np.concatenate([graph.node_columns[name] for graph in graphs.values()])
            for name in ("type", "group", "comm_src", "comm_dst", "comm_tag")
        }
        return cls(
            graphs,
            first=dict(zip(graphs, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True)),
            rank=np.repeat([*graphs], sizes),
            turn=np.concatenate([turns[id(graph)] for graph in graphs.values()]),
            columns=columns,
        )

    def circular_waits(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the waits among nodes that can never start: source, target and kind of each wait."""
        src, dst, kind = self._waits()
        stuck = unreachable(len(self.rank), src, dst)
        among = stuck[src] & stuck[dst]
        return src[among], dst[among], kind[among]

    def _waits(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the waits and reasons; the first node of a collective represents all its nodes."""
        parts = [self._messages()]
        for rank, graph in self.graphs.items():
            src, dst = _ends(graph)
            kind = graph.edge_columns["kind"].astype(np.int64)
            parts.append((self.first[rank] + src, self.first[rank] + dst, kind))
        src, dst, kind = (np.concatenate(part) for part in zip(*parts, strict=True))
        leader = self._leaders()
        return leader[src], leader[dst], kind

    def _messages(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return matching sends and receives: the k-th send and receive of equal ranks and tag match."""
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
        """Return the first node of each node's collective, or the node itself without a collective."""
        leader = np.arange(len(self.rank))
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
        """Return a phrase that states that *node* waits for *before*, and the reason."""
        kind = reasons[before, node]
        reason = "message" if kind == _MESSAGE else EdgeKind(kind).name.lower().replace("_", " ")
        return f"{self._name(node)} waits for {self._name(before)} ({reason})"

    def _name(self, node: int) -> str:
        rank = int(self.rank[node])
        about = self.graphs[rank].nodes.iloc[node - self.first[rank]]
        return f"rank {rank}'s node {about['node_id']} '{about['name']}'"


def _ends(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the nodes at the ends of the graph's edges."""
    ids = graph.node_columns["node_id"]
    src, dst = (np.searchsorted(ids, graph.edge_columns[end]) for end in ("src", "dst"))
    return src, dst


def _turns(graph: Graph) -> np.ndarray:
    """Return the position of each node in a possible execution order."""
    src, dst = _ends(graph)
    count = graph.num_nodes
    turns = np.empty(count, dtype=np.int64)
    turns[order_by_dependency(np.arange(count), *dependencies(src, dst, count))] = np.arange(count)
    return turns
