"""The keys that identify an InfraGraph, and the keys that a network YAML may combine with one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["OPTION_KEYS", "looks_like_infragraph"]

OPTION_KEYS = ("infragraph", "link-defaults", "rank-forwarding", "ranks", "without")


def looks_like_infragraph(data: Mapping[str, Any]) -> bool:
    """Return whether the mapping of a file is an infrastructure, a device, or one with annotations."""
    if "topology" in data or "infragraph" in data:
        return False
    return any(key in data for key in ("infrastructure", "instances", "components"))
