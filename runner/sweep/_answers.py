"""Evaluate a sweep: swept settings, best point, Pareto front, and the effect of pairs of settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ...support import count_text, share_text
from ..analysis import Matrix, cpu_times, has_cpu_times
from ..prediction import foreign_text
from ..study import Study
from ._goal import Goal
from ._settings import Base, Builder
from ._space import Range, Space
from ._table import base_workload, read_start

_UNITS = {
    "bandwidth": "GiB/s",
    "latency": "ns",
    "npus_count": "ranks",
    "endpoint-delay": "ns",
    "local-mem-bw": "GB/s",
    "peak-perf": "TFLOP/s",
}


def swept_settings(points: pd.DataFrame) -> list[str]:
    """Return the columns of settings with several values, in descending order of their number."""
    settings = dict.fromkeys(name for text in points["settings"] for name in json.loads(text))
    counts = {name: points[name].astype(str).nunique() for name in settings if name in points}
    return sorted((name for name in counts if counts[name] > 1), key=lambda name: -counts[name])


def answered(points: pd.DataFrame) -> pd.DataFrame:
    """Return the successful points, shortest makespan first."""
    done = points[points["state"] == "done"]
    table: pd.DataFrame = done.sort_values("makespan_ns", kind="stable", ignore_index=True)
    return table


def available_goal(points: pd.DataFrame, goal: Goal) -> Goal:
    """Return *goal*, or the goal of the shortest step if no point has the cost that *goal* needs."""
    return Goal() if goal.needs_prices and points["cost"].isna().all() else goal


def best_point(points: pd.DataFrame, goal: Goal) -> tuple[pd.Series, bool]:
    """Return the best successful point by *goal*, and whether this point is within the limits."""
    best: pd.Series = goal.best_first(points).iloc[0]
    return best, bool(goal.excess(points).min() == 0)


def value_text(value: Any) -> str:
    """Return a value of a setting in the form in which a user types it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def best_by(points: pd.DataFrame, row: str, column: str) -> Matrix:
    """Return the shortest makespan (ns) for each pair of values of two settings.

    Combinations without a result are NaN. Numbers are in numeric order, and other values are in text order.
    """
    table = points.pivot_table(index=row, columns=column, values="makespan_ns", aggfunc="min", observed=True)
    values = table.to_numpy(dtype=float, na_value=np.nan)
    return Matrix([*map(value_text, table.index)], [*map(value_text, table.columns)], values)


def setting_title(name: str, *, unit: bool = False) -> str:
    """Return the title of a setting, which is its key without the file, with the *unit* if requested."""
    plain = name.removeprefix("network.").removeprefix("system.").removesuffix("-implementation")
    plain = plain.replace("npus_count", "size").replace("rank_time_ns", "time of all ranks (ns)")
    plain = plain.replace("memory_bytes", "memory of a rank (bytes)")
    field, bracket, index = plain.rstrip("]").partition("[")
    title = f"{field} of dimension {int(index) + 1}" if bracket and index.isdigit() else plain
    return f"{title} ({setting_unit(name)})" if unit and setting_unit(name) else title


def setting_unit(name: str) -> str:
    """Return the unit of a setting's numbers, or ``""`` if there is none."""
    return _UNITS.get(name.rpartition(".")[2].partition("[")[0], "")


def point_label(settings: Mapping[str, Any]) -> str:
    """Return the title of a point, with the value and the unit of each setting."""
    return ", ".join(
        f"{setting_title(key)} {value_text(value)}{' ' if setting_unit(key) else ''}{setting_unit(key)}"
        for key, value in settings.items()
    )


def objectives(points: pd.DataFrame) -> list[str]:
    """Return the columns that can be objectives in addition to the makespan: costs with several values."""
    numbers = [name for name in swept_settings(points) if pd.api.types.is_numeric_dtype(points[name])]
    columns = [name for name in ("ranks", "cost", "memory_bytes", *numbers, "rank_time_ns") if name in points]
    return [name for name in dict.fromkeys(columns) if points[name].nunique() > 1]


