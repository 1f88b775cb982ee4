"""The tables of a workload: its graphs as plain columns, which are read many times faster than ``.et`` files.

``PREFIX.tables.npz`` is a NumPy archive. Parquet would be smaller, but loading its library takes longer than
converting a rank; `Workload.node_table` and the exports create it on demand.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ...support import new_file
from ...support.table import ParquetFile
from ._archive import DAMAGES, Archive, SavedColumns
from ._graph import EDGE_COLUMNS, NODE_COLUMNS, Graph, byte_table

__all__ = [
    "Spool",
    "Tables",
    "load_tables",
    "save_tables",
    "saved_columns",
    "saved_node_count",
    "tables_path",
    "unchanged_files",
    "write_array",
]

_KINDS = (np.int8, np.int16, np.int32, np.int64)
_IN_MEMORY = 1 << 22  # bytes of a column that are buffered before writing
_ROWS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Tables:
    """The content of the tables: whole graphs by the SHA-256 of their encoded file, and all edges by rank."""

    graphs: dict[str, Graph]
    edges: Mapping[int, Mapping[str, np.ndarray]]


def tables_path(prefix: Path) -> Path:
    """Return the path of the tables of the workload *prefix*."""
    return prefix.parent / f"{prefix.name}.tables.npz"


def save_tables(
    prefix: Path, graphs: Sequence[Graph], digests: Sequence[str], program_of_file: Mapping[int, int]
) -> None:
    """Write the concatenated columns of all *graphs*, atomically.

    *digests* are the SHA-256 of their encoded files, which exist already; *program_of_file* gives the graph
    in the file of each rank. For graphs with fields without a column, only the edges will be read.
    """
    ranks = {program: rank for rank, program in program_of_file.items()}
    sizes = [(prefix.parent / f"{prefix.name}.{ranks[i]}.et").stat().st_size for i in range(len(graphs))]
    spool = Spool(prefix.parent)
    heads = []
    for graph, digest in zip(graphs, digests, strict=True):
        heads.append(("" if graph.extra else digest, graph.rank, graph.num_nodes, graph.num_edges))
        spool.add(graph)
    whole, own_ranks, nodes, edges = zip(*heads, strict=True) if heads else ((), (), (), ())
    with new_file(tables_path(prefix)) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        write_array(archive, "digests", np.array(whole, dtype="S64"))
        write_array(archive, "file_digests", np.array(digests, dtype="S64"))
        write_array(archive, "file_sizes", np.array(sizes, dtype=np.int64))
        write_array(archive, "file_ranks", np.array([*program_of_file], dtype=np.int64))
        write_array(archive, "file_programs", np.array([*program_of_file.values()], dtype=np.int64))
        write_array(archive, "ranks", np.array(own_ranks, dtype=np.int64))
        write_array(archive, "node_ends", np.cumsum(nodes, dtype=np.int64))
        write_array(archive, "edge_ends", np.cumsum(edges, dtype=np.int64))
        spool.write(archive)


def write_array(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    """Put *array* into *archive*."""
    # A fixed date, so that the same workload gives the same bytes.
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


class Spool:
    """The columns of graphs that arrive one by one; large ones are buffered in files in *folder*."""

    def __init__(self, folder: Path) -> None:
        self._columns = {
            name: _SpooledColumn(folder)
            for name in (*NODE_COLUMNS, *(f"edge_{name}" for name in EDGE_COLUMNS))
        }
        self._texts: dict[str, dict[str, int]] = {
            name: {} for name, (dtype, _) in NODE_COLUMNS.items() if dtype == "str"
        }

    def add(self, graph: Graph) -> None:
        """Add the columns of *graph*; each text is stored once for all graphs."""
        for name in NODE_COLUMNS:
            column = graph.node_columns[name]
            if name in self._texts:
                texts = self._texts[name]
                places = [texts.setdefault(text, len(texts)) for text in column.texts]
                column = np.array(places, np.int64)[column.numbers]
            self._columns[name].add(column)
        for name in EDGE_COLUMNS:
            self._columns[f"edge_{name}"].add(graph.edge_columns[name])

    def write(self, archive: zipfile.ZipFile) -> None:
        """Write all of them."""
        for name, column in self._columns.items():
            column.write(archive, name)
            if name in self._texts:
                texts, ends = byte_table([text.encode("utf-8", "replace") for text in self._texts[name]])
                write_array(archive, f"{name}_texts", texts)
                write_array(archive, f"{name}_ends", ends)


class _SpooledColumn:
    """One column, whose parts have the narrowest types until the type of the whole is known."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(folder))  # noqa: SIM115 - closed when gone
        self._parts: list[tuple[np.dtype[Any], int]] = []
        self._bounds: tuple[int, int] | None = None

    def add(self, values: np.ndarray) -> None:
        """Take in a part."""
        if not len(values):
            return
        own = int(values.min()), int(values.max())
        least, most = self._bounds or own
        self._bounds = min(least, own[0]), max(most, own[1])
        dtype = _narrowest(own)
        self._parts.append((dtype, len(values)))
        self._file.write(np.ascontiguousarray(values, dtype).tobytes())

    def write(self, archive: zipfile.ZipFile, name: str) -> None:
        """Write the concatenated parts in the smallest type for all of them."""
        dtype = _narrowest(self._bounds or (0, 0))
        shape = (sum(count for _, count in self._parts),)
        head = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, head)
            self._file.seek(0)
            for own, count in self._parts:
                part = np.frombuffer(self._file.read(count * own.itemsize), own)
                file.write(part.astype(dtype, copy=False).tobytes())
        self._file.close()


