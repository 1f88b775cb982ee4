"""Say of every rank when it finished, what it waited for, and which other ranks did the same."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...converter import Workload
from ...support.table import Columns
from .._result import Result
from ._summary import rank_times

__all__ = ["rank_standings"]

# Ranks of one program whose nodes ran as close to each other as this part of the makespan did the same.
_SAME_SHARE = 0.001
# Each rank is compared with so many different ones of its program; of more, the rest stay apart.
_MOST_KINDS = 32


def rank_standings(result: Result, workload: Workload) -> pd.DataFrame:
    """Return a row per rank: ``rank, finish_ns, exposed_comm_ns, waiting_ns, same_as`` and ``apart_ns``.

    ``waiting_ns`` is how long it waited for others in collectives. ``same_as`` is the lowest rank that runs
    the same program and did the same at the same times, but for 0.1 % of the makespan; itself if there is
    none below it. ``apart_ns`` is the most by which a node's start or end differs between the two.
    """
    table = rank_times(result)[["rank", "finish_ns", "exposed_comm_ns"]].astype("int64")
    waits = result.collectives.groupby("rank")["wait_ns"].sum()
    table["waiting_ns"] = waits.reindex(table["rank"]).fillna(0).to_numpy(np.int64)
    same = _same(result, workload)
    found = {int(rank): same.get(int(rank), (int(rank), 0)) for rank in table["rank"]}
    kept: pd.DataFrame = table.assign(
        same_as=[which for which, _ in found.values()], apart_ns=[apart for _, apart in found.values()]
    )
    return kept


def _same(result: Result, workload: Workload) -> dict[int, tuple[int, int]]:
    """Return for ranks with nodes the lowest one that did the same, and how far they are apart.

    Those whose program is theirs alone are left out.
    """
    programs = np.asarray(workload.program_of_rank)
    # A rank whose program no other one runs equals none, whatever it did: nothing of it is read.
    shared = set(np.flatnonzero(np.bincount(programs)[programs] > 1).tolist()) if len(programs) else set()
    kinds: dict[int, list[tuple[int, Columns]]] = {}
    found: dict[int, tuple[int, int]] = {}
    for rank, own in result.table("nodes").by_rank(["start_ns", "end_ns"], shared.__contains__):
        known = kinds.setdefault(int(programs[rank]), [])
        apart = ((other, _apart_ns(own, its)) for other, its in known)
        like = next((pair for pair in apart if 0 <= pair[1] <= _SAME_SHARE * result.makespan_ns), None)
        found[rank] = like or (rank, 0)
        if like is None and len(known) < _MOST_KINDS:
            known.append((rank, own))
    return found


def _apart_ns(one: Columns, other: Columns) -> int:
    """Return by how much the nodes of two ranks differ at most, -1 if they are not the same ones."""
    if not np.array_equal(one["node_id"], other["node_id"]):
        return -1
    return max(int(np.abs(one[name] - other[name]).max()) for name in ("start_ns", "end_ns"))
