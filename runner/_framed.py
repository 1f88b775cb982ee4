"""Sums and rows of columns, without pandas: importing that takes its time."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..support.table import Columns

__all__ = ["coded", "rows_of", "sums_by", "typed"]


def typed(columns: Columns, kinds: Mapping[str, str]) -> Columns:
    """Return the columns that *kinds* names, in its order, each of the type that it says."""
    return {name: np.asarray(columns[name], kind) for name, kind in kinds.items()}


def rows_of(columns: Columns) -> list[dict[str, Any]]:
    """Return *columns* as rows of plain values."""
    values = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def coded(*keys: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Return the keys there are, in order of their first row, and for each row which of them it has.

    Of several columns a key is the tuple of their values.
    """
    if all(key.dtype.kind in "iu" for key in keys):
        return _coded_integers(keys)
    columns = [column.tolist() for column in keys]
    number_of: dict[Hashable, int] = {}
    told = columns[0] if len(columns) == 1 else zip(*columns, strict=True)
    numbers = [number_of.setdefault(key, len(number_of)) for key in told]
    return np.array(numbers, np.int64), list(number_of)


def _coded_integers(keys: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Return what `coded` does for columns of integers, by sorting."""
    numbers = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        values, codes = np.unique(key, return_inverse=True)
        numbers = np.unique(numbers * len(values) + codes.reshape(-1), return_inverse=True)[1].reshape(-1)
    _, firsts, numbers = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    rank_of = np.empty(len(order), np.int64)
    rank_of[order] = np.arange(len(order))
    columns = [key[firsts[order]].tolist() for key in keys]
    return rank_of[numbers.reshape(-1)], columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def sums_by(values: npt.NDArray[np.int64], *keys: npt.NDArray[Any]) -> dict[Any, int]:
    """Return the sum of *values* by key (see `coded`), in ascending order of keys."""
    numbers, names = coded(*keys)
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, numbers, values)
    return dict(sorted(zip(names, sums.tolist(), strict=True)))
