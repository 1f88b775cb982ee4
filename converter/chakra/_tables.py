"""Store the graphs of a workload as Parquet tables, which load many times faster than ``.et`` files.

``PREFIX.nodes.parquet`` and ``PREFIX.edges.parquet`` have the concatenated rows of all programs, and the same
note on their source.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import tokenize
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ...errors import WorkloadFormatError
from ...support import new_file
from ...support.table import ParquetFile, ParquetWriter
from ._graph import EDGE_COLUMNS, NODE_COLUMNS, Column, ColumnsOnDemand, Graph, joined

_KINDS = (
    {name: "text" if dtype == "str" else dtype for name, (dtype, _) in NODE_COLUMNS.items()},
    EDGE_COLUMNS,
)
# Minimum and maximum rows of a row group. Small programs share a row group; large programs have several.
_MIN_ROWS, _MAX_ROWS = 1 << 16, 1 << 18
_CACHED_COLUMNS = 128
_DAMAGES_OF_0_2 = (
    OSError, ValueError, KeyError, EOFError, TypeError, MemoryError, NotImplementedError, struct.error,
    zipfile.BadZipFile, zlib.error, SyntaxError, RecursionError, tokenize.TokenError,
)  # fmt: skip


@dataclass(frozen=True)
class Tables:
    """The content of a workload's tables: graphs by SHA-256 of their encoded file, and edges by rank."""

    graphs: dict[str, Graph]
    edges: Mapping[int, Mapping[str, np.ndarray]]


class _Program(msgspec.Struct):
    """A program in the tables; a program that is not *whole* has fields that the tables lack."""

    rank: int
    nodes: int
    edges: int
    digest: str
    file_bytes: int
    whole: bool


class _Note(msgspec.Struct):
    """The note of the tables; *program_of_file* maps each rank to the program in the rank's file."""

    programs: list[_Program]
    program_of_file: dict[int, int]


def tables_paths(prefix: Path) -> tuple[Path, Path]:
    """Return the paths of the nodes and of the edges of the workload *prefix*."""
    nodes, edges = (prefix.parent / f"{prefix.name}.{of}.parquet" for of in ("nodes", "edges"))
    return nodes, edges


def save_tables(
    prefix: Path, graphs: Sequence[Graph], digests: Sequence[str], program_of_file: Mapping[int, int]
) -> None:
    """Write the columns of all *graphs*, each file atomically.

    *digests* are the SHA-256 of the graphs' encoded files, which exist already. *program_of_file* is the
    index of the graph in the file of each rank. If a graph has fields without a column, only its edges are
    read from the tables.
    """
    ranks = {program: rank for rank, program in program_of_file.items()}
    programs = [
        _Program(
            graph.rank,
            graph.num_nodes,
            graph.num_edges,
            digest,
            (prefix.parent / f"{prefix.name}.{ranks[number]}.et").stat().st_size,
            not graph.extra,
        )
        for number, (graph, digest) in enumerate(zip(graphs, digests, strict=True))
    ]
    note = msgspec.json.encode(_Note(programs, dict(program_of_file)))
    _write(prefix, graphs, note.decode())
    _archive_of_0_2(prefix).unlink(missing_ok=True)


def write_graph(prefix: Path, graph: Graph, note: str) -> None:
    """Write the columns of *graph* and a *note* for `read_graph`; raises `OSError` if writing fails.

    Fields without a column are not written.
    """
    _write(prefix, [graph], note, sync=False)


def _write(prefix: Path, graphs: Sequence[Graph], note: str, *, sync: bool = True) -> None:
    _return_freed_memory()
    nodes, edges = tables_paths(prefix)
    with new_file(nodes, sync=sync) as new_nodes, new_file(edges, sync=sync) as new_edges:
        for path, kinds, of_graphs in (
            (new_nodes, _KINDS[0], [graph.node_columns for graph in graphs]),
            (new_edges, _KINDS[1], [graph.edge_columns for graph in graphs]),
        ):
            with ParquetWriter(path, {"rank": "int64", **kinds}, note) as writer:
                for piece in _pieces([graph.rank for graph in graphs], of_graphs, [*kinds]):
                    writer.write(piece)


