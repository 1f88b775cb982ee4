"""Bytes, bandwidth and arrival times of collectives, and the cost of store and forward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...converter import CollectiveType
from ...support import duration_text, share_text
from ...support.table import CodedColumns, Columns, Ints, TextColumn, frame_of
from .._framed import changed_rows, coded, rows_coded
from .._result import Result
from .._sync_points import arrivals_on_one_clock
from .._traits import about_backend
from ._critical_path import CriticalPath
from ._equal_ranks import group_members

if TYPE_CHECKING:
    import pandas as pd


def arrivals_of(result: Result, calls: Columns) -> Ints:
    """Return the start of each collective call in ns; in a replay, on one clock."""
    if about_backend(result.backend).network:
        return calls["start_ns"].astype(np.int64)
    return arrivals_on_one_clock(calls)


_KEYS = ["collective", "comm_type", "group", "size_bytes"]
_TYPES = {
    "collective": "int64", "operation": "str", "module": "str", "group": "int64", "ranks": "int64",
    "size_bytes": "int64", "start_ns": "int64", "skew_ns": "int64", "transfer_ns": "int64",
    "algorithm_bytes_per_ns": "float64", "bus_bytes_per_ns": "float64", "on_path_ns": "int64",
    "share": "float64", "rank": "int32", "node_id": "int64",
}  # fmt: skip
_PASSES = {int(kind): kind.ring_passes for kind in CollectiveType}


def operation_name(comm_type: int) -> str:
    """Return the name of a collective type, such as ``all_reduce``; "" if it is none."""
    kind = CollectiveType.of(comm_type)
    return "" if kind is None else kind.operation


def collective_overview(result: Result, nodes: pd.DataFrame, path: CriticalPath) -> pd.DataFrame:
    """Return a row per collective, by start; *nodes* has the ``module`` of ``rank, node_id``.

    ``skew_ns`` is the time from the first to the last arrival (see `arrivals_on_one_clock`).
    ``transfer_ns`` is the longest time that a rank spends in the collective once all ranks it needs
    have arrived. ``algorithm_bytes_per_ns`` (GB/s) is the bytes of the whole operation over
    ``transfer_ns``, and ``bus_bytes_per_ns`` scales it to the traffic per link of a ring, for
    comparison with hardware figures. ``on_path_ns`` is the collective's time on the critical path.
    ``rank`` and ``node_id`` are the last arrival.
    """
    return frame_of(overview_columns(result, path, lambda ranks, ids: _modules(nodes, ranks, ids)))


def overview_columns(
    result: Result,
    path: CriticalPath,
    modules_of: Callable[[Ints, Ints], TextColumn],
    group_sizes: Mapping[int, int] | None = None,
) -> CodedColumns:
    """Return the columns of `collective_overview`; *modules_of* maps ranks and node ids to modules.

    *group_sizes* has the number of ranks of groups of which only some ranks were measured.
    """
    calls, sizes = _calls(result)
    rows = np.lexsort([calls[name] for name in ("rank", *reversed(_KEYS))])
    calls = {name: column[rows] for name, column in calls.items()}
    firsts = np.flatnonzero(changed_rows([calls[name] for name in _KEYS]))
    if not len(firsts):
        return {
            name: TextColumn.of([]) if kind == "str" else np.empty(0, kind) for name, kind in _TYPES.items()
        }
    table = {name: calls[name][firsts] for name in _KEYS}
    ranks = _sizes(result, table["group"], np.add.reduceat(sizes[calls["rank"]], firsts), group_sizes or {})
    place = np.cumsum(changed_rows([table["collective"]])) - 1
    last = _last_arrivals(calls)[place]
    rank, node_id = calls["rank"][last], calls["node_id"][last]
    start_ns, arrival_ns = np.minimum.reduceat(calls["start_ns"], firsts), calls["arrival_ns"]
    transfer_ns = np.maximum.reduceat(calls["transfer_ns"], firsts)
    on_path_ns = _on_path(calls, path)[place]
    algorithm = _whole_bytes(table, ranks) / np.maximum(transfer_ns, 1)
    numbers, kinds = coded(table["comm_type"])
    columns: CodedColumns = table | {
        "operation": TextColumn(numbers, [*map(operation_name, kinds)]),
        "module": modules_of(rank.astype(np.int64), node_id),
        "ranks": ranks,
        "start_ns": start_ns,
        "skew_ns": np.maximum.reduceat(arrival_ns, firsts) - np.minimum.reduceat(arrival_ns, firsts),
        "transfer_ns": transfer_ns,
        "algorithm_bytes_per_ns": algorithm,
        "bus_bytes_per_ns": algorithm * _bus_factor(table, ranks),
        "on_path_ns": on_path_ns,
        "share": on_path_ns / max(1, result.makespan_ns),
        "rank": rank,
        "node_id": node_id,
    }
    return {name: columns[name] for name in _TYPES}


def _calls(result: Result) -> tuple[Columns, Ints]:
    """Return the calls of one rank per class of equal ranks, and the size of each class.

    In a replay, clocks depend on the median of all ranks, so each rank is a separate class.
    """
    table = result.table("collectives")
    distinct = table.distinct if about_backend(result.backend).network else table
    calls = distinct.columns()
    sizes = np.ones(int(calls["rank"].max(initial=0)) + 1, np.int64)
    if distinct is not table:
        sizes = np.bincount(result.columns("ranks")["representative"])
    return {**calls, "arrival_ns": arrivals_of(result, calls)}, sizes


def _sizes(result: Result, groups: Ints, recorded: Ints, stated: Mapping[int, int]) -> Ints:
    """Return the size of each group: *stated*, or else its known members, or else *recorded*."""
    numbers, different = coded(groups)
    members = (stated.get(int(group), 0) or len(group_members(result, group) or ()) for group in different)
    sizes = np.array([*members], np.int64)[numbers]
    return np.where(sizes > 0, sizes, recorded)


def _modules(nodes: pd.DataFrame, ranks: Ints, node_ids: Ints) -> TextColumn:
    """Look up each node's ``module`` in *nodes*."""
    import pandas as pd  # noqa: PLC0415 - most callers do not need pandas

    asked = pd.DataFrame({"rank": ranks, "node_id": node_ids})
    joined = asked.merge(
        nodes[["rank", "node_id", "module"]].astype({"rank": np.int64}), on=["rank", "node_id"], how="left"
    )
    return TextColumn.of(joined["module"].fillna("").astype(str))


