"""Parquet files of pandas tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["frame_bytes"]


def frame_bytes(table: pd.DataFrame) -> bytes:
    """Return *table*, without its index, as a Parquet file.

    Numbers and booleans keep their types and may be missing; all other values become text.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    names = [str(name) for name in table.columns]
    columns = [_column(table.iloc[:, place]) for place in range(len(names))]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays(columns, names=names), sink, store_schema=False, write_page_checksum=True
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _column(series: pd.Series[Any]) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415

    try:
        column = pa.array(series, from_pandas=True)
    except (pa.ArrowException, OverflowError):  # values of several types
        column = None
    if column is None or not _is_plain(column.type):
        column = pa.array(series.astype(object).map(str, na_action="ignore"), pa.string(), from_pandas=True)
    return column


def _is_plain(kind: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415

    types = pa.types
    return any(
        is_of(kind) for is_of in (types.is_integer, types.is_floating, types.is_boolean, types.is_string)
    )
