"""The tables beside a workload's ``.et`` files: the same graphs as plain columns, read many times faster.

``PREFIX.tables.npz`` is a NumPy archive. Parquet would be smaller, but to load its library takes longer than
to convert a rank; `Workload.node_table` and the exports make it when it is asked for.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ...support import new_file
from ._graph import EDGE_COLUMNS, NODE_COLUMNS, Column, Graph, TextColumn, byte_table

__all__ = ["Tables", "load_tables", "save_tables", "saved_columns", "tables_path"]

_KINDS = (np.int8, np.int16, np.int32, np.int64)
# What NumPy raises for an archive that is none, cut off, edited, or of another version.
_DAMAGES = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError)


@dataclass(frozen=True)
class Tables:
    """What the tables hold: whole graphs by the SHA-256 of their encoded file, and all edges by rank."""

    graphs: dict[str, Graph]
    edges: dict[int, dict[str, np.ndarray]]


def tables_path(prefix: Path) -> Path:
    """Return where the tables of the workload *prefix* are."""
    return prefix.with_name(f"{prefix.name}.tables.npz")


def save_tables(prefix: Path, graphs: Sequence[Graph], digests: Sequence[str]) -> None:
    """Write the columns of all *graphs*, one behind the other, atomically.

    *digests* are the SHA-256 of their encoded files. Of graphs with parts that have no column, the edges are
    all that will be read.
    """
    with new_file(tables_path(prefix)) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        whole = ["" if graph.extra else digest for graph, digest in zip(graphs, digests, strict=True)]
        _write(archive, "digests", np.array(whole, dtype="S64"))
        _write(archive, "ranks", np.array([graph.rank for graph in graphs], dtype=np.int64))
        _write(archive, "node_ends", np.cumsum([graph.num_nodes for graph in graphs], dtype=np.int64))
        _write(archive, "edge_ends", np.cumsum([graph.num_edges for graph in graphs], dtype=np.int64))
        for name, (dtype, _) in NODE_COLUMNS.items():
            columns = [graph.node_columns[name] for graph in graphs]
            if dtype == "str":
                _write_texts(archive, name, columns)
            else:
                _write(archive, name, _narrow(columns))
        for name in EDGE_COLUMNS:
            _write(archive, f"edge_{name}", _narrow([graph.edge_columns[name] for graph in graphs]))


def _write(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    # A date of its own, so that the same workload makes the same bytes.
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def _write_texts(archive: zipfile.ZipFile, name: str, columns: Sequence[TextColumn]) -> None:
    """Write *columns* as numbers of texts that stand once for all of them."""
    known: dict[str, int] = {}
    numbers = [
        np.array([known.setdefault(text, len(known)) for text in column.texts], np.int64)[column.numbers]
        for column in columns
    ]
    texts, ends = byte_table([text.encode("utf-8", "replace") for text in known])
    _write(archive, name, _narrow(numbers))
    _write(archive, f"{name}_texts", texts)
    _write(archive, f"{name}_ends", ends)


def _narrow(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return *columns* behind each other in the smallest type that holds them."""
    least = min((int(column.min()) for column in columns if len(column)), default=0)
    most = max((int(column.max()) for column in columns if len(column)), default=0)
    dtype = next(
        np.dtype(kind) for kind in _KINDS if np.iinfo(kind).min <= least <= most <= np.iinfo(kind).max
    )
    return np.concatenate([column.astype(dtype, copy=False) for column in columns])


def load_tables(prefix: Path) -> Tables | None:
    """Return what the tables hold, None if there are none.

    The files themselves are what counts: a graph whose file has another digest is no longer in its table.
    Raises `ValueError` for damaged tables.
    """
    try:
        with tables_path(prefix).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return _read(archive)
    except FileNotFoundError:
        return _tables_of_0_1(prefix)
    except _DAMAGES as error:
        raise ValueError(str(error)) from error


def _tables_of_0_1(prefix: Path) -> Tables | None:
    """Return the edges that version 0.1 kept as Parquet, with the reasons that no ``.et`` file holds."""
    path = prefix.with_name(f"{prefix.name}.edges.parquet")
    if not path.is_file():
        return None
    import pandas as pd  # noqa: PLC0415 - only old workloads need it

    try:
        table = pd.read_parquet(path, columns=["rank", *EDGE_COLUMNS])
        parts = {int(str(rank)): part for rank, part in table.groupby("rank")}
        edges = {
            rank: {name: part[name].to_numpy(dtype) for name, dtype in EDGE_COLUMNS.items()}
            for rank, part in parts.items()
        }
    except _DAMAGES as error:
        raise ValueError(f"{path.name}: {error}") from error
    return Tables({}, edges)


def saved_columns(prefix: Path, names: Sequence[str]) -> dict[str, np.ndarray] | None:
    """Return the integer columns *names* of the nodes of all programs, and their ``rank``, as saved.

    None if the workload has no such tables. Its files are not looked at.
    """
    try:
        with tables_path(prefix).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            ranks = np.repeat(archive["ranks"], np.diff(archive["node_ends"], prepend=0))
            return {"rank": ranks, **{name: _integers(archive, name, len(ranks)) for name in names}}
    except _DAMAGES:
        return None


def _read(archive: Any) -> Tables:
    """Return what *archive* holds; raises some of `_DAMAGES`."""
    ranks, digests = archive["ranks"].tolist(), archive["digests"].tolist()
    node_parts, edge_parts = (_parts(archive[f"{of}_ends"]) for of in ("node", "edge"))
    nodes = {name: _column(archive, name, node_parts[-1].stop) for name in NODE_COLUMNS}
    edges = {
        name: _integers(archive, f"edge_{name}", edge_parts[-1].stop).astype(dtype)
        for name, dtype in EDGE_COLUMNS.items()
    }
    graphs, edges_of = {}, {}
    for rank, digest, own, tied in zip(ranks, digests, node_parts, edge_parts, strict=True):
        edges_of[rank] = {name: column[tied] for name, column in edges.items()}
        if digest:
            columns = {
                name: TextColumn(column.numbers[own], column.texts)
                if isinstance(column, TextColumn)
                else column[own]
                for name, column in nodes.items()
            }
            graphs[digest.decode("ascii")] = Graph(rank, columns, edges_of[rank])
    return Tables(graphs, edges_of)


def _parts(ends: np.ndarray) -> list[slice]:
    """Return the rows of each graph; there is at least one."""
    bounds = [0, *ends.tolist()]
    if sorted(bounds) != bounds or len(bounds) < 2:
        raise ValueError("its graphs overlap")
    return [slice(first, end) for first, end in pairwise(bounds)]


def _column(archive: Any, name: str, count: int) -> Column:
    dtype = NODE_COLUMNS[name][0]
    values = _integers(archive, name, count)
    if dtype != "str":
        return values.astype(dtype)
    data, ends = archive[f"{name}_texts"].tobytes(), [0, *archive[f"{name}_ends"].tolist()]
    texts = [data[first:end].decode("utf-8") for first, end in pairwise(ends)]
    if count and not 0 <= int(values.min()) <= int(values.max()) < len(texts):
        raise ValueError(f"column {name} has texts that are not there")
    return TextColumn(values.astype(np.int32), texts)


def _integers(archive: Any, name: str, count: int) -> np.ndarray:
    values: np.ndarray = archive[name]
    if values.dtype.kind not in "iub" or values.shape != (count,):
        raise ValueError(f"column {name} is not one of {count} integers")
    return values
