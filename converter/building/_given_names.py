"""What nodes are called that no trace has a name for."""

from __future__ import annotations

__all__ = ["GAP", "HOST_BEFORE", "SPIN"]

# The time between the collectives of production logs.
GAP = "gap between collectives, not profiled"
# Before the name of the operator that follows host work outside any operator.
HOST_BEFORE = "host before "
# Before the name of the kernel that a host thread waits for without a call.
SPIN = "spin until "
