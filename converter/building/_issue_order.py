"""The order in which device work was issued, by stream."""

from __future__ import annotations

from bisect import bisect_left

import msgspec
import numpy as np

from .._columns import groups_of
from ..linking import Launches

__all__ = ["IssueOrder", "Queue"]

Queue = tuple[int, int]


class IssueOrder(msgspec.Struct):
    """The launches of each stream in order of issue: when, and which; and all in order of their end."""

    times: dict[Queue, list[int]] = msgspec.field(default_factory=dict)
    launches: dict[Queue, list[int]] = msgspec.field(default_factory=dict)
    ends: list[tuple[int, int]] = msgspec.field(default_factory=list)

    @classmethod
    def of(cls, launches: Launches) -> IssueOrder:
        """Return the order of *launches*, which come in order of issue."""
        issued = cls()
        for own in sorted(groups_of(launches.queue).values(), key=lambda own: int(own[0])):
            queue = launches.queues[int(launches.queue[own[0]])]
            issued.times[queue] = launches.call_start_ns[own].tolist()
            issued.launches[queue] = own.tolist()
        order = np.argsort(launches.end_ns, kind="stable")
        issued.ends = list(zip(launches.end_ns[order].tolist(), order.tolist(), strict=True))
        return issued

    def last_before(self, queue: Queue, time_ns: int) -> int | None:
        """Return the last launch on *queue* issued before *time_ns*."""
        at = bisect_left(self.times.get(queue, ()), time_ns)
        return self.launches[queue][at - 1] if at else None

    def first_after(self, queue: Queue, time_ns: int) -> int | None:
        """Return the first launch on *queue* issued at or after *time_ns*."""
        times = self.times.get(queue, ())
        at = bisect_left(times, time_ns)
        return self.launches[queue][at] if at < len(times) else None

    def last_ended_within(self, start_ns: int, end_ns: int) -> int | None:
        """Return the launch that ended last in (*start_ns*, *end_ns*]."""
        at = bisect_left(self.ends, (end_ns + 1, -1)) - 1
        return self.ends[at][1] if at >= 0 and self.ends[at][0] > start_ns else None

    def on_stream(self, stream: int) -> list[Queue]:
        """Return the queues called *stream*, one per device."""
        return [queue for queue in self.times if queue[1] == stream]
