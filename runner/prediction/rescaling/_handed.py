"""What a layer hands on to the next one, where no captured message shows it."""

from __future__ import annotations

from ....converter.chakra import EdgeKind, Graph, NodeType
from ....errors import WorkloadError
from ._layout import NO_GROUP
from ._recut import Piece
from ._turns import BEFORE, FORWARD, Key, Stage

__all__ = ["handed_bytes", "message"]

_ADDITIONS = ("aten::add", "aten::add_")
_TENSORS = 3  # that an addition reads and writes
_SIZES = (2, 4, 8)  # bytes of an element
_FIRST_STREAM = 500


def handed_bytes(stage: Stage) -> int:
    """Return the bytes of what each layer hands on: the sum at its end.

    Raises `WorkloadError` if there is none.
    """
    nodes = stage.graph.node_columns
    found = set()
    for layer in range(stage.depth):
        begin, end = stage.blocks[FORWARD, 0, layer]
        last = next((row for row in reversed(range(begin, end)) if nodes["num_ops"][row] > 1), begin)
        elements, moved = int(nodes["num_ops"][last]), int(nodes["tensor_size_bytes"][last])
        is_sum = nodes["operator"].texts[nodes["operator"].numbers[last]] in _ADDITIONS
        known = is_sum and any(moved == _TENSORS * size * elements for size in _SIZES)
        found.add(moved // _TENSORS if known else 0)
    if len(found) != 1 or 0 in found:
        raise WorkloadError(
            "What a layer hands on to the next one is not in a capture without stages, unless it ends with a "
            "sum of two tensors (a residual). Say its size for a micro-batch: --activation 16MiB."
        )
    return found.pop()


def message(key: Key, size_bytes: int) -> Piece:
    """Return the piece that receives at the start of a pass, or sends at its end."""
    receives = key[2] == BEFORE
    kind = NodeType.COMM_RECV if receives else NodeType.COMM_SEND
    operator = "c10d::recv_" if receives else "c10d::send"
    call = {
        "type": NodeType.COMP,
        "operator": operator,
        "phase": "forward",
        "kind": "host",
        "cause": "communication_call",
        "tensor_size_bytes": size_bytes,
    }
    sent = {
        "type": kind, "operator": operator, "phase": "communication", "kind": "communication",
        "comm_size_bytes": size_bytes, "comm_tag": 0, "group": NO_GROUP, "stream": _FIRST_STREAM,
    }  # fmt: skip
    nodes = [{"node_id": 0, "name": operator, **call}, {"node_id": 1, "name": operator, **sent}]
    graph = Graph.build(0, nodes, [(0, 1, EdgeKind.COMM_ISSUE)])
    return Piece(Stage.of_message(graph, key), key)
