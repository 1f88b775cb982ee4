"""Write and read the tables of a saved result, a piece of whole ranks at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ..errors import StudyError
from ..support.table import Columns, ParquetFile, ParquetWriter, Table
from ._recorded_nodes import LEAST_ROWS

__all__ = ["SavedNodes", "write_table"]


def write_table(table: Table, path: Path) -> None:
    """Write *table* to *path*: each piece, or some whole ranks of one in memory, is a row group."""
    pieces = _pieces(table)
    first = next(pieces)
    with ParquetWriter(path, {name: column.dtype.name for name, column in first.items()}) as writer:
        writer.write(first)
        for columns in pieces:
            writer.write(columns)


def _pieces(table: Table) -> Iterator[Columns]:
    if not table.in_memory:
        for piece in range(len(table.rows)):
            yield table.read(pieces=[piece])
        return
    columns = table.columns()
    ranks = columns.get("rank", np.empty(0, np.int32))
    ends = [table.num_rows]
    if len(ranks) > LEAST_ROWS and not (ranks[1:] < ranks[:-1]).any():
        ends = [*(np.flatnonzero(ranks[1:] != ranks[:-1]) + 1).tolist(), *ends]
    start = 0
    for end in ends:
        if end - start >= LEAST_ROWS or end == ends[-1]:
            yield {name: column[start:end] for name, column in columns.items()}
            start = end


class SavedNodes(ParquetFile):
    """The file of a result's nodes. Opening raises the errors of `ParquetFile`, reading `StudyError`."""

    def read(self, names: Sequence[str] | None = None, groups: Sequence[int] | None = None) -> Columns:
        """Return columns of some pieces, or of all."""
        try:
            return super().read(names, groups)
        except (OSError, ValueError) as error:
            raise StudyError(
                f"{self.path} is missing or damaged ({error}); delete the folder and run it again."
            ) from error
