"""The tables beside a workload's ``.et`` files: the same graphs, read many times faster than the files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from .graph import EDGE_COLUMNS, NODE_COLUMNS, Graph

__all__ = ["load_tables", "save_tables"]


def save_tables(prefix: Path, graphs: Sequence[Graph], encoded: Sequence[bytes]) -> dict[str, int]:
    """Write ``PREFIX.nodes.parquet`` and ``PREFIX.edges.parquet``; return what `load_tables` needs.

    That is the rank of each graph by the SHA-256 of its encoded file, of those the tables hold completely.
    """
    for name in ("nodes", "edges"):
        tables = [getattr(graph, name).assign(rank=np.int64(graph.rank)) for graph in graphs]
        stacked = pd.concat(tables, ignore_index=True)
        path = _table(prefix, name)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        columns = ["rank", *(column for column in stacked if column != "rank")]
        stacked[columns].to_parquet(temporary, index=False)
        os.replace(temporary, path)
    if len({graph.rank for graph in graphs}) < len(graphs):
        return {}
    pairs = zip(graphs, encoded, strict=True)
    return {hashlib.sha256(data).hexdigest(): graph.rank for graph, data in pairs if not graph.extra}


def load_tables(prefix: Path, ranks: object) -> dict[str, Graph]:
    """Return the graphs in the tables by the digest of their file; {} if the tables are of no use.

    *ranks* is what `save_tables` returned. The files themselves are what counts: tables that are absent,
    damaged or of another version only cost the time to decode the files.
    """
    if not isinstance(ranks, dict) or not ranks:
        return {}
    try:
        nodes = pd.read_parquet(_table(prefix, "nodes"))
        edges = pd.read_parquet(_table(prefix, "edges"))
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


def _table(prefix: Path, name: str) -> Path:
    return prefix.with_name(f"{prefix.name}.{name}.parquet")
