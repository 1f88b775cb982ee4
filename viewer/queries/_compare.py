"""Compare runs: in total, rank by rank, and node by node where they simulate the same workload."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ...runner import collective_differences as compare_collectives
from ...runner import flow_differences as compare_flows
from ...runner import node_differences as compare_nodes
from ...runner import rank_differences as compare_ranks
from ...runner.analysis import RunAnalysis
from .._theme import run_name

__all__ = [
    "collective_differences",
    "flow_differences",
    "node_differences",
    "rank_differences",
    "run_kinds",
    "run_overview",
    "same_nodes",
]


def run_overview(runs: Sequence[RunAnalysis]) -> pd.DataFrame:
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


def run_kinds(runs: Sequence[RunAnalysis]) -> pd.DataFrame:
    """Return the critical path of each of *runs* by kind: ``run, label, key, duration_ns, share``."""
    parts = [run.summary.kinds.assign(run=run.info.id, label=run_name(run.info)) for run in runs]
    columns = ["run", "label", "key", "duration_ns", "share"]
    table: pd.DataFrame = pd.concat(parts, ignore_index=True)[columns]
    return table


def same_nodes(base: RunAnalysis, other: RunAnalysis) -> bool:
    """Return whether node ids mean the same in both runs: they come from one workload of the study."""
    return base.info.workload == other.info.workload


def rank_differences(base: RunAnalysis, other: RunAnalysis) -> pd.DataFrame:
    """Return the ranks both runs have, with each figure of both (suffixes ``_base`` and ``_other``)."""
    return compare_ranks(base.result, other.result)


def node_differences(base: RunAnalysis, other: RunAnalysis) -> pd.DataFrame:
    """Return every node of the ranks both runs have, the greatest difference of duration first."""
    return compare_nodes(base.result, other.result, base.nodes)


def collective_differences(base: RunAnalysis, other: RunAnalysis) -> pd.DataFrame:
    """Return every collective of the base run, aligned by its nodes' ids, the greatest difference first."""
    return compare_collectives(base.result, other.result, base.collectives)


def flow_differences(base: RunAnalysis, other: RunAnalysis) -> pd.DataFrame:
    """Return every message of both runs, the greatest difference of completion time first."""
    return compare_flows(base.result, other.result)
