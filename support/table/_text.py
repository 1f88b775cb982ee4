"""Columns of texts, each text stored once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TextColumn", "byte_table"]


@dataclass(frozen=True, eq=False)
class TextColumn:
    """A column of texts, dictionary-encoded: row i is ``texts[numbers[i]]``.

    Columns are equal if their rows are, however the texts are numbered. They have no hash.
    """

    numbers: np.ndarray
    texts: list[str]

    def __len__(self) -> int:
        return len(self.numbers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TextColumn):
            return NotImplemented
        indices: dict[str, int] = {}
        common = [
            np.array([indices.setdefault(text, len(indices)) for text in column.texts], dtype=np.int64)
            for column in (self, other)
        ]
        return np.array_equal(common[0][self.numbers], common[1][other.numbers])

    __hash__ = None  # type: ignore[assignment]  # its arrays have none

    @classmethod
    def of(cls, values: Iterable[str]) -> TextColumn:
        """Return the column of *values*."""
        indices: dict[str, int] = {}
        numbers = [indices.setdefault(value, len(indices)) for value in values]
        return cls(np.array(numbers, dtype=np.int32), list(indices))

    @classmethod
    def joined(cls, columns: Sequence[TextColumn]) -> TextColumn:
        """Return the concatenation of *columns*, each text once."""
        indices: dict[str, int] = {}
        numbers = [
            np.array([indices.setdefault(text, len(indices)) for text in column.texts], np.int32)[
                column.numbers
            ]
            for column in columns
        ]
        return cls(np.concatenate(numbers), [*indices])

    def compact(self) -> TextColumn:
        """Return an equal column, in which each text stands once and is used."""
        used = np.bincount(self.numbers, minlength=len(self.texts)) > 0
        indices: dict[str, int] = {}
        numbers = [
            indices.setdefault(text, len(indices)) if is_used else -1
            for text, is_used in zip(self.texts, used.tolist(), strict=True)
        ]
        return TextColumn(np.array(numbers, np.int32)[self.numbers], [*indices])

    def take(self, rows: np.ndarray | slice) -> TextColumn:
        """Return the column of *rows*."""
        return TextColumn(self.numbers[rows], self.texts)

    def encoded(self) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Return the column in the form for compiled code: numbers, and the texts as in `byte_table`."""
        texts = [text.encode("utf-8", "replace") for text in self.texts]
        return np.ascontiguousarray(self.numbers, dtype=np.int32), byte_table(texts)

    def to_series(self) -> pd.Series[Any]:
        """Return the column as pandas data."""
        import pandas as pd  # noqa: PLC0415 - converting and saving do without

        texts: pd.Series[Any] = pd.Series(self.texts, dtype="str").take(self.numbers)
        return texts.reset_index(drop=True)


def byte_table(parts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return the concatenated *parts*, and the end of each."""
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    return np.frombuffer(bytearray().join(parts), dtype=np.uint8), ends
