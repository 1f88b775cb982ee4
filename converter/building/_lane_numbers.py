"""Which numbers lanes have: host threads 0, 1, ..., then communication, then the streams of devices."""

from __future__ import annotations

__all__ = ["COMM_LANE", "DEVICE_LANE", "MESSAGE_LANE"]

# The collectives of a group have a lane of their own, and so have the messages to or from a peer in it: on
# the wire, messages only follow those in the same direction between the same two ranks.
COMM_LANE, MESSAGE_LANE = 100, 500
# Stream s of device d is lane DEVICE_LANE x (d + 1) + s.
DEVICE_LANE = 1000