def _narrowest(bounds: tuple[int, int]) -> np.dtype[Any]:
    """Return the smallest type for numbers within the *bounds*, inclusive."""
    least, most = bounds
    return next(
        np.dtype(kind) for kind in _KINDS if np.iinfo(kind).min <= least <= most <= np.iinfo(kind).max
    )


def load_tables(prefix: Path) -> Tables | None:
    """Return the content of the tables, None if there are none. Columns are read on demand.

    The ``.et`` files are authoritative: a graph whose file has another digest is not read from the tables.
    Raises `ValueError` for damaged tables; in large ones, a damaged column is detected when it is read.
    """
    try:
        return _read(Archive(tables_path(prefix)))
    except FileNotFoundError:
        return _tables_of_0_1(prefix)
    except DAMAGES as error:
        raise ValueError(str(error)) from error


def _tables_of_0_1(prefix: Path) -> Tables | None:
    """Return the edges that version 0.1 stored as Parquet, with the reasons that ``.et`` files lack."""
    path = prefix.parent / f"{prefix.name}.edges.parquet"
    if not path.is_file():
        return None
    try:
        table = ParquetFile(path).read(["rank", *EDGE_COLUMNS])
        order = np.argsort(table["rank"], kind="stable")
        ranks, starts = np.unique(table["rank"][order], return_index=True)
        edges = {
            int(rank): {name: table[name][part].astype(kind) for name, kind in EDGE_COLUMNS.items()}
            for rank, part in zip(ranks, np.split(order, starts[1:]), strict=True)
        }
    except DAMAGES as error:
        raise ValueError(f"{path.name}: {error}") from error
    return Tables({}, edges)


def saved_columns(prefix: Path, names: Sequence[str]) -> Iterator[dict[str, np.ndarray]] | None:
    """Return integer columns *names* of the nodes of all programs and their ``rank``, a million at a time.

    None if the workload has no such tables. Its ``.et`` files are not read.
    """
    try:
        archive = Archive(tables_path(prefix))
        ranks, ends = archive.whole_integers("ranks"), archive.whole_integers("node_ends")
        total = int(ends[-1]) if len(ends) else 0
        if len(ends) != len(ranks) or (np.diff(ends, prepend=0) < 0).any():
            return None
        for name in names:
            archive.integers(name, slice(total, total))
    except DAMAGES:
        return None
    return _pieces(archive, names, ranks, ends, total)


