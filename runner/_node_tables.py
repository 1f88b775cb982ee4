"""Sources of node tables: the engine's records, saved files, and ranks that equal other ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import StudyError
from ..support.table import Columns, Memory, ParquetFile, ParquetWriter, Table

# Ranks share a piece of up to this many rows, because very small pieces cost more time than they save.
MIN_ROWS = 1 << 16


class RecordedNodes:
    """The nodes of the simulated ranks in the engine's *output*, as a source of a `Table`.

    The pieces of the source are whole ranks, in ascending order of rank and node. The source owns the output.
    """

    def __init__(self, output: Any) -> None:
        self._output = output
        self._ends, pieces = [0], []
        rows = 0
        counts: list[int] = output.node_counts.tolist()
        for end, count in enumerate(counts, 1):
            rows += count
            if rows >= MIN_ROWS or end == len(counts):
                self._ends.append(end)
                pieces.append(rows)
                rows = 0
        self.rows: Sequence[int] = tuple(pieces)

    def bounds(self, name: str) -> list[tuple[int, int]] | None:
        """Return None, because the engine records no bounds of columns."""
        return None

    def read(self, names: Sequence[str] | None = None, groups: Sequence[int] | None = None) -> Columns:
        """Return columns of the given pieces, or of all pieces."""
        spans = [*pairwise(self._ends)]
        parts = [self._read(0, self._ends[-1])] if groups is None else [self._read(*spans[i]) for i in groups]
        if len(parts) > 1:
            parts = [{name: np.concatenate([part[name] for part in parts]) for name in parts[0]}]
        return {name: column for name, column in parts[0].items() if names is None or name in names}

    def _read(self, first: int, last: int) -> Columns:
        columns: Columns = self._output.nodes(first, last)
        return columns | {"cause_is_dependency": columns["cause_is_dependency"].view(np.bool_)}

    def __reduce__(self) -> tuple[type[Memory], tuple[Columns]]:
        """Pickle and copy the columns instead of the engine's records."""
        return Memory, (self.read(),)


def write_table(table: Table, path: Path) -> None:
    """Write *table* to *path*, with a row group per piece, or per some whole ranks of a table in memory."""
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
    if len(ranks) > MIN_ROWS and not (ranks[1:] < ranks[:-1]).any():
        ends = [*(np.flatnonzero(ranks[1:] != ranks[:-1]) + 1).tolist(), *ends]
    start = 0
    for end in ends:
        if end - start >= MIN_ROWS or end == ends[-1]:
            yield {name: column[start:end] for name, column in columns.items()}
            start = end


class SavedNodes(ParquetFile):
    """The file of a result's nodes, which raises `StudyError` if it cannot be read."""

    def read(self, names: Sequence[str] | None = None, groups: Sequence[int] | None = None) -> Columns:
        """Return columns of the given row groups, or of all row groups."""
        try:
            return super().read(names, groups)
        except (OSError, ValueError) as error:
            raise StudyError(
                f"{self.path} is missing or damaged ({error}). Next: delete the folder and repeat the run."
            ) from error


Ranks = npt.NDArray[np.integer[Any]]
_ORIGIN = ("rank", "node_id", "origin_rank", "origin_node")


def nodes_of_all(distinct: Table, representatives: Ranks, counts: Ranks | None = None) -> Table:
    """Return the nodes of all ranks, copied from the nodes of their *representatives* in *distinct*.

    *counts* are the numbers of rows of the ranks, if the numbers are known without reading *distinct*.
    """
    return Table(_Nodes(distinct, representatives, counts), distinct)


def calls_of_all(distinct: Table, representatives: Ranks) -> Table:
    """Return the collectives of all ranks, copied from their *representatives* in *distinct*."""
    return Table(_Calls(distinct, representatives), distinct)


