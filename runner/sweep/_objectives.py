"""Objectives of a sweep in addition to the step time, its Pareto front, and the tables of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from ._answers import answered, swept_settings

__all__ = [
    "SWEEP_TABLES",
    "front_table",
    "frontier",
    "more_is_cheaper",
    "objectives",
    "pair_table",
    "worth_their_cost",
]


def objectives(points: pd.DataFrame) -> list[str]:
    """Return the columns that can be objectives in addition to the makespan.

    Costs with more than one value.
    """
    numbers = [name for name in swept_settings(points) if pd.api.types.is_numeric_dtype(points[name])]
    columns = [name for name in ("ranks", "cost", "memory_bytes", *numbers, "rank_time_ns") if name in points]
    return [name for name in dict.fromkeys(columns) if points[name].nunique() > 1]


def more_is_cheaper(objective: str) -> bool:
    """Return whether a larger *objective* needs less hardware, as a larger delay does."""
    return "latency" in objective or "delay" in objective


def worth_their_cost(points: pd.DataFrame, objective: str) -> pd.Series:
    """Return the Pareto front of the successful points by cost and makespan.

    The cost is the column *objective*, or its negative if :func:`more_is_cheaper`.
    """
    sign = -1 if more_is_cheaper(objective) else 1
    return frontier(points.assign(**{objective: sign * points[objective].astype(float)}), objective)


def frontier(points: pd.DataFrame, against: str = "ranks") -> pd.Series:
    """Return the Pareto front of the successful points by *against* and makespan."""
    ordered = points.sort_values([against, "makespan_ns"], kind="stable")
    best = ordered["makespan_ns"].astype(np.int64).cummin()
    first = ~ordered.duplicated([against]) & (ordered["makespan_ns"] == best)
    improves = first & (best < best.shift(fill_value=np.iinfo(np.int64).max))
    chosen: pd.Series = improves.reindex(points.index)
    return chosen


def pair_table(points: pd.DataFrame) -> pd.DataFrame:
    """Return the shortest ``makespan_ns`` for each pair of values of the two settings with the most values.

    With a single setting, for each of its values.
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

    *against* is one of the :func:`objectives`; other values select the first of them. Without costs, it is
    the fastest point.
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
