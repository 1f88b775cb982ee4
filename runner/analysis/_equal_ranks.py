"""Count the ranks that each recorded rank represents, and find the last arrival among equal ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...converter import Workload
from ...support.table import Ints, Table
from .._framed import PairIndex, changed_rows
from .._node_tables import nodes_of_all
from .._result import Result

if TYPE_CHECKING:
    import pandas as pd


def with_replicas_folded(result: Result, workload: Workload) -> Result:
    """Make the last arrivals in *result* independent of the recorded replica.

    Replicas run the same program and arrive together, so each of them is a last arrival. As the last arrival,
    a replica's own nodes name this replica, and nodes of other ranks name the lowest replica. Times do not
    change.
    """
    programs = np.asarray(workload.program_of_rank)
    if len(programs) == 1:
        return result
    table, calls = result.table("nodes"), result.table("collectives").distinct.columns()
    ranks_of = np.unique(calls["rank"])
    if not len(ranks_of) or len(programs) <= ranks_of[-1]:
        return result
    if len(np.unique(programs[ranks_of])) == len(ranks_of):
        return result
    nodes = table.distinct.columns()
    if not len(nodes["rank"]) or "origin_rank" not in nodes:
        return result
    rank, node_id, collective, start_ns = (
        calls[name].astype(np.int64) for name in ("rank", "node_id", "collective", "start_ns")
    )
    tie, lowest = _ties(rank, (start_ns, node_id, programs[rank], collective))
    calls_of = PairIndex(rank, node_id)
    tie, lowest = np.append(tie, -1), np.append(lowest, -1)
    own = tie[calls_of.rows(nodes["rank"], nodes["node_id"])]
    place = calls_of.rows(nodes["origin_rank"], nodes["origin_node"])
    origin, first = tie[place], lowest[place]
    ranks = nodes["origin_rank"]
    folded = np.where(origin < 0, ranks, np.where(own == origin, nodes["rank"], first))
    changed = Table.of(nodes | {"origin_rank": folded.astype(ranks.dtype)})
    if table.distinct is not table:
        changed = nodes_of_all(changed, result.columns("ranks")["representative"])
    return result.with_columns(nodes=changed)


def _ties(ranks: Ints, key: tuple[Ints, ...]) -> tuple[Ints, Ints]:
    """Return a number per row, equal for rows of equal *key*, and the lowest rank of each key."""
    order = np.lexsort((ranks, *key))
    numbers = np.cumsum(changed_rows([column[order] for column in key]))
    tie, lowest = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    tie[order] = numbers
    lowest[order] = ranks[order][np.searchsorted(numbers, numbers)]
    return tie, lowest


def represented_ranks(result: Result) -> pd.Series:
    """Return the number of ranks that the nodes of each rank in *result* represent; 1 for a unique rank.

    A result with very many nodes, or a result of a workload with one rank per kind, has only the nodes of
    simulated ranks.
    """
    import pandas as pd  # noqa: PLC0415 - most callers do not need pandas

    ranks = result.ranks
    alone = pd.Series(1, index=ranks["rank"])
    return ranks["representative"].value_counts() if _has_representatives(result) else alone


def group_members(result: Result, group: int) -> Sequence[int] | None:
    """Return the ranks of *group* if only some were recorded; None otherwise."""
    if not _has_representatives(result):
        return None
    everyone: list[int] = result.columns("ranks")["rank"].tolist()
    members: Sequence[int] = result.provenance.get("groups", {}).get(str(group), everyone)
    return members


def _has_representatives(result: Result) -> bool:
    executed = int(result.provenance.get("nodes_executed", 0))
    return "representative" in result.columns("ranks") and result.num_nodes < executed
