"""Messages of a program as Chakra graphs: sends, receives and computation, one graph per rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...converter import EdgeKind, Graph, NodeType, Workload
from ._lower import Lowered, Message

__all__ = ["graph_of_messages", "graphs_of", "workload_of"]

_TYPES = {"send": NodeType.COMM_SEND, "receive": NodeType.COMM_RECV, "local": NodeType.COMP}


def graphs_of(lowered: Lowered, memory_bytes_per_ns: float = 0.0) -> list[Graph]:
    """Return the graph of each rank; local work runs at the given speed, and takes no time if that is 0."""
    return [graph_of_messages(lowered, rank, memory_bytes_per_ns) for rank in range(len(lowered.ranks))]


def workload_of(lowered: Lowered, memory_bytes_per_ns: float = 0.0) -> Workload:
    """Return the program as a workload of messages."""
    graphs = graphs_of(lowered, memory_bytes_per_ns)
    program = lowered.program
    metadata = {
        "source": f"collective program {program.name}",
        "collective": program.collective,
        "size_bytes": lowered.size_bytes,
    }
    return Workload(tuple(graphs), np.arange(len(graphs), dtype=np.int32), {}, metadata)


def graph_of_messages(lowered: Lowered, rank: int, speed: float) -> Graph:
    """Return the graph of one rank of the program; local work runs at *speed* bytes per ns."""
    nodes = lowered.ranks[rank]
    rows = [_row(rank, number, node, speed) for number, node in enumerate(nodes)]
    edges = [
        (before, number, int(EdgeKind.DATA)) for number, node in enumerate(nodes) for before in node.after
    ]
    return Graph.build(rank, rows, edges)


def _row(rank: int, number: int, node: Message, speed: float) -> dict[str, Any]:
    place = f"thread block {node.place[0]}, op {node.place[1]}"
    # Each in a lane of its own: all may be in flight at once.
    row: dict[str, Any] = {"node_id": number, "type": _TYPES[node.kind], "stream": number}
    if node.kind == "local":
        # As the engine counts its own reductions: each pass in whole ns.
        once = int(node.size_bytes / speed) if speed else 0
        return row | {"name": f"local work ({place})", "duration_ns": node.passes * once}
    row |= {"comm_size_bytes": node.size_bytes, "comm_tag": node.tag, "kind": "communication"}
    if node.kind == "send":
        return row | {"name": f"send to {node.peer} ({place})", "comm_src": rank, "comm_dst": node.peer}
    return row | {"name": f"receive from {node.peer} ({place})", "comm_src": node.peer, "comm_dst": rank}
