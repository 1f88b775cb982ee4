"""Edit Kineto traces of GPUs: longer or additional events, and the delay of everything that waits for them.

An edit preserves the order of events. If an event ended before another event began, this is still true after
the edit. A kernel starts after its launch and after the previous kernels on its stream. A call that waited
for the device returns after the awaited work.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

Event = dict[str, Any]
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver")
PLANTED = "planted"
"""An argument of added calls that wait for all work issued before the call."""
WAITS = re.compile(r"Synchronize")
_WAITED_WITHIN_US = 20.0
_CLOSE_US = 1.0
# Delay between the end of the awaited work and the return of a call, and the duration of the call itself.
_NOTICED_WITHIN_US, _CALLED_US = 100.0, 20.0


@dataclass
class Edit:
    """The changes of one rank: time (us) inserted on the host by place, and added to device events."""

    inserted: list[tuple[float, float]] = field(default_factory=list)
    longer: Callable[[Event], float] = lambda _: 0.0


def edited(events: list[Event], edit: Edit) -> list[Event]:
    """Return *events* with an edit; events that wait for edited events are moved."""
    return _Edited([dict(event) for event in events], edit).run()


def with_calls(
    events: list[Event], places: list[float], room_us: float, make: Callable[[float, int], list[Event]]
) -> list[Event]:
    """Return *events* with the events that *make* returns for each place on the host; they take *room_us*.

    *make* is called with the earliest time of its events, and a new correlation id.
    """
    edit = _Edited([dict(event) for event in events], Edit([(place, room_us) for place in places]))
    moved = edit.run()
    free = 1 + max(int(_arguments(event).get("correlation") or 0) for event in events)
    for number, place in enumerate(sorted(places)):
        moved += make(edit.new_time(place), free + 10 * number)
    return edited(moved, Edit())


def timed_events(events: list[Event]) -> list[Event]:
    """Return the events that have a duration."""
    return [event for event in events if event.get("ph") == "X"]


def launches_of(events: list[Event]) -> dict[Any, Event]:
    """Return the runtime calls by correlation."""
    return {
        event["args"]["correlation"]: event
        for event in timed_events(events)
        if event.get("cat") in RUNTIME and "correlation" in _arguments(event)
    }


def span_us(events: list[Event]) -> float:
    """Return the time from the first event to the end of the last one."""
    timed = [event for event in timed_events(events) if event.get("cat") in (*DEVICE, *RUNTIME, "cpu_op")]
    return float(max(e["ts"] + e["dur"] for e in timed) - min(e["ts"] for e in timed))


def _arguments(event: Event) -> Mapping[str, Any]:
    return event.get("args") or {}


@dataclass
class _Wait:
    """A call that returns after device events have ended, which are the last events of their streams."""

    call: Event
    awaited: list[Event]

    @property
    def end_us(self) -> float:
        return float(self.call["ts"] + self.call["dur"])

    @property
    def is_planted(self) -> bool:
        return bool(_arguments(self.call).get(PLANTED))


class _Edited:
    """The events of a rank while they are moved, in order of their old times."""

    def __init__(self, events: list[Event], edit: Edit) -> None:
        self._events, self._edit = events, edit
        self._timed = timed_events(events)
        self._launches = launches_of(events)
        self._device = [event for event in self._timed if event.get("cat") in DEVICE]
        self._queues: dict[Any, list[Event]] = {}  # by stream, in order of issue
        for event in sorted(self._device, key=lambda event: (self._issued(event), event["ts"])):
            self._queues.setdefault(event["args"].get("stream"), []).append(event)
        self._moved: dict[Any, int] = dict.fromkeys(self._queues, 0)
        self._warp = _Warp(edit.inserted)
        self._new: dict[int, tuple[float, float]] = {}
        self._ended: list[
            tuple[float, float, float]
        ] = []  # old and new ends, when issued; in order of the old
        self._on_stream: dict[Any, float] = {}

    def run(self) -> list[Event]:
        """Return the moved events."""
        points = [(event["ts"], 1, event) for event in self._device]
        points += [(wait.end_us, 0, wait) for wait in self._waits()]
        for _, is_device, what in sorted(points, key=lambda point: point[:2]):
            if is_device:
                self._move(what)
            else:
                for event in what.awaited:
                    self._move(event)
                self._end(what)
        for event in self._timed:
            start, end = event["ts"], event["ts"] + event["dur"]
            start, end = self._new.get(id(event)) or (self._warp.at(start), self._warp.at(end, is_end=True))
            # Times are whole nanoseconds as in a trace, so a waiting event does not begin before the awaited
            # event ends.
            event["ts"] = round(start, 3)
            event["dur"] = max(0.0, round(round(end, 3) - event["ts"], 3))
        return self._events

    def _end(self, wait: _Wait) -> None:
        """Let a wait end after the last work that it waits for, with the same delay as before.

        A wait may get shorter: a host that arrives later waits less.
        """
        if not wait.awaited:
            return
        moment, last = max((self._new[id(event)][1], event["ts"] + event["dur"]) for event in wait.awaited)
        start, length = wait.call["ts"], wait.call["dur"]
        noticed = wait.end_us - last
        if last > start and 0 <= noticed < _NOTICED_WITHIN_US and not wait.is_planted:
            least = self._warp.at(start) + min(length, _CALLED_US)
            self._warp.end_at(wait.end_us, max(moment + noticed, least))
        else:
            self._warp.end_at(wait.end_us, max(moment, self._warp.at(wait.end_us, is_end=True)))

    def new_time(self, place: float) -> float:
        """Return the new start of the time inserted at *place* on the host, after all events are moved."""
        return self._warp.at(place, is_end=True)

    def _issued(self, event: Event) -> float:
        launch = self._launches.get(_arguments(event).get("correlation"))
        return float(event["ts"] if launch is None else launch["ts"])

    def _waits(self) -> list[_Wait]:
        """Return synchronising calls with the work they wait for, and calls that end with their copy."""
        waits = []
        for call in self._launches.values():
            if WAITS.search(call["name"]):
                found = [self._last(own, call) for own in self._queues.values()]
                awaited = [event for event in found if event is not None]
                if "Device" not in call["name"] and not _arguments(call).get(PLANTED):
                    since = call["ts"] - _CLOSE_US
                    awaited = [event for event in awaited if event["ts"] + event["dur"] >= since]
                waits.append(_Wait(call, awaited))
        for event in self._device:
            call = self._launches.get(_arguments(event).get("correlation"))
            is_copy = event["cat"] == "gpu_memcpy" and call is not None
            if is_copy and event["ts"] + event["dur"] <= call["ts"] + call["dur"]:
                waits.append(_Wait(call, [event]))
        return waits

    def _last(self, own: list[Event], call: Event) -> Event | None:
        """Return the last event of a stream issued before *call* for which *call* can have waited."""
        number = bisect_left(own, call["ts"], key=self._issued)
        if not _arguments(call).get(PLANTED):
            ends = call["ts"] + call["dur"] + _CLOSE_US
            number = min(number, bisect_right(own, ends, key=lambda event: event["ts"] + event["dur"]))
        return own[number - 1] if number else None

    def _move(self, event: Event) -> None:
        """Move *event* after all work that was issued earlier to the same stream."""
        stream = event["args"].get("stream")
        while id(event) not in self._new:
            self._moved[stream] += 1
            self._move_next(self._queues[stream][self._moved[stream] - 1])

    def _move_next(self, event: Event) -> None:
        time, stream = event["ts"], _arguments(event).get("stream")
        launch = self._launches.get(_arguments(event).get("correlation"))
        issued = self._warp.at(launch["ts"]) if launch is not None else time
        # If a queued kernel began when a kernel of another stream had just ended, it waited for this kernel.
        asked = launch["ts"] + launch["dur"] if launch is not None else time
        awaited = self._latest(max(asked, time - _WAITED_WITHIN_US), time, self._issued(event))
        start = max(time, issued, awaited, self._on_stream.get(stream, time))
        end = start + event["dur"] + self._edit.longer(event)
        self._new[id(event)] = (start, end)
        insort(self._ended, (time + event["dur"], end, self._issued(event)))
        self._on_stream[stream] = end

    def _latest(self, since: float, until: float, before: float) -> float:
        """Return the latest new end of work that ended in a span of old time and was issued *before*."""
        low, high = (bisect_left(self._ended, (time,)) for time in (since, until + 1e-6))
        found = (new for _, new, issued in self._ended[low:high] if issued <= before)
        return max(found, default=float("-inf"))


class _Warp:
    """Time on the host: the inserted intervals, in order."""

    def __init__(self, inserted: list[tuple[float, float]]) -> None:
        self._times = [time for time, _ in sorted(inserted)]
        self._sums = list(accumulate(us for _, us in sorted(inserted)))

    def at(self, time: float, *, is_end: bool = False) -> float:
        """Return the new time of an old time. An insertion at the same time does not move an end."""
        number = bisect_left(self._times, time) if is_end else bisect_right(self._times, time)
        return time + (self._sums[number - 1] if number else 0.0)

    def end_at(self, time: float, moment: float) -> None:
        """Move the end of the wait that ended at *time* to *moment*."""
        late = moment - self.at(time, is_end=True)
        if late:
            before = time - 1e-3
            number = bisect_right(self._times, before)
            self._times.insert(number, before)
            self._sums.insert(number, self._sums[number - 1] if number else 0.0)
            self._sums[number:] = [total + late for total in self._sums[number:]]
