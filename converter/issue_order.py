"""The order in which device work was issued, by stream."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from .device_links import Launch

__all__ = ["IssueOrder", "Queue"]

Queue = tuple[int, int]


@dataclass
class IssueOrder:
    """The launches of each stream in order of issue: when, and which; and all in order of their end."""

    times: dict[Queue, list[int]] = field(default_factory=dict)
    launches: dict[Queue, list[int]] = field(default_factory=dict)
    ends: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, launches: Sequence[Launch]) -> IssueOrder:
        """Return the order of *launches*, which come in order of issue."""
        issued = cls()
        for index, launch in enumerate(launches):
            issued.times.setdefault(launch.queue, []).append(launch.call.start_ns)
            issued.launches.setdefault(launch.queue, []).append(index)
        issued.ends = sorted((launch.work.end_ns, index) for index, launch in enumerate(launches))
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
        """Return the queues called *stream*, one a device."""
        return [queue for queue in self.times if queue[1] == stream]
