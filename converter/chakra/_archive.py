"""A NumPy archive whose columns are read on demand, and only the requested rows of them."""

from __future__ import annotations

import io
import math
import os
import struct
import threading
import tokenize
import weakref
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import WorkloadFormatError
from ._graph import EDGE_COLUMNS, NODE_COLUMNS, Column, TextColumn

__all__ = ["DAMAGES", "Archive", "SavedColumns", "Source"]

# The exceptions of reading a file that is not an archive, truncated, edited, or of another version.
DAMAGES = (
    OSError, ValueError, KeyError, EOFError, OverflowError, NotImplementedError, struct.error,
    zipfile.BadZipFile,
)  # fmt: skip
# A header is a literal of Python, which NumPy has Python's own parser read.
_OF_HEADERS = (SyntaxError, tokenize.TokenError, TypeError, RecursionError, MemoryError)
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a zip entry: lengths of its name and of its extra field
_NPY_HEADER = 1 << 16
_CHUNK = 1 << 22
# Below this size the whole archive is checked when it is opened; above, each column on first use.
_SMALL_BYTES = 1 << 24
_CACHED_COLUMNS = 128


class Archive:
    """The arrays of the file at *path*, one-dimensional and uncompressed.

    The file may be replaced meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        weakref.finalize(self, os.close, self._file)
        with open(self._file, "rb", closefd=False) as file, zipfile.ZipFile(file) as archive:
            self._members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        self._lock = threading.Lock()
        self._places: dict[str, tuple[int, np.dtype[Any], int]] = {}
        self._texts: dict[str, list[str]] = {}
        self._cache: OrderedDict[tuple[str, int, int], Column] = OrderedDict()

    def check(self, lengths: Mapping[str, int]) -> None:
        """Raise one of `DAMAGES` unless the arrays of *lengths* exist with these lengths.

        Reads small files.
        """
        small = sum(info.file_size for info in self._members.values()) < _SMALL_BYTES
        for name, length in lengths.items():
            info = self._members[name]
            if info.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{info.filename} is compressed")
            if small:
                column = self.integers(name, slice(0, length))
                is_text = name in NODE_COLUMNS and NODE_COLUMNS[name][0] == "str"
                if is_text:
                    _check_texts(name, column, self._texts_of(name))
                if self._places[name][2] != length:
                    raise ValueError(f"column {name} is not one of {length} integers")

    def __contains__(self, name: str) -> bool:
        """Return whether the archive has an array of this name."""
        return name in self._members

    def whole(self, name: str) -> np.ndarray:
        """Return an array."""
        return self._rows(name, slice(0, self._place(name)[2]))

    def whole_integers(self, name: str) -> np.ndarray:
        """Return an array of integers; raises `ValueError` for another type."""
        return self.integers(name, slice(0, self._place(name)[2]))

    def integers(self, name: str, rows: slice) -> np.ndarray:
        """Return some rows of an array of integers; raises `ValueError` for another type, or too few rows."""
        _, dtype, count = self._place(name)
        if dtype.kind not in "iub" or rows.stop > count:
            raise ValueError(f"column {name} is not one of {rows.stop} integers")
        return self._rows(name, rows)

    def column(self, name: str, rows: slice, dtype: str) -> Column:
        """Return some rows of a column, in the type *dtype*; the last requested rows are cached."""
        key = (name, rows.start, rows.stop)
        with self._lock:
            column = self._cache.pop(key, None)
            if column is None:
                column = self.read(name, rows, dtype)
            self._cache[key] = column
            if len(self._cache) > _CACHED_COLUMNS:
                self._cache.popitem(last=False)
            return column

    def taken(self, name: str, rows: slice, dtype: str, chosen: np.ndarray) -> Column:
        """Return the *chosen* entries of some rows of a column; the cache is unchanged."""
        with self._lock:
            cached = self._cache.get((name, rows.start, rows.stop))
        if cached is None:
            return self._typed(name, self.integers(name, rows)[chosen], dtype)
        return cached.take(chosen) if isinstance(cached, TextColumn) else cached[chosen]

    def read(self, name: str, rows: slice, dtype: str) -> Column:
        """Return some rows of a column, in the type *dtype*, without caching."""
        return self._typed(name, self.integers(name, rows), dtype)

    def _typed(self, name: str, values: np.ndarray, dtype: str) -> Column:
        if dtype != "str":
            return values.astype(dtype)
        texts = self._texts_of(name)
        _check_texts(name, values, texts)
        return TextColumn(values.astype(np.int32), texts)

    def _texts_of(self, name: str) -> list[str]:
        if name not in self._texts:
            data = self.whole(f"{name}_texts").tobytes()
            ends = [0, *self.whole_integers(f"{name}_ends").tolist()]
            self._texts[name] = [data[first:end].decode("utf-8") for first, end in pairwise(ends)]
        return self._texts[name]

    def _rows(self, name: str, rows: slice) -> np.ndarray:
        start, dtype, _ = self._place(name)
        data = self._bytes(start + rows.start * dtype.itemsize, (rows.stop - rows.start) * dtype.itemsize)
        return np.frombuffer(data, dtype)

    def _bytes(self, start: int, count: int) -> bytes:
        """Return *count* bytes of the file; raises `EOFError` if it is shorter."""
        pieces = []
        while count:
            piece = os.pread(self._file, count, start)
            if not piece:
                raise EOFError("it is cut off")
            pieces.append(piece)
            start, count = start + len(piece), count - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _place(self, name: str) -> tuple[int, np.dtype[Any], int]:
        """Return the offset of an array's values, their type and number.

        Its checksum is verified on first use.
        """
        if name not in self._places:
            info = self._members[name]
            name_length, more_length = _LOCAL_HEADER.unpack(
                self._bytes(info.header_offset, _LOCAL_HEADER.size)
            )
            start = info.header_offset + _LOCAL_HEADER.size + name_length + more_length
            sum_ = 0
            for place in range(0, info.file_size, _CHUNK):
                sum_ = zlib.crc32(self._bytes(start + place, min(_CHUNK, info.file_size - place)), sum_)
            if sum_ != info.CRC:
                raise zipfile.BadZipFile(f"Bad CRC-32 for file '{info.filename}'")
            self._places[name] = self._described(start, info.file_size)
        return self._places[name]

    def _described(self, start: int, size: int) -> tuple[int, np.dtype[Any], int]:
        head = io.BytesIO(self._bytes(start, min(size, _NPY_HEADER)))
        first = np.lib.format.read_magic(head) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        try:
            shape, _, dtype = read(head)
        except _OF_HEADERS as error:
            raise ValueError(f"an array's header cannot be read ({error})") from error
        if dtype.hasobject:
            raise ValueError("its arrays are pickled objects")
        if len(shape) != 1 or not dtype.itemsize or head.tell() + math.prod(shape) * dtype.itemsize != size:
            raise ValueError("its arrays are no columns")
        return start + head.tell(), dtype, shape[0]


def _check_texts(name: str, numbers: np.ndarray, texts: list[str]) -> None:
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(texts):
        raise ValueError(f"column {name} has texts that are not there")


class Source(Protocol):
    """The source of columns; both methods raise some of `DAMAGES`."""

    path: Path

    def column(self, name: str, rows: slice, dtype: str) -> Column:
        """Return some rows of a column."""

    def taken(self, name: str, rows: slice, dtype: str, chosen: np.ndarray) -> Column:
        """Return the *chosen* entries of some rows of a column."""


class SavedColumns(Mapping[str, Any]):
    """Columns of one graph: the *rows* of the arrays of *archive* in *names*; read on demand.

    Raises `WorkloadFormatError` for a damaged column.
    """

    def __init__(self, archive: Source, names: Mapping[str, str], rows: slice) -> None:
        self._archive = archive
        self._names = names
        self._own = rows

    def __getitem__(self, name: str) -> Any:
        return self._read(name, self._archive.column)

    def take(self, name: str, rows: np.ndarray) -> Column:
        """Return *rows* of a column, without caching."""
        return self._read(name, partial(self._archive.taken, chosen=rows))

    def _read(self, name: str, read: Callable[[str, slice, str], Column]) -> Column:
        stored = self._names[name]
        dtype = EDGE_COLUMNS[name] if stored.startswith("edge_") else NODE_COLUMNS[name][0]
        try:
            return read(stored, self._own, dtype)
        except DAMAGES as error:
            raise WorkloadFormatError(
                f"{self._archive.path} is damaged ({error}). Delete it or convert again."
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[list[tuple[str, Any]]]]:
        return dict, (list(self.items()),)
