"""Write columns as CSV piece by piece, with the same text as `csv_text` but without a table in memory."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...converter.chakra import TextColumn
from ...support import spreadsheet_text

_ROWS = 1 << 16


def csv_pieces(
    columns: Mapping[str, npt.NDArray[Any] | TextColumn], rows: npt.NDArray[np.int64]
) -> Iterator[str]:
    """Yield a CSV header, followed by the *rows* of number and text *columns*, with empty cells for NaN."""
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
