"""Reduce a step to small tables without node ids, for comparisons between steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ....converter import NodeType, Workload
from ....converter.building import captured_steps, class_of, plain_name
from ....support import bytes_text, ranks_text
from ..._result import Result
from .._choices import PARTS
from .._collectives import operation_name
from .._critical_path import CriticalPath, critical_path
from .._equal_ranks import group_members, represented_ranks
from .._streams import busy_kinds, exclusive_ns
from .._summary import rank_times

FIGURES: Mapping[str, str] = {
    **dict.fromkeys(("step", "compute", "communication", "exposed", "overlap", "copies"), "ns"),
    **dict.fromkeys(("idle", "wait", "transfer"), "ns"),
    "bytes": "bytes",
    "collectives": "count",
    "nodes": "count",
    "memory": "bytes",
}
"""The unit of each figure of a step; ``memory`` is missing if no capture records it."""
_NOTHING = "(none)"
_TIMES = ["count", "time_ns", "on_path_ns"]
_ON_HOST = ("host", "sync")
_OF_OPERATORS = ("compute", "copy")
_NODE = ["rank", "node_id"]
_OPERATOR = ["key", "class"]


@dataclass(frozen=True, eq=False)
class Step:
    """One simulated or measured step, with times in ns.

    *start* names the start of the job, because steps of one start resemble each other. *exact*
    means that equal input always gives equal times, as in a simulation.

    *figures* has totals by name. *modules* has ``key, kind, count, time_ns, on_path_ns`` as means over the
    ranks. *operators* has ``key, class, count, time_ns, total_ns, on_path_ns, kernel`` of the devices' work,
    and a row for idle time; overlapping time counts once in ``time_ns``, which adds up to the makespan, while
    ``total_ns`` includes overlaps, and ``kernel`` is the operator's longest work. *collectives* has ``key,
    operation, size_bytes, group, count, wait_ns, transfer_ns, on_path_ns``. *segments* are the critical path,
    with a column per :data:`PARTS`. *covers* is the number of training steps, above 1 if several were
    converted together.
    """

    name: str
    start: str
    exact: bool
    makespan_ns: int
    figures: Mapping[str, int]
    operators: pd.DataFrame
    modules: pd.DataFrame
    collectives: pd.DataFrame
    segments: pd.DataFrame
    covers: int = 1


def read_step(result: Result, workload: Workload, *, name: str, start: str, exact: bool) -> Step:
    """Reduce *result*, a simulation or replay of *workload*, to the step *name*."""
    nodes = result.nodes.merge(_facts(workload), on=_NODE, how="left", validate="1:1")
    path = critical_path(result, workload)
    calls = _calls(result)
    segments = _segments(path, calls)
    nodes["time_ns"] = (nodes["end_ns"] - nodes["start_ns"]).astype(np.int64)
    on_path = segments.groupby(_NODE)["duration_ns"].sum().rename("on_path_ns").reset_index()
    nodes = nodes.merge(on_path, on=_NODE, how="left").fillna({"on_path_ns": 0})
    nodes["ranks"] = nodes["rank"].map(represented_ranks(result))
    calls["ranks"] = calls["rank"].map(represented_ranks(result))
    ranks = max(1, len(result.ranks))
    return Step(
        name=name,
        start=start,
        exact=exact,
        makespan_ns=int(result.makespan_ns),
        figures=_figures(result, workload, nodes, calls),
        operators=_operators(nodes, ranks, int(result.makespan_ns)),
        modules=_by(nodes.assign(key=nodes["module"].where(nodes["module"] != "", _NOTHING)), ranks),
        collectives=_collectives(calls, on_path, ranks),
        segments=segments,
        covers=captured_steps(workload.metadata),
    )


def _facts(workload: Workload) -> pd.DataFrame:
    columns = [*_NODE, "name", "type", "kind", "is_cpu_op", "operator", "module"]
    table: pd.DataFrame = workload.node_table()[columns]
    return table


def _calls(result: Result) -> pd.DataFrame:
    """Return all calls of collectives, with a ``key`` that is valid across captures.

    Numbers of communicator groups are not valid across captures, so groups are named by their members.
    """
    calls = result.collectives
    recorded = calls.groupby("collective").agg(ranks=("rank", tuple), group=("group", "first"))
    whole = {group: group_members(result, int(group)) for group in recorded["group"].unique()}
    members = pd.Series(
        [tuple(whole[group] or ranks) for ranks, group in recorded.itertuples(index=False)], recorded.index
    )
    every = len(result.ranks)
    names = {
        ranks: "all ranks" if len(ranks) == every else f"ranks {ranks_text(ranks)}" for ranks in set(members)
    }
    table = calls.assign(
        operation=calls["comm_type"].map(operation_name).astype(object),
        group=calls["collective"].map(members.map(names)).astype(object),
        size_bytes=calls["size_bytes"].clip(lower=0),
    )
    sizes = table["size_bytes"].map(bytes_text).astype(object)
    keyed: pd.DataFrame = table.assign(key=table["operation"] + " of " + sizes + ", " + table["group"])
    return keyed


def _segments(path: CriticalPath, calls: pd.DataFrame) -> pd.DataFrame:
    """Return the segments of *path* with parts named independently of the capture."""
    segments = path.unreasoned.merge(calls[[*_NODE, "key"]], on=_NODE, how="left")
    named = segments["key"].where(segments["key"].notna(), segments["collective"])
    segments["collective"] = named
    for by in ("operator", "module", "collective", "phase"):
        segments[by] = segments[by].where(segments[by] != "", _NOTHING)
    inside = segments["module"].where(segments["module"] != _NOTHING, segments["operator"])
    segments["class"] = _classes(segments)
    on_host = segments["kind"].isin(_ON_HOST)
    inside = inside.where(~on_host, segments["module"].where(segments["module"] != _NOTHING, "no module"))
    of = segments["collective"].where(segments["collective"] != _NOTHING, inside)
    idle = segments["kind"] == "idle"
    segments["part"] = segments["kind"].where(idle, segments["kind"] + ": " + of)
    segments["rank"] = segments["rank"].astype(np.int64)
    kept: pd.DataFrame = segments[["segment", "node_id", "name", "start_ns", "end_ns", "duration_ns", *PARTS]]
    return kept


def _classes(rows: pd.DataFrame) -> pd.Series:
    """Return the operator class of rows that compute or copy, and the kind of work of others."""
    names = pd.Series({name: class_of(plain_name(name)) for name in rows["operator"].unique()}, dtype=object)
    named, kinds = rows["operator"].map(names), rows["kind"]
    own = named.where(named != "", kinds.replace("compute", "other computation"))
    classes: pd.Series = own.where(kinds.isin(_OF_OPERATORS), kinds)
    return classes


def _operators(nodes: pd.DataFrame, ranks: int, makespan_ns: int) -> pd.DataFrame:
    """Return the devices' work as means over the *ranks*: a row per operator, and one for idle time."""
    busy = nodes.assign(kind=busy_kinds(nodes))
    busy = busy[busy["kind"] != ""]
    busy["operator"] = busy["operator"].where(busy["operator"] != "", busy["name"])
    # Ranks get separate intervals on one time axis, so that one pass counts all ranks.
    lead = pd.factorize(busy["rank"])[0] * makespan_ns
    start, end = (lead + busy[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    own = exclusive_ns(start, end, busy["kind"])
    busy = busy.assign(
        key=busy["operator"], count=busy["ranks"], exclusive_ns=own * busy["ranks"],
        total_ns=busy["time_ns"] * busy["ranks"],
    ).assign(**{"class": _classes(busy)})  # fmt: skip
    kernels = busy.groupby([*_OPERATOR, "name"], as_index=False)["total_ns"].sum()
    kernels = kernels.sort_values("total_ns", ascending=False, kind="stable").drop_duplicates(_OPERATOR)
    table = busy.groupby(_OPERATOR, as_index=False).agg(
        count=("count", "sum"), time_ns=("exclusive_ns", "sum"), total_ns=("total_ns", "sum"),
        on_path_ns=("on_path_ns", "sum"),
    )  # fmt: skip
    idle_ns = makespan_ns * ranks - int(table["time_ns"].sum())
    idle = dict.fromkeys(table.columns, 0) | dict.fromkeys(_OPERATOR, "idle") | {"time_ns": idle_ns}
    table = pd.concat([table, pd.DataFrame([idle])], ignore_index=True)
    # Rounding cumulative sums makes the means add up to the makespan.
    table["time_ns"] = np.diff((table["time_ns"].cumsum() + ranks // 2) // ranks, prepend=0)
    table[["count", "total_ns"]] = (table[["count", "total_ns"]] / ranks).round()
    typed = table.astype(dict.fromkeys([*_TIMES, "total_ns"], np.int64))
    named: pd.DataFrame = typed.merge(
        kernels[[*_OPERATOR, "name"]].rename(columns={"name": "kernel"}), on=_OPERATOR, how="left"
    ).fillna({"kernel": ""})
    return named


def _by(nodes: pd.DataFrame, ranks: int) -> pd.DataFrame:
    """Return counts and times of *nodes* by key and kind, as means over the *ranks*."""
    kinds = nodes["kind"].where(nodes["type"] < int(NodeType.COMM_SEND), "communication")
    table = nodes.assign(kind=kinds, time_ns=nodes["time_ns"] * nodes["ranks"])
    table = table.groupby(["key", "kind"], as_index=False).agg(
        count=("ranks", "sum"), time_ns=("time_ns", "sum"), on_path_ns=("on_path_ns", "sum")
    )
    table[["count", "time_ns"]] = (table[["count", "time_ns"]] / ranks).round()
    typed: pd.DataFrame = table.astype(dict.fromkeys(_TIMES, np.int64))
    return typed


def _collectives(calls: pd.DataFrame, on_path: pd.DataFrame, ranks: int) -> pd.DataFrame:
    """Return a row per operation, size and group; times are sums of means over ranks."""
    keys = ["key", "operation", "size_bytes", "group"]
    table = calls.merge(on_path, on=_NODE, how="left").fillna({"on_path_ns": 0})
    grouped = table.groupby(keys, as_index=False).agg(
        count=("collective", "nunique"),
        members=("rank", "nunique"),
        wait_ns=("wait_ns", "sum"),
        transfer_ns=("transfer_ns", "sum"),
        on_path_ns=("on_path_ns", "sum"),
    )
    for column in ("wait_ns", "transfer_ns"):
        grouped[column] = (grouped[column] / grouped["members"].clip(lower=1)).round().astype(np.int64)
    typed: pd.DataFrame = grouped.drop(columns="members").astype({"on_path_ns": np.int64, "count": np.int64})
    return typed


def _figures(result: Result, workload: Workload, nodes: pd.DataFrame, calls: pd.DataFrame) -> dict[str, int]:
    """Return the totals of a step; except the step time, they are means over the ranks."""
    times, ranks = rank_times(result), max(1, len(result.ranks))
    figures = {
        "step": int(result.makespan_ns),
        "compute": round(times["compute_ns"].mean()),
        "communication": round(result.ranks["comm_ns"].mean()),
        "exposed": round(times["exposed_comm_ns"].mean()),
        "overlap": round(times["overlap_ns"].mean()),
        "copies": round(times["exposed_copy_ns"].mean()),
        "idle": round(times["idle_ns"].mean()),
        "wait": round(int((calls["wait_ns"] * calls["ranks"]).sum()) / ranks),
        "transfer": round(int((calls["transfer_ns"] * calls["ranks"]).sum()) / ranks),
        "bytes": round(int((calls["size_bytes"] * calls["ranks"]).sum()) / ranks),
        "collectives": int(calls["collective"].nunique()),
        "nodes": int(nodes["ranks"].sum()),
    }
    memory: Any = workload.metadata.get("memory_bytes")
    if isinstance(memory, Mapping) and memory:
        figures["memory"] = max(int(most) for most in memory.values())
    return figures
