"""What the metadata of a workload say of where it comes from."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["has_lanes", "is_captured"]


def has_lanes(metadata: Mapping[str, object]) -> bool:
    """Return whether the streams of a workload are lanes: of a captured one, and of some that were made."""
    return is_captured(metadata) or metadata.get("lanes") == "streams"


def is_captured(metadata: Mapping[str, object]) -> bool:
    """Return whether the metadata of a workload say that it comes from measured traces."""
    inner = metadata.get("metadata", metadata)
    return isinstance(inner, Mapping) and any(key in inner for key in ("measured_step_ns", "trace_set"))
