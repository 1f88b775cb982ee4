"""Say in one sentence what bounds the step, and show where each rank's time went."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..theme import KIND_LABELS, duration_text, share_text

__all__ = ["contributors", "headline", "rank_table"]


def headline(path: Any) -> str:
    """Return one sentence that names the largest part of *path* and what dominates it."""
    kinds = path.breakdown("kind").sort_values("duration_ns", ascending=False)
    if kinds.empty or int(kinds["duration_ns"].sum()) == 0:
        return "This run took no time: no node of it lasts."
    top, total = kinds.iloc[0], int(kinds["duration_ns"].sum())
    by = "collective" if top["key"] in ("communication", "wait") else "operator"
    parts = path.segments[path.segments["kind"] == top["key"]].groupby(by)["duration_ns"].sum()
    leader = parts.sort_values(ascending=False)
    cause = f", most of it {leader.index[0]}" if len(leader) and leader.index[0] else ""
    label = KIND_LABELS.get(str(top["key"]), str(top["key"])).lower()
    return f"The step is bound by {label}: {share_text(top['share'])} of {duration_text(total)}{cause}."


def rank_table(result: Any) -> pd.DataFrame:
    """Return per rank when it finished and what it did until then, in ns, with the idle rest made explicit.

    ``idle_ns`` is the finish time minus compute minus exposed communication: time in which the rank neither
    computed nor had a collective in flight.
    """
    ranks: pd.DataFrame = result.ranks.copy()
    ranks["idle_ns"] = (ranks["finish_ns"] - ranks["compute_ns"] - ranks["exposed_comm_ns"]).clip(lower=0)
    return ranks


def contributors(path: Any, by: str, count: int = 10) -> pd.DataFrame:
    """Return the *count* largest keys of the path's breakdown, nameless time left out."""
    table = path.breakdown(by)
    named = table[table["key"].astype(str) != ""]
    return named.sort_values("duration_ns", ascending=False).head(count).reset_index(drop=True)