def has_one_value(points: pd.DataFrame, name: str) -> bool:
    """Return whether *name* would be one of the :func:`objectives` if its value varied among *points*."""
    costs = {"ranks", "cost", "memory_bytes", "rank_time_ns"}.union(*map(json.loads, points["settings"]))
    is_cost = name in costs and name in points and pd.api.types.is_numeric_dtype(points[name])
    return is_cost and bool(points[name].notna().all()) and points[name].nunique() == 1


def possible_objectives(space: Space, *, priced: bool) -> list[str]:
    """Return the columns that may be :func:`objectives` after a sweep of *space*.

    The ranks and costs of points are not known before the sweep, so they may turn out to be equal.
    """
    numbers = [
        key
        for key, values in space.items()
        if isinstance(values, Range) or all(value is None or type(value) in (int, float) for value in values)
    ]
    return ["ranks", *(["cost"] if priced else []), *numbers, "rank_time_ns"]


def more_is_cheaper(objective: str) -> bool:
    """Return whether a larger *objective* means cheaper hardware, as for delays."""
    return "latency" in objective or "delay" in objective


def worth_their_cost(points: pd.DataFrame, objective: str) -> pd.Series:
    """Return a mask of the Pareto front of the successful points by cost and makespan.

    The cost is the column *objective*, or the negated column if :func:`more_is_cheaper` is true.
    """
    sign = -1 if more_is_cheaper(objective) else 1
    return frontier(points.assign(**{objective: sign * points[objective].astype(float)}), objective)


def frontier(points: pd.DataFrame, against: str = "ranks") -> pd.Series:
    """Return a mask of the Pareto front by *against* and makespan, both `per_captured_step`."""
    ordered = per_captured_step(points).sort_values([against, "makespan_ns"], kind="stable")
    best = ordered["makespan_ns"].astype(float).cummin()
    first = ~ordered.duplicated([against]) & (ordered["makespan_ns"] == best)
    improves = first & (best < best.shift(fill_value=np.inf))
    column: pd.Series[Any] = improves.reindex(points.index, fill_value=False)
    return column


def per_captured_step(points: pd.DataFrame) -> pd.DataFrame:
    """Return *points* with makespans and costs per captured step, if their steps do different work.

    Otherwise, a small cluster would always be on the Pareto front, because its step does the least work.
    Points with an unknown amount of work are omitted.
    """
    if WORK[0] not in points or points[WORK[0]].nunique() < 2:
        return points
    known = points[points[WORK[0]].notna()]
    scaled = {
        name: known[name].astype(float) / known[WORK[0]].astype(float)
        for name in ("makespan_ns", "rank_time_ns", "cost")
        if name in known
    }
    table: pd.DataFrame = known.assign(**scaled)
    return table


def pair_table(points: pd.DataFrame) -> pd.DataFrame:
    """Return the shortest ``makespan_ns`` for each pair of values of the two settings with the most values.

    With a single setting, the table has the shortest makespan for each of its values.
    """
    done = answered(points)
    settings = swept_settings(points)[:2]
    if not settings:
        table: pd.DataFrame = done[["makespan_ns"]].head(1)
        return table
    best = done.groupby(settings, sort=True, dropna=False)["makespan_ns"].min()
    return best.reset_index()


def front_table(points: pd.DataFrame, against: str) -> pd.DataFrame:
    """Return the Pareto front of the step time and its cost, ordered by cost.

    *against* is one of the :func:`objectives`. Any other value selects the first objective. Without
    objectives, the front consists of the fastest point.
    """
    done = answered(points)
    names = objectives(done)
    table: pd.DataFrame = done.head(1)
    if names:
        cost = against if against in names else names[0]
        table = done[worth_their_cost(done, cost)].sort_values(cost, ignore_index=True)
    return table


SWEEP_TABLES: Mapping[str, Callable[[pd.DataFrame, str], pd.DataFrame]] = {
    "points": lambda points, _against: points,
    "pairs": lambda points, _against: pair_table(points),
    "front": front_table,
}


WORK = ("captured_steps", "captured_steps_per_s", "captured_steps_per_s_per_rank")
"""The columns for the work of a step (in steps of the captured job), and for the work per second."""


