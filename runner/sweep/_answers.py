"""What the points of a sweep answer: what was swept, which is best, what two settings give together."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from ..analysis import Matrix
from ._goal import Goal

__all__ = ["answered", "best_by", "best_point", "known_goal", "swept_settings", "value_text"]


def swept_settings(points: pd.DataFrame) -> list[str]:
    """Return the columns that hold settings with more than one value, those with most values first."""
    settings = dict.fromkeys(name for text in points["settings"] for name in json.loads(text))
    counts = {name: points[name].astype(str).nunique() for name in settings if name in points}
    return sorted((name for name in counts if counts[name] > 1), key=lambda name: -counts[name])


def answered(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points that have figures, best first."""
    done = points[points["state"] == "done"]
    ordered: pd.DataFrame = done.sort_values("makespan_ns", kind="stable", ignore_index=True)
    return ordered


def known_goal(points: pd.DataFrame, goal: Goal) -> Goal:
    """Return *goal*, or the shortest step where it asks for a cost that none of the *points* has."""
    return Goal() if goal.needs_prices and points["cost"].isna().all() else goal


def best_point(points: pd.DataFrame, goal: Goal) -> tuple[pd.Series, bool]:
    """Return which of the answered *points* is the best by *goal*, and whether it keeps to the limits."""
    best: pd.Series = goal.best_first(points).iloc[0]
    return best, bool(goal.excess(points).min() == 0)


def value_text(value: Any) -> str:
    """Return a value of a setting as somebody would have typed it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def best_by(points: pd.DataFrame, row: str, column: str) -> Matrix:
    """Return the shortest makespan (ns) for each value of two settings, whatever the others are.

    Combinations without an answer are NaN. Numbers are in their order, everything else in that of its text.
    """
    table = points.pivot_table(index=row, columns=column, values="makespan_ns", aggfunc="min", observed=True)
    values = table.to_numpy(dtype=float, na_value=np.nan)
    return Matrix([*map(value_text, table.index)], [*map(value_text, table.columns)], values)
