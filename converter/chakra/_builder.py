"""Build a graph node by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._graph import CollectiveType, EdgeKind, Graph, NodeType

__all__ = ["GraphBuilder", "communication"]


class GraphBuilder:
    """A graph in the making: nodes are numbered from 0 in the order in which they are added."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[tuple[int, int, int]] = []

    def add(self, columns: Mapping[str, Any], waits: Mapping[int, EdgeKind] | None = None) -> int:
        """Append a node with some columns of `NODE_COLUMNS`; return its id.

        *waits* are the nodes that it depends on, each with the reason.
        """
        number = len(self.nodes)
        self.nodes.append({**columns, "node_id": number})
        self.edges += [(source, number, int(kind)) for source, kind in (waits or {}).items()]
        return number

    def graph(self, rank: int) -> Graph:
        """Return the graph of *rank*."""
        return Graph.build(rank, self.nodes, self.edges)


def communication(
    node_type: NodeType,
    collective: CollectiveType | None,
    size_bytes: int,
    *,
    group: int = 0,
    peer: int = -1,
    tag: int = -1,
) -> dict[str, Any]:
    """Return the columns of a communication: what it is, its size, and with whom.

    *size_bytes* follows ASTRA-sim's conventions. *peer* and *tag* are those of a message, whose *collective*
    is None.
    """
    columns: dict[str, Any] = {
        "type": node_type,
        "comm_size_bytes": size_bytes,
        "group": group,
        "kind": "communication",
        "phase": "communication",
    }
    if collective is not None:
        return columns | {"name": collective.name.lower(), "comm_type": int(collective)}
    if node_type is NodeType.COMM_SEND:
        return columns | {"name": "send", "comm_dst": peer, "comm_tag": tag}
    return columns | {"name": "recv", "comm_src": peer, "comm_tag": tag}
