"""Columns of numpy to the 64-bit values that the native part reads and writes, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ._parquet import Damaged

__all__ = ["KINDS", "TEXT", "Part", "kind_of", "numbers_of", "values_of"]

TEXT = "text"
KINDS = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
)
_Long = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """A column of a row group: *values*, and which are *present* if some are missing (None: all are).

    *values* are of the column's type; of texts they are places in *texts*.
    """

    values: npt.NDArray[Any]
    present: npt.NDArray[np.bool_] | None = None
    texts: tuple[str, ...] = ()


def kind_of(dtype: np.dtype[Any]) -> str | None:
    """Return the kind of column that holds values of *dtype*; None where none does."""
    name = dtype.newbyteorder("=").name
    return name if name in KINDS else None


def values_of(numbers: npt.NDArray[Any], kind: str) -> _Long:
    """Return *numbers* of a *kind*, or places of texts, in 64 bits each."""
    if kind in ("float64", "uint64"):
        return np.ascontiguousarray(numbers, kind).view(np.int64)
    if kind in ("float32", "uint32"):
        return np.ascontiguousarray(numbers, kind).view(np.int32).astype(np.int64)
    return np.ascontiguousarray(numbers, np.int64)


def numbers_of(values: _Long, kind: str) -> npt.NDArray[Any]:
    """Return what *values* of 64 bits each are in a column of a *kind*; raises `Damaged` beyond its range."""
    if kind in ("float64", "uint64"):
        return values.view(kind)
    if kind in ("float32", "uint32"):
        return values.astype(np.int32).view(kind)
    if kind in ("int64", TEXT):
        return values
    limits = (0, 1) if kind == "bool" else (np.iinfo(kind).min, np.iinfo(kind).max)
    if len(values) and not limits[0] <= values.min() <= values.max() <= limits[1]:
        raise Damaged(f"a column of {kind} holds larger values")
    return values.astype(kind)
