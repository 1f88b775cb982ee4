"""Fold a rank's graph into its modules, so that the whole of it fits on a screen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

__all__ = ["Groups", "module_groups"]

_PHASES = ("forward", "backward", "communication", "optimizer", "other")
_PER_ROW = 8


@dataclass(frozen=True)
class Groups:
    """Groups (group, name, phase, kind, count, duration_ns, on_path_ns, node_id, column, row), and edges.

    ``node_id`` is a group's longest node. *edges* has ``src``, ``dst`` (groups) and ``count``; *group_of*
    maps each node id to its group.
    """

    nodes: pd.DataFrame
    edges: pd.DataFrame
    group_of: pd.Series


def module_groups(nodes: pd.DataFrame, edges: pd.DataFrame, path: pd.DataFrame, most: int = 60) -> Groups:
    """Return the executed *nodes* of one rank grouped by phase and module, as deep as *most* groups allow.

    *edges* are the rank's program's, *path* the segments of the critical path on this rank. Groups of a phase
    stand together, in the order in which they begin.
    """
    table = nodes.assign(duration_ns=nodes["end_ns"] - nodes["start_ns"], name=_names(nodes, most))
    keys = table.groupby(["phase", "name"], sort=False).ngroup().to_numpy()
    table["group"] = keys
    on_path = path.groupby("node_id")["duration_ns"].sum()
    table["on_path_ns"] = table["node_id"].map(on_path).fillna(0).astype(np.int64)
    longest = table.loc[table.groupby("group")["duration_ns"].idxmax(), ["group", "node_id", "kind"]]
    groups = table.groupby(["group", "phase", "name"], as_index=False).agg(
        count=("node_id", "size"),
        duration_ns=("duration_ns", "sum"),
        on_path_ns=("on_path_ns", "sum"),
        start_ns=("start_ns", "min"),
    )
    group_of = pd.Series(keys, index=table["node_id"])
    return Groups(_placed(groups.merge(longest, on="group")), _between(edges, group_of), group_of)


def _names(nodes: pd.DataFrame, most: int) -> pd.Series:
    """Return the module of each node, cut to the greatest depth that leaves at most *most* groups."""
    modules = nodes["module"].astype(str)
    for depth in range(int(modules.str.count(r"\.").max() or 0) + 1, 0, -1):
        names = modules.map({name: ".".join(name.split(".")[:depth]) for name in modules.unique()})
        if (names + "\n" + nodes["phase"].astype(str)).nunique() <= most or depth == 1:
            break
    named: pd.Series = names.where(names != "", "(no module)")
    return named


def _placed(groups: pd.DataFrame) -> pd.DataFrame:
    order = groups["phase"].map({phase: place for place, phase in enumerate(_PHASES)}).fillna(len(_PHASES))
    groups = groups.assign(order=order).sort_values(["order", "start_ns"], kind="stable", ignore_index=True)
    place = groups.groupby("order").cumcount()
    rows = groups.groupby("order").size().add(_PER_ROW - 1).floordiv(_PER_ROW)
    above = rows.cumsum() - rows
    placed: pd.DataFrame = groups.assign(
        column=place % _PER_ROW, row=groups["order"].map(above).astype(int) + place // _PER_ROW
    ).drop(columns="order")
    return placed


def _between(edges: pd.DataFrame, group_of: pd.Series) -> pd.DataFrame:
    table = pd.DataFrame({"src": edges["src"].map(group_of), "dst": edges["dst"].map(group_of)}).dropna()
    crossing = table[table["src"] != table["dst"]].astype(np.int64)
    counts = crossing.groupby(["src", "dst"]).size()
    counted: pd.DataFrame = counts.rename("count").reset_index()
    return counted
