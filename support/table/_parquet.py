"""Read Parquet files of flat columns by row group and column; write one row group at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .._files import open_file
from ._table import Columns
from ._text import TextColumn

if TYPE_CHECKING:
    import pyarrow as pa

_NOTE = b"chakrascope"
_DICTIONARY_BYTES = 1 << 30


class ParquetFile:
    """A Parquet file at *path*, read by column and row group.

    With *stays_open*, the file stays open, so that later reads see the same rows even if it is
    replaced; otherwise, each read opens it. *kinds* maps each column to its NumPy type, ``text``,
    or ``other`` if it is not supported (dates, decimals, lists). *rows* has the number of rows of
    each row group, and *note* is the writer's. Every method raises `ValueError` for a file that is
    damaged or not Parquet, and `OSError` if reading fails.
    """

    def __init__(self, path: str | Path, *, stays_open: bool = False) -> None:
        import pyarrow as pa  # noqa: PLC0415 - the import takes 0.1 s

        from ._arrow import kind_of  # noqa: PLC0415

        self.path = Path(path)
        open_file(path).close()  # PyArrow would wait for the writer of a named pipe
        self._source = pa.OSFile(os.fsencode(path)) if stays_open else None
        self._metadata: pa.FileMetaData | None = None
        self.kinds: Mapping[str, str] = {}
        with self._opened() as file:
            self._metadata = file.metadata
            self.note = ((file.metadata.metadata or {}).get(_NOTE) or b"").decode()
            fields = list(file.schema_arrow)
            groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
            self.rows: Sequence[int] = tuple(int(group.num_rows) for group in groups)
        self.kinds = {field.name: kind_of(field.type) for field in fields}
        if len(self.kinds) != len(fields):
            raise ValueError("two of its columns have the same name")
        if any(group.num_columns != len(fields) for group in groups):
            raise ValueError("it has nested columns, and only flat tables can be read")

    @property
    def num_rows(self) -> int:
        """The number of rows of all row groups together."""
        return sum(self.rows)

    def bounds(self, name: str) -> list[tuple[int, int]] | None:
        """Return an integer column's minimum and maximum in each row group; None if unknown."""
        if self._metadata is None or not self.kinds[name].startswith(("int", "uint")):
            return None
        place = [*self.kinds].index(name)
        bounds = []
        with _errors():
            for group in range(len(self.rows)):
                statistics = self._metadata.row_group(group).column(place).statistics
                if statistics is None or not statistics.has_min_max:
                    return None
                bounds.append((int(statistics.min), int(statistics.max)))
        return bounds

    def read(self, names: Sequence[str] | None = None, groups: Sequence[int] | None = None) -> Columns:
        """Return the columns *names* of the row groups *groups* (default: all), concatenated.

        Texts are objects, and missing ones None. Numbers with missing values become floats, with
        NaN for those.
        """
        from ._arrow import to_numpy  # noqa: PLC0415

        table = self._read(names, groups)
        with _errors():
            return {name: to_numpy(table.column(name)) for name in table.column_names}

    def read_encoded(self, name: str, groups: Sequence[int]) -> npt.NDArray[Any] | TextColumn:
        """Return a column of some row groups; texts stay encoded, and none may be missing."""
        from ._arrow import to_numpy, to_texts  # noqa: PLC0415

        column = self._read([name], groups).column(name)
        with _errors():
            return to_texts(column) if self.kinds[name] == "text" else to_numpy(column)

    def records(self) -> list[dict[str, Any]]:
        """Return every row as a mapping of column to Python value; missing values are None."""
        table = self._read(None, None)
        with _errors():
            rows: list[dict[str, Any]] = table.to_pylist()
            return rows

    def _read(self, names: Sequence[str] | None, groups: Sequence[int] | None) -> pa.Table:
        chosen = [*self.kinds] if names is None else [*names]
        for name in chosen:
            if name not in self.kinds:
                raise ValueError(f"it has no column {name}")
            if self.kinds[name] == "other" and self.num_rows:
                raise ValueError(f"its column {name} contains neither numbers, booleans nor text")
        picked = [*range(len(self.rows))] if groups is None else [*groups]
        with self._opened() as file:
            table = file.read_row_groups(picked, columns=chosen, use_threads=False)
            table.validate(full=True)  # in a damaged file, codes may point past the dictionary
        if table.num_rows != sum(self.rows[group] for group in picked):
            raise ValueError("its columns do not have the number of rows in its metadata")
        return table.select(chosen)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        import pyarrow.parquet as pq  # noqa: PLC0415

        texts = [name for name, kind in self.kinds.items() if kind == "text"]
        checked = {"metadata": self._metadata, "page_checksum_verification": True}
        with (
            nullcontext(self._source) if self._source else open_file(self.path) as opened,
            _errors(),
            pq.ParquetFile(opened, **checked, read_dictionary=texts) as file,
        ):
            yield file


@contextmanager
def _errors() -> Iterator[None]:
    """Raise PyArrow's errors about a damaged file as `ValueError`."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        yield
    except (pa.ArrowException, OSError, OverflowError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(" ".join(str(error).split())) from error


class ParquetWriter:
    """Writes the Parquet file at *path*, one row group at a time.

    It is a context manager, and the file is complete after the block. *kinds* maps each column to
    its NumPy type or ``text``, and *note* is stored in the file. Pages have checksums and are
    compressed with snappy. Equal columns give equal bytes.
    """

    def __init__(self, path: str | Path, kinds: Mapping[str, str], note: str = "") -> None:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        from ._arrow import schema_of  # noqa: PLC0415

        self._kinds = dict(kinds)
        self._schema = schema_of(kinds).with_metadata({_NOTE: note} if note else None)
        # Ids and times increase, for which delta encoding takes a third of the space of dictionaries.
        growing = [name for name, kind in kinds.items() if kind in ("int64", "uint64")]
        # Given a path, PyArrow would refuse names that are not UTF-8, and take "s3:/x" for an address.
        self._file = pa.OSFile(os.fsencode(path), "wb")
        self._writer = pq.ParquetWriter(
            self._file,
            self._schema,
            column_encoding=dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
            use_dictionary=[name for name, kind in kinds.items() if kind[0] in "tiu" and name not in growing],
            # If a dictionary were split, its texts would be renumbered on reading.
            dictionary_pagesize_limit=_DICTIONARY_BYTES,
            write_page_checksum=True,
            store_schema=bool(note),  # the note is in the schema's metadata
        )

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._file:
                self._writer.close()
        except OSError:
            if error is None:
                raise

    def write(self, columns: Mapping[str, npt.NDArray[Any] | TextColumn]) -> None:
        """Write a row group; *columns* must be all columns of the file, of equal length."""
        import pyarrow as pa  # noqa: PLC0415

        from ._arrow import to_arrow  # noqa: PLC0415

        arrays = [
            to_arrow(columns[name] if kind == "text" else _of_kind(np.asarray(columns[name]), kind))
            for name, kind in self._kinds.items()
        ]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))


def _of_kind(column: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """Convert *column* to *kind*; raises `ValueError` if a value would change."""
    if column.dtype == kind:
        return column
    as_kind = column.astype(kind)
    if not np.array_equal(as_kind, column):
        raise ValueError(f"a column of {column.dtype} does not fit into {kind}")
    return as_kind
