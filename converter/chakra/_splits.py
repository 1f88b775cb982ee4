"""The bytes of a rank for each member of an uneven collective, an attribute that ASTRA-sim ignores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ._graph import Graph

__all__ = ["SPLITS", "varint", "with_splits"]

SPLITS = "comm_splits"
# Field numbers of the schema: an attribute of a node, its name, its list of unsigned integers, and the list's
# values.
_ATTRIBUTE, _NAME, _LIST, _VALUES = 10, 1, 14, 1


def with_splits(graph: Graph, splits: Mapping[int, Sequence[int]]) -> Graph:
    """Return *graph* with the bytes of nodes, by id, for each member of their groups, in order."""
    extra = dict(graph.extra)
    for node, sizes in splits.items():
        extra[node] = extra.get(node, b"") + _attribute(sizes)
    return Graph(graph.rank, graph.node_columns, graph.edge_columns, extra)


def _attribute(sizes: Sequence[int]) -> bytes:
    """Return the field of an encoded node with the attribute."""
    values = _field(_VALUES, b"".join(map(varint, sizes)))
    return _field(_ATTRIBUTE, _field(_NAME, SPLITS.encode()) + _field(_LIST, values))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Return a non-negative *value* as a varint."""
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)
