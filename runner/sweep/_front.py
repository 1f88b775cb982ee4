"""Which points of a sweep are worth having: those that no other beats in both of two figures."""

from __future__ import annotations

import numpy as np
import pandas as pd

__all__ = ["frontier"]


def frontier(points: pd.DataFrame, against: str = "ranks") -> pd.Series:
    """Return which of the answered points no other beats: none has as little *against* and is as fast."""
    ordered = points.sort_values([against, "makespan_ns"], kind="stable")
    best = ordered["makespan_ns"].astype(np.int64).cummin()
    first = ~ordered.duplicated([against]) & (ordered["makespan_ns"] == best)
    improves = first & (best < best.shift(fill_value=np.iinfo(np.int64).max))
    chosen: pd.Series = improves.reindex(points.index)
    return chosen
