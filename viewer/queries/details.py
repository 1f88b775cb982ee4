"""Describe one node in words and units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..theme import KIND_LABELS, bytes_text, duration_text

__all__ = ["node_details"]

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
