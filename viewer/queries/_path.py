"""Shape the critical path for the table and the strip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ...converter import Workload
from ...runner import CriticalPath
from ...runner.analysis import paths_table

__all__ = [
    "NO_NETWORK",
    "breakdown_of",
    "contributors",
    "longest_segment",
    "longest_with_slack",
    "members_of",
    "network_breakdown",
    "paths_strip",
    "segment_table",
    "slack_shares",
    "slack_table",
    "strip",
]

# Keys under which a breakdown gathers the time that has no name of the kind asked for.
_NAMELESS = ("", "(none)")
_LEAST_SHARE = 0.0005
NO_NETWORK = "no communication"
"""What a breakdown by parts of the network calls the rest of the path."""


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
    """Return the *count* largest keys of the path's breakdown, nameless time left out.

    ``kind`` is what takes most of a key's time.
    """
    table = path.breakdown(by)
    sums = path.segments.groupby([by, "kind"])["duration_ns"].sum().reset_index()
    most = sums.loc[sums.groupby(by)["duration_ns"].idxmax()].set_index(by)["kind"]
    table = table.assign(kind=table["key"].map(most))
    named = table[~table["key"].astype(str).isin(_NAMELESS) & (table["share"] >= _LEAST_SHARE)]
    largest: pd.DataFrame = (
        named.sort_values("duration_ns", ascending=False).head(count).reset_index(drop=True)
    )
    return largest


def network_breakdown(
    path: CriticalPath, nodes: pd.DataFrame, workload: Workload, network: Mapping[str, Any]
) -> pd.DataFrame:
    """Return the path by the dimensions of the *network* that its communication crosses, largest first.

    Columns as `CriticalPath.breakdown` has them; *nodes* are the run's. What does not communicate, and all of
    it if the network's shape is not known, counts as ``no communication``.
    """
    places = pd.MultiIndex.from_frame(path.segments[["rank", "node_id"]])
    facts = nodes.set_index(["rank", "node_id"])[["comm_type", "group", "comm_src", "comm_dst"]]
    known = facts[facts.index.isin(places)]
    crossed = {place: _crossed(row, workload, network) for place, row in known.to_dict("index").items()}
    keys = pd.Series([crossed.get(place, NO_NETWORK) for place in places], dtype="object")
    sums = path.segments["duration_ns"].reset_index(drop=True).groupby(keys).sum()
    return breakdown_of(sums.to_dict(), path.makespan_ns)


def breakdown_of(sums: Mapping[Any, int], makespan_ns: int) -> pd.DataFrame:
    """Return ``key, duration_ns, share`` of *sums* in ns, the largest first."""
    table = pd.DataFrame(
        {"key": list(sums.keys()), "duration_ns": np.array([*sums.values()], dtype=np.int64)}
    )
    table["share"] = table["duration_ns"] / max(1, makespan_ns)
    ordered: pd.DataFrame = table.sort_values(
        ["duration_ns", "key"], ascending=[False, True], ignore_index=True
    )
    return ordered


def members_of(node: Mapping[Any, Any], workload: Workload) -> frozenset[int]:
    """Return the ranks that a communication joins; none for a *node* that is none."""
    if int(node.get("comm_type", -1)) >= 0:
        group = int(node["group"])
        return frozenset(workload.groups[group] if group else range(workload.num_ranks))
    return frozenset(rank for end in ("comm_src", "comm_dst") if (rank := int(node.get(end, -1))) >= 0)


def _crossed(node: Mapping[Any, Any], workload: Workload, network: Mapping[str, Any]) -> str:
    """Return which dimensions of the network the ranks of a communication differ in, in words."""
    sizes, shapes = network.get("npus_count", []), network.get("topology", [])
    ranks = members_of(node, workload)
    below, crossed = 1, []
    for number, (size, shape) in enumerate(zip(sizes, shapes, strict=False), start=1):
        if len({rank // below % size for rank in ranks}) > 1:
            crossed.append(f"{number} ({shape} of {size})")
        below *= size
    return f"dimension{'s' if len(crossed) > 1 else ''} {' and '.join(crossed)}" if crossed else NO_NETWORK


def slack_table(nodes: pd.DataFrame, slack_ns: pd.Series) -> pd.DataFrame:
    """Return every one of *nodes* with its slack, the most critical and longest first.

    Nothing if the slack is not known, which is then as empty.
    """
    if len(slack_ns) != len(nodes):
        nodes = nodes.head(0)
    table = _with_slack(nodes, slack_ns.to_numpy()[: len(nodes)])
    order = np.lexsort((-table["duration_ns"], table["slack_ns"]))
    ordered: pd.DataFrame = table.iloc[order].reset_index(drop=True)
    return ordered


def longest_with_slack(nodes: pd.DataFrame, slack_ns: pd.Series, count: int) -> pd.DataFrame:
    """Return the *count* longest of *nodes* that have slack, as :func:`slack_table` does, longest first."""
    slack = slack_ns.to_numpy()
    spare = np.flatnonzero(slack > 0)
    length = (nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy())[spare]
    rows = spare[np.argsort(-length, kind="stable")[:count]]
    return _with_slack(nodes.iloc[rows].reset_index(drop=True), slack[rows])


def slack_shares(nodes: pd.DataFrame, slack_ns: pd.Series, within_ns: int) -> tuple[float, float]:
    """Return which parts of the time of *nodes* have no slack at all, and at most *within_ns*."""
    slack, length = slack_ns.to_numpy(), nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy()
    whole = max(1, int(length.sum()))
    return int(length[slack == 0].sum()) / whole, int(length[slack <= within_ns].sum()) / whole


def _with_slack(nodes: pd.DataFrame, slack_ns: Any) -> pd.DataFrame:
    facts = nodes[["rank", "node_id", "name", "kind", "module", "start_ns"]]
    table: pd.DataFrame = facts.assign(duration_ns=nodes["end_ns"] - nodes["start_ns"], slack_ns=slack_ns)
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
