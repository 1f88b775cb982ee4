"""Find the causes of host time in the tracer's evidence: Python stacks, garbage collections, CPU time."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import groupby, pairwise, takewhile

import numpy as np

from ...tracer import Evidence
from ..readers import DeviceTrace, Ops, Threads
from ._cause_rules import ACTIVITIES, CALLS, SYSTEM_CALLS, frame_cause
from ._host_causes import (
    MOMENTS,
    HostCauses,
    Span,
    allocation_spans,
    first_launch_spans,
    framed_spans,
    layered,
    marked_lines,
    marked_spans,
    model_calls,
)
from ._sections import (
    ACROSS_THE_MODEL,
    Elements,
    LongGaps,
    State,
    fitting,
    lines_of_loops,
    of_gaps,
    phase_edges,
    section_edges,
    spans_around,
    states_of_other_steps,
)
from ._steps import Window

# A thread whose CPU time is less than this share of an interval did not compute in the interval.
_BUSY = 0.5
# Minimum run delay, in ns and as a share of the time between samples. Ordinary scheduling causes delays that
# are shorter.
_DELAY_NS, _DELAY_SHARE = 500_000, 0.2
# Minimum share of a step in which a sleeping thread slept. Below this share, the thread only ran or waited
# for a processor.
_SLEPT = 0.02
# The minimum duration of a garbage collection that is reported.
_COLLECTION_NS = 100_000
# Name of the tracer's function that Python calls around each collection, in captures of 0.3 and 0.2. Python
# before 3.11 omits the class.
_COLLECTED = re.compile(r"chakrascope/tracer/_agent/(step_clock|garbage)\.py:(GarbageWatch\.)?_note$")
# Mechanisms that explain a blocking system call: pipes to other processes, and printing to a slow reader.
_EXPLAINING = ("process_wait", "logging")
# Causes in which a thread takes no processor time.
_BLOCKED = ("lock", "process_wait", "sleep")
# The function with which a forked process begins. The callers of this function are the parent process's
# code.
_FORKED = re.compile(r"\b_bootstrap$")
# Causes of waits during which the thread does not need the interpreter lock.
_WAITING = (
    "communication_call", "io", "lock", "process_wait", "sleep", "synchronisation", "worker_wait",
)  # fmt: skip
# Functions that call into C++ and wait there. In jobs of several ranks, these functions wait for the other
# ranks' gradients and buffers.
_ENGINE = "_engine_run_backward"
_AWAITING_PEERS = re.compile(rf"torch/(autograd/graph\.py:{_ENGINE}$|nn/parallel/distributed\.py:)")
_CALLED_MODULE = re.compile(r"torch/nn/modules/module\.py:.*_call_impl$")
# Functions that autograd's engine calls and that are not hooks: backward passes in Python, and recomputation
# of activations.
_NO_HOOKS = frozenset({"backward", "recompute_fn"})
# The causes and the module of data loaders, which the profiler marks with ranges.
_OF_LOADERS = ("sampler", "input_pipeline", "worker_wait", "process_start")
_LOADER_FILE = "torch/utils/data/dataloader.py"
# The activities with ranges that the tracer marks completely, so that samples do not extend the ranges.
_MARKED = frozenset({"recomputation", "anomaly_detection", "object_collective", "sampler"})


def host_causes(
    trace: DeviceTrace, own: np.ndarray, ops: Ops, window: Window, evidence: Evidence | None
) -> HostCauses:
    """Return the causes of one thread's host time, from its events *own* and *evidence*."""
    marked = layered(framed_spans(trace, own, ops, window), marked_spans(trace, own, window))
    marked = layered(marked, allocation_spans(trace, own, window))
    marked = layered(marked, first_launch_spans(trace, own, window))
    spans, hooks = marked, list[str]()
    if evidence is not None:
        threads = Threads(trace)

        def ops_of(step: tuple[int, int]) -> Ops:
            return threads.operators(own, *step)

        sampled = SampledCauses(evidence)
        spans, hooks = layered(sampled.spans(ops, window, ops_of, marked), marked), sampled.hooks()
        spans = _with_start_places(spans, sampled.dataset)
    return HostCauses(spans, model_calls(trace, own, window), hooks, marked_lines(trace, own))


def _with_start_places(spans: Sequence[Span], dataset: str) -> list[Span]:
    """Return *spans*; starts of workers without a place, or with the *dataset*'s, get the place of others.

    No sample is taken while a process forks, and new workers do not wait for the dataset.
    """
    unknown = ("", dataset)
    starts = Counter(one.place for one in spans if one.cause == "process_start" and one.place not in unknown)
    usual = max(starts, key=starts.__getitem__, default="")
    return [
        one._replace(place=usual) if one.cause == "process_start" and one.place in unknown else one
        for one in spans
    ]


