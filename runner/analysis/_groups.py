"""Fold a graph into groups of nodes: modules, phases, streams or ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...support import count_text, duration_text
from ._lanes import is_communication, lane_table
from ._layers import cut_names

__all__ = ["Groups", "module_groups", "phase_groups", "rank_groups", "stream_groups"]

_PHASES = ("forward", "backward", "communication", "optimizer", "other")
_MOST_RANKS = 256


@dataclass(frozen=True)
class Groups:
    """Groups of nodes, and the edges between them.

    *nodes* has ``group, name, band, kind, count, duration_ns, on_path_ns, rank`` and ``node_id``: ``kind`` is
    what takes most of its time, ``rank`` and ``node_id`` its longest node. Those of a band, such as a phase,
    follow each other. *edges* has ``src``, ``dst`` (groups) and ``label``; *group_of* maps each row of the
    nodes folded to its group.
    """

    nodes: pd.DataFrame
    edges: pd.DataFrame
    group_of: pd.Series


def module_groups(nodes: pd.DataFrame, edges: pd.DataFrame, path: pd.DataFrame, most: int = 60) -> Groups:
    """Return the executed *nodes* of one rank grouped by phase and module, as deep as *most* groups allow.

    *edges* are the rank's program's, *path* the segments of the critical path on this rank.
    """
    names = cut_names(nodes["module"].astype(str), most, nodes["phase"].astype(str))
    return _program_groups(nodes, nodes["phase"], names.where(names != "", "(no module)"), edges, path)


def phase_groups(nodes: pd.DataFrame, edges: pd.DataFrame, path: pd.DataFrame) -> Groups:
    """Return the executed *nodes* of one rank grouped by phase; see :func:`module_groups`."""
    return _program_groups(nodes, pd.Series("", index=nodes.index), nodes["phase"], edges, path)


def stream_groups(nodes: pd.DataFrame, edges: pd.DataFrame, path: pd.DataFrame) -> Groups:
    """Return the executed *nodes* of one rank grouped by the lane they run on; see :func:`module_groups`."""
    keys = pd.DataFrame(
        {
            "rank": nodes["rank"],
            "measured": False,
            "comm": is_communication(nodes["type"]),
            "stream": nodes["stream"],
        }
    )
    lanes = keys.drop_duplicates().sort_values(["comm", "stream"])
    named = lanes.assign(lane=lane_table(lanes)["label"].to_numpy())
    names = keys.merge(named, on=list(keys.columns), how="left")["lane"]
    return _program_groups(nodes, pd.Series("", index=nodes.index), names.set_axis(nodes.index), edges, path)


def rank_groups(nodes: pd.DataFrame, path: pd.DataFrame) -> Groups:
    """Return all executed *nodes* grouped by rank; the edges say which rank waited for which, and how long.

    Of more than 256 ranks, those that the critical path visits longest.
    """
    names = "rank " + nodes["rank"].astype(str)
    table, group_of = _folded(nodes, pd.Series("", index=nodes.index), names, path)
    starts = nodes.set_index(["rank", "node_id"])["start_ns"]
    late = nodes[nodes["origin_rank"] != nodes["rank"]]
    places = pd.MultiIndex.from_frame(late[["origin_rank", "origin_node"]])
    waited = starts.reindex(places).to_numpy() - late["start_ns"].to_numpy()
    pairs = pd.DataFrame(
        {
            "src": late["origin_rank"].map(dict(zip(nodes["rank"], group_of, strict=True))).to_numpy(),
            "dst": group_of[late.index].to_numpy(),
            "waited_ns": np.nan_to_num(waited, nan=0.0).clip(min=0).astype(np.int64),
        }
    )
    sums = pairs[pairs["waited_ns"] > 0].groupby(["src", "dst"], as_index=False)["waited_ns"].sum()
    kept = table.nlargest(_MOST_RANKS, "on_path_ns")["group"]
    sums = sums[sums["src"].isin(kept) & sums["dst"].isin(kept)]
    edges = sums.assign(label=["waited " + duration_text(ns) for ns in sums["waited_ns"]])
    return Groups(
        table[table["group"].isin(kept)].sort_values("rank", ignore_index=True),
        edges[["src", "dst", "label"]],
        group_of,
    )


def _program_groups(
    nodes: pd.DataFrame, band: pd.Series, names: pd.Series, edges: pd.DataFrame, path: pd.DataFrame
) -> Groups:
    table, group_of = _folded(nodes, band, names, path)
    order = table["band"].map({phase: place for place, phase in enumerate(_PHASES)}).fillna(len(_PHASES))
    table = table.assign(order=order).sort_values(["order", "start_ns"], kind="stable").drop(columns="order")
    by_node = pd.Series(group_of.to_numpy(), index=nodes["node_id"])
    return Groups(table.reset_index(drop=True), _between(edges, by_node), group_of)


def _folded(
    nodes: pd.DataFrame, band: pd.Series, names: pd.Series, path: pd.DataFrame
) -> tuple[pd.DataFrame, pd.Series]:
    """Return a row per group, and the group of each of *nodes*."""
    table = nodes[["rank", "node_id", "kind", "start_ns"]].assign(
        duration_ns=nodes["end_ns"] - nodes["start_ns"], band=band, name=names
    )
    table["group"] = table.groupby(["band", "name"], sort=False).ngroup()
    on_path = path.groupby(["rank", "node_id"])["duration_ns"].sum()
    keys = pd.MultiIndex.from_frame(table[["rank", "node_id"]])
    table["on_path_ns"] = on_path.reindex(keys).fillna(0).to_numpy(np.int64)
    longest = table.loc[table.groupby("group")["duration_ns"].idxmax(), ["group", "rank", "node_id"]]
    kinds = table.groupby(["group", "kind"], as_index=False)["duration_ns"].sum()
    most = kinds.loc[kinds.groupby("group")["duration_ns"].idxmax(), ["group", "kind"]]
    groups = table.groupby(["group", "band", "name"], as_index=False).agg(
        count=("node_id", "size"),
        duration_ns=("duration_ns", "sum"),
        on_path_ns=("on_path_ns", "sum"),
        start_ns=("start_ns", "min"),
    )
    return groups.merge(longest, on="group").merge(most, on="group"), table["group"]


def _between(edges: pd.DataFrame, group_of: pd.Series) -> pd.DataFrame:
    table = pd.DataFrame({"src": edges["src"].map(group_of), "dst": edges["dst"].map(group_of)}).dropna()
    crossing = table[table["src"] != table["dst"]].astype(np.int64)
    counted = crossing.groupby(["src", "dst"]).size().rename("count").reset_index()
    labels = [count_text(count, "edge") for count in counted["count"]]
    labelled: pd.DataFrame = counted[["src", "dst"]].assign(label=labels)
    return labelled
