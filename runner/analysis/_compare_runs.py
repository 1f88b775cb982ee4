"""Compare runs in total, whatever they simulate."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ..study import run_name
from ._differences import relative_step
from ._run import RunAnalysis

__all__ = ["run_kinds", "run_overview", "same_nodes"]


def run_overview(runs: Sequence[RunAnalysis]) -> pd.DataFrame:
    """Return a row per run; ``delta_ns`` and ``relative`` are against the first of *runs*.

    Against a measurement, ``relative`` is relative to that, wherever it stands; it is missing against one of
    another number of ranks.
    """
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
            "relative": relative_step(runs[0].result, run.result),
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
