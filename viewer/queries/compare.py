"""Compare runs: in total, rank by rank, and node by node where they simulate the same workload."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ...runner import parting
from ..state import OpenRun
from ..theme import duration_text, run_name, share_text

__all__ = [
    "collective_differences",
    "node_differences",
    "paths_part",
    "rank_differences",
    "run_overview",
    "same_nodes",
]

_PLACE_LENGTH = 120
_DIFFERENCE = ["base_ns", "other_ns", "delta_ns", "relative"]


def run_overview(runs: Sequence[OpenRun]) -> pd.DataFrame:
    """Return a row a run; ``delta_ns`` and ``relative`` are against the first of *runs*."""
    base = runs[0].result.makespan_ns
    rows = [
        {
            "run": run.info.id,
            "label": run_name(run.info),
            "backend": run.info.backend,
            "network": run.info.network,
            "ranks": run.info.num_ranks,
            "makespan_ns": run.result.makespan_ns,
            "delta_ns": run.result.makespan_ns - base,
            "relative": run.result.makespan_ns / max(1, base) - 1,
            "exposed_comm_ns": int(run.summary.ranks["exposed_comm_ns"].max()),
        }
        for run in runs
    ]
    table: pd.DataFrame = pd.DataFrame(rows)
    return table


def same_nodes(base: OpenRun, other: OpenRun) -> bool:
    """Return whether node ids mean the same in both runs: they come from one workload of the study."""
    return base.info.workload == other.info.workload


def rank_differences(base: OpenRun, other: OpenRun) -> pd.DataFrame:
    """Return the ranks both runs have, with each figure of both (suffixes ``_base`` and ``_other``)."""
    columns = ["rank", "finish_ns", "compute_ns", "exposed_comm_ns", "idle_ns"]
    table: pd.DataFrame = base.summary.ranks[columns].merge(
        other.summary.ranks[columns], on="rank", suffixes=("_base", "_other")
    )
    return table


def node_differences(base: OpenRun, other: OpenRun) -> pd.DataFrame:
    """Return every node of the ranks both runs have, the greatest difference of duration first.

    ``base_ns`` and ``other_ns`` are its durations, ``delta_ns`` their difference, ``relative`` that over the
    base's duration.
    """
    durations = [
        run.result.nodes[["rank", "node_id"]].assign(
            duration_ns=run.result.nodes["end_ns"] - run.result.nodes["start_ns"]
        )
        for run in (base, other)
    ]
    table = durations[0].merge(durations[1], on=["rank", "node_id"], suffixes=("_base", "_other"))
    table = _with_difference(
        table.rename(columns={"duration_ns_base": "base_ns", "duration_ns_other": "other_ns"})
    )
    facts = base.nodes[["rank", "node_id", "name", "kind", "module", "phase"]]
    return _worst_first(table.merge(facts, on=["rank", "node_id"], how="left"))


def collective_differences(base: OpenRun, other: OpenRun) -> pd.DataFrame:
    """Return every collective of the base run, its mean duration over the ranks both runs have, worst first.

    It is aligned by its nodes' ids. ``transfer_base_ns`` and ``transfer_other_ns`` leave the waiting out.
    """
    columns = ["rank", "node_id", "start_ns", "end_ns", "transfer_ns"]
    calls = base.result.collectives[["collective", *columns]].merge(
        other.result.collectives[columns], on=["rank", "node_id"], suffixes=("", "_other")
    )
    calls["base_ns"] = calls["end_ns"] - calls["start_ns"]
    calls["other_ns"] = calls["end_ns_other"] - calls["start_ns_other"]
    table = calls.groupby("collective", as_index=False).agg(
        base_ns=("base_ns", "mean"),
        other_ns=("other_ns", "mean"),
        transfer_base_ns=("transfer_ns", "mean"),
        transfer_other_ns=("transfer_ns_other", "mean"),
    )
    whole = table.columns.drop("collective")
    table[whole] = table[whole].round().astype(np.int64)
    facts = base.collectives[["collective", "operation", "module", "size_bytes", "rank", "node_id"]]
    return _worst_first(_with_difference(table).merge(facts, on="collective"))


def paths_part(base: OpenRun, other: OpenRun) -> str:
    """Return in words how far the two critical paths go together, and where each goes then."""
    found = parting(base.path, other.path)
    if found.same:
        return f"Both critical paths go through the same {found.segments:,} segments."
    together = f"share their first {found.segments:,} segments, until {duration_text(found.at_ns)}; then"
    start = f"The critical paths {together if found.segments else 'part at once:'}"
    places = f"this run goes to {_cut(found.base_goes_to)}, the other to {_cut(found.other_goes_to)}"
    return f"{start} {places}. {share_text(found.on_both)} of this run's path lies on the other's too."


def _cut(place: str) -> str:
    """Shorten a long name in the middle: which node it is stands at the end."""
    return place if len(place) <= _PLACE_LENGTH else f"{place[:60]} … {place[-40:]}"


def _with_difference(table: pd.DataFrame) -> pd.DataFrame:
    delta = table["other_ns"] - table["base_ns"]
    result: pd.DataFrame = table.assign(delta_ns=delta, relative=delta / table["base_ns"].clip(lower=1))
    return result


def _worst_first(table: pd.DataFrame) -> pd.DataFrame:
    order = (-table["delta_ns"].abs()).argsort(kind="stable")
    lead = [name for name in table.columns if name not in _DIFFERENCE]
    ordered: pd.DataFrame = table.iloc[order].reset_index(drop=True)[[*lead, *_DIFFERENCE]]
    return ordered
