"""Tables of pandas as Parquet files, and back."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._columns import TEXT, Part, kind_of
from ._file import ParquetFile, ParquetWriter, joined

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["frame_bytes", "read_frame"]


def frame_bytes(table: pd.DataFrame) -> bytes:
    """Return *table*, without its index, as a Parquet file.

    Numbers and truth values keep their types, and may be missing; everything else is text.
    """
    parts: dict[str, Part] = {}
    kinds: dict[str, str] = {}
    for place, name in enumerate(table.columns):
        kinds[str(name)], parts[str(name)] = _column(table.iloc[:, place])
    optional = [name for name, part in parts.items() if part.present is not None or kinds[name] == TEXT]
    file = io.BytesIO()
    with ParquetWriter(file, kinds, optional=optional) as writer:
        writer.write(parts)
    return file.getvalue()


def read_frame(path: str | Path) -> pd.DataFrame:
    """Return the table in the file at *path*; raises as `ParquetFile`.

    Where numbers are missing, whole ones become ``Int64``, and truth values ``boolean``.
    """
    import pandas as pd  # noqa: PLC0415 - reading columns needs no pandas

    file = ParquetFile(path)
    columns: dict[str, Any] = {}
    for name, kind in file.kinds.items():
        parts = file.parts(name)
        if kind in (TEXT, "float32", "float64") or all(part.present is None for part in parts):
            columns[name] = joined(parts, kind)
            continue
        values = np.concatenate([part.values for part in parts])
        there = np.concatenate(
            [np.ones(len(p.values), bool) if p.present is None else p.present for p in parts]
        )
        masked = "boolean" if kind == "bool" else kind.replace("int", "Int").replace("uI", "UI")
        columns[name] = pd.Series(values).astype(masked).where(pd.Series(there))
    table: pd.DataFrame = pd.DataFrame(columns)
    return table


def _column(series: pd.Series[Any]) -> tuple[str, Part]:
    dtype: Any = getattr(series.dtype, "numpy_dtype", series.dtype)  # of numbers that may be missing, too
    kind = kind_of(dtype) if isinstance(dtype, np.dtype) else None
    missing = series.isna().to_numpy(dtype=bool)
    present = ~missing if missing.any() else None
    if kind is None and series.dtype == object:
        kind = _kind_of_objects(list(series[~missing]))
    if kind is None:
        return TEXT, _texts(series, present)
    if present is None or (kind.startswith("float") and isinstance(series.dtype, np.dtype)):
        return kind, Part(series.to_numpy(dtype=kind))
    values = np.zeros(len(series), kind)
    values[present] = series[present].to_numpy(dtype=kind)
    return kind, Part(values, present)


def _kind_of_objects(values: list[Any]) -> str | None:
    """Return the kind of column for *values* of Python; None for texts, and for what is written as such."""
    if not values:
        return None
    if all(isinstance(value, (bool, np.bool_)) for value in values):
        return "bool"
    if any(isinstance(value, (bool, np.bool_)) for value in values):
        return None
    if all(isinstance(value, (int, np.integer)) for value in values):
        limits = np.iinfo(np.int64)
        return "int64" if limits.min <= min(values) <= max(values) <= limits.max else None
    return "float64" if all(isinstance(value, (int, float, np.number)) for value in values) else None


def _texts(series: pd.Series[Any], present: npt.NDArray[np.bool_] | None) -> Part:
    import pandas as pd  # noqa: PLC0415 - who has a table has pandas

    places, texts = pd.factorize(series.astype(object).map(str, na_action="ignore"))
    return Part(np.maximum(places, 0), present, tuple(texts))
