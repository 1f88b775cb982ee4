"""Find the causes of host time outside operators, from marks, frames and evidence."""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .._columns import which
from .._native import cut
from ..chakra import COLLECTING, DELAYED, FIRST_LAUNCH
from ..readers import (
    CALL_RANGE,
    GLOO,
    MODULE_FRAME,
    NCCL,
    OWN_RANGES,
    STEP_MARK,
    DeviceTrace,
    Ops,
    cut_pieces,
)
from ._cause_rules import (
    ACTIVITIES,
    CALLS,
    OPERATORS,
    frame_cause,
    is_allocation,
    is_compiled_region,
    is_engine_range,
    mark_of,
)
from ._steps import Window

# The kinds of time that a span explains: only gaps between operators, operators and gaps, or all of the
# span's time.
GAPS, OPERATIONS, MOMENTS = range(3)
# In a gap shorter than this, the framework dispatches the next operator; in a longer gap, Python code runs.
DISPATCH_NS = 50_000
# The minimum length of a part of host time that becomes a node, outside and inside operators. An operator
# may have many short parts, so its limit is lower.
MIN_NS, _MIN_INSIDE_NS = 20_000, 2_000
# The causes that state only that host code ran. Any other cause has precedence.
_WEAK = ("", "python", "dispatch", "optimizer")
# The minimum length of a recording's first launch that is a separate cause.
_LONG_LAUNCH_NS = 100_000
# Causes that explain long gaps only, even if a sample near a short gap shows them.
_OF_LONG_GAPS = ("", "python", "dispatch", "sleep", "lock", "io", "process_wait", "communication_call")
# Causes whose place is the code that triggers a collection, or the code that holds the awaited lock.
_PLACED = (COLLECTING, "lock")
# The share of other work at or above which a gap of run delay also has another cause.
_WORK_SHARE = 0.2
# The cause that is not exclusive: gaps next to an operator that waits for a value also have it.
_SHARED = "synchronisation"
_FRAME = re.compile(r"(?P<path>.+)\((?P<line>\d+)\): (?P<function>.+)")
_BUILT_IN = re.compile(r"<built-in (?:function|method) (?P<function>\w+)")
# The annotations of the profiler, of the tracer and of communication, which name no place of the script.
_NO_PLACE = (STEP_MARK, *OWN_RANGES, NCCL, GLOO)
# Ranges of PyTorch around the whole model. The script's frame says more.
_MODEL_RANGE = re.compile(r"DistributedDataParallel\.forward|(?:Forward|Backward) \d+")
_LIBRARIES = ("torch/", "<")
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")


class Span(NamedTuple):
    """An interval of one thread with its cause and place ("" if unknown).

    *under* is the next weaker cause of the same time.
    """

    start_ns: int
    end_ns: int
    cause: str
    place: str = ""
    claims: int = GAPS
    under: str = ""


class Part(NamedTuple):
    """A part of host time that ends at *end_ns*; a part without a *cause* is an operator's self time."""

    end_ns: int
    cause: str = ""
    place: str = ""


