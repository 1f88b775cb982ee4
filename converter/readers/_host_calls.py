"""Calls on host threads, nested by call: Python functions, annotations, operators, runtime calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...tracer import Evidence, read_evidence
from ._kineto import DeviceTrace, read_device_trace

_DEEPEST = 1_000
_COLLECTIONS, _SAMPLED = "garbage collection", ", Python sampled"


@dataclass(frozen=True)
class HostCalls:
    """Calls by thread, depth and start, as columns; times are ns since the beginning of a step.

    *thread* and *name* are indices into *threads*, the titles of the rows, and into *names*.
    """

    thread: np.ndarray
    depth: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray
    threads: list[str]
    names: list[str]

    def around(self, start_ns: int, end_ns: int) -> list[str]:
        """Return the calls open in the middle of an interval, outermost first, of one thread and its samples.

        It is the thread in which calls begin or end closest to the interval's own start and end; of several,
        the one with most calls.
        """
        middle = (start_ns + end_ns) // 2
        rows = np.flatnonzero((self.start_ns <= middle) & (self.end_ns > middle))
        open_: dict[str, list[str]] = {}
        for row in rows.tolist():
            open_.setdefault(self.threads[self.thread[row]], []).append(self.names[self.name[row]])
        recorded = [thread for thread in open_ if thread in _recorded(self.threads)]
        thread = min(recorded, key=lambda one: self._distance(one, start_ns, end_ns), default="")
        # A sample is that of the last time its thread was looked at: it may be a few ms old.
        stacks = (("", thread), ("sampled: ", f"{thread}{_SAMPLED}"))
        return [prefix + " › ".join(open_[one]) for prefix, one in stacks if one in open_]

    def _distance(self, thread: str, *times_ns: int) -> tuple[int, int]:
        """Return how far the closest bounds of calls in *thread* are from *times_ns*, and -their count."""
        own = self.thread == self.threads.index(thread)
        bounds = np.concatenate([self.start_ns[own], self.end_ns[own]])
        return sum(int(np.abs(bounds - time).min()) for time in times_ns), -len(bounds)


def _recorded(threads: list[str]) -> list[str]:
    """Return the rows of *threads* that come from a trace."""
    return [thread for thread in threads if thread != _COLLECTIONS and not thread.endswith(_SAMPLED)]


class _Call(NamedTuple):
    """A call in the evidence; its row follows that *of* a thread, or stands alone for ""."""

    thread: str
    of: str
    name: str
    start_ns: int
    end_ns: int


def read_host_calls(trace: Path, evidence: Path | None, start_ns: int, end_ns: int) -> HostCalls:
    """Return `host_calls` of the device trace and the evidence in these files.

    Raises `TraceError` or `TraceFormatError` as reading them does.
    """
    seen = None if evidence is None else read_evidence(evidence)
    return host_calls(read_device_trace(trace), seen, start_ns, end_ns)


def host_calls(trace: DeviceTrace, evidence: Evidence | None, start_ns: int, end_ns: int) -> HostCalls:
    """Return the calls between two times (Unix ns), clipped to them, by thread in order of first call.

    If calls begin together, the longer one encloses the other; if they are equal, a Python function encloses
    an annotation or operator, and these a runtime call. Sampled Python stacks have separate rows, as their
    precision is one sampling interval; so have garbage collections.
    """
    tables = (trace.frames, trace.events, trace.calls)
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
    """Return *threads* and the rows of calls *seen*, each after its thread."""
    rows = [*threads]
    for call in {call.thread: call for call in seen}.values():
        rows.insert(rows.index(call.of) if call.of in rows else len(rows), call.thread)
    return rows


def _depths(threads: list[int], starts: list[int], ends: list[int]) -> np.ndarray:
    """Return the depth of each call in its thread, whose calls are in order of start."""
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
    """Yield the calls of sampled stacks: functions that consecutive samples have at the same depth."""
    samples = evidence.samples
    after = dict(pairwise(sorted({*samples.time_ns})))
    rows_of: dict[int, list[int]] = {}
    for row, thread in enumerate(samples.thread):
        rows_of.setdefault(thread, []).append(row)
    for thread, rows in rows_of.items():
        of = f"thread {evidence.threads[thread].tid}"
        open_: list[tuple[str, int]] = []
        until = 0
        for row in rows:
            time = samples.time_ns[row]
            frames = reversed(evidence.frames_of(samples.stack[row]))
            names = [f"{frame.function} ({frame.path})" for frame in frames]
            same = 0
            while time == until and same < min(len(open_), len(names)) and open_[same][0] == names[same]:
                same += 1
            for name, since in open_[same:]:
                yield _Call(of + _SAMPLED, of, name, since, until)
            open_ = [*open_[:same], *((name, time) for name in names[same:])]
            until = after.get(time, time)
        for name, since in open_:
            yield _Call(of + _SAMPLED, of, name, since, until)


def _collections(evidence: Evidence) -> Iterator[_Call]:
    """Yield the garbage collections."""
    found = evidence.collections
    for start, end, generation in zip(found.start_ns, found.end_ns, found.generation, strict=True):
        yield _Call(_COLLECTIONS, "", f"{_COLLECTIONS} of generation {generation}", start, end)