def _last_arrivals(calls: Columns) -> Ints:
    """Return the row of the last arrival at each collective; on a tie, the row of the lowest rank."""
    rows = np.lexsort([calls["rank"], -calls["arrival_ns"], calls["collective"]])
    return rows[changed_rows([calls["collective"][rows]])]


def _on_path(calls: Columns, path: CriticalPath) -> Ints:
    """Return the ns that each collective is on the critical path; *calls* are sorted by collective."""
    pieces = path.columns
    chosen = pieces["collective"] != ""
    places, duration_ns = (
        [np.append(pieces[name][chosen], calls[name]).astype(np.int64) for name in ("rank", "node_id")],
        pieces["duration_ns"][chosen],
    )
    numbers, firsts = rows_coded(*places)
    of_place = np.zeros(len(firsts), np.int64)
    np.add.at(of_place, numbers[: len(duration_ns)], duration_ns)
    starts = np.flatnonzero(changed_rows([calls["collective"]]))
    return np.add.reduceat(of_place[numbers[len(duration_ns) :]], starts)


def _whole_bytes(table: Columns, ranks: Ints) -> Ints:
    """Return the bytes of each whole collective; for an all-gather, the recorded size is one shard."""
    gathers = np.isin(table["comm_type"], [kind for kind in CollectiveType if kind.sized_by_shard])
    return np.maximum(table["size_bytes"], 0) * np.where(gathers, ranks, 1)


def _bus_factor(table: Columns, ranks: Ints) -> npt.NDArray[np.float64]:
    """Return the bytes that each link of a ring carries per byte of the collective."""
    numbers, kinds = coded(table["comm_type"])
    passes = np.array([_PASSES.get(kind, 0) for kind in kinds])[numbers]
    return np.where(passes > 0, passes * ((ranks - 1) / ranks), 1.0)


