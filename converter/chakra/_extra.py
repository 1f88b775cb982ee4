"""Fields of files without a column of ours, stored in encoded form: foreign ones, and splits.

Splits are the bytes of a rank for each member of an uneven collective, an attribute that ASTRA-sim ignores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, ValuesView

import numpy as np

from ...support.table import byte_table
from .._columns import positions
from ._graph import Graph

SPLITS = "comm_splits"
# Field numbers of the schema: an attribute of a node, its name, its list of unsigned integers, and the list's
# values.
_ATTRIBUTE, _NAME, _LIST, _VALUES = 10, 1, 14, 1


class Extra(Mapping[int, bytes]):
    """A mapping of numbers to bytes, as `Graph.extra` is, without a Python object per entry.

    Entry i, of *ids* ascending, ends at ``ends[i]`` of *content*.
    """

    def __init__(self, ids: np.ndarray, ends: np.ndarray, content: np.ndarray) -> None:
        self._ids, self._ends, self._content = ids, ends, content

    @classmethod
    def of(cls, entries: Mapping[int, bytes]) -> Extra:
        """Return *entries* as such a mapping."""
        if isinstance(entries, cls):
            return entries
        ids = np.array(sorted(entries), dtype=np.int64)
        content, ends = byte_table([entries[number] for number in ids.tolist()])
        return cls(ids, ends, content)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids.tolist())

    def __getitem__(self, number: int) -> bytes:
        (at,) = positions(self._ids, np.array([number])).tolist()
        if at < 0:
            raise KeyError(number)
        return self._content[self._ends[at - 1] if at else 0 : self._ends[at]].tobytes()

    def values(self) -> ValuesView[bytes]:
        """Return the concatenated entries."""
        return _Values(self, self._ends, self._content)

    def spans(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the content, and the start and end of the entry of each of *ids*; a missing one is empty."""
        at = positions(self._ids, ids)
        ends = np.concatenate([self._ends, [0]])  # -1, a missing id, selects the last one
        begins = np.concatenate([[0], self._ends])
        begins[-1] = 0
        return self._content, begins[at], ends[at]


class _Values(ValuesView[bytes]):
    """The values, without lookups."""

    def __init__(self, extra: Extra, ends: np.ndarray, content: np.ndarray) -> None:
        super().__init__(extra)
        self._ends, self._content = ends, content

    def __iter__(self) -> Iterator[bytes]:
        begin = 0
        for end in self._ends.tolist():
            yield self._content[begin:end].tobytes()
            begin = end


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
