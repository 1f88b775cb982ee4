"""Find what a host thread did in long intervals, by Python functions (``with_stack``) and annotations."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .._columns import which
from .._native import cut
from ..readers import CALL_RANGE, MODULE_FRAME, OWN_RANGES, DeviceTrace, Ops, cut_pieces
from ._cause_rules import ACTIVITIES, CALLS, frame_cause, mark_of
from ._host_causes import GAPS, OPERATIONS, Span
from ._window import Window

__all__ = ["framed_spans", "model_calls"]

# In a shorter piece nobody looks for the function.
_LONG_NS = 50_000
_FRAME = re.compile(r"(?P<path>.+)\((?P<line>\d+)\): (?P<function>.+)")
_BUILT_IN = re.compile(r"<built-in (?:function|method) (?P<function>\w+)")
# Annotations of the profiler, the tracer and of communication.
_NO_PLACE = ("ProfilerStep#", *OWN_RANGES, "nccl:", "gloo:")
_LIBRARIES = ("torch/", "<")
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")


class _Place(NamedTuple):
    """The activity and mechanism of a frame and its callers, as causes ("" for none), and the place."""

    activity: str = ""
    mechanism: str = ""
    place: str = ""

    @property
    def cause(self) -> str:
        return self.activity or self.mechanism or "python"


def framed_spans(trace: DeviceTrace, own: np.ndarray, ops: Ops, window: Window) -> list[Span]:
    """Return the functions of the thread of the events *own* in its long pieces, disjoint and in order.

    It is the innermost function outside PyTorch and Python's library, or else the innermost annotation.
    """
    starts, ends, names = _enclosing(trace, own, window)
    if not len(starts):
        return []
    pieces = cut_pieces(ops, window.start_ns, window.end_ns)
    pieces = pieces.take(pieces.end_ns - pieces.start_ns >= _LONG_NS)
    if not len(pieces):
        return []
    touched = np.searchsorted(pieces.end_ns, starts, side="right")
    inside = touched < np.searchsorted(pieces.start_ns, ends)
    starts, ends, names = starts[inside], ends[inside], names[inside]
    places = _places([trace.texts[name] for name in names.tolist()], starts.tolist(), ends.tolist())
    frames = cut(starts, ends, window.start_ns, window.end_ns)
    rows = np.flatnonzero(frames["op"] >= 0)
    columns = (frames[name][rows].tolist() for name in ("start_ns", "end_ns", "op"))
    spans = _joined((start, end, places[frame]) for start, end, frame in zip(*columns, strict=True))
    return [*_clipped(spans, pieces.start_ns.tolist(), pieces.end_ns.tolist())]


def model_calls(trace: DeviceTrace, own: np.ndarray, window: Window) -> list[Span]:
    """Return the calls of models without gradients that the tracer marked on a thread, with their places."""
    events = trace.events.take(own)
    marked = which(trace.texts, lambda text: text.startswith(CALL_RANGE))[events.name]
    marked &= (events.start_ns < window.end_ns) & (events.end_ns > window.start_ns)
    rows = np.flatnonzero(marked)
    columns = (column[rows].tolist() for column in (events.start_ns, events.end_ns, events.name))
    return [
        Span(start, end, "", trace.texts[name].removeprefix(CALL_RANGE))
        for start, end, name in zip(*columns, strict=True)
    ]


def _enclosing(
    trace: DeviceTrace, own: np.ndarray, window: Window
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return start, end and name of the thread's frames and annotations, enclosing ones first.

    Those that enclose the whole window say nothing of a part of it, and what ends outside of the one around
    it is cut to it.
    """
    events, frames = trace.events, trace.frames
    marks = own[~events.is_operator[own]]
    marks = marks[which(trace.texts, _is_place)[events.name[marks]]]
    mine = frames.take(frames.thread == (events.thread[own[0]] if len(own) else -1))
    starts = np.concatenate([mine.start_ns, events.start_ns[marks]])
    ends = np.concatenate([mine.end_ns, events.end_ns[marks]])
    names = np.concatenate([mine.name, events.name[marks]])
    is_function = np.arange(len(starts)) < len(mine)
    touching = (starts < window.end_ns) & (ends > window.start_ns)
    touching &= is_function | (starts > window.start_ns) | (ends < window.end_ns)
    order = np.lexsort((-ends, starts))
    order = order[touching[order]]
    starts = np.maximum(starts[order], window.start_ns)
    return starts, np.minimum(ends[order], window.end_ns), names[order]


def _is_place(name: str) -> bool:
    """Return whether an annotation is the script's, and not one whose name indicates a cause."""
    return not name.startswith(_NO_PLACE) and mark_of(name, False) is None


def _places(names: Sequence[str], starts: Sequence[int], ends: Sequence[int]) -> list[_Place]:
    """Return what each frame shows together with its callers."""
    places: list[_Place] = []
    around: list[tuple[int, _Place]] = []
    for name, start, end in zip(names, starts, ends, strict=True):
        while around and around[-1][0] <= start:
            around.pop()
        place = _inside(around[-1][1] if around else _Place(), name)
        around.append((end, place))
        places.append(place)
    return places


def _inside(caller: _Place, name: str) -> _Place:
    """Return what a frame of this *name* under *caller* shows."""
    frame = _FRAME.fullmatch(name)
    if frame is None:
        call = _BUILT_IN.match(name)
        if call is not None:
            return caller._replace(mechanism=CALLS.get(call["function"], "") or caller.mechanism)
        is_module = name.startswith((MODULE_FRAME, "<"))
        return caller if is_module else caller._replace(place=f"annotation {name}")
    path, function = frame["path"], frame["function"]
    cause = frame_cause(path, function)
    activities = [one for one in ACTIVITIES if one in (cause, caller.activity)]
    place = caller.place if _is_library(path) else f"{function} ({path}:{frame['line']})"
    return _Place(next(iter(activities), ""), cause or caller.mechanism, place)


def _is_library(path: str) -> bool:
    """Return whether the file is PyTorch's or one of Python's own modules, of which no script is one."""
    *_, inner = _PACKAGES.split(path)
    if inner == path and "/lib/python3" in path:
        return True
    return (
        inner.startswith(_LIBRARIES) or inner.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names
    )


def _joined(parts: Iterator[tuple[int, int, _Place]]) -> Iterator[Span]:
    """Yield the parts as spans; adjacent ones of the same place are joined."""
    last: Span | None = None
    for start, end, place in parts:
        claims = OPERATIONS if place.activity else GAPS
        span = Span(start, end, place.cause, place.place, claims)
        if last is not None and last.end_ns == start and last[2:] == span[2:]:
            last = last._replace(end_ns=end)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def _clipped(spans: Iterator[Span], starts: Sequence[int], ends: Sequence[int]) -> Iterator[Span]:
    """Yield the parts of *spans* that lie in pieces with these starts and ends, which are in order."""
    first = 0
    for span in spans:
        while first < len(ends) and ends[first] <= span.start_ns:
            first += 1
        for number in range(first, len(starts)):
            if starts[number] >= span.end_ns:
                break
            begin, end = max(span.start_ns, starts[number]), min(span.end_ns, ends[number])
            yield span._replace(start_ns=begin, end_ns=end)
