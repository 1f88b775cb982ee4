"""Write Chakra ``.et`` files, from columns; reading goes through the schema, which tests compare."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .._columns import positions
from .._native import Encoder
from ._graph import FILE_METADATA, EdgeKind, Graph, TextColumn, byte_table
from ._order import dependencies

__all__ = [
    "ATTRIBUTES",
    "PREAMBLE",
    "TEXT_ATTRIBUTES",
    "UNSET_IS_MINUS_ONE",
    "encode_graph",
    "encoded_pieces",
    "framed",
]

_FORMAT_VERSION = "0.0.4"
# Field numbers of the schema.
_VALUE_FIELDS = {"int32_val": 7, "int64_val": 9, "uint64_val": 13}

# attribute -> (column, value field we write). ASTRA-sim reads the first ones and ignores the last four.
ATTRIBUTES = {
    "comm_type": ("comm_type", "int64_val"),
    "comm_size": ("comm_size_bytes", "int64_val"),
    "comm_src": ("comm_src", "int32_val"),
    "comm_dst": ("comm_dst", "int32_val"),
    "comm_tag": ("comm_tag", "int32_val"),
    "num_ops": ("num_ops", "int64_val"),
    "tensor_size": ("tensor_size_bytes", "uint64_val"),
    "duration_ns": ("duration_ns", "uint64_val"),
    "stream": ("stream", "int64_val"),
    "step": ("step", "int64_val"),
    "measured_start_ns": ("measured_start_ns", "int64_val"),
}
TEXT_ATTRIBUTES = ("kind", "operator", "module", "phase")
UNSET_IS_MINUS_ONE = frozenset(
    {
        "comm_type",
        "comm_size",
        "comm_src",
        "comm_dst",
        "comm_tag",
        "num_ops",
        "tensor_size",
        "step",
        "measured_start_ns",
    }
)


def encode_graph(graph: Graph) -> bytes:
    """Return *graph* as the bytes of an ``.et`` file that ASTRA-sim reads, those of `encoded_pieces`."""
    return b"".join(encoded_pieces(graph))


def encoded_pieces(graph: Graph) -> Iterator[bytes]:
    """Yield the bytes of an ``.et`` file of *graph*, about a megabyte at a time.

    ``duration_micros`` is the nanosecond duration rounded with carry along each lane, so that sums agree to
    half a microsecond; the exact value is in the attribute ``duration_ns``.
    """
    nodes, edges = graph.node_columns, graph.edge_columns
    ids = _integers(nodes["node_id"])
    is_data = edges["kind"] == EdgeKind.DATA
    group_ids, places = np.unique(nodes["group"], return_inverse=True)
    groups = TextColumn(places.ravel(), [str(number) if number else "" for number in group_ids.tolist()])
    encoder = Encoder(
        graph.extra.get(FILE_METADATA, PREAMBLE),
        ids,
        _integers(nodes["type"]),
        _integers(nodes["duration_ns"]),
        _integers(nodes["stream"]),
        ("name", *nodes["name"].encoded()),
        _dependencies(ids, edges["src"][~is_data], edges["dst"][~is_data]),
        _dependencies(ids, edges["src"][is_data], edges["dst"][is_data]),
        nodes["is_cpu_op"].view(np.uint8),
        [
            (name, _VALUE_FIELDS[kind], _integers(nodes[column]), name in UNSET_IS_MINUS_ONE)
            for name, (column, kind) in ATTRIBUTES.items()
        ],
        [
            ("pg_name", *groups.encoded()),
            *((name, *nodes[name].encoded()) for name in TEXT_ATTRIBUTES),
        ],
        byte_table([graph.extra.get(number, b"") for number in ids.tolist()] if graph.extra else []),
    )
    while piece := encoder.next():
        yield piece


def _integers(column: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(column, dtype=np.int64)


def _dependencies(ids: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids each node waits for, by node; those of nodes that do not exist are left out."""
    place = positions(ids, targets)
    known = place >= 0
    return dependencies(_integers(sources)[known], place[known], len(ids))


def framed(body: bytes) -> bytes:
    """Return *body*, an encoded message, behind its varint length."""
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    """Return *value*, not negative, in groups of seven bits."""
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


# The metadata of a file of ours, an encoded message.
PREAMBLE = b"\x0a" + framed(_FORMAT_VERSION.encode())
