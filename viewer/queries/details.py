"""Describe one node, or an area of the timeline, in words and units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..theme import EDGE_KINDS, KIND_LABELS, bytes_text, duration_text
from .slices import SliceIndex

__all__ = ["area_details", "flows", "node_details"]

Ints = npt.NDArray[np.int64]

_COLLECTIVES = (
    "all-reduce", "reduce", "all-gather", "gather", "scatter", "broadcast", "all-to-all", "reduce-scatter",
    "reduce-scatter", "barrier",
)  # fmt: skip


def node_details(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is known of an executed *node* as (label, text) pairs; what is unknown is left out."""
    comm_type = int(node.get("comm_type", -1))
    measured = int(node.get("duration_ns", 0))
    simulated = int(node["end_ns"] - node["start_ns"])
    pairs = [
        ("Name", _text(node, "name")),
        ("Rank", str(node["rank"])),
        ("Node", str(node["node_id"])),
        ("Kind", KIND_LABELS.get(_text(node, "kind"), _text(node, "kind"))),
        ("Simulated start", duration_text(int(node["start_ns"]))),
        ("Simulated duration", duration_text(simulated)),
        ("Measured duration", duration_text(measured) if measured > 0 else ""),
        ("Operator", _text(node, "operator")),
        ("Module", _text(node, "module")),
        ("Phase", _text(node, "phase")),
        ("Collective", _COLLECTIVES[comm_type] if 0 <= comm_type < len(_COLLECTIVES) else ""),
        ("Message size", bytes_text(int(node.get("comm_size_bytes", -1)))),
        ("Group", _group(int(node.get("group", 0))) if comm_type >= 0 else ""),
        ("Waited for", _cause(node)),
    ]
    return [(label, text) for label, text in pairs if text]


def area_details(
    nodes: pd.DataFrame, rows: Ints, inside_ns: Ints, span_ns: int, count: int = 5
) -> list[tuple[str, str]]:
    """Return what fills an area of the timeline: time by kind, and the operators that take most of it.

    *rows* of *nodes* lie *inside_ns* each in the area, whose width is *span_ns*.
    """
    table = nodes[["kind", "operator", "rank"]].iloc[rows].assign(inside_ns=inside_ns)
    pairs = [
        ("Area", duration_text(span_ns)),
        ("Slices", f"{len(table):,} of {table['rank'].nunique():,} ranks"),
    ]
    for kind, part in table.groupby("kind", sort=False):
        text = f"{duration_text(int(part['inside_ns'].sum()))} in {len(part):,} slices"
        pairs.append((KIND_LABELS.get(str(kind), str(kind)), text))
    named = table[table["operator"] != ""].groupby("operator")["inside_ns"].sum().nlargest(count)
    pairs += [(str(name)[:60], duration_text(int(total))) for name, total in named.items()]
    return pairs


def flows(
    edges: pd.DataFrame, index: SliceIndex, rank: int, node: int, count: int = 24
) -> list[dict[str, Any]]:
    """Return where the nodes lie that *node* waits for (``before``) and that wait for it, *count* each."""
    found = []
    for here, there, before in (("dst", "src", True), ("src", "dst", False)):
        near = edges[edges[here] == node].head(count)
        for other, kind in zip(near[there].tolist(), near["kind"].tolist(), strict=True):
            lane, start, end = index.lane_of(rank, int(other))
            colour = EDGE_KINDS.get(int(kind), EDGE_KINDS[8])[1]
            if lane >= 0:
                place = {"lane": lane, "start_ns": start, "end_ns": end}
                found.append({**place, "before": before, "colour": colour})
    return found


def _text(node: Mapping[str, Any], key: str) -> str:
    value = node.get(key, "")
    return value if isinstance(value, str) else ""


def _group(number: int) -> str:
    return "all ranks" if number == 0 else f"group {number}"


def _cause(node: Mapping[str, Any]) -> str:
    cause = int(node.get("cause_node", -1))
    if cause < 0:
        return "nothing: it started at time 0"
    why = "a dependency" if node.get("cause_is_dependency") else "the same lane was busy"
    origin = int(node.get("origin_rank", node["rank"]))
    late = f"; its end was set by rank {origin}, which came last" if origin != int(node["rank"]) else ""
    return f"node {cause} ({why}){late}"
