"""Sum up an area of the timeline: what fills it, as measured and as simulated."""

from __future__ import annotations

import pandas as pd

from ...support import count_text, duration_text
from ._labels import KIND_LABELS
from ._lane_rows import SLICES

__all__ = ["area_names", "area_overview", "area_table"]


def area_overview(nodes: pd.DataFrame, inside: pd.DataFrame, span_ns: int) -> list[tuple[str, str]]:
    """Return how wide an area is, what it holds and how its time splits by kind, as (label, text) pairs.

    *inside* is what `Lanes.area` returns for it, *nodes* what the lanes were made of.
    """
    of_nodes = inside[inside["level"] == SLICES] if len(inside) else inside
    simulated = of_nodes[~of_nodes["measured"]] if len(inside) else inside
    shown = simulated if len(simulated) else of_nodes
    facts = nodes[["kind", "rank"]].iloc[shown["row"]].assign(inside_ns=shown["inside_ns"].to_numpy())
    pairs = [("Width", duration_text(span_ns))]
    if len(shown) or not len(inside):
        pairs.append(("Slices", f"{len(facts):,} of {count_text(facts['rank'].nunique(), 'rank')}"))
    for kind, part in facts.groupby("kind", sort=False):
        total = duration_text(int(part["inside_ns"].sum()))
        pairs.append((KIND_LABELS.get(str(kind), str(kind)), f"{total} in {count_text(len(part), 'slice')}"))
    return pairs


def area_table(nodes: pd.DataFrame, inside: pd.DataFrame) -> pd.DataFrame:
    """Return a row per operator in an area, that with most simulated time first.

    Columns ``operator``, ``kind``, ``slices``, ``total_ns``, ``mean_ns``, ``longest_ns`` and, as measured,
    ``measured_ns``; times are those inside the area.
    """
    inside = inside[inside["level"] == SLICES] if len(inside) else inside
    facts = nodes[["operator", "name", "kind"]].iloc[inside["row"]].reset_index(drop=True)
    named = facts["operator"].where(facts["operator"] != "", facts["name"])
    return _summed(
        inside.reset_index(drop=True).assign(operator=named, kind=facts["kind"]), ["operator", "kind"]
    )


def area_names(nodes: pd.DataFrame, inside: pd.DataFrame) -> pd.DataFrame:
    """Return a row per name and sort of row in an area: what :func:`area_table` has, of nested rows.

    Columns ``name``, ``row`` (phase, module, operator or slice), then those from ``slices`` on.
    """
    names = nodes["name"].iloc[inside["row"]].reset_index(drop=True)
    table = inside.reset_index(drop=True)
    named = names.where(table["level"] == SLICES, table["label"])
    return _summed(table.assign(name=named, row=table["level"]), ["name", "row"])


def _summed(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    found = table[~table["measured"]].groupby(keys)["inside_ns"].agg(
        slices="size", total_ns="sum", mean_ns="mean", longest_ns="max"
    )  # fmt: skip
    measured = table[table["measured"]].groupby(keys)["inside_ns"].sum().rename("measured_ns")
    joined = found.join(measured, how="outer").fillna(0).round().astype("int64").reset_index()
    ordered: pd.DataFrame = joined.sort_values(
        ["total_ns", "measured_ns"], ascending=False, kind="stable", ignore_index=True
    )
    return ordered
