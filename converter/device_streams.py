"""The order of work on each stream of a device, and the time between it that nothing explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .device_links import Linked

__all__ = ["StreamSlot", "stream_slots"]

# Unexplained time between pieces of work is gathered until it is worth a node.
_GAP_NS = 5_000

_Queue = tuple[int, int]


@dataclass(frozen=True)
class StreamSlot:
    """The place of one launch on its stream.

    *before* is the launch before it (None: the first in the window), *start_ns* when it began, never before
    that one. *gap_ns* is time in which the device, although nothing known held it up, did not begin: a node
    of its own.
    """

    before: int | None
    start_ns: int
    gap_ns: int


@dataclass
class _Stream:
    """What is known of a stream after the launches so far."""

    end_ns: int = 0
    start_ns: int = 0
    gathered_ns: int = 0
    last: int | None = None


@dataclass
class _Streams:
    streams: dict[_Queue, _Stream] = field(default_factory=dict)

    def of(self, queue: _Queue) -> _Stream:
        return self.streams.setdefault(queue, _Stream())


def stream_slots(linked: Linked, waits: Sequence[Sequence[int]]) -> list[StreamSlot]:
    """Return the slot of every launch; *waits* are the launches each waits for besides its stream's order.

    A launch begins once the host has issued it, the stream has come to it, and what it waits for has ended.
    The delay after that is counted as a gap: latencies along a stream add up and become a node when they
    exceed a few microseconds, while one that follows the host's clock does not accumulate.
    """
    table = _Streams()
    for work in linked.carried:
        stream = table.of((work.device, work.stream))
        stream.end_ns = max(stream.end_ns, work.end_ns)
    slots = []
    for index, launch in enumerate(linked.launches):
        stream, work = table.of(launch.queue), launch.work
        ended = [linked.launches[source].work.end_ns for source in waits[index]]
        ready = max([launch.cut_ns, stream.end_ns, *ended])
        delay = max(0, work.start_ns - ready)
        stream.gathered_ns = delay if ready == launch.cut_ns else stream.gathered_ns + delay
        gap = stream.gathered_ns if stream.gathered_ns >= _GAP_NS else 0
        if gap:
            stream.gathered_ns = 0
        start = max(work.start_ns, launch.cut_ns, stream.start_ns)
        slots.append(StreamSlot(stream.last, start, gap))
        stream.end_ns = max(stream.end_ns, work.end_ns)
        stream.start_ns, stream.last = start, index
    return slots
