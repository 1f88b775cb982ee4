"""Between columns of numpy and Arrow's, by their buffers: pyarrow's own ways import pandas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ._recorded_nodes import Columns

__all__ = ["arrow_table", "columns_of_arrow"]

_TYPES = {
    getattr(pa, name)(): np.dtype(name)
    for name in (
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float32",
        "float64",
    )
}
_ARROW = {kind: arrow for arrow, kind in _TYPES.items()}


def arrow_table(columns: Columns, names: Iterable[str] = ()) -> pa.Table:
    """Return *columns*, all or those called *names*, as a table of Arrow."""
    chosen = [*names] or [*columns]
    return pa.Table.from_arrays([_arrow(columns[name]) for name in chosen], names=chosen)


def columns_of_arrow(table: pa.Table, names: Iterable[str] = ()) -> Columns:
    """Return the columns of *table*, all or those called *names*."""
    return {name: _numpy(table.column(name)) for name in [*names] or table.column_names}


def _arrow(column: npt.NDArray[Any]) -> pa.Array:
    if column.dtype == np.bool_:
        bits = pa.py_buffer(np.packbits(column, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(column), [None, bits])
    if column.dtype not in _ARROW:
        return pa.array(column)
    whole = np.ascontiguousarray(column)
    return pa.Array.from_buffers(_ARROW[column.dtype], len(whole), [None, pa.py_buffer(whole)])


def _numpy(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    parts = [_part(chunk) for chunk in column.chunks]
    if any(part is None for part in parts):
        whole: npt.NDArray[Any] = column.to_numpy()
        return whole
    if len(parts) == 1:
        return parts[0]  # type: ignore[return-value]
    kind = _TYPES.get(column.type, np.dtype(np.bool_))
    return np.concatenate(parts) if parts else np.empty(0, kind)  # type: ignore[arg-type]


def _part(chunk: pa.Array) -> npt.NDArray[Any] | None:
    """Return *chunk*, or None if numpy has no such values: texts, or some that are missing."""
    if chunk.null_count:
        return None
    data = chunk.buffers()[1] if chunk.type in _TYPES or chunk.type == pa.bool_() else None
    if data is None:
        return np.empty(0, _TYPES.get(chunk.type, np.dtype(np.bool_))) if not len(chunk) else None
    if chunk.type == pa.bool_():
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        return bits[chunk.offset : chunk.offset + len(chunk)].view(np.bool_)
    kind = _TYPES[chunk.type]
    return np.frombuffer(data, kind, len(chunk), chunk.offset * kind.itemsize)
