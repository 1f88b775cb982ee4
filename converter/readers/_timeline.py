"""Divide the time of host threads into operators and gaps, and read nested calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ...tracer import Evidence, read_evidence
from .._columns import Columns, which
from .._native import Nesting, cut
from ._communications import GLOO
from ._kineto import MODULE_FRAME, MODULE_RANGE, CommArguments, DeviceTrace, Frames, read_device_trace

# Names of the phases, by their numbers in the native module.
PHASES = ("forward", "backward", "optimizer", "other")
_IGNORED, _OPERATOR, _BACKWARD, _ANNOTATION, _MODULE, _OPTIMIZER, _DATA_LOADER = range(7)
_BACKWARD_PREFIX = "autograd::engine::evaluate_function: "
# Annotations that set the module or the phase of the operators inside them.
_ANNOTATIONS = {MODULE_RANGE: _MODULE, "Optimizer.": _OPTIMIZER, "enumerate(DataLoader)": _DATA_LOADER}


class Op(msgspec.Struct, frozen=True):
    """An operator on a host thread, clipped to the window and to its enclosing operator."""

    name: str
    record_id: int
    start_ns: int
    end_ns: int
    parent: int
    comm: CommArguments | None


class Pieces(Columns, frozen=True):
    """Intervals of a thread: self time of *op*, or time outside operators (-1), before *next_op*."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    op: np.ndarray
    next_op: np.ndarray


class Ops(msgspec.Struct, frozen=True, dict=True):
    """The operators of one thread in order of start.

    *event*, *module* (0: none) and *phase* are indices into the trace's events, the *modules* and `PHASES`.
    *parent* is the enclosing operator, -1 for none.
    """

    trace: DeviceTrace
    modules: Sequence[str]
    event: np.ndarray
    parent: np.ndarray
    module: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    phase: np.ndarray
    is_leaf: np.ndarray

    def __len__(self) -> int:
        return len(self.event)

    def __getitem__(self, index: int) -> Op:
        event = int(self.event[index])
        events, trace = self.trace.events, self.trace
        return Op(
            trace.texts[int(events.name[event])],
            int(events.record_id[event]),
            int(self.start_ns[index]),
            int(self.end_ns[index]),
            int(self.parent[index]),
            trace.comm(int(events.comm[event])),
        )

    @cached_property
    def name(self) -> np.ndarray:
        """The number of each operator's name among the trace's texts."""
        names: np.ndarray = self.trace.events.name[self.event]
        return names

    @cached_property
    def record_id(self) -> np.ndarray:
        """The record-function id of each operator."""
        records: np.ndarray = self.trace.events.record_id[self.event]
        return records


