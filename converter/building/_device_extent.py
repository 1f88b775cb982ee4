"""From when to when a device worked in a capture that marks no step, and what of the host's time that is."""

from __future__ import annotations

import msgspec
import numpy as np

from ..linking import Linked
from ._lane_numbers import DEVICE_LANE

__all__ = ["Extent"]


class Extent(msgspec.Struct, frozen=True):
    """The time from the first work of a device to the end of its last, *start_ns* to *end_ns*."""

    start_ns: int
    end_ns: int

    @classmethod
    def of(cls, linked: Linked) -> Extent | None:
        """Return the extent of all that was *linked* with the host, None if nothing was."""
        launches = linked.launches
        if not len(launches):
            return None
        return cls(int(launches.start_ns.min()), int(launches.end_ns.max()))

    def cut(self, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the nodes' *columns*, where host time outside the extent is none."""
        host = columns["stream"] < DEVICE_LANE
        starts, ends = columns["start_ns"], columns["start_ns"] + columns["duration_ns"]
        begin, end = (np.clip(times, self.start_ns, self.end_ns) for times in (starts, ends))
        return columns | {
            "start_ns": np.where(host, begin, starts),
            "duration_ns": np.where(host, end - begin, columns["duration_ns"]),
        }
