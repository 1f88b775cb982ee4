"""Host threads of a rank that drives a device: their operators, their pieces, and who hands over to whom."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .kineto import Call, DeviceTrace, Event
from .timeline import Op, Piece, cut, operators

__all__ = ["Burst", "Lane", "bursts", "host_lanes"]

_STEP = "ProfilerStep#"
_BACKWARD = "autograd::engine::"


@dataclass
class Lane:
    """One host thread within the window: operators in order of start, and pieces that cover its active time.

    Lane 0 is the main thread, whose pieces cover the whole window.
    """

    number: int
    thread: str
    ops: list[Op]
    pieces: list[Piece]
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.starts = [piece.start_ns for piece in self.pieces]

    def op_at(self, time_ns: int) -> int:
        """Return the innermost operator that runs at *time_ns*, -1 if none does."""
        at = bisect_right(self.starts, time_ns) - 1
        if at < 0 or time_ns > self.pieces[at].end_ns:
            return -1
        return self.pieces[at].op

    def chain(self, time_ns: int) -> list[Op]:
        """Return the operators around *time_ns*, innermost first."""
        index, found = self.op_at(time_ns), []
        while index >= 0:
            found.append(self.ops[index])
            index = self.ops[index].parent
        return found


@dataclass(frozen=True)
class Burst:
    """A stretch in which a thread other than the main one works.

    *handed_over* tells that the main thread did nothing else meanwhile: it started the burst and waited for
    it, as ``backward()`` does.
    """

    lane: int
    start_ns: int
    end_ns: int
    handed_over: bool


def host_lanes(trace: DeviceTrace, start_ns: int, end_ns: int) -> list[Lane]:
    """Return the threads that run operators or issue device work in the window, the main one first.

    The main thread is the one that carries the step annotations, else the one with most operators that are
    not autograd's.
    """
    events, calls = _by_thread(trace, start_ns, end_ns)
    main = _main_thread(events, trace.events)
    modules: dict[int, str] = {}
    lanes: list[Lane] = []
    for thread in sorted({*events, *calls, main}, key=lambda name: (name != main, name)):
        own_events, own_calls = events.get(thread, []), calls.get(thread, [])
        begin, end = start_ns, end_ns
        if thread != main:
            own_events = [event for event in own_events if event.start_ns >= start_ns]
            if not own_calls and not any(event.is_operator for event in own_events):
                continue
            begin, end = _extent(own_events, own_calls)
        backward = thread != main and any(event.name.startswith(_BACKWARD) for event in own_events)
        phase = "backward" if backward else "forward"
        ops = operators(own_events, begin, end, modules=modules, phase=phase)
        lanes.append(Lane(len(lanes), thread, ops, cut(ops, begin, end)))
    return lanes


def _by_thread(
    trace: DeviceTrace, start_ns: int, end_ns: int
) -> tuple[dict[str, list[Event]], dict[str, list[Call]]]:
    """Return the events that touch the window, and the calls that issue device work in it, by thread."""
    issued = {work.correlation for work in trace.works}
    events: dict[str, list[Event]] = {}
    for event in trace.events:
        if event.start_ns < end_ns and event.end_ns >= start_ns:
            events.setdefault(event.thread, []).append(event)
    calls: dict[str, list[Call]] = {}
    for call in trace.calls:
        if start_ns <= call.start_ns < end_ns and call.correlation in issued:
            calls.setdefault(call.thread, []).append(call)
    return events, calls


def _main_thread(by_thread: dict[str, list[Event]], everything: Iterable[Event]) -> str:
    marked = next((event.thread for event in everything if event.name.startswith(_STEP)), None)
    if marked is not None:
        return marked
    counts = {
        thread: sum(event.is_operator and not event.name.startswith(_BACKWARD) for event in events)
        for thread, events in by_thread.items()
    }
    return max(sorted(counts), key=lambda thread: counts[thread], default="")


def _extent(events: Sequence[Event], calls: Sequence[Call]) -> tuple[int, int]:
    """Return from when to when a thread other than the main one was active."""
    spans = [(event.start_ns, event.end_ns) for event in events]
    spans += [(call.start_ns, call.end_ns) for call in calls]
    return min(start for start, _ in spans), max(end for _, end in spans)


def bursts(lane: Lane, calls: Sequence[Call], main_points: Sequence[int]) -> list[Burst]:
    """Return the bursts of *lane*, a thread other than the main one, in order.

    *calls* are its calls that issue work; *main_points* the sorted times at which an operator or call of the
    main thread starts or ends: what lies between two of them, the main thread could wait for.
    """
    spans = sorted(
        [(op.start_ns, op.end_ns) for op in lane.ops if op.parent < 0]
        + [(call.start_ns, call.end_ns) for call in calls if lane.op_at(call.start_ns) < 0]
    )
    found: list[Burst] = []
    at = -1
    for start, end in spans:
        after = bisect_right(main_points, start)
        alone = after == bisect_left(main_points, end)
        if found and after == at and alone and found[-1].handed_over:
            found[-1] = Burst(lane.number, found[-1].start_ns, max(found[-1].end_ns, end), True)
        elif found and not alone and not found[-1].handed_over:
            found[-1] = Burst(lane.number, found[-1].start_ns, max(found[-1].end_ns, end), False)
        else:
            found.append(Burst(lane.number, start, end, alone))
        at = after if alone else -1
    return found
