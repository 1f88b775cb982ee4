"""Read tables by column, whole or rank by rank, from memory, a file or pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from ._text import TextColumn

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Columns = dict[str, npt.NDArray[Any]]
CodedColumns = dict[str, Any]
"""Columns by name: NumPy arrays of numbers, and `TextColumn`s."""


class Source(Protocol):
    """Something that provides a table's columns piece by piece, such as a `ParquetFile`."""

    rows: Sequence[int]

    def bounds(self, name: str) -> list[tuple[int, int]] | None:
        """Return a column's minimum and maximum in each piece; None if unknown."""

    def read(self, names: Sequence[str] | None = None, groups: Sequence[int] | None = None) -> Columns:
        """Return the columns *names* of the pieces *groups* (default: all), concatenated."""


class Table:
    """A table of columns of equal length, which are read from *source* only when used.

    *rows* has the number of rows of each piece (row group). Reading raises the errors of *source*, which has
    the rows of all ranks. *distinct*, if given, has only the rows of one rank per class of equal ranks.
    """

    def __init__(self, source: Source, distinct: Table | None = None) -> None:
        self._source = source
        self._distinct = distinct
        self._frame: pd.DataFrame | None = None
        self._last: tuple[int, Sequence[str], dict[int, Columns]] = (-1, (), {})

    @classmethod
    def of(cls, rows: Table | CodedColumns | pd.DataFrame) -> Table:
        """Return a table of columns in memory, or of a pandas table, which `frame` then returns."""
        if isinstance(rows, Table):
            return rows
        if isinstance(rows, dict):
            return cls(Memory(rows))
        table = cls(Memory({str(name): rows[name].to_numpy() for name in rows.columns}))
        table._frame = rows
        return table

    @property
    def rows(self) -> Sequence[int]:
        """The number of rows of each piece (row group)."""
        return self._source.rows

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return sum(self._source.rows)

    @property
    def in_memory(self) -> bool:
        """Whether all columns are in memory."""
        return isinstance(self._source, Memory)

    @property
    def distinct(self) -> Table:
        """The rows of the lowest rank of each class of equal ranks."""
        return self._distinct or self

    def columns(self) -> Columns:
        """Return all columns, and cache them in memory."""
        if not isinstance(self._source, Memory):
            self._source = Memory(self._source.read())
        return self._source.columns

    def frame(self) -> pd.DataFrame:
        """Return the table as a pandas table, the same object for every call."""
        if self._frame is None:
            self._frame = frame_of(self.columns())
        return self._frame

    def read(self, names: Sequence[str] | None = None, pieces: Sequence[int] | None = None) -> Columns:
        """Return the columns *names* of *pieces* (default: all), concatenated."""
        return self._source.read(names, pieces)

    def bounds(self, name: str) -> list[tuple[int, int]] | None:
        """Return a column's minimum and maximum in each piece; None if unknown."""
        return self._source.bounds(name)

    def by_rank(
        self, names: Sequence[str], wanted: Callable[[int], bool] = lambda rank: True
    ) -> Iterator[tuple[int, Columns]]:
        """Yield each *wanted* rank that has rows, with the columns *names* sorted by ``node_id``."""
        columns = [*dict.fromkeys(("rank", "node_id", *names))]
        bounds = self._ranks()
        if bounds is None:
            every = self.columns()
            own_ranks = ranks_of({name: every[name] for name in columns})
            yield from ((rank, own) for rank, own in own_ranks if wanted(rank))
            return
        for piece, (least, most) in enumerate(bounds):
            if any(wanted(rank) for rank in range(least, most + 1)):
                own_ranks = ranks_of(self.read(columns, [piece]))
                yield from ((rank, own) for rank, own in own_ranks if wanted(rank))

    def of_rank(self, rank: int, names: Sequence[str]) -> Columns:
        """Return ``node_id`` and the columns *names* of one rank, sorted as in `by_rank`.

        The last piece read is cached.
        """
        bounds = self._ranks()
        place = next((i for i, (least, most) in enumerate(bounds or ()) if least <= rank <= most), -1)
        columns = [*dict.fromkeys(("rank", "node_id", *names))]
        if bounds is None or place < 0:
            every = self.columns() if bounds is None else self.read(columns, [])
            rows = np.flatnonzero(every["rank"] == rank)
            rows = rows[np.argsort(every["node_id"][rows], kind="stable")]
            return {name: every[name][rows] for name in columns if name != "rank"}
        last = self._last
        if last[:2] != (place, columns):
            last = self._last = place, columns, dict(ranks_of(self.read(columns, [place])))
        none = {name: column[:0] for own in last[2].values() for name, column in own.items()}
        return last[2].get(rank, none)

    def _ranks(self) -> list[tuple[int, int]] | None:
        """Return each piece's first and last rank, or None if a rank spans two pieces."""
        bounds = self._source.bounds("rank")
        if bounds is None or any(low <= most for (_, most), (low, _) in pairwise(bounds)):
            return None
        return bounds