def _return_freed_memory() -> None:
    """Return freed memory to the system, because glibc keeps the large memory of a conversion.

    PyArrow, which is loaded next, needs as much memory. Without this call, both amounts would add up to the
    peak memory.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _pieces(
    ranks: Sequence[int], parts: Sequence[Mapping[str, Column]], names: Sequence[str]
) -> Iterator[dict[str, Column]]:
    """Yield the columns of each row group in order."""
    counts = [len(columns[names[0]]) for columns in parts]
    first, rows = 0, 0
    for last, count in enumerate(counts, 1):
        rows += count
        if rows < _MIN_ROWS and last < len(parts):
            continue
        together = parts[first:last]
        own_ranks = np.repeat(np.array(ranks[first:last], np.int64), counts[first:last])
        if len(together) > 1:
            together = [{name: joined([own[name] for own in together]) for name in names}]
        for start in range(0, max(rows, 1), _MAX_ROWS):
            piece = slice(start, min(start + _MAX_ROWS, rows))
            yield {"rank": own_ranks[piece], **{name: _part(together[0], name, piece) for name in names}}
        first, rows = last, 0


def _part(columns: Mapping[str, Column], name: str, rows: slice) -> Column:
    """Return the given *rows* of a column; only these rows of a graph in a file are read."""
    return columns.part(name, rows) if isinstance(columns, SavedColumns) else columns[name][rows]


def load_tables(prefix: Path) -> Tables | None:
    """Return the content of a workload's tables, or None if there are no tables; columns are read on demand.

    The ``.et`` files are authoritative: a graph is not read from the tables if its file has another digest.
    Raises `ValueError` for damaged tables. A damaged column is detected when the column is read.
    """
    try:
        files = _open(prefix)
        if files is None:
            return _tables_before_0_3(prefix)
        note = msgspec.json.decode(files[0].note, type=_Note)
    except (OSError, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from error
    nodes, edges = (_Rows(file) for file in files)
    node_parts = _parts(files[0], [program.nodes for program in note.programs])
    edge_parts = _parts(files[1], [program.edges for program in note.programs])
    graphs: dict[str, Graph] = {}
    edges_of: dict[int, Mapping[str, np.ndarray]] = {}
    for program, own, between in zip(note.programs, node_parts, edge_parts, strict=True):
        edges_of[program.rank] = SavedColumns(edges, EDGE_COLUMNS, between)
        if program.whole:
            columns = SavedColumns(nodes, NODE_COLUMNS, own)
            graphs[program.digest] = Graph(program.rank, columns, edges_of[program.rank])
    return Tables(graphs, edges_of)


def read_graph(prefix: Path, rank: int) -> tuple[Graph, str] | None:
    """Return the graph of *rank* that `write_graph` wrote, and the note, or None if there is no graph.

    Raises `ValueError` for damaged tables. A damaged column raises `WorkloadFormatError` on its first use.
    The files are closed after reading.
    """
    files = _open(prefix, stays_open=False)
    if files is None:
        return None
    node_file, edge_file = files
    nodes = SavedColumns(_Rows(node_file, cached=0), NODE_COLUMNS, slice(0, node_file.num_rows))
    edges = SavedColumns(_Rows(edge_file, cached=0), EDGE_COLUMNS, slice(0, edge_file.num_rows))
    return Graph(rank, nodes, edges), files[0].note


def _open(prefix: Path, *, stays_open: bool = True) -> tuple[ParquetFile, ParquetFile] | None:
    """Return the files of nodes and edges, or None if there are none; raises `ValueError` or `OSError`."""
    paths = tables_paths(prefix)
    if not all(path.is_file() for path in paths):
        return None
    nodes, edges = (ParquetFile(path, stays_open=stays_open) for path in paths)
    if not nodes.note and not edges.note:
        return None
    if nodes.note != edges.note:
        raise ValueError("its nodes and its edges belong to different workloads")
    for file, kinds in zip((nodes, edges), _KINDS, strict=True):
        expected = {"rank": "int64", **kinds}
        if file.kinds != expected:
            raise ValueError(f"the columns of {file.path.name} are {file.kinds}, not {expected}")
    return nodes, edges


def _parts(file: ParquetFile, counts: Sequence[int]) -> list[slice]:
    """Return the range of rows of each graph in *file*."""
    ends = np.cumsum([0, *counts]).tolist()
    if min(counts, default=0) < 0 or ends[-1] != file.num_rows:
        raise ValueError(f"{file.path.name} has {file.num_rows} rows, not {ends[-1]}")
    return [slice(first, end) for first, end in pairwise(ends)]


class _Rows:
    """Columns of a *file*; the most recently read row groups are *cached* for all threads."""

    def __init__(self, file: ParquetFile, cached: int = _CACHED_COLUMNS) -> None:
        self._file = file
        self._ends = np.cumsum(file.rows)
        self._cached = cached
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[str, int, int], Column] = OrderedDict()

    def column(self, name: str, rows: slice) -> Column:
        """Return the given *rows* of a column; raises `WorkloadFormatError` for a damaged column."""
        groups, within = self._groups(rows)
        key = (name, groups.start, groups.stop)
        with self._lock:
            whole = self._cache.pop(key, None)
            if whole is None:
                whole = self._read(name, groups)
            self._cache[key] = whole
            if len(self._cache) > self._cached:
                self._cache.popitem(last=False)
        return whole[within]

    def uncached(self, name: str, rows: slice) -> Column:
        """Return the given *rows* of a column, without changing the cache."""
        groups, within = self._groups(rows)
        with self._lock:
            whole = self._cache.get((name, groups.start, groups.stop))
        return (self._read(name, groups) if whole is None else whole)[within]

    def _read(self, name: str, groups: range) -> Column:
        try:
            return self._file.read_encoded(name, groups)
        except (OSError, ValueError) as error:
            raise WorkloadFormatError(
                f"{self._file.path} is damaged ({error}). Delete it or convert again."
            ) from error

    def _groups(self, rows: slice) -> tuple[range, slice]:
        """Return the row groups of *rows*, and the position of *rows* within these groups."""
        if rows.start == rows.stop:
            return range(0), slice(0)
        first, last = np.searchsorted(self._ends, [rows.start, rows.stop - 1], "right").tolist()
        before = int(self._ends[first - 1]) if first else 0
        return range(first, last + 1), slice(rows.start - before, rows.stop - before)


class SavedColumns(ColumnsOnDemand):
    """The columns *names* of one graph, which read the graph's *rows* of a file on demand.

    Raises `WorkloadFormatError` for a damaged column.
    """

    def __init__(self, source: _Rows, names: Iterable[str], rows: slice) -> None:
        self._source = source
        self.names = tuple(names)
        self._own = rows

    def __getitem__(self, name: str) -> Any:
        if name not in self.names:
            raise KeyError(name)
        return self._source.column(name, self._own)

    def take(self, name: str, rows: np.ndarray) -> Column:
        """Return *rows* of a column, without caching."""
        return self._source.uncached(name, self._own)[rows]

    def part(self, name: str, rows: slice) -> Column:
        """Return the *rows* of a column, without caching."""
        first = self._own.start
        return self._source.uncached(name, slice(first + rows.start, first + rows.stop))


def _archive_of_0_2(prefix: Path) -> Path:
    return prefix.parent / f"{prefix.name}.tables.npz"


def _tables_before_0_3(prefix: Path) -> Tables | None:
    """Return the edges with reasons that versions 0.1 and 0.2 stored in addition to ``.et`` files."""
    archive, parquet = _archive_of_0_2(prefix), tables_paths(prefix)[1]
    path = next((path for path in (archive, parquet) if path.is_file()), None)
    if path is None:
        return None
    try:
        table = _edges_of_0_2(path) if path == archive else ParquetFile(path).read(["rank", *EDGE_COLUMNS])
        order = np.argsort(table["rank"], kind="stable")
        ranks, starts = np.unique(table["rank"][order], return_index=True)
        edges = {
            int(rank): {name: table[name][part].astype(kind) for name, kind in EDGE_COLUMNS.items()}
            for rank, part in zip(ranks, np.split(order, starts[1:]), strict=True)
        }
    except _DAMAGES_OF_0_2 as error:
        raise ValueError(f"{path.name}: {error}") from error
    return Tables({}, edges)


def _edges_of_0_2(path: Path) -> dict[str, np.ndarray]:
    with path.open("rb") as file, np.load(file) as archive:
        counts = np.diff(archive["edge_ends"], prepend=0)
        edges = {name: archive[f"edge_{name}"] for name in EDGE_COLUMNS}
        return {"rank": np.repeat(archive["ranks"], counts), **edges}


def saved_node_count(prefix: Path) -> int | None:
    """Return the total number of nodes of a workload's programs, or None if there are no tables."""
    file = _nodes_file(prefix)
    return None if file is None else file.num_rows


