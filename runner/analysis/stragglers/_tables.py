"""Tables of stragglers: causes, types, workers, steps, and workers by steps."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pandas as pd

from ._stragglers import Stragglers


def cause_table(found: Stragglers) -> pd.DataFrame:
    """Return one row for each cause, as `StragglerCause`; ``steps`` says how many there are."""
    columns = [
        "kind", "where", "slowdown", "without_ns", "when", "steps", "evidence", "rank", "replica", "stage",
    ]  # fmt: skip
    rows = [asdict(cause) | {"steps": len(cause.steps)} for cause in found.causes]
    table: pd.DataFrame = pd.DataFrame(rows, columns=columns)
    return table


def type_table(found: Stragglers) -> pd.DataFrame:
    """Return the slowdown by each type of operation (S_t), on average and in the worst step."""
    steps = found.layout.steps
    rows = [
        (name, float(by_step.mean()), float(by_step.max()), int(steps[by_step.argmax()]))
        for name, by_step in found.slowdowns.by_type.items()
    ]
    rows.sort(key=lambda row: -row[1])
    table: pd.DataFrame = pd.DataFrame(rows, columns=["type", "slowdown", "worst", "worst_step"])
    return table


def worker_table(found: Stragglers) -> pd.DataFrame:
    """Return the slowdown by each worker (S_w), its replica and its stage, the slowest worker first."""
    found_by, layout = found.slowdowns, found.layout
    replicas, stages = np.nonzero(layout.ranks >= 0)
    by_replica, by_stage = found_by.by_replica.mean(axis=1), found_by.by_stage.mean(axis=1)
    by_step = found_by.by_worker[replicas, stages]
    rows = pd.DataFrame(
        {
            "rank": layout.ranks[replicas, stages],
            "replica": replicas,
            "stage": stages,
            "slowdown": np.minimum(by_replica[replicas], by_stage[stages]),
            "worst": by_step.max(axis=1),
            "worst_step": layout.steps[by_step.argmax(axis=1)],
            "replica_slowdown": by_replica[replicas],
            "stage_slowdown": by_stage[stages],
        }
    )
    table: pd.DataFrame = rows.sort_values(["slowdown", "rank"], ascending=[False, True], ignore_index=True)
    return table


def step_table(found: Stragglers) -> pd.DataFrame:
    """Return the times of each step, its slowdown, and its slowest worker and type with theirs.

    A column ``replica N``, ``stage N`` or the name of a type has the slowdown by that alone.
    """
    by, layout = found.slowdowns, found.layout
    by_worker = by.by_worker
    slowest = by_worker.reshape(-1, by_worker.shape[2]).argmax(axis=0)
    columns = {
        "step": layout.steps,
        "recorded_ns": by.recorded_ns,
        "replayed_ns": by.replayed_ns,
        "slowdown": by.by_step,
        "slowest_rank": layout.ranks.reshape(-1)[slowest],
        "rank_slowdown": by_worker.max(axis=(0, 1)),
    }
    columns |= {f"replica {replica}": series for replica, series in enumerate(by.by_replica)}
    columns |= {f"stage {stage}": series for stage, series in enumerate(by.by_stage)}
    table: pd.DataFrame = pd.DataFrame(columns | dict(by.by_type))
    return table


def heat_map(found: Stragglers) -> pd.DataFrame:
    """Return the slowdown by each worker in each step: a row for each rank, a column for each step."""
    layout = found.layout
    replicas, stages = np.nonzero(layout.ranks >= 0)
    rows = pd.DataFrame(
        found.slowdowns.by_worker[replicas, stages], columns=[f"step {step}" for step in layout.steps]
    )
    rows.insert(0, "rank", layout.ranks[replicas, stages])
    table: pd.DataFrame = rows.sort_values("rank", ignore_index=True)
    return table


STRAGGLER_TABLES = {
    "causes": cause_table,
    "types": type_table,
    "workers": worker_table,
    "steps": step_table,
    "heat-map": heat_map,
}
"""The function that makes each table of `Stragglers`, by the name of its view."""
