"""Write tables as CSV, whole or piece by piece."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...converter.chakra import TextColumn
from ...support import spreadsheet_text

if TYPE_CHECKING:
    import pandas as pd


def csv_text(table: pd.DataFrame) -> str:
    """Return *table* as CSV, with a quote before texts that a spreadsheet would evaluate (``=1+1``)."""
    import pandas as pd  # noqa: PLC0415 - tables of columns are written without pandas

    shown = table.rename(columns=_cell)
    for place, kind in enumerate(shown.dtypes):
        if kind.kind not in "biufcmM":
            cells = [_cell(value) for value in shown.iloc[:, place]]
            shown.isetitem(place, pd.Series(cells, shown.index, dtype=object))
    text: str = shown.to_csv(index=False)
    return text


def _cell(value: Any) -> Any:
    return _safe(value) if isinstance(value, str) else value


_safe = lru_cache(1 << 16)(spreadsheet_text)


_ROWS = 1 << 16


def csv_pieces(
    columns: Mapping[str, npt.NDArray[Any] | TextColumn], rows: npt.NDArray[np.int64]
) -> Iterator[str]:
    """Yield a CSV header, then the *rows* of *columns* of numbers and texts; NaN is an empty cell."""
    yield _lines([[spreadsheet_text(name)] for name in columns])
    coded = {
        name: column.mapped(spreadsheet_text) if isinstance(column, TextColumn) else column
        for name, column in columns.items()
    }
    for start in range(0, len(rows), _ROWS):
        chosen = rows[start : start + _ROWS]
        yield _lines([_cells(column, chosen) for column in coded.values()])


def _cells(column: npt.NDArray[Any] | TextColumn, rows: npt.NDArray[np.int64]) -> list[Any]:
    values: list[Any] = column[rows].tolist()
    if not isinstance(column, TextColumn) and column.dtype.kind == "f":
        return ["" if value != value else value for value in values]  # noqa: PLR0124 - not a number
    return values


def _lines(columns: list[list[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(zip(*columns, strict=True))
    return buffer.getvalue()
