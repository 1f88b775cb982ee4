"""Shape the critical path for the table and the strip."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...runner import CriticalPath

__all__ = ["contributors", "longest_segment", "segment_table", "strip"]

# Keys under which a breakdown gathers the time that has no name of the kind asked for.
_NAMELESS = ("", "(none)")


def segment_table(path: CriticalPath) -> pd.DataFrame:
    """Return the segments of *path* with each one's share of the whole."""
    segments = path.segments
    total = max(1, int(segments["duration_ns"].sum()))
    table: pd.DataFrame = segments.assign(share=segments["duration_ns"] / total)
    return table


def longest_segment(path: CriticalPath) -> tuple[int, int]:
    """Return (rank, node_id) of the longest segment that is a node, or (-1, -1) if there is none."""
    segments = path.segments
    real = segments[segments["node_id"] >= 0]
    if real.empty:
        return -1, -1
    row = real.loc[real["duration_ns"].idxmax()]
    return int(row["rank"]), int(row["node_id"])


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


def contributors(path: CriticalPath, by: str, count: int = 10) -> pd.DataFrame:
    """Return the *count* largest keys of the path's breakdown, nameless time left out."""
    table = path.breakdown(by)
    named = table[~table["key"].astype(str).isin(_NAMELESS)]
    largest: pd.DataFrame = (
        named.sort_values("duration_ns", ascending=False).head(count).reset_index(drop=True)
    )
    return largest
