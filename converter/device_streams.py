"""The order of work on each stream of a device, and the time between it that nothing explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .device_links import Linked

__all__ = ["StreamSlot", "stream_slots"]

# Unexplained time between pieces of work is gathered until it is worth a node.
_GAP_NS = 5_000


@dataclass(frozen=True)
class StreamSlot:
    """The place of one launch on its stream.

    *before* is the launch before it (None: the first in the window), *start_ns* when it began, never before
    that one. *gap_ns* is time in which the device, although nothing known held it up, did not begin: a node
    of its own. *lag_ns* is how much earlier than measured it starts in the graph, gaps included.
    """

    before: int | None
    start_ns: int
    gap_ns: int
    lag_ns: int


@dataclass
class _Stream:
    """What is known of a stream after the launches so far."""

    end_ns: int = 0
    start_ns: int = 0
    lag_ns: int = 0
    last: int | None = None


def stream_slots(
    linked: Linked, waits: Sequence[Sequence[int]], held_ns: Mapping[int, int]
) -> list[StreamSlot]:
    """Return the slot of every launch; *waits* are the launches each waits for besides its stream's order.

    *held_ns* says until when work from before the window held a launch up. A launch begins once the host has
    issued it, the stream has come to it, and what it waits for has ended. The delay after that is a latency:
    latencies add up along a chain of device work and become a gap when they exceed a few microseconds; where
    the host's clock decides, they start anew. If the device runs behind the host from step to step, what it
    still did for the last step delays nothing.
    """
    streams: dict[tuple[int, int], _Stream] = {}
    for work in linked.carried:
        stream = streams.setdefault((work.device, work.stream), _Stream())
        stream.end_ns = max(stream.end_ns, work.end_ns)
    behind_ns = max((work.end_ns for work in linked.carried), default=0) if linked.overruns else 0
    slots: list[StreamSlot] = []
    for index, launch in enumerate(linked.launches):
        stream, work = streams.setdefault(launch.queue, _Stream()), launch.work
        ready, lag = max(
            (launch.cut_ns, 0),
            (stream.end_ns, stream.lag_ns),
            (max(held_ns.get(index, 0), min(behind_ns, work.start_ns)), 0),
            *((linked.launches[source].work.end_ns, slots[source].lag_ns) for source in waits[index]),
        )
        lag += max(0, work.start_ns - ready)
        gap = lag if lag >= _GAP_NS else 0
        start = max(work.start_ns, launch.cut_ns, stream.start_ns)
        slots.append(StreamSlot(stream.last, start, gap, lag - gap))
        stream.end_ns = max(stream.end_ns, work.end_ns)
        stream.start_ns, stream.lag_ns, stream.last = start, lag - gap, index
    return slots
