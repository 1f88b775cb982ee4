"""Where two critical paths part."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from ._critical_path import CriticalPath

__all__ = ["Parting", "parting"]


@dataclass(frozen=True)
class Parting:
    """How far two critical paths go together: over *segments* from the start, until *at_ns*, or to the end.

    ``*_goes_to`` names where each goes then, *on_both* is the share of the base's path that lies on the
    other's too, and *same* says that the two never part.
    """

    segments: int
    at_ns: int
    base_goes_to: str
    other_goes_to: str
    on_both: float
    same: bool


def parting(base: CriticalPath, other: CriticalPath) -> Parting:
    """Return the first segment, from the start, in which the two critical paths are on different nodes.

    Ranks that run the same program count as one: which of them the path goes through is chance.
    """
    paths = [base.segments, other.segments]
    steps = [base.places, other.places]
    common = next((i for i, (a, b) in enumerate(zip(*steps, strict=False)) if a != b), min(map(len, steps)))
    on_both = paths[0]["duration_ns"][steps[0].isin(steps[1])].sum()
    return Parting(
        segments=common,
        at_ns=int(paths[0]["end_ns"].iloc[common - 1]) if common else 0,
        base_goes_to=_place(paths[0], common),
        other_goes_to=_place(paths[1], common),
        on_both=float(on_both) / max(base.makespan_ns, 1),
        same=common == max(map(len, steps)),
    )


def _place(segments: pd.DataFrame, number: int) -> str:
    if number >= len(segments):
        return "the end"
    segment = segments.iloc[number]
    return f"{segment['name']} (node {segment['node_id']} of rank {segment['rank']})"
