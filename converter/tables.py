"""The tables beside a workload's ``.et`` files: the same graphs, read many times faster than the files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .graph import EDGE_COLUMNS, NODE_COLUMNS, Column, Graph, TextColumn

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["load_tables", "save_tables"]


def save_tables(prefix: Path, graphs: Sequence[Graph], digests: Sequence[str]) -> dict[str, int]:
    """Write ``PREFIX.nodes.parquet`` and ``PREFIX.edges.parquet``; return what `load_tables` needs.

    That is the rank of each graph by the SHA-256 of its encoded file (*digests*), of those the tables hold
    completely.
    """
    _write(_path(prefix, "nodes"), (_arrow(graph.rank, graph.node_columns) for graph in graphs))
    _write(_path(prefix, "edges"), (_arrow(graph.rank, graph.edge_columns) for graph in graphs))
    if len({graph.rank for graph in graphs}) < len(graphs):
        return {}
    pairs = zip(graphs, digests, strict=True)
    return {digest: graph.rank for graph, digest in pairs if not graph.extra}


def _arrow(rank: int, columns: Mapping[str, Column]) -> pa.Table:
    """Return the *columns* of one rank, the rank first.

    They are handed over as buffers: pyarrow's conversions import pandas first, which takes longer.
    """
    import pyarrow as pa  # noqa: PLC0415 - most users of this module do without

    count = len(next(iter(columns.values())))
    every = {"rank": np.full(count, rank, dtype=np.int64), **columns}
    return pa.Table.from_arrays([_arrow_array(column) for column in every.values()], names=list(every))


def _arrow_array(column: Column) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415 - as above

    if isinstance(column, TextColumn):
        texts = [text.encode("utf-8", "replace") for text in column.texts]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        known = pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))
        return pa.DictionaryArray.from_arrays(_arrow_array(column.numbers.astype(np.int32)), known)
    values = np.packbits(column, bitorder="little") if column.dtype == bool else np.ascontiguousarray(column)
    kind = pa.from_numpy_dtype(column.dtype)
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(values)])


def _write(path: Path, tables: Iterator[pa.Table]) -> None:
    """Write *tables*, one after the other, as one file, atomically."""
    from pyarrow import parquet  # noqa: PLC0415 - as above

    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    first = next(tables)
    # Without the Arrow schema, texts that are written as numbers are read as plain texts.
    with parquet.ParquetWriter(temporary, first.schema, store_schema=False) as writer:
        for table in chain([first], tables):
            writer.write_table(table)
    os.replace(temporary, path)


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
