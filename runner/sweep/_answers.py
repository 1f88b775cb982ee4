"""Evaluate a sweep: swept settings, best point, Pareto front, and the effect of pairs of settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..analysis import Matrix
from ._comparison import WORK
from ._goal import Goal

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
    ordered: pd.DataFrame = done.sort_values("makespan_ns", kind="stable", ignore_index=True)
    return ordered


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
    chosen: pd.Series = improves.reindex(points.index, fill_value=False)
    return chosen


def per_captured_step(points: pd.DataFrame) -> pd.DataFrame:
    """Return *points* with makespans and costs per captured step, if their steps do different work.

    Otherwise, a small cluster would always be on the Pareto front, because its step does the least work.
    Points with an unknown amount of work are left out.
    """
    if WORK[0] not in points or points[WORK[0]].nunique() < 2:
        return points
    known = points[points[WORK[0]].notna()]
    scaled = {
        name: known[name].astype(float) / known[WORK[0]].astype(float)
        for name in ("makespan_ns", "rank_time_ns", "cost")
        if name in known
    }
    comparable: pd.DataFrame = known.assign(**scaled)
    return comparable


def pair_table(points: pd.DataFrame) -> pd.DataFrame:
    """Return the shortest ``makespan_ns`` for each pair of values of the two settings with the most values.

    With a single setting, the table has the shortest makespan for each of its values.
    """
    done = answered(points)
    settings = swept_settings(points)[:2]
    if not settings:
        only: pd.DataFrame = done[["makespan_ns"]].head(1)
        return only
    best = done.groupby(settings, sort=True, dropna=False)["makespan_ns"].min()
    table: pd.DataFrame = best.reset_index()
    return table


def front_table(points: pd.DataFrame, against: str) -> pd.DataFrame:
    """Return the Pareto front of the step time and its cost, ordered by cost.

    *against* is one of the :func:`objectives`. Any other value selects the first objective. Without
    objectives, the front consists of the fastest point.
    """
    done = answered(points)
    names = objectives(done)
    if not names:
        fastest: pd.DataFrame = done.head(1)
        return fastest
    cost = against if against in names else names[0]
    front: pd.DataFrame = done[worth_their_cost(done, cost)].sort_values(cost, ignore_index=True)
    return front


SWEEP_TABLES: Mapping[str, Callable[[pd.DataFrame, str], pd.DataFrame]] = {
    "points": lambda points, _against: points,
    "pairs": lambda points, _against: pair_table(points),
    "front": front_table,
}
