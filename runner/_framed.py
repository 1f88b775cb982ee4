"""Sums and rows of columns without pandas, because the import of pandas is slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..support.table import CodedColumns, Columns, TextColumn, first_rows, positions

_MAX_SPREAD = 4
"""Integers are sorted only if their range exceeds this number of values per row."""


def changed_rows(key: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.bool_]:
    """Return a mask of the first row and of rows with another *key* than the previous row."""
    changed = np.ones(len(key[0]), dtype=bool)
    changed[1:] = np.any([values[1:] != values[:-1] for values in key], axis=0)
    return changed


def typed(columns: Columns, kinds: Mapping[str, str]) -> Columns:
    """Return the *columns* in the order and with the data types of *kinds*."""
    return {name: np.asarray(columns[name], kind) for name, kind in kinds.items()}


def rows_of(columns: CodedColumns) -> list[dict[str, Any]]:
    """Return *columns* as rows of plain values."""
    values = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


Key = npt.NDArray[Any] | TextColumn


def coded(*keys: Key) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Return the index of each row's key in the list of distinct keys, and this list (by first appearance).

    With several columns, a key is the tuple of the columns' values.
    """
    coded_keys = [*map(_values_coded, keys)]
    if len(keys) == 1 and coded_keys[0][1] is not None:
        return coded_keys[0][0].astype(np.int64), coded_keys[0][1]
    numbers, firsts = rows_coded(*(codes for codes, _ in coded_keys))
    columns = [
        codes[firsts].tolist() if values is None else [values[code] for code in codes[firsts].tolist()]
        for codes, values in coded_keys
    ]
    return numbers, columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _values_coded(key: Key) -> tuple[npt.NDArray[Any], list[Any] | None]:
    """Return integer keys unchanged with None, or other keys as indices with the distinct values."""
    if not isinstance(key, TextColumn) and key.dtype.kind in "iu":
        return key, None
    # Arrow's dictionaries would be faster, but `pa.array` imports pandas.
    column = key.compact() if isinstance(key, TextColumn) else TextColumn.of(key.tolist())
    return column.numbers, column.texts


def rows_coded(*keys: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the index of each row's integer *keys* by first appearance, and the first row of each index."""
    numbers, count = _dense(keys[0])
    for key in keys[1:]:
        codes, size = _dense(key)
        numbers, count = _dense(numbers * size + codes)
    firsts = first_rows(numbers, count)
    places = np.empty(count, np.int64)
    places[numbers[firsts]] = np.arange(len(firsts))
    return places[numbers], firsts


def turns(*keys: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return, for each row, the number of earlier rows with the same integer *keys*."""
    numbers, _ = rows_coded(*keys)
    order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers)
    earlier = np.empty(len(numbers), np.int64)
    earlier[order] = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    return earlier


def _dense(key: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], int]:
    """Return integer codes that are equal for equal values of *key*, and an upper bound of the codes."""
    least, most = (int(key.min()), int(key.max())) if len(key) else (0, 0)
    if most - least < _MAX_SPREAD * len(key):
        return key.astype(np.int64) - key.min().astype(np.int64), most - least + 1
    values, codes = np.unique(key, return_inverse=True)
    return codes.reshape(-1), len(values)


def sums_by(values: npt.NDArray[np.int64], *keys: Key) -> dict[Any, int]:
    """Return the sum of *values* by key (see `coded`), in ascending order of keys."""
    numbers, names = coded(*keys)
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, numbers, values)
    return dict(sorted(zip(names, sums.tolist(), strict=True)))


class PairIndex:
    """Finds the first row of a pair of integers, such as a rank and a node id."""

    def __init__(self, firsts: npt.NDArray[Any], seconds: npt.NDArray[Any]) -> None:
        self._seconds = np.unique(seconds)
        keys = firsts.astype(np.int64) * len(self._seconds) + np.searchsorted(self._seconds, seconds)
        self._order = np.append(np.argsort(keys, kind="stable"), -1)
        self._keys = keys[self._order[:-1]]

    def rows(self, firsts: npt.NDArray[Any], seconds: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the row of each pair, -1 for an absent pair."""
        place = positions(self._seconds, seconds)
        found = positions(self._keys, firsts.astype(np.int64) * len(self._seconds) + place)
        return self._order[np.where(place >= 0, found, -1)]