class Threads:
    """Finds the operators of a trace's threads.

    Operators are nested by time, because recorded parents are wrong with gloo. Annotations only determine the
    module and the phase of operators. Gloo's annotations may overlap later operators and are ignored. A
    backward operator has the module of the forward operator with the same autograd sequence number, on any
    thread. Modules come from the tracer's annotations, or else from the profiler's Python frames.
    """

    def __init__(self, trace: DeviceTrace) -> None:
        self._trace = trace
        self._nesting = Nesting()
        numbers = {"": 0}
        roles = np.full((2, len(trace.texts)), _ANNOTATION, dtype=np.uint8)
        self._module = np.zeros(len(trace.texts), dtype=np.int32)
        for number, text in enumerate(trace.texts):
            roles[1, number] = _BACKWARD if text.startswith(_BACKWARD_PREFIX) else _OPERATOR
            if text.startswith(GLOO):
                roles[:, number] = _IGNORED
            for prefix, role in _ANNOTATIONS.items():
                if text.startswith(prefix):
                    roles[0, number] = role
            if text.startswith(MODULE_RANGE):
                module = text[len(MODULE_RANGE) :]
                self._module[number] = numbers.setdefault(module, len(numbers))
        self._roles = roles
        self._frames, self._module_of_frame = _module_frames(trace, numbers)
        self._modules = list(numbers)

    def operators(self, events: np.ndarray, start_ns: int, end_ns: int, *, phase: str = "forward") -> Ops:
        """Return the operators among *events* (of one thread, in order) in the interval (Unix ns).

        *phase* is the phase of outermost operators.
        """
        own = self._trace.events.take(events)
        roles = self._roles[own.is_operator.astype(np.int8), own.name]
        columns = [own.start_ns, own.end_ns, own.sequence, roles, self._module[own.name]]
        if len(self._frames) and len(own):
            events, *columns = self._with_frames(int(own.thread[0]), events, columns)
        starts, ends, sequences, roles, modules = columns
        nested = self._nesting.operators(
            starts, ends, sequences, roles, modules, start_ns, end_ns, PHASES.index(phase)
        )
        nested["event"] = events[nested["event"]]
        return Ops(self._trace, self._modules, **nested)

    def _with_frames(
        self, thread: int, events: np.ndarray, columns: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Return *events* and *columns* with the module calls on *thread* inserted."""
        mine = self._frames.thread == thread
        frames, nothing = self._frames.take(mine), np.full(int(mine.sum()), -1)
        roles = np.full(len(frames), _MODULE)
        added = (nothing, frames.start_ns, frames.end_ns, nothing, roles, self._module_of_frame[mine])
        pairs = zip((events, *columns), added, strict=True)
        joined = [np.concatenate([one, other.astype(one.dtype)]) for one, other in pairs]
        order = np.lexsort((-joined[2], joined[1]))
        return [column[order] for column in joined]


def _module_frames(trace: DeviceTrace, numbers: dict[str, int]) -> tuple[Frames, np.ndarray]:
    """Return the module calls in *trace*, and the module number of each; adds new names to *numbers*.

    The result is empty if the tracer's annotations mark modules. A module is named after its callers and
    itself: ``GPT_0.Block_3.Linear_12``.
    """
    frames = Frames.none() if len(numbers) > 1 else trace.frames
    frames = frames.take(which(trace.texts, lambda text: text.startswith(MODULE_FRAME))[frames.name])
    modules = np.zeros(len(frames), dtype=np.int32)
    around: dict[int, list[tuple[int, str]]] = {}
    paths: dict[str, str] = {}
    columns = (frames.thread, frames.start_ns, frames.end_ns, frames.name)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for row, (thread, start, end, name) in enumerate(rows):
        callers = around.setdefault(thread, [])
        while callers and callers[-1][0] <= start:
            callers.pop()
        own = trace.texts[name][len(MODULE_FRAME) :]
        path = paths.setdefault(own, f"{callers[-1][1]}.{own}" if callers else own)
        callers.append((end, path))
        modules[row] = numbers.setdefault(path, len(numbers))
    return frames, modules


def cut_pieces(ops: Ops, start_ns: int, end_ns: int) -> Pieces:
    """Cut the window of *ops* into pieces, in order and without gaps."""
    return Pieces(**cut(ops.start_ns, ops.end_ns, start_ns, end_ns))


_DEEPEST = 1_000
_OUTERMOST, _INNERMOST, _FEW_CALLS = 2, 8, 3
_COLLECTIONS, _SAMPLED = "garbage collection", ", Python sampled"
# The tracer's own functions, which enclose the job's functions, are omitted.
_TRACER = "chakrascope/tracer/"


@dataclass(frozen=True)
class HostCalls:
    """Columns of calls by thread, depth and start; times are ns since the beginning of a step.

    *thread* is an index into *threads*, the titles of the rows. *name* is an index into *names*.
    """

    thread: np.ndarray
    depth: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray
    threads: list[str]
    names: list[str]

    def around(self, start_ns: int, end_ns: int) -> list[str]:
        """Return the calls, recorded and sampled, in the middle of an interval, outermost first.

        Of many nested calls, such as recursive calls, the calls in the middle of the stack are omitted.

        The chosen thread has the calls that begin and end closest to the interval; on a tie, the
        thread with the most calls is chosen.
        """
        middle = (start_ns + end_ns) // 2
        rows = np.flatnonzero((self.start_ns <= middle) & (self.end_ns > middle))
        open_: dict[str, list[str]] = {}
        for row in rows.tolist():
            open_.setdefault(self.threads[self.thread[row]], []).append(self.names[self.name[row]])
        recorded = [thread for thread in open_ if thread in _recorded(self.threads)]
        thread = min(recorded, key=lambda one: self._distance(one, start_ns, end_ns), default="")
        # The next sample may be a few ms later than the middle of the interval.
        stacks = (("", thread), ("sampled: ", f"{thread}{_SAMPLED}"))
        return [prefix + " › ".join(_shortened(open_[one])) for prefix, one in stacks if one in open_]

    def _distance(self, thread: str, *times_ns: int) -> tuple[int, int]:
        """Return the distance of *times_ns* to the closest call bounds in *thread*, and minus the count."""
        own = self.thread == self.threads.index(thread)
        bounds = np.concatenate([self.start_ns[own], self.end_ns[own]])
        return sum(int(np.abs(bounds - time).min()) for time in times_ns), -len(bounds)


def _shortened(calls: list[str]) -> list[str]:
    left_out = len(calls) - _OUTERMOST - _INNERMOST
    if left_out < _FEW_CALLS:
        return calls
    return [*calls[:_OUTERMOST], f"{left_out} more calls", *calls[-_INNERMOST:]]


def _recorded(threads: list[str]) -> list[str]:
    """Return the rows of *threads* that come from a trace."""
    return [thread for thread in threads if thread != _COLLECTIONS and not thread.endswith(_SAMPLED)]


class _Call(NamedTuple):
    """A call in the tracer's evidence, shown in a row below thread *of*, or in a separate row ("")."""

    thread: str
    of: str
    name: str
    start_ns: int
    end_ns: int


def read_host_calls(trace: Path, evidence: Path | None, start_ns: int, end_ns: int) -> HostCalls:
    """Return the host calls between two times (Unix ns) from the files of device trace and evidence.

    Raises `TraceError` or `TraceFormatError` for unreadable files.
    """
    seen = None if evidence is None else read_evidence(evidence)
    return host_calls(read_device_trace(trace), seen, start_ns, end_ns)


def host_calls(trace: DeviceTrace, evidence: Evidence | None, start_ns: int, end_ns: int) -> HostCalls:
    """Return the host calls clipped to an interval (Unix ns), by thread in order of first call.

    Of calls that begin at the same time, the longer call encloses the shorter one. Of equally long calls, a
    Python function encloses an annotation or operator, which encloses a runtime call. Sampled stacks, whose
    times have the precision of the sampling interval, and garbage collections have separate rows. Functions
    of the tracer are omitted.
    """
    is_job = which(trace.texts, lambda text: _TRACER not in text)
    tables = (trace.frames.take(is_job[trace.frames.name]), trace.events, trace.calls)
    columns = {
        column: np.concatenate([getattr(table, column) for table in tables])
        for column in ("start_ns", "end_ns", "name", "thread")
    }
    kind = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    order = np.lexsort((kind, -columns["end_ns"], columns["start_ns"]))
    columns = {name: column[order] for name, column in columns.items()}
    inside = (columns["start_ns"] < end_ns) & (columns["end_ns"] > start_ns)
    columns = {name: column[inside] for name, column in columns.items()}
    numbers, first = np.unique(columns["thread"], return_index=True)
    numbers = numbers[np.argsort(first)]
    seen = [] if evidence is None else [*_sampled(evidence), *_collections(evidence)]
    seen = sorted(
        (call for call in seen if call.start_ns < end_ns and call.end_ns > start_ns),
        key=lambda call: (call.start_ns, -call.end_ns),
    )
    threads = _rows([f"thread {name}" for name in trace.names(numbers)], seen)
    place = {name: row for row, name in enumerate(threads)}
    row_of = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
    row_of[numbers] = [place[f"thread {name}"] for name in trace.names(numbers)]
    names = {name: number for number, name in enumerate(dict.fromkeys(call.name for call in seen))}
    used, number = np.unique(columns["name"], return_inverse=True)
    thread = _joined(row_of[columns["thread"]], [place[call.thread] for call in seen])
    start = _joined(columns["start_ns"], [call.start_ns for call in seen]).clip(start_ns, end_ns) - start_ns
    end = _joined(columns["end_ns"], [call.end_ns for call in seen]).clip(start_ns, end_ns) - start_ns
    name = _joined(number, [len(used) + names[call.name] for call in seen])
    depth = _depths(thread.tolist(), start.tolist(), end.tolist())
    order = np.lexsort((start, depth, thread))
    columns = {"thread": thread, "depth": depth, "start_ns": start, "end_ns": end, "name": name}
    ordered = {column: values[order] for column, values in columns.items()}
    return HostCalls(**ordered, threads=threads, names=[*trace.names(used), *names])


def _joined(column: np.ndarray, more: list[int]) -> np.ndarray:
    return np.concatenate([column, np.array(more, np.int64)]).astype(np.int64)


def _rows(threads: list[str], seen: list[_Call]) -> list[str]:
    """Return *threads* with the rows of calls *seen* inserted after their threads."""
    rows = [*threads]
    for call in {call.thread: call for call in seen}.values():
        rows.insert(rows.index(call.of) if call.of in rows else len(rows), call.thread)
    return rows


def _depths(threads: list[int], starts: list[int], ends: list[int]) -> np.ndarray:
    """Return the nesting depth of each call in its thread; calls of a thread are sorted by start."""
    open_until: dict[int, list[int]] = {}
    depths = []
    for thread, start, end in zip(threads, starts, ends, strict=True):
        until = open_until.setdefault(thread, [])
        while until and until[-1] <= start:
            until.pop()
        depths.append(min(len(until), _DEEPEST))
        until.append(end)
    return np.array(depths, np.int64)


def _sampled(evidence: Evidence) -> Iterator[_Call]:
    """Yield the calls in sampled stacks: functions at the same depth in consecutive samples.

    A sample represents the time since the previous sample. No sample is taken while a call holds the GIL or
    forks, so the next sample finds the thread in this call.
    """
    samples = evidence.samples
    before = {later: earlier for earlier, later in pairwise(sorted({*samples.time_ns}))}
    rows_of: dict[int, list[int]] = {}
    for row, thread in enumerate(samples.thread):
        rows_of.setdefault(thread, []).append(row)
    for thread, rows in rows_of.items():
        of = f"thread {evidence.threads[thread].tid}"
        open_: list[tuple[str, int]] = []
        until = 0
        for row in rows:
            time = samples.time_ns[row]
            earlier = before.get(time, time)
            frames = reversed(evidence.frames_of(samples.stack[row]))
            names = [
                f"{frame.function} ({frame.path})" for frame in frames if not frame.path.startswith(_TRACER)
            ]
            same = 0
            while earlier == until and same < min(len(open_), len(names)) and open_[same][0] == names[same]:
                same += 1
            for name, since in open_[same:]:
                yield _Call(of + _SAMPLED, of, name, since, until)
            open_ = [*open_[:same], *((name, earlier) for name in names[same:])]
            until = time
        for name, since in open_:
            yield _Call(of + _SAMPLED, of, name, since, until)


def _collections(evidence: Evidence) -> Iterator[_Call]:
    """Yield the garbage collections in the evidence as calls."""
    found = evidence.collections
    for start, end, generation in zip(found.start_ns, found.end_ns, found.generation, strict=True):
        yield _Call(_COLLECTIONS, "", f"{_COLLECTIONS} of generation {generation}", start, end)
