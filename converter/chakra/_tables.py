"""The tables beside a workload's ``.et`` files: the same graphs, read many times faster than the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ...support import new_file
from .._native import ParquetWriter
from ._graph import EDGE_COLUMNS, NODE_COLUMNS, Column, Graph, TextColumn

__all__ = ["load_tables", "save_tables"]


def save_tables(prefix: Path, graphs: Sequence[Graph], digests: Sequence[str]) -> dict[str, int]:
    """Write ``PREFIX.nodes.parquet`` and ``PREFIX.edges.parquet``; return what `load_tables` needs.

    That is the rank of each graph by the SHA-256 of its encoded file (*digests*), of those the tables hold
    completely.
    """
    dtypes = {name: dtype for name, (dtype, _) in NODE_COLUMNS.items()}
    _write(_path(prefix, "nodes"), graphs, dtypes, "node_columns")
    _write(_path(prefix, "edges"), graphs, EDGE_COLUMNS, "edge_columns")
    if len({graph.rank for graph in graphs}) < len(graphs):
        return {}
    pairs = zip(graphs, digests, strict=True)
    return {digest: graph.rank for graph, digest in pairs if not graph.extra}


def _write(path: Path, graphs: Sequence[Graph], dtypes: Mapping[str, str], columns: str) -> None:
    """Write the *columns* of all *graphs*, the rank first, as one file, atomically."""
    writer = ParquetWriter([("rank", "int64"), *dtypes.items()])
    with new_file(path) as temporary, temporary.open("wb") as file:
        for graph in graphs:
            own = getattr(graph, columns)
            count = len(next(iter(own.values())))
            file.write(writer.integers(np.full(count, graph.rank, dtype=np.int64)))
            for name in dtypes:
                file.write(_written(writer, own[name]))
        file.write(writer.finish())


def _written(writer: ParquetWriter, column: Column) -> bytes:
    if isinstance(column, TextColumn):
        return writer.texts(*column.encoded())
    return writer.integers(np.ascontiguousarray(column, dtype=np.int64))


def load_tables(prefix: Path, ranks: object) -> dict[str, Graph]:
    """Return the graphs in the tables by the digest of their file; {} if the tables are of no use.

    *ranks* is what `save_tables` returned. The files themselves are what counts: tables that are absent,
    damaged or of another version only cost the time to decode the files.
    """
    if not isinstance(ranks, dict) or not ranks:
        return {}
    import pandas as pd  # noqa: PLC0415 - converting does without

    try:
        nodes = pd.read_parquet(_path(prefix, "nodes"))
        edges = pd.read_parquet(_path(prefix, "edges"))
    except (OSError, ValueError):
        return {}
    if list(nodes) != ["rank", *NODE_COLUMNS] or list(edges) != ["rank", *EDGE_COLUMNS]:
        return {}
    nodes_of, edges_of = nodes.groupby("rank").indices, edges.groupby("rank").indices
    nothing = np.empty(0, dtype=np.int64)
    return {
        digest: Graph(
            int(rank),
            nodes.iloc[nodes_of[rank]].drop(columns="rank").reset_index(drop=True),
            edges.iloc[edges_of.get(rank, nothing)].drop(columns="rank").reset_index(drop=True),
        )
        for digest, rank in ranks.items()
        if isinstance(rank, int) and rank in nodes_of
    }


def _path(prefix: Path, name: str) -> Path:
    return prefix.with_name(f"{prefix.name}.{name}.parquet")
