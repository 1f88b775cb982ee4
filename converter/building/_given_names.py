"""What nodes are called that no trace has a name for."""

from __future__ import annotations

__all__ = ["GAP", "HOST_BEFORE", "HOST_END", "HOST_UNRECORDED", "SPIN"]

# The time between the collectives of production logs.
GAP = "gap between collectives, not profiled"
# Before the name of the operator that follows host work outside any operator.
HOST_BEFORE = "host before "
# Host work after the last operator, and of a thread without any: only its calls of the runtime were recorded.
HOST_END = "host until the end of the step"
HOST_UNRECORDED = "host work between calls of the runtime"
# Before the name of the kernel that a host thread waits for without a call.
SPIN = "spin until "
