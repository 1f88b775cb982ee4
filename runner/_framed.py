"""Sums and rows of columns without pandas, whose import takes long."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..support.table import Columns

__all__ = ["coded", "rows_of", "sums_by", "typed"]


def typed(columns: Columns, kinds: Mapping[str, str]) -> Columns:
    """Return the columns in the order and with the types of *kinds*."""
    return {name: np.asarray(columns[name], kind) for name, kind in kinds.items()}


def rows_of(columns: Columns) -> list[dict[str, Any]]:
    """Return *columns* as rows of plain values."""
    values = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def coded(*keys: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Return the distinct keys in order of first appearance, and the index of each row's key.

    With several columns, a key is the tuple of their values.
    """
    if len(keys) == 1 and keys[0].dtype.kind not in "iu":
        return _values_coded(keys[0])
    coded_keys = [(key, None) if key.dtype.kind in "iu" else _values_coded(key) for key in keys]
    numbers, firsts = _rows_coded([codes for codes, _ in coded_keys])
    columns = [
        codes[firsts].tolist() if values is None else [values[code] for code in codes[firsts].tolist()]
        for codes, values in coded_keys
    ]
    return numbers, columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _values_coded(key: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Return the index of each value of *key*, and the distinct values in order of first appearance."""
    # By Arrow's dictionaries it would be faster, but `pa.array` imports pandas.
    number_of: dict[Hashable, int] = {}
    numbers = [number_of.setdefault(value, len(number_of)) for value in key.tolist()]
    return np.array(numbers, np.int64), list(number_of)


def _rows_coded(
    keys: Sequence[npt.NDArray[Any]],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the index of each row of *keys*, in order of first appearance, and the first row of each."""
    numbers = np.unique(keys[0], return_inverse=True)[1].reshape(-1)
    for key in keys[1:]:
        values, codes = np.unique(key, return_inverse=True)
        numbers = np.unique(numbers * len(values) + codes.reshape(-1), return_inverse=True)[1].reshape(-1)
    _, firsts, numbers = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places[numbers.reshape(-1)], firsts[order]


def sums_by(values: npt.NDArray[np.int64], *keys: npt.NDArray[Any]) -> dict[Any, int]:
    """Return the sum of *values* by key (see `coded`), in ascending order of keys."""
    numbers, names = coded(*keys)
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, numbers, values)
    return dict(sorted(zip(names, sums.tolist(), strict=True)))