def marked_spans(trace: DeviceTrace, own: np.ndarray, window: Window) -> list[Span]:
    """Return disjoint spans with causes for the profiler's ranges among the events *own* of a thread.

    The first wait for new workers of a data loader belongs to the start of the workers, which import modules
    and receive the dataset before they create a batch.
    """
    events = trace.events.take(own)
    inside = (events.start_ns < window.end_ns) & (events.end_ns > window.start_ns)
    names = events.name * 2 + events.is_operator
    different, place = np.unique(names[inside], return_inverse=True)
    marks = [mark_of(trace.texts[number // 2], bool(number % 2)) for number in different.tolist()]
    is_mark = np.array([mark is not None for mark in marks], dtype=bool)
    rows = np.flatnonzero(inside)[is_mark[place]] if marks else np.empty(0, dtype=np.int64)
    which = place[is_mark[place]].tolist() if marks else []
    spans: list[Span] = []
    starts = np.maximum(events.start_ns[rows], window.start_ns).tolist()
    ends = np.minimum(events.end_ns[rows], window.end_ns).tolist()
    is_first = False
    for start, end, number in zip(starts, ends, which, strict=True):
        mark = marks[number]
        assert mark is not None
        if mark.cause == "process_start":
            is_first = True
        elif is_first and mark.cause == "worker_wait":
            mark, is_first = mark._replace(cause="process_start"), False
        claims = MOMENTS if mark.is_inside else OPERATIONS if mark.covers else GAPS
        spans.append(Span(start, end, mark.cause, "", claims))
    return _flat(spans)


def allocation_spans(trace: DeviceTrace, own: np.ndarray, window: Window) -> list[Span]:
    """Return disjoint spans of the long runtime calls of a thread that allocate or free device memory."""
    calls = trace.calls
    asks = which(trace.texts, is_allocation)[calls.name]
    asks &= calls.thread == (trace.events.thread[own[0]] if len(own) else -1)
    asks &= (calls.start_ns < window.end_ns) & (calls.end_ns - calls.start_ns >= MIN_NS)
    rows = np.flatnonzero(asks & (calls.end_ns > window.start_ns))
    rows = rows[np.argsort(calls.start_ns[rows], kind="stable")]
    starts = np.maximum(calls.start_ns[rows], window.start_ns).tolist()
    ends = np.minimum(calls.end_ns[rows], window.end_ns).tolist()
    return _flat([Span(*times, "allocation", "", OPERATIONS) for times in zip(starts, ends, strict=True)])


def first_launch_spans(trace: DeviceTrace, own: np.ndarray, window: Window) -> list[Span]:
    """Return the span of the recording's first launch, if the thread with the events *own* made it.

    In a long first launch, the profiler gets its buffers, or the driver loads code. A short one has no span.
    The profiler may get its buffers before the call, in the innermost operator. Other time before the call is
    Python. The call of a copy may wait for the copy, so the span ends when the device work starts.
    """
    calls, works, events = trace.calls, trace.works, trace.events.take(own)
    mine = calls.take(calls.thread == (events.thread[0] if len(own) else -1))
    first = np.flatnonzero((mine.correlation > 0) & np.isin(mine.correlation, works.correlation[:1]))
    if not len(first):
        return []
    start_ns, end_ns = int(mine.start_ns[first[0]]), int(mine.end_ns[first[0]])
    around = np.flatnonzero(events.is_operator & (events.start_ns <= start_ns) & (events.end_ns >= end_ns))
    name = trace.texts[events.name[around[np.argmax(events.start_ns[around])]]] if len(around) else ""
    if name and not (is_compiled_region(name) or is_engine_range(name)):
        before = np.concatenate([events.start_ns, events.end_ns, mine.end_ns])
        start_ns = int(before[before <= start_ns].max())
    start_ns, end_ns = max(start_ns, window.start_ns), min(end_ns, int(works.start_ns[0]))
    is_long = end_ns - start_ns >= _LONG_LAUNCH_NS and start_ns < window.end_ns
    return [Span(start_ns, end_ns, FIRST_LAUNCH, "", OPERATIONS)] if is_long else []


def _flat(nested: Sequence[Span]) -> list[Span]:
    """Return disjoint spans for *nested* spans, sorted by start; the strongest cause wins in overlaps."""
    result: list[Span] = []
    group: list[Span] = []  # the last outermost range and the ranges inside it
    for span in nested:
        if not group or span.start_ns >= group[-1].end_ns:
            result += group
            group = [span]
        elif (group[-1].cause, group[-1].claims) != (span.cause, span.claims):
            group = layered(group, [span])
    return result + group


def layered(lower: Sequence[Span], upper: Sequence[Span]) -> list[Span]:
    """Merge two lists of disjoint spans; the stronger cause wins in overlaps."""
    points = sorted({time for span in (*lower, *upper) for time in span[:2]})
    joined: list[Span] = []
    spans = zip(_spans_at(lower, points), _spans_at(upper, points), strict=True)
    for (start, end), (one, other) in zip(pairwise(points), spans, strict=False):
        span = _stronger(one, other) if one and other else one or other
        if span is None:
            continue
        facts = span[2:]
        if joined and joined[-1].end_ns == start and joined[-1][2:] == facts:
            joined[-1] = Span(joined[-1].start_ns, end, *facts)
        else:
            joined.append(Span(start, end, *facts))
    return joined


def _spans_at(spans: Sequence[Span], times_ns: Sequence[int]) -> list[Span | None]:
    """Return the span at each of *times_ns*, or None outside of *spans*, which are disjoint and in order."""
    ends = [span.end_ns for span in spans]
    near = [*spans, None]
    after = (near[bisect_right(ends, time)] for time in times_ns)
    return [
        span if span is not None and span.start_ns <= time else None
        for span, time in zip(after, times_ns, strict=True)
    ]


def _stronger(lower: Span, upper: Span) -> Span:
    """Return the span with the stronger cause; if its place is missing, take the other span's place."""
    ranked = sorted((upper, lower), key=_strength)
    strong, weak = ranked
    under = weak.under if weak.cause == DELAYED else weak.cause
    return strong._replace(place=strong.place or weak.place, under=under)


def _strength(span: Span) -> int:
    """Return the precedence of the cause of *span*; 0 is the strongest."""
    if span.claims == MOMENTS:
        return 0
    if span.cause in ACTIVITIES:
        return 1 + ACTIVITIES.index(span.cause)
    return 20 if span.cause not in _WEAK else 40 - _WEAK.index(span.cause)


class HostCauses:
    """The spans of one host thread, which determine the cause of each piece of the thread's time.

    *calls* are disjoint calls of models without gradients. Work in such a call has the place of the call.
    *hooks* are the places of the script's hooks in the backward pass, with the most frequent place first.
    *lines* are disjoint spans with the exact line of the script that calls the operators in them.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        calls: Sequence[Span] = (),
        hooks: Sequence[str] = (),
        lines: Sequence[Span] = (),
    ) -> None:
        self.spans, self._calls, self.hooks, self._lines = spans, calls, hooks, lines
        self._ends = [span.end_ns for span in spans]
        self._owning = _owning_their_delays(spans)
        self._claiming = [span for span in spans if span.claims > GAPS]
        self._claiming_ends = [span.end_ns for span in self._claiming]

    def boundaries(self) -> np.ndarray:
        """Return the times at which spans that become nodes begin and end."""
        long = [span for span in self.spans if span.end_ns - span.start_ns >= MIN_NS]
        return np.unique(np.array([time for span in long for time in span[:2]], dtype=np.int64))

    def of_nodes(
        self, start_ns: np.ndarray, end_ns: np.ndarray, gap: np.ndarray
    ) -> tuple[list[str], list[str]]:
        """Return causes and places of nodes of a thread that issues device work; *gap* marks gap nodes."""
        long = gap & (end_ns - start_ns >= DISPATCH_NS)
        causes = np.where(long, "python", "dispatch").tolist()
        places = [""] * len(causes)
        if not self.spans:
            return causes, places
        touched = np.searchsorted(self._ends, start_ns, side="right")
        begun = np.searchsorted([span.start_ns for span in self.spans], end_ns)
        for node in np.flatnonzero(begun > touched).tolist():
            start, end = int(start_ns[node]), int(end_ns[node])
            span = max(self.overlapping(start, end), key=lambda one: one.end_ns - one.start_ns)
            if 2 * (span.end_ns - span.start_ns) > end - start:
                places[node] = span.place
                if span.claims > GAPS or span.cause not in (_WEAK if long[node] else _OF_LONG_GAPS):
                    causes[node] = span.cause
        return causes, places

    def overlapping(self, start_ns: int, end_ns: int) -> list[Span]:
        """Return the spans between *start_ns* and *end_ns* in order, clipped to this interval."""
        return _overlapping(self.spans, self._ends, start_ns, end_ns)

    def places(self, times_ns: np.ndarray) -> list[str]:
        """Return the script place of the thread's operators at each of *times_ns*, or "" if unknown.

        A marked model call has precedence over a marked line, and both have precedence over samples.
        """
        return _first_known(self.call_places(times_ns), self.line_places(times_ns), self._sampled(times_ns))

    def called_or_sampled(self, times_ns: np.ndarray) -> list[str]:
        """Return the place of the marked model call or of the samples at each of *times_ns*."""
        return _first_known(self.call_places(times_ns), self._sampled(times_ns))

    def line_places(self, times_ns: np.ndarray) -> list[str]:
        """Return the marked line at each of *times_ns*, or "" if no line is marked."""
        return _places_at(self._lines, times_ns)

    def _sampled(self, times_ns: np.ndarray) -> list[str]:
        return _places_at(self.spans, times_ns)

    def call_places(self, times_ns: np.ndarray) -> list[str]:
        """Return the place of the marked model call at each of *times_ns*, or "" outside marked calls."""
        return _places_at(self._calls, times_ns)

    def touched(self, start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
        """Return a mask of the pieces from *start_ns* to *end_ns* that overlap a span."""
        begun = np.searchsorted([span.start_ns for span in self._claiming], end_ns)
        return begun > np.searchsorted(self._claiming_ends, start_ns, side="right")

    def of_operator(self, name: str, start_ns: int, end_ns: int) -> Sequence[Part]:
        """Return the parts of an operator's self time from *start_ns* to *end_ns*, usually one part."""
        if is_engine_range(name) and end_ns - start_ns >= DISPATCH_NS:
            parts = self.of_gap(start_ns, end_ns, "", "")
            return [self._of_hook(part) for part in parts]
        if is_compiled_region(name) and end_ns - start_ns >= DISPATCH_NS:
            return self.of_gap(start_ns, end_ns, "", "")
        spans = _overlapping(self._claiming, self._claiming_ends, start_ns, end_ns)
        cause = OPERATORS.get(name, "")
        if not spans and not cause:
            return (Part(end_ns),)
        covered: Counter[tuple[str, str]] = Counter()
        for span in spans:
            owner = span.under if span.cause == DELAYED else span.cause
            if span.claims == OPERATIONS or (owner != span.cause and owner in ACTIVITIES):
                covered[owner, span.place] += span.end_ns - span.start_ns
        if 2 * covered.total() > end_ns - start_ns:
            cause, place = covered.most_common(1)[0][0]
        else:
            place = next((span.place for span in self.overlapping(start_ns, end_ns)), "")
        exact = [span for span in spans if span.claims == MOMENTS and not (cause and span.cause == DELAYED)]
        whole = Part(end_ns, cause, place)
        return _parts(exact, start_ns, end_ns, whole, _MIN_INSIDE_NS) if exact else (whole,)

    def _of_hook(self, part: Part) -> Part:
        """Return a *part* of autograd's time with a hook's place, unless it already has a certain place."""
        is_certain = part.place in self.hooks or (part.place and part.cause in _PLACED)
        return part if is_certain else part._replace(place=next(iter(self.hooks), part.place))

    def of_gap(self, start_ns: int, end_ns: int, before: str, after: str) -> Sequence[Part]:
        """Return the parts of a gap between the operators named *before* and *after* ("" for none)."""
        short = end_ns - start_ns < DISPATCH_NS
        default = "dispatch" if short else "python"
        if short and _SHARED in (OPERATORS.get(before), OPERATORS.get(after)):
            default = _SHARED
        spans = self.overlapping(start_ns, end_ns)
        if not spans:
            return (Part(end_ns, default),)
        weak = _OF_LONG_GAPS if short else ("", "python", "dispatch")
        owns_all = not short and _had_work(spans, end_ns - start_ns)
        spans = [
            span._replace(cause=span.under)
            if span.cause == DELAYED and (owns_all or span.under in self._owning)
            else span
            for span in spans
        ]
        spans = [span._replace(cause=default) if span.cause in weak else span for span in spans]
        return _parts(spans, start_ns, end_ns, Part(end_ns, default))


def _first_known(*columns: Sequence[str]) -> list[str]:
    """Return the first place that is not "" of each row."""
    return [next(filter(None, row), "") for row in zip(*columns, strict=True)]


def _places_at(spans: Sequence[Span], times_ns: np.ndarray) -> list[str]:
    """Return the place of the span at each of *times_ns*, or "" outside spans."""
    return ["" if span is None else span.place for span in _spans_at(spans, times_ns.tolist())]


def _had_work(spans: Sequence[Span], length_ns: int) -> bool:
    """Return whether a gap of *length_ns* would be long even without its delays by other processes.

    If a gap is long without its delays, it contains work. Without this work, the delays would not occur.
    """
    return length_ns - _delayed_ns(spans) >= max(DISPATCH_NS, _WORK_SHARE * length_ns)


def _owning_their_delays(spans: Sequence[Span]) -> set[str]:
    """Return the causes with about the same share of run delay as the whole thread."""
    worked: Counter[str] = Counter()
    delayed: Counter[str] = Counter()
    for span in spans:
        is_delay = span.cause == DELAYED
        (delayed if is_delay else worked)[span.under if is_delay else span.cause] += (
            span.end_ns - span.start_ns
        )
    length_ns = spans[-1].end_ns - spans[0].start_ns if spans else 1
    usual = 1 - _delayed_ns(spans) / length_ns
    return {
        cause
        for cause, ns in worked.items()
        if cause not in _WEAK and ns >= _WORK_SHARE * usual * (ns + delayed[cause])
    }


def _delayed_ns(spans: Sequence[Span]) -> int:
    return sum(span.end_ns - span.start_ns for span in spans if span.cause == DELAYED)


def _overlapping(spans: Sequence[Span], ends: Sequence[int], start_ns: int, end_ns: int) -> list[Span]:
    """Return the *spans* clipped to the given interval, in order; *ends* are the ends of the spans."""
    found: list[Span] = []
    for number in range(bisect_right(ends, start_ns), len(ends)):
        span = spans[number]
        if span.start_ns >= end_ns:
            break
        if span.start_ns < start_ns or span.end_ns > end_ns:
            start, end = max(span.start_ns, start_ns), min(span.end_ns, end_ns)
            span = Span(start, end, *span[2:])
        found.append(span)
    return found


def _parts(
    spans: Sequence[Span], start_ns: int, end_ns: int, rest: Part, least_ns: int = MIN_NS
) -> list[Part]:
    """Divide the time from *start_ns* to *end_ns* into parts for *spans*, and parts with cause *rest*.

    Parts that are shorter than *least_ns* are merged into the previous part, or into the next part if there
    is no previous part.
    """
    parts: list[Part] = []
    cursor = start_ns
    for span in spans:
        if span.start_ns > cursor:
            parts.append(rest._replace(end_ns=span.start_ns))
        parts.append(Part(span.end_ns, span.cause, span.place))
        cursor = span.end_ns
    if cursor < end_ns or not parts:
        parts.append(rest)
    merged: list[Part] = []
    begin = start_ns
    for part in parts:
        is_short = part.end_ns - begin < least_ns
        if merged and (is_short or merged[-1][1:] == part[1:]):
            merged[-1] = merged[-1]._replace(end_ns=part.end_ns)
        else:
            merged.append(part)
        begin = part.end_ns
    if len(merged) > 1 and merged[0].end_ns - start_ns < least_ns:
        merged.pop(0)
    return merged


class _Place(NamedTuple):
    """The activity and the mechanism of a frame and its callers as causes, and the script place."""

    activity: str = ""
    mechanism: str = ""
    place: str = ""

    @property
    def cause(self) -> str:
        return self.activity or self.mechanism or "python"


def framed_spans(trace: DeviceTrace, own: np.ndarray, ops: Ops, window: Window) -> list[Span]:
    """Return disjoint spans of functions in long pieces of the thread with the events *own*.

    The place of a span is the innermost function outside PyTorch and Python's library. If there is no such
    function, the place is the innermost annotation.
    """
    starts, ends, names = _enclosing(trace, own, window)
    if not len(starts):
        return []
    pieces = cut_pieces(ops, window.start_ns, window.end_ns)
    pieces = pieces.take(pieces.end_ns - pieces.start_ns >= DISPATCH_NS)
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
    return [*clipped(spans, pieces.start_ns.tolist(), pieces.end_ns.tolist())]


def model_calls(trace: DeviceTrace, own: np.ndarray, window: Window) -> list[Span]:
    """Return the calls of models without gradients that the tracer marked on a thread, with script places."""
    events = trace.events.take(own)
    marked = which(trace.texts, lambda text: text.startswith(CALL_RANGE))[events.name]
    marked &= (events.start_ns < window.end_ns) & (events.end_ns > window.start_ns)
    rows = np.flatnonzero(marked)
    columns = (column[rows].tolist() for column in (events.start_ns, events.end_ns, events.name))
    return [
        Span(start, end, "", trace.texts[name].removeprefix(CALL_RANGE))
        for start, end, name in zip(*columns, strict=True)
    ]


def marked_lines(trace: DeviceTrace, own: np.ndarray) -> list[Span]:
    """Return the lines of the script that the tracer marked on the thread with the events *own*."""
    lines = trace.lines.take(trace.lines.thread == (trace.events.thread[own[0]] if len(own) else -1))
    ends_ns = np.minimum(lines.end_ns, np.append(lines.start_ns[1:], sys.maxsize))
    columns = (lines.start_ns.tolist(), ends_ns.tolist(), trace.names(lines.name))
    return [Span(start, end, "", place) for start, end, place in zip(*columns, strict=True) if end > start]


def _enclosing(
    trace: DeviceTrace, own: np.ndarray, window: Window
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return start, end and name of the thread's frames and annotations, enclosing frames first.

    Frames that enclose the whole window are omitted. All other frames are clipped to their enclosing frame.
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
    """Return whether the annotation *name* comes from the script and indicates no cause."""
    is_range = name.startswith(_NO_PLACE) or _MODEL_RANGE.fullmatch(name) is not None
    return not is_range and mark_of(name, False) is None


def _places(names: Sequence[str], starts: Sequence[int], ends: Sequence[int]) -> list[_Place]:
    """Return the activity and the mechanism of each frame, taking its callers into account."""
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
    """Return the cause and place that a frame called *name* under *caller* indicates."""
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
    """Return whether the file at *path* belongs to PyTorch or Python's library, and not to a script."""
    *_, inner = _PACKAGES.split(path)
    if inner == path and "/lib/python3" in path:
        return True
    return (
        inner.startswith(_LIBRARIES) or inner.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names
    )


def _joined(parts: Iterator[tuple[int, int, _Place]]) -> Iterator[Span]:
    """Yield *parts* as spans; adjacent parts with the same place are joined."""
    last: Span | None = None
    for start, end, place in parts:
        facts = place.cause, place.place, OPERATIONS if place.activity else GAPS
        if last is not None and last.end_ns == start and last[2:5] == facts:
            last = Span(last.start_ns, end, *facts)
            continue
        if last is not None:
            yield last
        last = Span(start, end, *facts)
    if last is not None:
        yield last


def clipped(spans: Iterable[Span], starts: Sequence[int], ends: Sequence[int]) -> Iterator[Span]:
    """Yield the parts of *spans* inside pieces; the *starts* and *ends* of pieces are sorted."""
    first = 0
    for span in spans:
        while first < len(ends) and ends[first] <= span.start_ns:
            first += 1
        for number in range(first, len(starts)):
            if starts[number] >= span.end_ns:
                break
            begin, end = max(span.start_ns, starts[number]), min(span.end_ns, ends[number])
            yield Span(begin, end, *span[2:])