class SampledCauses:
    """A finder of the stepping thread's spans with a known cause, from the tracer's samples."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._rows = [row for row, thread in enumerate(evidence.samples.thread) if thread == 0]
        self._times = [evidence.samples.time_ns[row] for row in self._rows]
        self._delays_ns = _delays_at_samples(evidence, self._rows)
        self.about, self.in_module = cache(self._about), cache(self._in_module)

    def spans(
        self,
        ops: Ops,
        window: Window,
        ops_of: Callable[[tuple[int, int]], Ops],
        marked: Sequence[Span] = (),
    ) -> list[Span]:
        """Return disjoint spans with causes within *window*; *ops* are the operators of the thread.

        *ops_of* returns the operators of a captured step by its start and end. *marked* are the spans of the
        profiler's ranges. Data loaders run only in these ranges.
        """
        edges = section_edges(ops)
        loads = [span for span in marked if span.cause in _OF_LOADERS]
        exact = _MARKED.intersection(span.cause for span in marked)
        gaps = LongGaps(ops, window.start_ns, window.end_ns)
        own = _with_gaps(self._states(window.start_ns, window.end_ns, loads), gaps)
        others = [self._other(ops_of(step), step) for step in self._other_steps(window)]
        intervals = [(step.start_ns, step.end_ns) for step in window.steps if others]
        steps = [phase_edges(ops_of(step), *step) for step in intervals]
        states = [*fitting([*own, *states_of_other_steps(own, others, edges, steps)], ops, edges)]
        states.sort(key=lambda one: one.time_ns)
        begins = sorted(step.start_ns for step in window.steps)
        of_steps = [[*group] for _, group in groupby(states, lambda one: bisect_right(begins, one.time_ns))]
        lines = lines_of_loops([*of_steps, *(group for _, group in others)])
        causes = dict.fromkeys(exact, "python")
        states = [
            one._replace(cause=causes.get(one.cause, one.cause), place=lines.get(one.place, one.place))
            for one in states
        ]
        elements = Elements.of(ops, window)
        inside, outside = (
            spans_around(of_gaps(states, edges, in_gap), elements, edges, window) for in_gap in (True, False)
        )
        return layered(gaps.joined(inside, outside), self._moments(ops, window))

    def times(self, start_ns: int, end_ns: int) -> Counter[tuple[str, str]]:
        """Return the sampled time of each pair of cause and source location between two times.

        A sample represents the time since the previous sample, even if the previous sample precedes the step.
        """
        shares: Counter[tuple[str, str]] = Counter()
        first, after = bisect_left(self._times, start_ns), bisect_left(self._times, end_ns)
        for number in range(max(first, 1), after):
            shares[self._cause(self._rows[number - 1], self._rows[number])] += (
                self._times[number] - self._times[number - 1]
            )
        return shares

    def chains(self, start_ns: int, end_ns: int) -> Counter[tuple[str, ...]]:
        """Return the sampled time of each call chain of the script between two times, callers first."""
        found: Counter[tuple[str, ...]] = Counter()
        first, after = bisect_left(self._times, start_ns), bisect_left(self._times, end_ns)
        for number in range(max(first, 1), after):
            frames = self._evidence.frames_of(self._evidence.samples.stack[self._rows[number]])
            chain = tuple(frame.place for frame in reversed(frames) if frame.origin == "script")
            found[chain] += self._times[number] - self._times[number - 1]
        return found

    def hooks(self) -> list[str]:
        """Return the source locations of the script's backward hooks, most sampled first."""
        places: Counter[str] = Counter()
        stacks = Counter(self._evidence.samples.stack[row] for row in self._rows)
        for stack, count in stacks.items():
            frames = self._evidence.frames_of(stack)
            called = [*takewhile(lambda frame: frame.function != _ENGINE, frames)]
            own = next((frame for frame in called if frame.origin == "script"), None)
            is_hook = _NO_HOOKS.isdisjoint(frame.function.rpartition(".")[2] for frame in called)
            if own is not None and len(called) < len(frames) and is_hook:
                places[own.place] += count
        return [place for place, _ in places.most_common()]

    def _states(self, start_ns: int, end_ns: int, loads: Sequence[Span] = ()) -> Iterator[State]:
        """Yield states from the samples between two times, and from the first sample after them.

        A sample's evidence about a data loader applies only within the range of *loads* around the sample,
        because the sampler often gets the interpreter lock just when the thread enters the range.
        """
        samples, rows, times = self._evidence.samples, self._rows, self._times
        first, after = bisect_left(times, start_ns), bisect_left(times, end_ns)
        for number in range(max(first, 1), min(after + 1, len(rows)) if after > first else 0):
            row, before = rows[number], rows[number - 1]
            cause, place = self._cause(before, row)
            if cause == "python" and number + 1 < len(rows) and self._still_waits(row, rows[number + 1]):
                cause, place = self._cause(row, rows[number + 1])
            time = samples.time_ns[row]
            entered_ns = self._entered_loader_ns(row, loads) if loads else 0
            if entered_ns < 0:
                continue
            changed_ns = self._changed_ns(before, row) or (entered_ns > samples.time_ns[before]) * entered_ns
            state = State(changed_ns or time - samples.late_ns[row], time, changed_ns > 0, cause, place)
            yield state._replace(in_module=self.in_module(samples.stack[row]))

    def _other(self, ops: Ops, step: tuple[int, int]) -> tuple[list[int], list[State]]:
        """Return the phases and the states of another captured step with the operators *ops*."""
        return phase_edges(ops, *step), _with_gaps(self._states(*step), LongGaps(ops, *step))

    def _still_waits(self, row: int, following: int) -> bool:
        """Return whether the thread waits both at sample *row* and at the *following* sample."""
        stacks = self._evidence.samples.stack
        return stacks[row] == stacks[following] and self.about(stacks[row])[1] in _BLOCKED

    def _entered_loader_ns(self, row: int, loads: Sequence[Span]) -> int:
        """Return the start of the range of *loads* around a data loader's sample, or -1 outside ranges.

        Samples outside data loaders have the start 0.
        """
        frames = self._evidence.frames_of(self._evidence.samples.stack[row])
        if not any(frame.path.endswith(_LOADER_FILE) for frame in frames):
            return 0
        time_ns = self._evidence.samples.time_ns[row]
        around = (span.start_ns for span in loads if span.start_ns <= time_ns < span.end_ns)
        return next(around, -1)

    def _other_steps(self, window: Window) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each captured step outside *window*."""
        steps = self._evidence.steps
        for _, begin, end in steps.steps():
            start_ns, end_ns = steps.time_ns[begin], steps.time_ns[end]
            if steps.recorded[end] and (end_ns <= window.start_ns or start_ns >= window.end_ns):
                yield start_ns, end_ns

    def _changed_ns(self, before: int, row: int) -> int:
        """Return the time at which the thread blocked or continued between two samples.

        The time is 0 if the thread did not change exactly once. The thread had a processor, or waited for a
        processor, before it blocked or after it continued.
        """
        samples = self._evidence.samples
        ran_ns = _since(samples.cpu_ns, before, row)
        was_blocked, is_blocked = (self._blocking_call(one) != "" for one in (before, row))
        if ran_ns < 0 or was_blocked == is_blocked:
            return 0
        earlier, later = samples.time_ns[before], samples.time_ns[row]
        ran_ns = min(ran_ns + max(0, _since(self._delays_ns, before, row)), later - earlier)
        return earlier + ran_ns if is_blocked else later - ran_ns

    def _blocking_call(self, row: int) -> str:
        """Return the cause that the blocking system call of a sample indicates, or "" if there is no cause.

        A futex indicates no cause because the sampler holds the interpreter lock.
        """
        cause = SYSTEM_CALLS.get(self._evidence.waits[self._evidence.samples.wait[row]], "")
        return cause if cause != "lock" else ""

    def _cause(self, before: int, row: int) -> tuple[str, str]:
        """Return cause and source location of the thread's sample *row*; *before* is the previous sample."""
        samples = self._evidence.samples
        activity, mechanism, place = self.about(samples.stack[row])
        if activity == "worker_wait":
            return activity, self.dataset or place
        if activity:
            return activity, place
        blocked = self._blocking_call(row)
        if blocked:
            return mechanism if mechanism in _EXPLAINING else blocked, place
        wall = samples.time_ns[row] - samples.time_ns[before]
        busy = _since(samples.cpu_ns, before, row)
        # Time without a processor is omitted because the activity in this time is unknown.
        wall -= min(max(0, _since(self._delays_ns, before, row)), wall - max(0, busy))
        if busy < 0 or busy > _BUSY * wall:
            return "python" if mechanism in ("", *_BLOCKED) else mechanism, place
        holder = self._holder(before, row, wall - busy)
        if holder is not None:
            return "lock", holder or place
        waits = SYSTEM_CALLS.get(self._evidence.waits[samples.wait[row]], "")
        if waits == "lock" and self._awaits_peers(samples.stack[row]):
            waits = "communication_call"
        return mechanism or waits or "python", place

    def _in_module(self, stack: int) -> bool:
        """Return whether the thread with this *stack* calls a module, not counting calls of `backward`."""
        frames = takewhile(lambda frame: frame.function != _ENGINE, self._evidence.frames_of(stack))
        return any(_CALLED_MODULE.match(f"{frame.path}:{frame.function}") for frame in frames)

    def _awaits_peers(self, stack: int) -> bool:
        """Return whether a blocked thread with this *stack* waits for other ranks."""
        waited_ns, frames = self._evidence.steps.collective_ns, self._evidence.frames_of(stack)
        if not frames or not waited_ns or waited_ns[-1] <= 0:
            return False
        return _AWAITING_PEERS.match(f"{frames[0].path}:{frames[0].function}") is not None

    def _holder(self, before: int, row: int, idle: int) -> str | None:
        """Return the source location where another thread ran for most of the *idle* time between samples.

        The result is None if no other thread had a processor for this time.
        """
        samples = self._evidence.samples
        last: dict[int, int] = {}
        for number in range(row, len(samples)):
            if samples.time_ns[number] != samples.time_ns[row]:
                break
            last[samples.thread[number]] = number
        for thread, number in last.items():
            earlier = next((n for n in range(before, -1, -1) if samples.thread[n] == thread), None)
            if not thread or earlier is None or not samples.stack[number]:
                continue
            if _since(samples.cpu_ns, earlier, number) > _BUSY * idle:
                return self.about(samples.stack[number])[2] or self._started(samples.stack[number])
        return None

    def _started(self, stack: int) -> str:
        """Return the source location of the library function that a thread without script frames runs.

        An example is the feeder thread of a queue, which pickles the queue's objects.
        """
        outside = (one for one in self._evidence.frames_of(stack)[::-1] if one.path != "threading.py")
        return next((frame.place for frame in outside), "")

    def _about(self, stack: int) -> tuple[str, str, str]:
        """Return activity, mechanism and source location of a *stack*; unknown values are ""."""
        place, mechanism, activities = "", "", set()
        every = self._evidence.frames_of(stack)
        frames = [*takewhile(lambda frame: not _FORKED.search(frame.function), every)]
        if frames:
            mechanism = CALLS.get(frames[0].call, "")
        for frame in frames:
            cause = frame_cause(frame.path, frame.function)
            is_script = frame.origin == "script"
            # Callers in the script do not determine the mechanism. For locks, the caller identifies the wait
            # better.
            mechanism = cause * (not place) or mechanism if mechanism in ("", "lock") else mechanism
            # Validation runs the model, so its location is the validating function, not the innermost frame.
            if is_script and (not place or (cause == ACROSS_THE_MODEL and cause not in activities)):
                place = frame.place
            if cause in ACTIVITIES:
                activities.add(cause)
        return next((cause for cause in ACTIVITIES if cause in activities), ""), mechanism, place

    @cached_property
    def dataset(self) -> str:
        """Where the dataset of the first data loader with workers creates items, or "" if unknown."""
        for loader in self._evidence.loaders:
            if loader.workers and loader.file >= 0:
                return f"{loader.dataset} ({self._evidence.files[loader.file].path}:{loader.line})"
        return ""

    def _moments(self, ops: Ops, window: Window) -> list[Span]:
        """Return spans of garbage collection, and spans of waiting for a processor."""
        samples = self._evidence.samples
        collected = [
            span
            for span in self._collections()
            if span.start_ns < window.end_ns and span.end_ns > window.start_ns
        ]
        delayed: list[Span] = []
        pieces = Elements.of(ops, window, nested=True)
        for before, row in pairwise(self._scheduled_rows()):
            start, end = samples.time_ns[before], samples.time_ns[row]
            if end <= window.start_ns or start >= window.end_ns:
                continue
            lost, holder = self._lost(before, row)
            cause = "descheduled" if holder is None else "lock"
            intervals = self._delays(before, row) if holder is None else [(start, end, lost)]
            for begin, stop, lost in intervals:
                if lost >= max(_DELAY_NS, _DELAY_SHARE * (stop - begin)):
                    moments = pieces.longest(begin, stop, lost)
                    delayed += [Span(*moment, cause, holder or "", MOMENTS) for moment in moments]
        return layered(delayed, sorted(collected))

    def _collections(self) -> list[Span]:
        """Return the garbage collections of the thread as spans.

        A collection without a sample has the source location of the longest collection of the same
        generation. The location of a full collection that the script requested does not apply to other
        generations.
        """
        rows = self._evidence.collections
        columns = zip(rows.start_ns, rows.end_ns, rows.generation, rows.thread, strict=True)
        own = sorted(
            (end - start, start, end, generation) for start, end, generation, thread in columns if not thread
        )
        spans: list[tuple[int, Span]] = []
        for length_ns, start, end, generation in own:
            if length_ns >= _COLLECTION_NS:
                place = self._collector(start, end)
                spans.append((generation, Span(start, end, "garbage_collection", place, MOMENTS)))
        usual = {generation: span.place for generation, span in spans if span.place}
        return [span._replace(place=span.place or usual.get(generation, "")) for generation, span in spans]

    def _collector(self, start_ns: int, end_ns: int) -> str:
        """Return the source location that caused a collection, from a sample in the tracer's callback."""
        samples, number = self._evidence.samples, bisect_left(self._times, start_ns)
        for row in self._rows[number : number + 1]:
            stack, is_near = samples.stack[row], samples.time_ns[row] <= end_ns + _COLLECTION_NS
            innermost = [f"{one.path}:{one.function}" for one in self._evidence.frames_of(stack)[:1]]
            if is_near and any(map(_COLLECTED.match, innermost)):
                return self.about(stack)[2]
        return ""

    def _lost(self, before: int, row: int) -> tuple[int, str | None]:
        """Return the time between two samples for which the runnable thread did not run, and the reason.

        The reason None means a lack of CPUs. Otherwise, the reason is the source location of the thread that
        holds the interpreter lock.
        """
        samples = self._evidence.samples
        wall = samples.time_ns[row] - samples.time_ns[before]
        delay = min(_since(self._delays_ns, before, row), wall)
        busy = _since(samples.cpu_ns, before, row)
        waits = any(self.about(samples.stack[one])[1] in _WAITING for one in (before, row))
        lost = delay if busy < 0 or waits else max(delay, wall - busy)
        holder = self._holder(before, row, lost)
        return delay if holder is None else lost, holder

    def _delays(self, before: int, row: int) -> list[tuple[int, int, int]]:
        """Divide the time between two samples at the ends of steps; return the run delay of each part."""
        samples, steps = self._evidence.samples, self._evidence.steps
        first, after = (bisect_right(steps.time_ns, samples.time_ns[one]) for one in (before, row))
        readings = [
            (samples.time_ns[before], self._delays_ns[before]),
            *((steps.time_ns[end], steps.delay_ns[end]) for end in range(first, after)),
            (samples.time_ns[row], self._delays_ns[row]),
        ]
        read = [reading for reading in readings if reading[1] >= 0]
        return [
            (start, end, min(later - earlier, end - start))
            for (start, earlier), (end, later) in pairwise(read)
        ]

    def _scheduled_rows(self) -> list[int]:
        """Return the samples of the thread, except intervals spent entirely waiting for a processor.

        The operating system counts a run delay only when the delay ends.
        """
        samples, waits, rows = self._evidence.samples, self._evidence.waits, self._rows[:1]
        for row in self._rows[1:]:
            used = max(_since(column, rows[-1], row) for column in (samples.cpu_ns, self._delays_ns))
            if used or waits[samples.wait[row]] != "running":
                rows.append(row)
        return rows


