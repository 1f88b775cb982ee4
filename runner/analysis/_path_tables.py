"""Tabulate a critical path's segments and largest contributors, and find where two paths diverge."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from ...support import duration_text, share_text
from ._critical_path import CriticalPath

# The keys of a breakdown for unnamed time, such as time outside modules in a breakdown by module.
_NAMELESS = ("", "(none)")
_LEAST_SHARE = 0.0005


def segment_table(path: CriticalPath) -> pd.DataFrame:
    """Return the segments of *path*, each with its share of the path's total time."""
    segments = path.segments
    total = max(1, int(segments["duration_ns"].sum()))
    table: pd.DataFrame = segments.assign(share=segments["duration_ns"] / total)
    return table


def longest_segment(path: CriticalPath) -> tuple[int, int]:
    """Return (rank, node_id) of the longest segment with a node, (-1, -1) if all segments are idle."""
    segments = path.unreasoned
    real = segments[segments["node_id"] >= 0]
    if real.empty:
        return -1, -1
    row = real.loc[real["duration_ns"].idxmax()]
    return int(row["rank"]), int(row["node_id"])


def nameless_text(table: pd.DataFrame, by: str) -> str:
    """Return a sentence on the share of unnamed time in a breakdown *by*; "" if all time is named."""
    share = float(table.loc[table["key"].astype(str).isin(_NAMELESS), "share"].sum())
    return f"{share_text(share)} of the path is not assigned to any {by}." if share >= _LEAST_SHARE else ""


def contributors(path: CriticalPath, by: str, count: int = 10) -> pd.DataFrame:
    """Return the *count* largest keys of the path's breakdown *by*, without unnamed time.

    The column ``kind`` is the kind of work that takes most of a key's time.
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


_PLACE_LENGTH = 120


@dataclass(frozen=True)
class Divergence:
    """The common start of two critical paths, with *segments* segments until *at_ns* or to the end.

    ``*_goes_to`` names the next node of each path after the common start. *on_both* is the share of the
    base's path that is also on the other path. *same* is true if the two paths never diverge.
    """

    segments: int
    at_ns: int
    base_goes_to: str
    other_goes_to: str
    on_both: float
    same: bool


def divergence(base: CriticalPath, other: CriticalPath) -> Divergence:
    """Return the first segment, from the start, in which the two critical paths are on different nodes.

    Ranks that run the same program count as equal, because the path may run through any of these ranks.
    """
    paths, steps = [base.segments, other.segments], [base.places, other.places]
    common = next((i for i, (a, b) in enumerate(zip(*steps, strict=False)) if a != b), min(map(len, steps)))
    on_both = paths[0]["duration_ns"][steps[0].isin(steps[1])].sum()
    return Divergence(
        segments=common,
        at_ns=int(paths[0]["end_ns"].iloc[common - 1]) if common else 0,
        base_goes_to=_place(paths[0], common),
        other_goes_to=_place(paths[1], common),
        on_both=float(on_both) / max(base.makespan_ns, 1),
        same=common == max(map(len, steps)),
    )


def divergence_text(base: CriticalPath, other: CriticalPath) -> str:
    """Describe the place at which two critical paths diverge, and the next node of each path."""
    point = divergence(base, other)
    if point.same:
        return f"Both critical paths go through the same {point.segments:,} segments."
    together = f"share their first {point.segments:,} segments, until {duration_text(point.at_ns)}. Then"
    start = f"The critical paths {together if point.segments else 'diverge at once:'}"
    places = f"this run continues with {_cut(point.base_goes_to)}, the other with {_cut(point.other_goes_to)}"
    return (
        f"{start} {places}. {share_text(point.on_both)} of this run's path is also on the path of the other "
        "run."
    )


def paths_table(base: CriticalPath, other: CriticalPath) -> pd.DataFrame:
    """Return the segments of two paths, with ``path`` (0: *base*, 1: *other*) and a mark ``apart``.

    ``apart`` is true for a segment on only one of the two paths.
    """
    parts = [
        path.segments.assign(apart=~path.places.isin(its.places), path=number)
        for number, (path, its) in enumerate([(base, other), (other, base)])
    ]
    both: pd.DataFrame = pd.concat(parts, ignore_index=True)
    return both


def _place(segments: pd.DataFrame, number: int) -> str:
    if number >= len(segments):
        return "the end"
    segment = segments.iloc[number]
    return f"{segment['name']} (node {segment['node_id']} of rank {segment['rank']})"


def _cut(place: str) -> str:
    """Shorten a long name in the middle, because the end of the name identifies the node."""
    return place if len(place) <= _PLACE_LENGTH else f"{place[:60]} … {place[-40:]}"
