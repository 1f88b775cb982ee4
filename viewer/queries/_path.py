"""Draw the critical path as a strip of so many pixels."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...runner import CriticalPath
from ...runner.analysis import paths_table

__all__ = ["paths_strip", "strip"]


def strip(path: CriticalPath, bars: int = 1200) -> pd.DataFrame:
    """Return the path as at most about *bars* bars: neighbours of one rank and kind in one pixel are joined.

    Columns rank, kind, name, node_id (of the longest joined segment), start_ns, duration_ns, count.
    """
    segments = path.segments
    pixel_ns = max(1.0, path.makespan_ns / bars)
    pixel = (segments["start_ns"] / pixel_ns).astype(np.int64)
    keys = pd.DataFrame({"rank": segments["rank"], "kind": segments["kind"], "pixel": pixel})
    joined = (keys != keys.shift()).any(axis=1).cumsum()
    longest = segments.loc[segments.groupby(joined)["duration_ns"].idxmax()].reset_index(drop=True)
    grouped = segments.groupby(joined)
    table: pd.DataFrame = pd.DataFrame(
        {
            "rank": longest["rank"],
            "kind": longest["kind"],
            "name": longest["name"],
            "node_id": longest["node_id"],
            "start_ns": grouped["start_ns"].min().to_numpy(),
            "duration_ns": grouped["duration_ns"].sum().to_numpy(),
            "count": grouped.size().to_numpy(),
        }
    )
    return table


def paths_strip(base: CriticalPath, other: CriticalPath, bars: int = 800) -> pd.DataFrame:
    """Return two paths as bars over time: ``path`` (0: *base*, 1: *other*), ``start_ns``, ``duration_ns``.

    ``apart`` says whether a bar lies on one path only; ``rank``, ``node_id`` and ``name`` are those of its
    longest segment. Neighbours of one sort in one pixel are joined.
    """
    pixel_ns = max(1.0, max(base.makespan_ns, other.makespan_ns) / bars)
    parts = paths_table(base, other).groupby("path")
    joined = [_joined(segments, pixel_ns).assign(path=path) for path, segments in parts]
    both: pd.DataFrame = pd.concat(joined, ignore_index=True)
    return both


def _joined(segments: pd.DataFrame, pixel_ns: float) -> pd.DataFrame:
    keys = segments[["apart"]].assign(pixel=(segments["start_ns"] / pixel_ns).astype(np.int64))
    group = (keys != keys.shift()).any(axis=1).cumsum()
    longest = segments.loc[segments.groupby(group)["duration_ns"].idxmax()].reset_index(drop=True)
    sums = segments.groupby(group)
    joined: pd.DataFrame = longest[["rank", "node_id", "name", "apart"]].assign(
        start_ns=sums["start_ns"].min().to_numpy(), duration_ns=sums["duration_ns"].sum().to_numpy()
    )
    return joined
