"""Columnar tables: one array per field, without a Python object per row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

_C = TypeVar("_C", bound="Columns")


class Columns(msgspec.Struct, frozen=True, eq=False):
    """The base class of tables with arrays of equal length as fields."""

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[0]))

    @classmethod
    def none(cls: type[_C]) -> _C:
        """Return a table without rows."""
        return cls(*(np.empty(0, dtype=np.int64) for _ in cls.__struct_fields__))

    def take(self: _C, rows: np.ndarray) -> _C:
        """Return a table of the given *rows*, which are indices or a mask."""
        return type(self)(*(getattr(self, name)[rows] for name in self.__struct_fields__))

    def joined(self: _C, *others: _C) -> _C:
        """Return a table with this table's rows, followed by the rows of *others*."""
        tables = (self, *others)
        columns = ([getattr(table, name) for table in tables] for name in self.__struct_fields__)
        return type(self)(*map(np.concatenate, columns))

    def row(self, index: int) -> dict[str, Any]:
        """Return the values of row *index* by name."""
        return {name: getattr(self, name)[index].item() for name in self.__struct_fields__}


def which(texts: Sequence[str], holds: Callable[[str], bool]) -> np.ndarray:
    """Return a mask of the *texts* for which *holds* is true, to be indexed with a column of numbers."""
    return np.fromiter(map(holds, texts), dtype=bool, count=len(texts))


def groups_of(keys: np.ndarray) -> dict[int, np.ndarray]:
    """Return the rows of each distinct key of *keys*, in ascending order of keys."""
    order = np.argsort(keys, kind="stable")
    found, first = np.unique(keys[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, first[1:]), strict=True)) if len(keys) else {}


def spans(first: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return the concatenated ranges that start at each *first* and have *count* consecutive numbers."""
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    places: np.ndarray = np.arange(total) + np.repeat(first - (ends - count), count)
    return places


def united(times: np.ndarray) -> np.ndarray:
    """Return the union of intervals (rows of start and end), in order, with touching intervals merged."""
    times = times[np.argsort(times[:, 0], kind="stable")]
    if not len(times):
        return times
    until = np.maximum.accumulate(times[:, 1])
    first = np.append(True, times[1:, 0] > until[:-1])
    last = np.append(first[1:], True)
    return np.column_stack([times[first, 0], until[last]])
