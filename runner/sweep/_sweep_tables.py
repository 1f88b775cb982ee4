"""Name the tables of a sweep, so that each can be shown and exported whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ._answers import answered, swept_settings
from ._objectives import objectives, worth_their_cost

__all__ = ["SWEEP_TABLES", "front_table", "pair_table"]


def pair_table(points: pd.DataFrame) -> pd.DataFrame:
    """Return the shortest ``makespan_ns`` for each pair of values of the two settings with most of them.

    Without a second setting, for each value of the one there is.
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
    """Return the points that no other beats in both the step and what it costs, by their cost.

    *against* is one of the :func:`objectives`; anything else means the first of them. Where nothing costs
    anything, the fastest point is all.
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
