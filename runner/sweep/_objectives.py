"""The objectives beside the step time of a sweep, and which points are worth their cost."""

from __future__ import annotations

import pandas as pd

from ._answers import swept_settings
from ._front import frontier

__all__ = ["more_is_cheaper", "objectives", "worth_their_cost"]


def objectives(points: pd.DataFrame) -> list[str]:
    """Return the columns that can be objectives beside the makespan: costs with more than one value."""
    numbers = [name for name in swept_settings(points) if pd.api.types.is_numeric_dtype(points[name])]
    known = [name for name in ("ranks", "cost", "memory_bytes", *numbers, "rank_time_ns") if name in points]
    return [name for name in dict.fromkeys(known) if points[name].nunique() > 1]


def more_is_cheaper(objective: str) -> bool:
    """Return whether more of *objective* asks less of the hardware: of a delay it does."""
    return "latency" in objective or "delay" in objective


def worth_their_cost(points: pd.DataFrame, objective: str) -> pd.Series:
    """Return which of the answered points no other beats: none costs as little and is as fast.

    The cost is the column *objective*, or its negative where :func:`more_is_cheaper`.
    """
    sign = -1 if more_is_cheaper(objective) else 1
    return frontier(points.assign(**{objective: sign * points[objective].astype(float)}), objective)