def collective_arrivals(result: Result, nodes: pd.DataFrame) -> pd.DataFrame:
    """Return the arrival of each rank at each collective, sorted by collective and rank.

    The columns are ``collective, operation, module, rank, node_id, start_ns, late_ns, end_ns``.
    ``late_ns`` is relative to the first arrival (see `arrivals_on_one_clock`). *nodes* has each
    node's module. Collectives of a single rank are left out.
    """
    import pandas as pd  # noqa: PLC0415 - most callers do not need pandas

    calls = result.collectives[
        ["collective", "comm_type", "rank", "node_id", "start_ns", "end_ns"]
    ].reset_index(drop=True)
    arrivals = pd.Series(arrivals_of(result, result.columns("collectives")))
    of_one = arrivals.groupby(calls["collective"])
    calls = calls.assign(late_ns=arrivals - of_one.transform("min"), ranks=of_one.transform("size"))
    calls = calls[calls["ranks"] > 1].assign(operation=calls["comm_type"].map(operation_name))
    table = calls.merge(nodes[["rank", "node_id", "module"]], on=["rank", "node_id"], how="left")
    table["module"] = table["module"].fillna("").astype(str)
    names = ["collective", "operation", "module", "rank", "node_id", "start_ns", "late_ns", "end_ns"]
    ordered: pd.DataFrame = table[names].sort_values(["collective", "rank"], ignore_index=True)
    numbers = ["collective", "rank", "node_id", "start_ns", "late_ns", "end_ns"]
    typed: pd.DataFrame = ordered.astype(dict.fromkeys(numbers, np.int64))
    return typed


# Algorithms in which a rank sends as many bytes as in a ring.
_LIKE_RING = {"ring", "direct", "oneRing", "oneDirect", "halvingDoubling", "oneHalvingDoubling"}
_SWITCH = "Switch"
_HOPS = 2
_MATTERS = 0.1  # fraction of the makespan from which store and forward is reported


def second_hop_ns(made: Mapping[str, Any], operation: str, size_bytes: int, ranks: int) -> int | None:
    """Return how many ns a collective's second hop, through a switch, takes; None without a common switch.

    *made* is the provenance of the result.
    """
    network, system = made.get("network", {}), made.get("system", {})
    chosen = system.get(f"{operation.replace('_', '-')}-implementation") or []
    simple = list(network.get("topology", [])) == [_SWITCH] and not network.get("links")
    kind = CollectiveType.__members__.get(operation.upper())
    passes = 0 if kind is None else kind.ring_passes
    if not simple or not passes or len(chosen) != 1 or chosen[0] not in _LIKE_RING or ranks < 2:
        return None
    whole = size_bytes * (ranks if kind is CollectiveType.ALL_GATHER else 1)
    sent = passes * whole * (ranks - 1) / ranks
    return round(sent / (float(network["bandwidth"][0]) * 2**30 / 1e9))


def store_and_forward(result: Result) -> str:
    """Return a sentence if store and forward may take 10 % of the makespan or more, otherwise "".

    The time is an upper bound: all bytes of the rank with most traffic, over one more hop.
    Computation may hide part of it.
    """
    if about_backend(result.backend).hops < _HOPS or not result.makespan_ns:
        return ""
    calls = result.columns("collectives")
    _, place, members = np.unique(calls["collective"], return_inverse=True, return_counts=True)
    kinds = np.column_stack([calls["comm_type"], calls["size_bytes"], members[place]])
    different, kind = np.unique(kinds, axis=0, return_inverse=True)
    each = [
        second_hop_ns(result.provenance, operation_name(int(comm_type)), int(size), int(ranks)) or 0
        for comm_type, size, ranks in different.tolist()
    ]
    hops = np.array(each, np.float64)[kind.ravel()] if each else np.zeros(0)
    by_rank = np.bincount(calls["rank"], hops) if len(hops) else np.zeros(1)
    most = int(by_rank.max())
    share = most / result.makespan_ns
    if share < _MATTERS:
        return ""
    return (
        f"Up to {duration_text(most)}, {share_text(min(share, 1.0))} of the makespan, is store and forward: "
        f"'{result.backend}' sends each whole message to the switch, and then from the switch to its "
        "receiver. Real switches forward packets as they arrive, as 'flow' and 'packet' do."
    )
