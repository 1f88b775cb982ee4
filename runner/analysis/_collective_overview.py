"""Describe every collective: what it moved, how fast, and how long ranks waited for the last one to come."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...converter import CollectiveType
from .._result import Result
from ._critical_path import CriticalPath

__all__ = ["collective_overview", "operation_name"]

_KEYS = ["collective", "comm_type", "group", "size_bytes"]
_TYPES = {
    "collective": "int64", "operation": "str", "module": "str", "group": "int64", "ranks": "int64",
    "size_bytes": "int64", "start_ns": "int64", "skew_ns": "int64", "transfer_ns": "int64",
    "algorithm_bytes_per_ns": "float64", "bus_bytes_per_ns": "float64", "on_path_ns": "int64",
    "share": "float64", "rank": "int32", "node_id": "int64",
}  # fmt: skip


def operation_name(comm_type: int) -> str:
    """Return e.g. ``all_reduce`` for the number of a collective type, or "" for none."""
    try:
        return CollectiveType(comm_type).name.lower()
    except ValueError:
        return ""


def collective_overview(result: Result, nodes: pd.DataFrame, path: CriticalPath) -> pd.DataFrame:
    """Return a row per collective in order of start; *nodes* has the ``module`` of ``rank, node_id``.

    ``skew_ns`` is the time from the first rank's arrival to the last one's, ``transfer_ns`` the longest time
    any rank spent in it after everybody it needed had come. ``algorithm_bytes_per_ns`` (GB/s) is the bytes
    of the whole operation over that time; the bus bandwidth scales it by what a ring of as many ranks must
    move over each link, so that it compares with the hardware's figure. ``on_path_ns`` is its part of the
    critical path. ``rank`` and ``node_id`` are the last arrival's.
    """
    calls = result.collectives
    if calls.empty:
        nothing: pd.DataFrame = pd.DataFrame(columns=list(_TYPES)).astype(_TYPES)
        return nothing
    table = calls.groupby(_KEYS, as_index=False).agg(
        ranks=("rank", "size"),
        start_ns=("start_ns", "min"),
        last_start_ns=("start_ns", "max"),
        transfer_ns=("transfer_ns", "max"),
    )
    by_rank = calls.sort_values("rank", kind="stable")  # of ranks that arrive together, the lowest
    last = by_rank.loc[by_rank.groupby("collective")["start_ns"].idxmax(), ["collective", "rank", "node_id"]]
    table = table.merge(last, on="collective").merge(_on_path(calls, path), on="collective", how="left")
    modules = nodes[["rank", "node_id", "module"]]
    table = table.merge(modules, on=["rank", "node_id"], how="left")
    table["operation"] = table["comm_type"].map(operation_name)
    table["skew_ns"] = table["last_start_ns"] - table["start_ns"]
    table["on_path_ns"] = table["on_path_ns"].fillna(0).astype(np.int64)
    table["share"] = table["on_path_ns"] / max(1, result.makespan_ns)
    table["algorithm_bytes_per_ns"] = _whole_bytes(table) / table["transfer_ns"].clip(lower=1)
    table["bus_bytes_per_ns"] = table["algorithm_bytes_per_ns"] * _bus_factor(table)
    ordered: pd.DataFrame = table.sort_values("collective", ignore_index=True)[list(_TYPES)]
    return ordered


def _on_path(calls: pd.DataFrame, path: CriticalPath) -> pd.DataFrame:
    """Return how much of the critical path each collective takes."""
    pieces = path.unreasoned[["rank", "node_id", "duration_ns"]].astype(np.int64)
    joined = pieces.merge(calls[["rank", "node_id", "collective"]].astype(np.int64), on=["rank", "node_id"])
    totals = joined.groupby("collective")["duration_ns"].sum()
    table: pd.DataFrame = totals.rename("on_path_ns").reset_index()
    return table


def _whole_bytes(table: pd.DataFrame) -> pd.Series:
    """Return the bytes of each operation: an all-gather's size is one rank's shard, all others' the whole."""
    gathers = table["comm_type"].isin([CollectiveType.ALL_GATHER, CollectiveType.GATHER])
    sizes: pd.Series = table["size_bytes"].clip(lower=0) * np.where(gathers, table["ranks"], 1)
    return sizes


def _bus_factor(table: pd.DataFrame) -> pd.Series:
    """Return what a link carries for each byte of the operation when a ring of the ranks runs it."""
    part = (table["ranks"] - 1) / table["ranks"]
    passes = table["comm_type"].map(
        {
            CollectiveType.ALL_REDUCE: 2,
            CollectiveType.ALL_GATHER: 1,
            CollectiveType.REDUCE_SCATTER: 1,
            CollectiveType.REDUCE_SCATTER_BLOCK: 1,
            CollectiveType.ALL_TO_ALL: 1,
        }
    )
    factor: pd.Series = (passes * part).fillna(1.0)
    return factor
