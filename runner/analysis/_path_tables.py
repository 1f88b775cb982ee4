"""The critical path as tables: its segments, its largest contributors."""

from __future__ import annotations

import pandas as pd

from ...support import share_text
from ._critical_path import CriticalPath

__all__ = ["contributors", "longest_segment", "nameless_text", "segment_table"]

# Keys under which a breakdown gathers the time that has no name of the kind asked for.
_NAMELESS = ("", "(none)")
_LEAST_SHARE = 0.0005


def segment_table(path: CriticalPath) -> pd.DataFrame:
    """Return the segments of *path* with each one's share of the whole."""
    segments = path.segments
    total = max(1, int(segments["duration_ns"].sum()))
    table: pd.DataFrame = segments.assign(share=segments["duration_ns"] / total)
    return table


def longest_segment(path: CriticalPath) -> tuple[int, int]:
    """Return (rank, node_id) of the longest segment that is a node, or (-1, -1) if there is none."""
    segments = path.unreasoned
    real = segments[segments["node_id"] >= 0]
    if real.empty:
        return -1, -1
    row = real.loc[real["duration_ns"].idxmax()]
    return int(row["rank"]), int(row["node_id"])


def nameless_text(table: pd.DataFrame, by: str) -> str:
    """Return how much of a breakdown *by* names nothing, in one sentence; nothing if all of it is named."""
    share = float(table.loc[table["key"].astype(str).isin(_NAMELESS), "share"].sum())
    return f"{share_text(share)} of the path is in no {by}." if share >= _LEAST_SHARE else ""


def contributors(path: CriticalPath, by: str, count: int = 10) -> pd.DataFrame:
    """Return the *count* largest keys of the path's breakdown, nameless time left out.

    ``kind`` is what takes most of a key's time.
    """
    table = path.breakdown(by)
    sums = path.unreasoned.groupby([by, "kind"])["duration_ns"].sum().reset_index()
    most = sums.loc[sums.groupby(by)["duration_ns"].idxmax()].set_index(by)["kind"]
    table = table.assign(kind=table["key"].map(most))
    named = table[~table["key"].astype(str).isin(_NAMELESS) & (table["share"] >= _LEAST_SHARE)]
    largest: pd.DataFrame = (
        named.sort_values("duration_ns", ascending=False).head(count).reset_index(drop=True)
    )
    return largest
