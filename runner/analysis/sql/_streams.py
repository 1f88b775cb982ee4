"""Encode tables as Arrow streams for the SQL worker."""

from __future__ import annotations

import io

import pandas as pd
import pyarrow as pa

from ....converter.chakra import TextColumn
from ._tables import Made


def stream_of_columns(columns: Made) -> bytes:
    """Encode *columns* as an Arrow stream, texts as dictionaries."""
    arrays = [
        pa.DictionaryArray.from_arrays(column.numbers, pa.array(column.texts, pa.string()))
        if isinstance(column, TextColumn)
        else pa.array(column)
        for column in columns.values()
    ]
    return _stream(pa.Table.from_arrays(arrays, names=[*columns]))


def stream_of_frame(table: pd.DataFrame) -> bytes:
    """Encode *table* as an Arrow stream, without its index."""
    texts = {str(name): table[name].astype("str") for name in table if table[name].dtype.kind == "O"}
    return _stream(pa.Table.from_pandas(table.assign(**texts), preserve_index=False))


def _stream(arrow: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    return sink.getvalue()