def _delays_at_samples(evidence: Evidence, rows: Sequence[int]) -> list[int]:
    """Return the run delay until each sample; *rows* are the samples of the stepping thread.

    The operating system counts a run delay only when the delay ends. In a step in which the thread never
    slept, however, all time without a processor is run delay.
    """
    steps, samples = evidence.steps, evidence.samples
    delays = list(samples.delay_ns)
    for row in rows:
        time_ns, after = samples.time_ns[row], bisect_right(steps.time_ns, samples.time_ns[row])
        if not 0 < after < len(steps) or min(samples.cpu_ns[row], delays[row]) < 0:
            continue
        wall, used, delay = (
            _since(column, after - 1, after) for column in (steps.time_ns, steps.cpu_ns, steps.delay_ns)
        )
        if min(used, delay) >= 0 and wall - used - delay <= _SLEPT * wall:
            own = time_ns - steps.time_ns[after - 1] - samples.cpu_ns[row] + steps.cpu_ns[after - 1]
            delays[row] = steps.delay_ns[after - 1] + min(max(0, own), delay)
    return delays


def _with_gaps(states: Iterable[State], gaps: LongGaps) -> list[State]:
    return [state._replace(in_gap=gaps.contain(state)) for state in states]


def _since(column: Sequence[int], before: int, row: int) -> int:
    """Return by how much a counter grew from row *before* to *row*, or -1 if the counter was not read."""
    return column[row] - column[before] if min(column[row], column[before]) >= 0 else -1
