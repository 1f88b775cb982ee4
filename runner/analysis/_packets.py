"""What a packet-level backend says of queues, pauses and flows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ...support import bytes_text, count_text, duration_text

__all__ = ["packet_facts", "packet_table"]


def packet_facts(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a packet-level backend says of queues, pauses and flows, in words; nothing from others."""
    packets = provenance.get("packets")
    if not isinstance(packets, Mapping):
        return []
    counts = (
        ("data_packets", "Data packets"),
        ("pause_frames", "Pause frames"),
        ("drops", "Dropped packets"),
        ("marks", "Marked packets"),
        ("retransmissions", "Retransmissions"),
        ("timeouts", "Retransmission timeouts"),
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
        count = count_text(int(flows.get("count", 0)), "flow")
        facts.append(("Flow completion", f"{count}: {', '.join(parts)}"))
    return facts


def packet_table(provenance: Mapping[str, Any]) -> pd.DataFrame:
    """Return :func:`packet_facts` as a table: ``figure`` and ``value``."""
    table: pd.DataFrame = pd.DataFrame(packet_facts(provenance), columns=["figure", "value"])
    return table
