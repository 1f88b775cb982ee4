"""Parquet files of flat columns, read by row group and column, and written one row group at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ._columns import KINDS, TEXT, Part, kind_of, numbers_of, values_of
from ._parquet import Damaged, Reader, Writer

__all__ = ["ParquetFile", "ParquetWriter", "joined"]

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_TAIL = 8  # the size of the metadata, and the magic number again
_Array = npt.NDArray[Any]


class ParquetFile:
    """The file at *path*: its columns by row group; nothing of it stays open.

    *kinds* has the columns in their order: a numpy type's name, ``text``, or ``other`` for what is not read
    here (dates, decimals, bytes). Read are flat tables in the encodings of PyArrow, DuckDB, Polars and our
    own, compressed with snappy or not. Everything raises `ValueError` for a file that is damaged or holds
    something else, and `OSError`. Format: https://parquet.apache.org/docs/file-format/
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            room = os.fstat(file.fileno()).st_size - _TAIL
            if room < len(_MAGIC) or file.read(len(_MAGIC)) != _MAGIC:
                raise Damaged("it is no Parquet file")
            tail = os.pread(file.fileno(), _TAIL, room)
            if tail[4:] == _ENCRYPTED:
                raise Damaged("it is encrypted")
            size = int.from_bytes(tail[:4], "little")
            if tail[4:] != _MAGIC or size > room - len(_MAGIC):
                raise Damaged("it does not end as a Parquet file does; it may be cut off")
            metadata = os.pread(file.fileno(), size, room - size)
        self._reader = Reader(metadata, room - size)
        names = self._reader.names()
        self.kinds: Mapping[str, str] = dict(zip(names, self._reader.kinds(), strict=True))
        if len(self.kinds) != len(names):
            raise Damaged("two of its columns have the same name")
        self._places = {name: place for place, name in enumerate(names)}
        self.rows: Sequence[int] = tuple(self._reader.rows())

    @property
    def num_rows(self) -> int:
        """How many rows all row groups have together."""
        return sum(self.rows)

    def bounds(self, name: str) -> list[tuple[int, int]] | None:
        """Return the least and greatest value of a column of signed numbers by row group; None if unknown."""
        found = [self._reader.bounds(group, self._places[name]) for group in range(len(self.rows))]
        known = [bounds for bounds in found if bounds is not None]
        return known if len(known) == len(found) else None

    def parts(self, name: str, groups: Sequence[int] | None = None) -> list[Part]:
        """Return a column of some row groups, or of all."""
        if name not in self._places:
            raise Damaged(f"it has no column {name}")
        chosen = range(len(self.rows)) if groups is None else groups
        with self.path.open("rb") as file:
            return [self._part(file.fileno(), group, name) for group in chosen]

    def _part(self, file: int, group: int, name: str) -> Part:
        column, kind = self._places[name], self.kinds[name]
        offset, size = self._reader.place(group, column)
        values, present, texts = self._reader.decode(group, column, os.pread(file, size, offset))
        return Part(
            numbers_of(values, kind),
            None if present is None else present.view(np.bool_),
            tuple(text.decode("utf-8") for text in texts),
        )

    def read(
        self, names: Sequence[str] | None = None, groups: Sequence[int] | None = None
    ) -> dict[str, _Array]:
        """Return columns, all or those called *names*, of some row groups or of all, one behind the other.

        Texts are objects, None where missing. Numbers of which some are missing are floats, NaN there.
        """
        chosen = self.kinds if names is None else names
        return {name: joined(self.parts(name, groups), self.kinds[name]) for name in chosen}


def joined(parts: Sequence[Part], kind: str) -> _Array:
    """Return the *parts* of a column of a *kind*, one behind the other, as `ParquetFile.read` does."""
    arrays = [_plain(part, kind) for part in parts]
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, kind if kind in KINDS else object)


def _plain(part: Part, kind: str) -> _Array:
    if kind == TEXT:
        texts = np.array([*part.texts, None], dtype=object)
        found: _Array = texts[
            part.values if part.present is None else np.where(part.present, part.values, -1)
        ]
        return found
    if part.present is None:
        return part.values
    return np.where(part.present, part.values.astype(np.float64), np.nan)


class ParquetWriter:
    """Writes row groups to *file*; a context manager, whose end writes the end of the file.

    *kinds* are the columns: a numpy type's name or ``text``; those in *optional* may lack values. It is
    compressed with snappy, each page has a checksum, and the same columns give the same bytes.
    """

    def __init__(
        self,
        file: IO[bytes],
        kinds: Mapping[str, str],
        *,
        optional: Sequence[str] = (),
        created_by: str = "chakrascope",
    ) -> None:
        self._file, self._kinds = file, dict(kinds)
        self._writer = Writer([(name, kind, name in optional) for name, kind in kinds.items()], created_by)

    def __enter__(self) -> ParquetWriter:
        self._file.write(self._writer.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._file.write(self._writer.end())

    def write(self, columns: Mapping[str, _Array | Part]) -> None:
        """Write a row group of *columns*, which must be all there are, of one length."""
        given = []
        for name, kind in self._kinds.items():
            column = columns[name]
            part = column if isinstance(column, Part) else Part(_of_kind(column, kind))
            present = None if part.present is None else np.ascontiguousarray(part.present).view(np.uint8)
            given.append((values_of(part.values, kind), present, [text.encode() for text in part.texts]))
        self._file.write(self._writer.row_group(given))


def _of_kind(column: _Array, kind: str) -> _Array:
    """Return *column* as *kind*; raises `ValueError` where that would change its values."""
    if kind_of(column.dtype) == kind:
        return column
    as_kind = column.astype(kind)
    if not np.array_equal(as_kind, column):
        raise ValueError(f"a column of {column.dtype} does not fit into {kind}")
    return as_kind
