"""The nodes of a saved result, read by rank and column: never more of them than is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import StudyError
from ..support.table import ParquetFile, ParquetWriter
from ._recorded_nodes import LEAST_ROWS, Columns

__all__ = ["SavedNodes", "write_columns", "write_nodes", "write_pieces"]


def write_pieces(pieces: Iterable[Columns], types: Mapping[str, str], path: Path) -> None:
    """Write the columns of *pieces*, each of whole ranks in ascending order, to *path*: one row group each.

    *types* are the columns, and the type of each.
    """
    with ParquetWriter(path, types) as writer:
        for columns in pieces:
            writer.write(columns)


def write_nodes(nodes: Columns, path: Path) -> None:
    """Write *nodes* to *path* in pieces (row groups) of whole ranks, if they stand in order."""
    ranks = nodes["rank"]
    ends = [len(ranks)]
    if len(ranks) > LEAST_ROWS and not (ranks[1:] < ranks[:-1]).any():
        ends = [*(np.flatnonzero(ranks[1:] != ranks[:-1]) + 1).tolist(), len(ranks)]
    write_pieces(_pieces(nodes, ends), _types(nodes), path)


def _pieces(nodes: Columns, ends: Sequence[int]) -> Iterable[Columns]:
    start = 0
    for end in ends:
        if end - start >= LEAST_ROWS or end == ends[-1]:
            yield {name: column[start:end] for name, column in nodes.items()}
            start = end


def write_columns(columns: Columns, path: Path) -> None:
    """Write a table of *columns* to *path*."""
    write_pieces([columns], _types(columns), path)


def _types(columns: Columns) -> dict[str, str]:
    return {name: column.dtype.name for name, column in columns.items()}


class SavedNodes:
    """The file of nodes at *path*; made, it raises `OSError` or `ValueError` where that is missing or bad."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = ParquetFile(path)
        self.kinds = {
            name: np.dtype(kind).kind if kind not in ("text", "other") else "O"
            for name, kind in self._file.kinds.items()
        }
        self.num_rows = self._file.num_rows

    @property
    def num_pieces(self) -> int:
        """How many pieces the file has."""
        return len(self._file.rows)

    def bounds(self, name: str) -> list[tuple[int, int]] | None:
        """Return the least and the greatest value of a column in each piece; None if that is not known."""
        return self._file.bounds(name)

    def read(self, pieces: Sequence[int], names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
        """Return some columns of some pieces, one behind the other."""
        try:
            return self._file.read(names, pieces)
        except (OSError, ValueError) as error:
            raise StudyError(
                f"{self.path} is missing or damaged ({error}); delete the folder and run it again."
            ) from error
