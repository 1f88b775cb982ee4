"""The per-collective table: which nodes of which ranks were one collective, and where its time went."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...converter import NodeType, Workload
from .._result import COLUMNS, empty_table

__all__ = ["collective_table"]

_FACTS = ["node_id", "comm_type", "group", "comm_size_bytes"]


def collective_table(nodes: pd.DataFrame, workload: Workload) -> pd.DataFrame:
    """Return the table ``collectives`` for the executed *nodes* of a result.

    The k-th collective of a type in a group, counted in id order, is the same on every rank. *wait_ns* is the
    time from a rank's own arrival to that of the rank whose arrival let it end; *transfer_ns* is the rest, so
    both add up to the node's time.
    """
    table = nodes.merge(_collective_nodes(workload), on=["rank", "node_id"])
    if table.empty:
        return empty_table("collectives")
    table = table.sort_values(["rank", "node_id"], kind="stable", ignore_index=True)
    table["turn"] = table.groupby(["rank", "group", "comm_type"]).cumcount()
    needed = _origin_start(table, nodes)
    table["wait_ns"] = (needed - table["start_ns"]).clip(lower=0)
    table["transfer_ns"] = table["end_ns"] - table["start_ns"] - table["wait_ns"]
    key = ["group", "comm_type", "turn"]
    first = table.groupby(key)["start_ns"].transform("min")
    order = table.assign(first=first).sort_values(["first", *key, "rank"], kind="stable", ignore_index=True)
    changed = (order[key] != order[key].shift()).any(axis=1)
    order["collective"] = changed.cumsum() - 1
    chosen: pd.DataFrame = order[list(COLUMNS["collectives"])].astype(COLUMNS["collectives"])
    return chosen


def _collective_nodes(workload: Workload) -> pd.DataFrame:
    """Return rank, node id and collective facts of every collective node of every rank."""
    programs = [
        graph.nodes.loc[graph.nodes["type"] == NodeType.COMM_COLL, _FACTS].assign(program=index)
        for index, graph in enumerate(workload.graphs)
    ]
    ranks = pd.DataFrame({"program": np.asarray(workload.program_of_rank, dtype=np.int64)})
    ranks["rank"] = np.arange(len(ranks), dtype=np.int32)
    facts = pd.concat(programs, ignore_index=True).rename(columns={"comm_size_bytes": "size_bytes"})
    merged: pd.DataFrame = ranks.merge(facts, on="program").drop(columns="program")
    return merged


def _origin_start(table: pd.DataFrame, nodes: pd.DataFrame) -> pd.Series:
    """Return, for each row of *table*, when the node started whose start began the end of it."""
    starts = nodes[["rank", "node_id", "start_ns"]].rename(
        columns={"rank": "origin_rank", "node_id": "origin_node", "start_ns": "origin_start_ns"}
    )
    found = table[["origin_rank", "origin_node"]].merge(starts, on=["origin_rank", "origin_node"], how="left")
    origin: pd.Series = found["origin_start_ns"].fillna(table["start_ns"]).astype("int64")
    return origin.clip(upper=table["end_ns"])
