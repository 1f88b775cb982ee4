"""Chakra ``.et`` files: length-prefixed messages, one ``GlobalMetadata``, then the nodes in any order."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from ...errors import WorkloadError, WorkloadFormatError
from .._files import UnpacksTooFar, unpacked
from .._native import ChakraRefusal, read_attributes, read_chakra
from ._encode import encode_graph
from ._extra import Extra
from ._graph import Column, Graph, TextColumn
from ._kinds import with_current_kinds

__all__ = ["decode_graph", "encode_graph", "has_unknown_type", "other_attributes", "read_et"]

_TYPE_FIELD = b"\x18"  # prefix of the extra fields of a node with a type that is not in `NodeType`


def read_et(path: str | Path) -> bytes:
    """Return the content of the ``.et`` file at *path*, decompressed if it is gzip, as ASTRA-sim reads it.

    Raises `WorkloadError` if it cannot be read, and `WorkloadFormatError` if it is truncated or unpacks to
    more than any graph has.
    """
    try:
        return unpacked(Path(path))
    except UnpacksTooFar as error:
        raise WorkloadFormatError(f"{path} {error}") from error
    except (EOFError, zlib.error) as error:
        raise WorkloadFormatError(f"{path} is truncated or damaged ({error}). Write it again.") from error
    except OSError as error:
        raise WorkloadError(
            f"{path} cannot be read: {error.strerror}. Check the file and its permissions."
        ) from error


def decode_graph(data: bytes, *, rank: int = 0, source: str = "<bytes>") -> Graph:
    """Read the bytes of an ``.et`` file.

    Raises `WorkloadFormatError` naming *source*, the byte and the node for an invalid file.
    """
    try:
        numbers, texts, edges, (ids, ends, content) = read_chakra(data)
    except ChakraRefusal as error:
        raise WorkloadFormatError(f"{source}{error}") from None
    nodes: dict[str, Column] = {**numbers}
    nodes.update((name, TextColumn(*column)) for name, column in texts.items())
    with_current_kinds(nodes)
    return Graph.of_columns(rank, nodes, edges.reshape(-1, 3), extra=Extra(ids, ends, content))


def other_attributes(graph: Graph, node_id: int) -> dict[str, Any]:
    """Return the attributes of a node that have no column, by name, from the file of *graph*."""
    return read_attributes(graph.extra.get(node_id, b""))


def has_unknown_type(graph: Graph, node_id: int) -> bool:
    """Return whether the file of *graph* gives a node an unsupported type."""
    return graph.extra.get(node_id, b"").startswith(_TYPE_FIELD)
