"""Why a host thread spent time outside operators: spans with a cause, of marks and evidence."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..readers import DeviceTrace
from ._cause_rules import ACTIVITIES, OPERATORS, mark_of
from ._window import Window

__all__ = [
    "GAPS",
    "LEAST_NS",
    "MOMENTS",
    "OPERATIONS",
    "HostCauses",
    "Part",
    "Span",
    "layered",
    "marked_spans",
]

# What a span claims: time outside operators, whole operators too, or exactly its moments, whatever ran then.
GAPS, OPERATIONS, MOMENTS = range(3)
# A shorter gap is what a framework needs from one operator to the next; in a longer one Python code ran.
_DISPATCH_NS = 50_000
# Parts of a piece that are shorter are not worth a node.
LEAST_NS = 20_000
# Causes that say no more than that host code ran: any other one is stronger.
_WEAK = ("", "python", "dispatch", "optimizer")
# What a short gap is not, though a sample near it shows it.
_OF_LONG_GAPS = ("", "python", "dispatch", "sleep", "lock", "io", "communication_call")
# The cause of moments in which whatever ran was delayed, and the share of a gap that makes it more than that.
_DELAYED, _WORK_SHARE = "descheduled", 0.2
# Gaps next to an operator that waits for a value belong to it.
_SHARED = "synchronisation"


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
    """A part of a piece that ends at *end_ns*; without a *cause* it is the operator's own time."""

    end_ns: int
    cause: str = ""
    place: str = ""


def marked_spans(trace: DeviceTrace, own: np.ndarray, window: Window) -> list[Span]:
    """Return the causes of the profiler's ranges among one thread's events *own*, disjoint and in order."""
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
    for start, end, number in zip(starts, ends, which, strict=True):
        mark = marks[number]
        assert mark is not None
        spans.append(Span(start, end, mark.cause, "", OPERATIONS if mark.covers else GAPS))
    return _flat(spans)


def _flat(nested: Sequence[Span]) -> list[Span]:
    """Return disjoint spans for *nested* ones, which are in order of start: the strongest cause counts."""
    result: list[Span] = []
    group: list[Span] = []  # the last outermost range with what is inside it
    for span in nested:
        if not group or span.start_ns >= group[-1].end_ns:
            result += group
            group = [span]
        elif (group[-1].cause, group[-1].claims) != (span.cause, span.claims):
            group = layered(group, [span])
    return result + group


def layered(lower: Sequence[Span], upper: Sequence[Span]) -> list[Span]:
    """Merge two lists of disjoint spans; in overlaps the stronger cause counts."""
    points = sorted({time for span in (*lower, *upper) for time in span[:2]})
    joined: list[Span] = []
    below, above = _Cursor(lower), _Cursor(upper)
    for start, end in pairwise(points):
        one, other = below.at(start), above.at(start)
        span = _stronger(one, other) if one and other else one or other
        if span is None:
            continue
        if joined and joined[-1].end_ns == start and joined[-1][2:] == span[2:]:
            joined[-1] = joined[-1]._replace(end_ns=end)
        else:
            joined.append(span._replace(start_ns=start, end_ns=end))
    return joined