def with_work(study: Study, workload: str | None, points: pd.DataFrame) -> pd.DataFrame:
    """Return *points* with the columns :data:`WORK`.

    A captured job runs on more ranks by data parallelism, so a step does the work of several captured steps.
    The work is missing without a *workload*, for failed points, and for a part of a job's ranks.
    """
    work = pd.Series(pd.NA, index=points.index, dtype="Float64")
    if workload in study.workloads() and "workload" not in points:
        work = points["ranks"].astype("Float64") / study.workload_ranks(workload)
    work = work.where((work >= 1) & (points["state"] == "done"))
    rate = 1e9 * work / points["makespan_ns"]
    figures = (work, rate, rate / points["ranks"])
    table: pd.DataFrame = points.assign(**dict(zip(WORK, figures, strict=True)))
    return table


def comparison_notes(study: Study, name: str, points: pd.DataFrame) -> list[str]:
    """Return reasons why the makespans of *points* of the sweep *name* do not rank clusters, if any."""
    if base_workload(study, name) is None:
        return []
    base = read_start(study.sweep_dir(name))
    done = points[points["state"] == "done"]
    if done.empty:
        return []
    return [*_compute_notes(study, base, done), *filter(None, [_work_note(study, base, done)])]


def _work_note(study: Study, base: Base, done: pd.DataFrame) -> str:
    """Return a sentence on makespans of steps with different amounts of work, "" for equal amounts."""
    if "workload" in done and done["workload"].nunique() > 1:
        return (
            "The workloads may do different amounts of work per step, so makespans compare steps, not "
            "throughput."
        )
    sizes = done.dropna(subset=[WORK[0]]).drop_duplicates("ranks").sort_values("ranks")
    if len(sizes) < 2:
        return ""
    works = ", ".join(
        f"{work:g} on {ranks}" for work, ranks in zip(sizes[WORK[0]], sizes["ranks"], strict=True)
    )
    captured = count_text(study.workload_ranks(str(base.workload)), "captured rank")
    return (
        f"A step does the work of several captured steps, as data parallelism repeats the {captured}: "
        f"{works} ranks. Compare captured steps per second, not makespans or costs of a step."
    )


def _compute_notes(study: Study, base: Base, done: pd.DataFrame) -> list[str]:
    """Return sentences on compute times that do not come from the simulated chips."""
    builder = Builder(study, base)
    settings = [json.loads(text) for text in done["settings"]]
    names = {str(one.get("workload", base.workload)) for one in settings}
    if not names <= {*study.workloads()}:  # a workload was deleted after the sweep
        return []
    workloads = {name: study.workload(name) for name in names}
    of_cpus: list[bool] = []
    scaled: list[bool] = []
    notes: list[str] = []
    for one in settings:
        workload = workloads[str(one.get("workload", base.workload))]
        network, system = builder.machine(one)
        scaled.append(bool(system.roofline_enabled))
        of_cpus.append(has_cpu_times(workload) and bool(cpu_times(network.to_dict(), system.to_dict())))
        notes.append("" if scaled[-1] else foreign_text(workload, network))
    return [*filter(None, [_cpu_note(done[of_cpus], all(scaled)), *dict.fromkeys(notes)])]


def _cpu_note(rows: pd.DataFrame, scaled: bool) -> str:
    """Return a sentence on *rows* that simulate a job of CPUs on accelerators, "" for no rows."""
    if rows.empty:
        return ""
    if not scaled:
        cause = "compute and host times are those of a CPU on every cluster; only communication is simulated"
    else:
        host = 1 - (rows["compute_ns"] + rows["comm_ns"] - rows["overlap_ns"]) / rows["makespan_ns"]
        shares = " to ".join(dict.fromkeys(share_text(float(share)) for share in (host.min(), host.max())))
        cause = (
            f"ranks spend {shares} of a makespan in host work measured on a CPU, or waiting for this work, "
            "and compute times are lower bounds from the peaks of each chip"
        )
    return (
        f"These makespans do not rank the clusters, because the job was captured on CPUs: {cause}. Next: "
        "capture the job on one of these chips, or `chakrascope predict`."
    )