def _pieces(
    archive: Archive, names: Sequence[str], ranks: np.ndarray, ends: np.ndarray, total: int
) -> Iterator[dict[str, np.ndarray]]:
    for first in range(0, total, _ROWS_AT_ONCE):
        rows = slice(first, min(first + _ROWS_AT_ONCE, total))
        own = ranks[np.searchsorted(ends, np.arange(rows.start, rows.stop), side="right")]
        yield {"rank": own, **{name: archive.integers(name, rows) for name in names}}


def saved_node_count(prefix: Path) -> int | None:
    """Return the total number of nodes of a workload's programs; None if it has no such tables."""
    try:
        ends = Archive(tables_path(prefix)).whole_integers("node_ends")
    except DAMAGES:
        return None
    return int(ends[-1]) if len(ends) else None


def unchanged_files(prefix: Path, ranks: Iterable[int]) -> dict[int, str]:
    """Return the SHA-256 of the files of those of *ranks* that are unchanged since the tables were written.

    A file counts as unchanged if it has the recorded size and its status changed before the tables'.
    """
    path = tables_path(prefix)
    try:
        archive = Archive(path)
        made_ns = path.stat().st_ctime_ns
        names = ("file_ranks", "file_programs", "file_sizes", "file_digests")
        columns = [archive.whole(name).tolist() for name in names]
        known = {rank: (sizes, digest) for rank, sizes, digest in _files(*columns)}
    except (*DAMAGES, TypeError, AttributeError):
        return {}
    found = {}
    for rank in ranks:
        size, digest = known.get(rank, (-1, ""))
        with suppress(OSError):
            status = os.stat(f"{prefix}.{rank}.et")
            if status.st_size == size and status.st_ctime_ns < made_ns:
                found[rank] = digest
    return found


def _files(
    ranks: list[int], programs: list[int], sizes: list[int], digests: list[bytes]
) -> Iterator[tuple[int, int, str]]:
    for rank, program in zip(ranks, programs, strict=True):
        if not 0 <= program < len(sizes) == len(digests):
            raise ValueError(f"rank {rank} has program {program} of {len(sizes)}")
        yield rank, sizes[program], digests[program].decode("ascii")


def _read(archive: Archive) -> Tables:
    """Return the content of *archive*; raises some of `DAMAGES`."""
    ranks, digests = archive.whole_integers("ranks").tolist(), archive.whole("digests")
    has_all = "cause" in archive  # version 0.2 did not write all columns: its files are read instead
    if digests.dtype.kind != "S":
        raise ValueError("its digests are no texts")
    node_parts, edge_parts = (_parts(archive.whole_integers(f"{of}_ends")) for of in ("node", "edge"))
    archive.check({
        **(dict.fromkeys(NODE_COLUMNS, node_parts[-1].stop) if has_all else {}),
        **{f"edge_{name}": edge_parts[-1].stop for name in EDGE_COLUMNS},
    })  # fmt: skip
    graphs: dict[str, Graph] = {}
    edges_of: dict[int, Mapping[str, np.ndarray]] = {}
    for rank, digest, own, tied in zip(ranks, digests.tolist(), node_parts, edge_parts, strict=True):
        edges_of[rank] = SavedColumns(archive, {name: f"edge_{name}" for name in EDGE_COLUMNS}, tied)
        if digest and has_all:
            nodes = SavedColumns(archive, {name: name for name in NODE_COLUMNS}, own)
            graphs[digest.decode("ascii")] = Graph(rank, nodes, edges_of[rank])
    return Tables(graphs, edges_of)


def _parts(ends: np.ndarray) -> list[slice]:
    """Return the rows of each graph; there is at least one."""
    bounds = [0, *ends.tolist()]
    if sorted(bounds) != bounds or len(bounds) < 2:
        raise ValueError("its graphs overlap")
    return [slice(first, end) for first, end in pairwise(bounds)]
