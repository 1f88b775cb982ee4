"""Tables as columns: one array per field, so that no row costs a Python object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

__all__ = ["Columns", "groups_of", "positions", "spans", "which"]

_C = TypeVar("_C", bound="Columns")


class Columns(msgspec.Struct, frozen=True, eq=False):
    """A base for tables all of whose fields are arrays of one length."""

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[0]))

    def take(self: _C, rows: np.ndarray) -> _C:
        """Return the table of *rows*, indices or a mask."""
        return type(self)(*(getattr(self, name)[rows] for name in self.__struct_fields__))

    def joined(self: _C, *others: _C) -> _C:
        """Return the rows of this table and then those of *others*."""
        tables = (self, *others)
        columns = ([getattr(table, name) for table in tables] for name in self.__struct_fields__)
        return type(self)(*map(np.concatenate, columns))

    def row(self, index: int) -> dict[str, Any]:
        """Return row *index* as plain values by name."""
        return {name: getattr(self, name)[index].item() for name in self.__struct_fields__}


def which(texts: Sequence[str], holds: Callable[[str], bool]) -> np.ndarray:
    """Return a mask of the *texts* of which *holds* is true; with a column of numbers, one of rows."""
    return np.fromiter(map(holds, texts), dtype=bool, count=len(texts))


def positions(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where in the sorted *keys* each of *wanted* is first found, -1 where it is not."""
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.searchsorted(keys, wanted)
    at[at == len(keys)] = 0
    return np.where(keys[at] == wanted, at, -1)


def groups_of(keys: np.ndarray) -> dict[int, np.ndarray]:
    """Return the rows of each of *keys*, ascending."""
    order = np.argsort(keys, kind="stable")
    found, first = np.unique(keys[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, first[1:]), strict=True)) if len(keys) else {}


def spans(first: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return first[0], first[0] + 1, ... (count[0] of them), first[1], ... as one array."""
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    places: np.ndarray = np.arange(total) + np.repeat(first - (ends - count), count)
    return places