class Memory:
    """Columns in memory, as a single piece."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.rows: Sequence[int] = (len(next(iter(columns.values()))) if columns else 0,)

    def bounds(self, name: str) -> list[tuple[int, int]] | None:
        """Return a column's minimum and maximum; None if it is empty or not of integers."""
        column = self.columns[name]
        return [(int(column.min()), int(column.max()))] if len(column) and column.dtype.kind in "iu" else None

    def read(self, names: Sequence[str] | None = None, groups: Sequence[int] | None = None) -> Columns:
        """Return the columns *names* (default: all), without rows if *groups* is empty."""
        rows = slice(None) if groups is None or len(groups) else slice(0)
        return {name: self.columns[name][rows] for name in (self.columns if names is None else names)}


class TableField:
    """A dataclass field that accepts columns or tables, and reads as a pandas table.

    *kinds*, the types of its columns, makes an empty table its default.
    """

    def __init__(self, kinds: Mapping[str, str] | None = None) -> None:
        self._kinds = kinds

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Table: ...

    @overload
    def __get__(self, instance: object, owner: type) -> pd.DataFrame: ...

    def __get__(self, instance: object | None, owner: type) -> Table | pd.DataFrame:
        if instance is not None and self._name in vars(instance):
            table: Table = vars(instance)[self._name]
            return table.frame()
        if instance is not None or self._kinds is None:
            raise AttributeError(self._name)
        return Table.of({name: np.empty(0, kind) for name, kind in self._kinds.items()})

    def __set__(self, instance: object, value: pd.DataFrame | Columns | Table) -> None:
        if isinstance(value, Table) and not value.num_rows:
            value = value.columns()  # the default is shared, and its pandas table would be mutable
        vars(instance)[self._name] = Table.of(value)


def frame_of(columns: CodedColumns) -> pd.DataFrame:
    """Return *columns* as a pandas table with texts as objects."""
    import pandas as pd  # noqa: PLC0415 - slow to import

    # Without a dtype, pandas would scan texts and convert them to another type.
    series = {}
    for name, column in columns.items():
        values = np.asarray(column) if isinstance(column, TextColumn) else column
        series[name] = pd.Series(values if values.flags.writeable else values.copy(), dtype=values.dtype)
    table: pd.DataFrame = pd.DataFrame(series, copy=False)
    return table


def ranks_of(columns: Columns) -> Iterator[tuple[int, Columns]]:
    """Yield each rank with its rows, sorted by ``node_id``."""
    ranks, ids = columns["rank"], columns["node_id"]
    if ((ranks[1:] < ranks[:-1]) | ((ranks[1:] == ranks[:-1]) & (ids[1:] < ids[:-1]))).any():
        order = np.lexsort((ids, ranks))
        columns = {name: column[order] for name, column in columns.items()}
        ranks = columns["rank"]
    ends = [*(np.flatnonzero(ranks[1:] != ranks[:-1]) + 1).tolist(), len(ranks)]
    start = 0
    for end in ends if len(ranks) else []:
        rank, own = int(ranks[start]), slice(start, end)
        start = end
        yield rank, {name: column[own] for name, column in columns.items() if name != "rank"}


def frame_bytes(table: pd.DataFrame) -> bytes:
    """Return *table*, without its index, as the bytes of a Parquet file.

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
