"""Columns of texts with dictionary encoding, and tables as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from .._units import spreadsheet_text

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class TextColumn:
    """A dictionary-encoded column of texts: row i is ``texts[numbers[i]]``.

    The column behaves like an array of texts: ``column[rows]`` is a column, ``column[0]`` a text, and
    ``column == "a"`` a mask of rows. Columns are equal if their rows are, even if their texts are numbered
    differently. Columns have no hash.
    """

    numbers: np.ndarray
    texts: list[str]

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    @overload
    def __getitem__(self, rows: int) -> str: ...

    @overload
    def __getitem__(self, rows: np.ndarray | slice) -> TextColumn: ...

    def __getitem__(self, rows: int | np.ndarray | slice) -> str | TextColumn:
        if isinstance(rows, (int, np.integer)):
            text: str = self.texts[self.numbers[rows]]
            return text
        return TextColumn(self.numbers[rows], self.texts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the texts of all rows as a NumPy array of objects."""
        texts = self if len(self) >= len(self.texts) else self.compact()
        objects: npt.NDArray[Any] = np.array([*texts.texts, None], object)[:-1][texts.numbers]
        return objects

    def __eq__(self, other: object) -> Any:
        if isinstance(other, str):
            return self.passes(other.__eq__)
        if not isinstance(other, TextColumn):
            return NotImplemented
        (ours, theirs), _ = _renumbered([self, other])
        return np.array_equal(ours, theirs)

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return ~equal if isinstance(equal, np.ndarray) else equal if equal is NotImplemented else not equal

    __hash__ = None  # type: ignore[assignment]  # NumPy arrays have no hash

    @classmethod
    def of(cls, values: Iterable[str]) -> TextColumn:
        """Return the texts *values* as a dictionary-encoded column."""
        indices: dict[str, int] = {}
        numbers = [indices.setdefault(value, len(indices)) for value in values]
        return cls(np.array(numbers, dtype=np.int32), list(indices))

    @classmethod
    def joined(cls, columns: Sequence[TextColumn]) -> TextColumn:
        """Return the concatenation of *columns* with a common dictionary of texts."""
        numbers, texts = _renumbered(columns)
        return cls(np.concatenate(numbers), texts)

    def compact(self) -> TextColumn:
        """Return an equal column whose texts are used and distinct, in order of first use."""
        if len(self.numbers) < len(self.texts):
            used, firsts = np.unique(self.numbers, return_index=True)
            used = used[np.argsort(firsts)]
        else:
            used = self.numbers[first_rows(self.numbers, len(self.texts))]
        indices: dict[str, int] = {}
        numbers = np.zeros(len(self.texts), np.int32)
        numbers[used] = [indices.setdefault(self.texts[number], len(indices)) for number in used.tolist()]
        return TextColumn(numbers[self.numbers], [*indices])

    def passes(self, test: Callable[[str], object]) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows whose text passes *test*, which is called once per text."""
        column = self if len(self) >= len(self.texts) else self.compact()
        passed = np.array([bool(test(text)) for text in column.texts], bool)
        flags: npt.NDArray[np.bool_] = passed[column.numbers]
        return flags

    def mapped(self, function: Callable[[str], str]) -> TextColumn:
        """Return the column of ``function(text)``, which is called once per text."""
        column = self if len(self) >= len(self.texts) else self.compact()
        return TextColumn(column.numbers, [*map(function, column.texts)])

    def filled(self, other: TextColumn) -> TextColumn:
        """Return the column with empty texts replaced by those of *other* in the same rows."""
        numbers = np.where(self == "", other.numbers + len(self.texts), self.numbers)
        return TextColumn(numbers, [*self.texts, *other.texts])

    def placed(self, rows: np.ndarray, count: int, blank: str = "") -> TextColumn:
        """Return a column of *count* rows with this column's texts at *rows* and *blank* elsewhere."""
        numbers = np.zeros(count, np.int32)
        numbers[rows] = self.numbers + 1
        return TextColumn(numbers, [blank, *self.texts])

    def tolist(self) -> list[str]:
        """Return the texts of all rows as a list."""
        return [self.texts[number] for number in self.numbers.tolist()]

    def encoded(self) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Return the column for compiled code: its numbers, and its texts as a `byte_table`."""
        texts = [text.encode("utf-8", "replace") for text in self.texts]
        return np.ascontiguousarray(self.numbers, dtype=np.int32), byte_table(texts)

    def to_series(self) -> pd.Series[Any]:
        """Return the column as a pandas series of strings."""
        import pandas as pd  # noqa: PLC0415 - converting and saving workloads need no pandas

        texts: pd.Series[Any] = pd.Series(self.texts, dtype="str").take(self.numbers)
        return texts.reset_index(drop=True)


def _renumbered(columns: Sequence[TextColumn]) -> tuple[list[np.ndarray], list[str]]:
    """Return the numbers of the rows of *columns* in a common list of distinct texts, and this list."""
    indices: dict[str, int] = {}
    common = [
        np.array([indices.setdefault(text, len(indices)) for text in column.texts], np.int32)
        for column in columns
    ]
    numbers = [own[column.numbers] for own, column in zip(common, columns, strict=True)]
    return numbers, [*indices]


def first_rows(numbers: npt.NDArray[np.integer[Any]], count: int) -> npt.NDArray[np.int64]:
    """Return the first row of each distinct number, in ascending order.

    All *numbers* must be below *count*.
    """
    firsts = np.full(count, len(numbers))
    np.minimum.at(firsts, numbers, np.arange(len(numbers)))
    return np.sort(firsts[firsts < len(numbers)])


def positions(keys: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the first position of each of *wanted* in the sorted *keys*, -1 for absent keys."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, at, -1)


def byte_table(parts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return *parts* concatenated, and the end of each."""
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    return np.frombuffer(bytearray().join(parts), dtype=np.uint8), ends


_ROWS = 1 << 10  # of a piece; while a larger one is made, the viewer would answer other requests later


def csv_text(table: pd.DataFrame) -> str:
    """Return *table* as CSV, with a quote before texts that a spreadsheet would evaluate (``=1+1``)."""
    return "".join(frame_pieces(table))


def frame_pieces(table: pd.DataFrame) -> Iterator[str]:
    """Yield `csv_text` in pieces."""
    yield _lines([[_cell(name)] for name in table.columns]) or "\n"
    for start in range(0, len(table), _ROWS):
        part = table.iloc[start : start + _ROWS]
        yield _lines([_values(column) for _, column in part.items()])


def _values(column: pd.Series[Any]) -> list[Any]:
    values: list[Any] = column.to_numpy(object, na_value="").tolist()
    return values if column.dtype.kind in "biuf" else [*map(_cell, values)]


def _cell(value: Any) -> Any:
    return _safe(value) if isinstance(value, str) else value


_safe = lru_cache(1 << 16)(spreadsheet_text)


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