class _Nodes:
    """The nodes of all ranks in ascending order, as a source of a `Table` with one piece per rank."""

    def __init__(self, distinct: Table, representatives: Ranks, counts: Ranks | None) -> None:
        self._distinct = distinct
        self._representatives = representatives
        if counts is None:
            own = np.bincount(distinct.read(["rank"])["rank"], minlength=len(representatives))
            counts = own[representatives].astype(np.int32)
        self.rows: Sequence[int] = tuple(counts.tolist())

    def bounds(self, name: str) -> list[tuple[int, int]] | None:
        """Return the rank of each piece as bounds of the column ``rank``, or None for other columns."""
        return [(rank, rank) for rank in range(len(self.rows))] if name == "rank" else None

    def read(self, names: Sequence[str] | None = None, groups: Sequence[int] | None = None) -> Columns:
        """Return columns of the given ranks, or of all ranks."""
        ranks = np.arange(len(self.rows)) if groups is None else np.array(groups, np.int64)
        columns, ends = self._of(np.unique(self._representatives[ranks]), names)
        spans = [ends[rank] for rank in self._representatives[ranks].tolist()]
        rows = np.concatenate([np.arange(*span) for span in spans]) if spans else np.empty(0, np.int64)
        copies = {name: column[rows] for name, column in columns.items()}
        own = np.repeat(ranks, [end - start for start, end in spans]).astype(copies["rank"].dtype)
        if "origin_rank" in copies:
            rank, node_id, origin_rank, origin_node = (copies[name] for name in _ORIGIN)
            itself = (origin_rank == rank) & (origin_node == node_id)
            copies["origin_rank"] = np.where(itself, own, origin_rank)
        copies["rank"] = own
        return copies if names is None else {name: copies[name] for name in names}

    def _of(
        self, representatives: Ranks, names: Sequence[str] | None
    ) -> tuple[Columns, dict[int, tuple[int, int]]]:
        """Return the columns of *representatives*, and the first and the end row of each representative."""
        needed = names
        if names is not None:
            needed = [*dict.fromkeys([*names, *(_ORIGIN if "origin_rank" in names else ("rank",))])]
        if len(representatives) == 1 and needed is not None:
            (rank,) = representatives.tolist()
            columns = self._distinct.of_rank(rank, needed)
            count = len(columns["node_id"])
            return columns | {"rank": np.full(count, rank, np.int32)}, {rank: (0, count)}
        columns = self._distinct.read(needed, [] if not len(representatives) else None)
        starts, stops = (
            np.searchsorted(columns["rank"], representatives, side).tolist() for side in ("left", "right")
        )
        return columns, dict(zip(representatives.tolist(), zip(starts, stops, strict=True), strict=True))


class _Calls:
    """The collectives of all ranks by collective and rank, as a source of a `Table` of one piece."""

    def __init__(self, distinct: Table, representatives: Ranks) -> None:
        self._distinct = distinct
        self._order = np.argsort(representatives, kind="stable")
        self._sizes = np.bincount(representatives, minlength=len(representatives))
        self.rows: Sequence[int] = (int(self._sizes[distinct.read(["rank"])["rank"]].sum()),)

    def bounds(self, name: str) -> list[tuple[int, int]] | None:
        """Return None, because the bounds of columns are unknown before the columns are computed."""
        return None

    def read(self, names: Sequence[str] | None = None, groups: Sequence[int] | None = None) -> Columns:
        """Return columns of all ranks, or of no rank for empty *groups*."""
        needed = None if names is None else [*dict.fromkeys([*names, "rank", "collective"])]
        distinct = self._distinct.read(needed, groups)
        counts = self._sizes[distinct["rank"]]
        rows = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        ranks = self._order[(np.cumsum(self._sizes) - self._sizes)[distinct["rank"][rows]] + place]
        order = np.lexsort((ranks, distinct["collective"][rows]))
        rows = rows[order]
        copies = {name: column[rows] for name, column in distinct.items()}
        copies["rank"] = ranks[order].astype(distinct["rank"].dtype)
        return copies if names is None else {name: copies[name] for name in names}
