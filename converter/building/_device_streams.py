"""The order of work on each stream of a device, and its unexplained gaps."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from .._columns import Columns
from ..linking import Linked

__all__ = ["StreamSlots", "stream_slots"]

# Unexplained time between pieces of work is gathered until it is worth a node.
_GAP_NS = 5_000
_LAG = 3


class StreamSlots(Columns, frozen=True):
    """The place of each launch on its stream.

    *before* is the launch before it (-1: the first in the window), *start_ns* when it began, never before
    that one. *gap_ns* is time in which the device, although nothing known held it up, did not begin: a node
    of its own. *lag_ns* is how much earlier than measured it starts in the graph, gaps included.
    """

    before: np.ndarray
    start_ns: np.ndarray
    gap_ns: np.ndarray
    lag_ns: np.ndarray


class _Stream(msgspec.Struct):
    """The state of a stream after the launches so far."""

    end_ns: int = 0
    start_ns: int = 0
    lag_ns: int = 0
    last: int = -1


def stream_slots(
    linked: Linked, waits: np.ndarray, held_ns: Mapping[int, int], behind_ns: int
) -> StreamSlots:
    """Return the slot of every launch.

    *waits* are pairs: the second launch waits for the first, besides its stream's order.

    *held_ns* says until when work from before the window held a launch up. A launch begins once the host has
    issued it, the stream has come to it, and what it waits for has ended. The delay after that is a latency:
    latencies add up along a chain of device work and become a gap when they exceed a few microseconds; where
    the host's clock decides, they start anew. What the device did until *behind_ns*, for another step, delays
    nothing.
    """
    launches, carried = linked.launches, linked.carried
    streams = [_Stream() for _ in launches.queues]
    for queue, end in zip(linked.carried_queue.tolist(), carried.end_ns.tolist(), strict=True):
        streams[queue].end_ns = max(streams[queue].end_ns, end)
    sources: dict[int, list[int]] = {}
    for source, target in waits.tolist():
        sources.setdefault(target, []).append(source)
    ends = launches.end_ns.tolist()
    columns = (launches.queue, launches.cut_ns, launches.start_ns)
    slots: list[tuple[int, int, int, int]] = []
    for index, (queue, cut, began) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        stream = streams[queue]
        ready, lag = max(
            (cut, 0),
            (stream.end_ns, stream.lag_ns),
            (max(held_ns.get(index, 0), min(behind_ns, began)), 0),
            *((ends[source], slots[source][_LAG]) for source in sources.get(index, ())),
        )
        lag += max(0, began - ready)
        gap = lag if lag >= _GAP_NS else 0
        start = max(began, cut, stream.start_ns)
        slots.append((stream.last, start, gap, lag - gap))
        stream.end_ns = max(stream.end_ns, ends[index])
        stream.start_ns, stream.lag_ns, stream.last = start, lag - gap, index
    return StreamSlots(*np.array(slots, dtype=np.int64).reshape(-1, 4).T)
