"""Two critical paths side by side, aligned by what they go through."""

from __future__ import annotations

from difflib import SequenceMatcher

import numpy as np
import pandas as pd

__all__ = ["SHORT", "path_legs", "paths_side_by_side"]

_BLANKS = {"duration_ns": 0, "start_ns": -1, "rank": -1, "node_id": -1, "segments": 0}
SHORT = "short pieces"
_MOST_LEGS = 800  # the time to align them grows with their square


def path_legs(segments: pd.DataFrame) -> pd.DataFrame:
    """Return the *segments* with those of one part that follow each other as one: ``part, start_ns, ...``.

    Of a path with very many, the short ones between two long ones are one leg, too.
    """
    legs = _joined(segments.assign(segments=1), segments["part"])
    if len(legs) > _MOST_LEGS:
        longest = legs["duration_ns"].nlargest(_MOST_LEGS // 2).index
        legs = _joined(legs, legs["part"].where(legs.index.isin(longest), SHORT))
    return legs


def _joined(rows: pd.DataFrame, parts: pd.Series) -> pd.DataFrame:
    """Return *rows* with neighbours whose *parts* are the same as one."""
    leg = (parts != parts.shift()).cumsum()
    table: pd.DataFrame = (
        rows.assign(part=parts)
        .groupby(leg, sort=False)
        .agg(
            part=("part", "first"),
            rank=("rank", "first"),
            node_id=("node_id", "first"),
            start_ns=("start_ns", "min"),
            duration_ns=("duration_ns", "sum"),
            segments=("segments", "sum"),
        )
        .reset_index(drop=True)
    )
    return table


def paths_side_by_side(base: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Return a row per leg of either path, in order: ``part, base_ns, other_ns, delta_ns, change`` and more.

    ``change`` is ``new`` or ``gone`` for a leg of one path only, whose time of the other is 0; so the sums of
    both columns are the two steps.
    """
    matcher = SequenceMatcher(None, base["part"].tolist(), other["part"].tolist(), autojunk=False)
    pairs: list[tuple[int, int]] = []
    for tag, a0, a1, b0, b1 in matcher.get_opcodes():
        if tag == "equal":
            pairs += zip(range(a0, a1), range(b0, b1), strict=True)
        else:
            pairs += [(row, -1) for row in range(a0, a1)] + [(-1, row) for row in range(b0, b1)]
    places = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    sides = {}
    for which, (side, legs) in enumerate((("base", base), ("other", other))):
        sides[side] = legs.reindex(places[:, which]).reset_index(drop=True)
    missing = [places[:, 0] < 0, places[:, 1] < 0]
    table = pd.DataFrame({"part": sides["base"]["part"].where(~missing[0], sides["other"]["part"])})
    for name in ("base", "other"):
        for column, blank in _BLANKS.items():
            stem, unit = column.removesuffix("_ns"), "_ns" * column.endswith("_ns")
            target = f"{name}_ns" if column == "duration_ns" else f"{stem}_{name}{unit}"
            table[target] = sides[name][column].fillna(blank).astype(np.int64)
    table["delta_ns"] = table["other_ns"] - table["base_ns"]
    table["change"] = np.select(missing, ["new", "gone"], "")
    lead = ["part", "base_ns", "other_ns", "delta_ns", "change"]
    ordered: pd.DataFrame = table[[*lead, *(name for name in table.columns if name not in lead)]]
    return ordered
