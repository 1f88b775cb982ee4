"""The nodes of a saved result, read by rank and column: never more of them than is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from ..errors import StudyError
from ._arrow import arrow_table, columns_of_arrow
from ._recorded_nodes import LEAST_ROWS, Columns

__all__ = ["SavedNodes", "write_nodes", "write_pieces"]


def write_pieces(pieces: Iterable[Columns], types: Mapping[str, str], path: Path) -> None:
    """Write the columns of *pieces*, each of whole ranks in ascending order, to *path*: one row group each.

    *types* are the columns, and the type of each.
    """
    schema = pa.schema([(name, pa.from_numpy_dtype(np.dtype(kind))) for name, kind in types.items()])
    with _writer(path, schema) as writer:
        for columns in pieces:
            table = arrow_table(columns, schema.names).cast(schema)
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def write_nodes(nodes: Columns, path: Path) -> None:
    """Write *nodes* to *path* in pieces (row groups) of whole ranks, if they stand in order."""
    ranks = nodes["rank"]
    ends = [len(ranks)]
    if len(ranks) > LEAST_ROWS and not (ranks[1:] < ranks[:-1]).any():
        ends = [*(np.flatnonzero(ranks[1:] != ranks[:-1]) + 1).tolist(), len(ranks)]
    table = arrow_table(nodes)
    with _writer(path, table.schema) as writer:
        start = 0
        for end in ends:
            if end - start >= LEAST_ROWS or end == len(ranks):
                writer.write_table(table.slice(start, end - start), row_group_size=max(1, end - start))
                start = end


@contextmanager
def _writer(path: Path, schema: pa.Schema) -> Iterator[pyarrow.parquet.ParquetWriter]:
    """Open a file of nodes with the columns of *schema* at *path*."""
    # Ids and times grow from row to row: their differences take a third of the room and a fifth of the time.
    growing = [field.name for field in schema if field.type == pa.int64()]
    encoding: dict[str, Any] = {
        "column_encoding": dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
        "use_dictionary": [name for name in schema.names if name not in growing],
    }
    with pyarrow.parquet.ParquetWriter(path, schema, **encoding) as writer:
        yield writer


class SavedNodes:
    """The file of nodes at *path*; made, it raises what pyarrow raises where that is missing or damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with pyarrow.parquet.ParquetFile(path) as file:
            head = file.metadata
            kinds = file.schema_arrow
            self.kinds = {
                name: np.dtype(kinds.field(name).type.to_pandas_dtype()).kind for name in kinds.names
            }
            self._place = {name: place for place, name in enumerate(kinds.names)}
            self.num_rows = int(head.num_rows)
            self._groups = [head.row_group(number) for number in range(head.num_row_groups)]

    @property
    def num_pieces(self) -> int:
        """How many pieces the file has."""
        return len(self._groups)

    def bounds(self, name: str) -> list[tuple[int, int]] | None:
        """Return the least and the greatest value of a column in each piece; None if that is not known."""
        found = []
        for group in self._groups:
            statistics = group.column(self._place[name]).statistics
            if statistics is None or not statistics.has_min_max:
                return None
            found.append((int(statistics.min), int(statistics.max)))
        return found

    def read(self, pieces: Sequence[int], names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
        """Return some columns of some pieces, one behind the other."""
        try:
            with pyarrow.parquet.ParquetFile(self.path) as file:
                table = file.read_row_groups([*pieces], columns=[*names], use_threads=False)
        except (OSError, ValueError) as error:
            raise StudyError(
                f"{self.path} is missing or damaged ({error}); delete the folder and run it again."
            ) from error
        return columns_of_arrow(table, names)
