"""Properties of captured workloads, read from their metadata."""

from __future__ import annotations

from collections.abc import Mapping

COMPUTED_FOR = "computed_for"  # metadata key for the chip for which compute times were predicted


def has_lanes(metadata: Mapping[str, object]) -> bool:
    """Return whether the streams of a workload are lanes, which run one node at a time."""
    return is_captured(metadata) or metadata.get("lanes") == "streams"


def is_captured(metadata: Mapping[str, object]) -> bool:
    """Return whether a workload comes from measured traces."""
    inner = metadata.get("metadata", metadata)
    return isinstance(inner, Mapping) and any(key in inner for key in ("measured_step_ns", "trace_set"))
