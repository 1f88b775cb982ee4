"""Fields of foreign files without a column of ours, stored in encoded form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, ValuesView

import numpy as np

from ...support.table import byte_table
from .._columns import positions

__all__ = ["Extra"]


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
