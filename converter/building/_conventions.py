"""Numbers of lanes, and names of nodes that no trace names."""

from __future__ import annotations

__all__ = [
    "COMM_LANE",
    "DEVICE_LANE",
    "GAP",
    "HOST_BEFORE",
    "HOST_END",
    "HOST_UNRECORDED",
    "MESSAGE_LANE",
    "SPIN",
]


# The time between the collectives of production logs.
GAP = "gap between collectives, not profiled"
# Before the name of the operator that follows host work outside any operator.
HOST_BEFORE = "host before "
# Host work after the last operator, and of a thread without any: only its calls of the runtime were recorded.
HOST_END = "host until the end of the step"
HOST_UNRECORDED = "host work between calls of the runtime"
# Before the name of the kernel that a host thread waits for without a call.
SPIN = "spin until "


# The collectives of a group have a lane of their own, and so have the messages to or from a peer in it: on
# the wire, messages only follow those in the same direction between the same two ranks.
COMM_LANE, MESSAGE_LANE = 100, 500
# Stream s of device d is lane DEVICE_LANE x (d + 1) + s.
DEVICE_LANE = 1000
