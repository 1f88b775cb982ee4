"""Describe the links of a run: how busy each was, and who sent how much to whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ...runner import Result
from ...runner.links import Matrix, endpoint, link_dimensions, link_table, switch_loads, traffic
from ..theme import bytes_text, duration_text

__all__ = [
    "Matrix",
    "link_dimensions",
    "link_table",
    "packet_facts",
    "switch_loads",
    "traffic",
    "use_over_time",
]


def use_over_time(result: Result, most: int = 40) -> Matrix | None:
    """Return the GB/s of the *most* links that carried most, over time; None if it was not recorded."""
    if result.link_use.empty:
        return None
    ranks = len(result.ranks)
    use = result.link_use.assign(
        rate=result.link_use["bytes"]
        / (result.link_use["end_ns"] - result.link_use["start_ns"]).clip(lower=1)
    )
    largest = use.groupby(["src", "dst"])["bytes"].sum().nlargest(most).index
    table = use.pivot_table(index=["src", "dst"], columns="start_ns", values="rate", fill_value=0.0)
    table = table.reindex(index=largest, columns=_stretches(use), fill_value=0.0)
    rows = [f"{endpoint(src, ranks)} to {endpoint(dst, ranks)}" for src, dst in table.index]
    return Matrix(rows, [duration_text(start) for start in table.columns], table.to_numpy(dtype=float))


def packet_facts(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a packet-level backend says of queues, pauses and flows, in words; nothing from others."""
    packets = provenance.get("packets")
    if not isinstance(packets, Mapping):
        return []
    counts = (
        ("data_packets", "Data packets"),
        ("pause_frames", "Pause frames"),
        ("drops", "Dropped packets"),
    )
    facts = [(label, f"{int(packets[key]):,}") for key, label in counts if key in packets]
    if "paused_ns" in packets:
        facts.append(("Time paused, all ports", duration_text(int(packets["paused_ns"]))))
    if "largest_queue_bytes" in packets:
        facts.append(("Longest queue", bytes_text(int(packets["largest_queue_bytes"]))))
    flows = packets.get("flow_completion_ns")
    if isinstance(flows, Mapping):
        named = (("median", "median"), ("p99", "99th percentile"), ("max", "longest"))
        parts = [f"{label} {duration_text(float(flows[key]))}" for key, label in named if key in flows]
        facts.append(("Flow completion", f"{int(flows.get('count', 0)):,} flows: {', '.join(parts)}"))
    return facts


def _stretches(use: pd.DataFrame) -> list[int]:
    """Return when each stretch of time begins, those included in which no link sent anything."""
    length = int((use["end_ns"] - use["start_ns"]).max())
    known = sorted(use["start_ns"].unique().tolist())
    every = list(range(known[0] % length, known[-1] + 1, length)) if length > 0 else known
    return every if set(known) <= set(every) else known