def _nodes_file(prefix: Path) -> ParquetFile | None:
    """Return the table of nodes, or None if missing or damaged."""
    try:
        file = ParquetFile(tables_paths(prefix)[0], stays_open=True)
    except (OSError, ValueError):
        return None
    return file if file.note else None


def unchanged_files(prefix: Path, ranks: Iterable[int] | None = None) -> dict[int, str]:
    """Return the SHA-256 of the ranks' files that are unchanged since the tables were written.

    The default of *ranks* is all ranks. A file counts as unchanged if its size is the recorded size, and its
    last status change precedes that of the tables.
    """
    file = _nodes_file(prefix)
    if file is None:
        return {}
    try:
        note = msgspec.json.decode(file.note, type=_Note)
        made_ns = file.path.stat().st_ctime_ns
        program_of = {rank: note.programs[number] for rank, number in note.program_of_file.items()}
    except (OSError, IndexError, msgspec.MsgspecError):
        return {}
    unchanged = {}
    for rank in program_of if ranks is None else ranks:
        if rank in program_of:
            with suppress(OSError):
                status = os.stat(f"{prefix}.{rank}.et")
                if status.st_size == program_of[rank].file_bytes and status.st_ctime_ns < made_ns:
                    unchanged[rank] = program_of[rank].digest
    return unchanged
