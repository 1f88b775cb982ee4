"""What links carried over time, where a backend recorded it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from .._result import Result
from ._links import end_names

__all__ = ["Use", "use_over_time"]


@dataclass(frozen=True)
class Use:
    """GB/s of links over time: a row per link, a column per *length_ns* from each of *starts_ns*."""

    rows: list[str]
    starts_ns: npt.NDArray[np.int64]
    length_ns: int
    rates: npt.NDArray[np.float64]


def use_over_time(result: Result, most: int = 40) -> Use | None:
    """Return the GB/s of the *most* links that carried most, over time; None if it was not recorded."""
    if result.link_use.empty:
        return None
    name = end_names(result)
    length = result.link_use["end_ns"] - result.link_use["start_ns"]
    use = result.link_use.assign(rate=result.link_use["bytes"] / length.clip(lower=1))
    largest = use.groupby(["src", "dst"])["bytes"].sum().nlargest(most).index
    table = use.pivot_table(index=["src", "dst"], columns="start_ns", values="rate", fill_value=0.0)
    table = table.reindex(index=largest, columns=_stretches(use), fill_value=0.0)
    rows = [f"{name(src)} to {name(dst)}" for src, dst in table.index]
    return Use(rows, table.columns.to_numpy(np.int64), int(length.max()), table.to_numpy(dtype=float))


def _stretches(use: pd.DataFrame) -> list[int]:
    """Return when each interval begins, those included in which no link sent anything."""
    length = int((use["end_ns"] - use["start_ns"]).max())
    known = sorted(use["start_ns"].unique().tolist())
    every = list(range(known[0] % length, known[-1] + 1, length)) if length > 0 else known
    return every if set(known) <= set(every) else known