class _Cursor:
    """Walks over disjoint spans in order."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans, self._next = spans, 0

    def at(self, time_ns: int) -> Span | None:
        """Return the span at *time_ns*, which is not before that of the last call."""
        while self._next < len(self._spans) and self._spans[self._next].end_ns <= time_ns:
            self._next += 1
        if self._next < len(self._spans) and self._spans[self._next].start_ns <= time_ns:
            return self._spans[self._next]
        return None


def _stronger(lower: Span, upper: Span) -> Span:
    """Return the span with the stronger cause, and the place of either."""
    ranked = sorted((upper, lower), key=_strength)
    strong, weak = ranked
    return strong._replace(place=strong.place or weak.place, under=weak.under or weak.cause)


def _strength(span: Span) -> int:
    """Return the order of precedence of the cause of *span*, 0 for the strongest."""
    if span.claims == MOMENTS:
        return 0
    if span.cause in ACTIVITIES:
        return 1 + ACTIVITIES.index(span.cause)
    return 20 if span.cause not in _WEAK else 40 - _WEAK.index(span.cause)


class HostCauses:
    """The spans of one thread, which give the cause of each of its pieces.

    Its *calls* of models without gradients are disjoint, too; what a model runs has the place of its call.
    """

    def __init__(self, spans: Sequence[Span], calls: Sequence[Span] = ()) -> None:
        self.spans, self._calls = spans, calls
        self._ends = [span.end_ns for span in spans]
        self._owning = _owning_their_delays(spans)
        self._claiming = [span for span in spans if span.claims > GAPS]
        self._claiming_ends = [span.end_ns for span in self._claiming]

    def boundaries(self) -> np.ndarray:
        """Return the times at which spans that become nodes begin and end."""
        long = [span for span in self.spans if span.end_ns - span.start_ns >= LEAST_NS]
        return np.unique(np.array([time for span in long for time in span[:2]], dtype=np.int64))

    def of_nodes(
        self, start_ns: np.ndarray, end_ns: np.ndarray, gap: np.ndarray
    ) -> tuple[list[str], list[str]]:
        """Return cause and place of nodes of a thread that issues device work; *gap* marks those of gaps."""
        long = gap & (end_ns - start_ns >= _DISPATCH_NS)
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
        """Return the spans that overlap the given time, in order, cut to it."""
        return _overlapping(self.spans, self._ends, start_ns, end_ns)

    def places(self, times_ns: np.ndarray) -> list[str]:
        """Return the place of the operators of the thread at each of *times_ns*, "" if unknown."""
        called, sampled = self.call_places(times_ns), _places_at(self.spans, times_ns)
        return [call or place for call, place in zip(called, sampled, strict=True)]

    def call_places(self, times_ns: np.ndarray) -> list[str]:
        """Return the place of the call of a model at each of *times_ns*, "" outside of one."""
        return _places_at(self._calls, times_ns)

    def touched(self, start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
        """Return which of these pieces of operators overlap a span."""
        begun = np.searchsorted([span.start_ns for span in self._claiming], end_ns)
        claimed: np.ndarray = begun > np.searchsorted(self._claiming_ends, start_ns, side="right")
        return claimed

    def of_operator(self, name: str, start_ns: int, end_ns: int) -> Sequence[Part]:
        """Return the parts of an operator's own time, usually one."""
        spans = _overlapping(self._claiming, self._claiming_ends, start_ns, end_ns)
        cause = OPERATORS.get(name, "")
        if not spans and not cause:
            return (Part(end_ns),)
        covered: Counter[tuple[str, str]] = Counter()
        for span in spans:
            owner = span.under if span.cause == _DELAYED else span.cause
            if span.claims == OPERATIONS or owner in ACTIVITIES:
                covered[owner, span.place] += span.end_ns - span.start_ns
        if 2 * covered.total() > end_ns - start_ns:
            cause, place = covered.most_common(1)[0][0]
        else:
            place = next((span.place for span in self.overlapping(start_ns, end_ns)), "")
        exact = [span for span in spans if span.claims == MOMENTS and not (cause and span.cause == _DELAYED)]
        whole = Part(end_ns, cause, place)
        return _parts(exact, start_ns, end_ns, whole) if exact else (whole,)

    def of_gap(self, start_ns: int, end_ns: int, before: str, after: str) -> Sequence[Part]:
        """Return the parts of time between the operators named *before* and *after* ("" for none)."""
        short = end_ns - start_ns < _DISPATCH_NS
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
            if span.cause == _DELAYED and (owns_all or span.under in self._owning)
            else span
            for span in spans
        ]
        spans = [span._replace(cause=default) if span.cause in weak else span for span in spans]
        return _parts(spans, start_ns, end_ns, Part(end_ns, default))


def _places_at(spans: Sequence[Span], times_ns: np.ndarray) -> list[str]:
    """Return the place of the span at each of *times_ns*, "" where there is none."""
    after = np.searchsorted([span.end_ns for span in spans], times_ns, side="right").tolist()
    near = [spans[row] if row < len(spans) else None for row in after]
    return [
        span.place if span is not None and span.start_ns <= time else ""
        for span, time in zip(near, times_ns.tolist(), strict=True)
    ]


def _had_work(spans: Sequence[Span], length_ns: int) -> bool:
    """Return whether a gap of *length_ns* is long even without its delays.

    Then the work in it was delayed, and without that work there would be no delay.
    """
    return length_ns - _delayed_ns(spans) >= max(_DISPATCH_NS, _WORK_SHARE * length_ns)


def _owning_their_delays(spans: Sequence[Span]) -> set[str]:
    """Return the causes that were not delayed much more than the whole thread."""
    worked: Counter[str] = Counter()
    delayed: Counter[str] = Counter()
    for span in spans:
        is_delay = span.cause == _DELAYED
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
    return sum(span.end_ns - span.start_ns for span in spans if span.cause == _DELAYED)


def _overlapping(spans: Sequence[Span], ends: Sequence[int], start_ns: int, end_ns: int) -> list[Span]:
    """Return those of *spans*, which end at *ends*, that overlap the given time, in order, cut to it."""
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


def _parts(spans: Sequence[Span], start_ns: int, end_ns: int, rest: Part) -> list[Part]:
    """Return the time from *start_ns* to *end_ns* as parts: those of *spans*, and the *rest* between them.

    Short ones are added to the one before, at the start to the one after.
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
        is_short = part.end_ns - begin < LEAST_NS
        if merged and (is_short or merged[-1][1:] == part[1:]):
            merged[-1] = merged[-1]._replace(end_ns=part.end_ns)
        else:
            merged.append(part)
        begin = part.end_ns
    if len(merged) > 1 and merged[0].end_ns - start_ns < LEAST_NS:
        merged.pop(0)
    return merged
