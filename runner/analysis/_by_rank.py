"""The nodes of a result, rank by rank: of a large saved one no more is read than is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from .._recorded_nodes import Columns
from .._result import Result

__all__ = ["node_columns", "nodes_by_rank", "ranks_of"]


def nodes_by_rank(
    result: Result, names: Sequence[str], wanted: Callable[[int], bool] = lambda rank: True
) -> Iterator[tuple[int, Columns]]:
    """Yield each *wanted* rank that has nodes, and its columns *names* in ascending order of ``node_id``."""
    saved = result.nodes_by_rank
    bounds = saved.bounds("rank") if saved is not None else None
    columns = dict.fromkeys(("rank", "node_id", *names))
    # No rank may go on in the next piece.
    if saved is None or bounds is None or any(low <= most for (_, most), (low, _) in pairwise(bounds)):
        nodes = result.columns("nodes")
        for rank, own in ranks_of({name: nodes[name] for name in columns}):
            if wanted(rank):
                yield rank, own
        return
    for piece, (least, most) in enumerate(bounds):
        if any(wanted(rank) for rank in range(least, most + 1)):
            for rank, own in ranks_of(saved.read([piece], [*columns])):
                if wanted(rank):
                    yield rank, own


def node_columns(result: Result, names: Sequence[str]) -> Columns:
    """Return the columns *names* of all nodes, in the order of the result's table."""
    saved = result.nodes_by_rank
    if saved is not None:
        return saved.read(range(saved.num_pieces), names)
    nodes = result.columns("nodes")
    return {name: nodes[name] for name in names}


def ranks_of(columns: Columns) -> Iterator[tuple[int, Columns]]:
    """Yield each rank of *columns*, and its own in ascending order of ``node_id``."""
    ranks, ids = columns["rank"], columns["node_id"]
    if ((ranks[1:] < ranks[:-1]) | ((ranks[1:] == ranks[:-1]) & (ids[1:] < ids[:-1]))).any():
        order = np.lexsort((ids, ranks))
        columns = {name: column[order] for name, column in columns.items()}
        ranks = columns["rank"]
    ends = [*(np.flatnonzero(ranks[1:] != ranks[:-1]) + 1).tolist(), len(ranks)]
    start = 0
    for end in ends if len(ranks) else []:
        rank, own = int(ranks[start]), slice(start, end)
        start = end
        yield rank, {name: column[own] for name, column in columns.items() if name != "rank"}
