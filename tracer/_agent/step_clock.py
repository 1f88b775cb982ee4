"""Time all steps and garbage collections of the run, read counters, and write all readings to a file."""

from __future__ import annotations

import errno
import gc
import gzip
import itertools
import json
import math
import os
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .loaders import LOADERS
from .phases import PAUSED, PHASE_COLUMNS, PHASES
from .readings import CoreReadings, ProcessReadings, ThreadReadings, compilation_ns

FORMAT, VERSION = "chakrascope-steps", 1
FIRST_WRITE_NS, WRITE_NS = 1_000_000_000, 10_000_000_000
MAX_BYTES_PER_HOUR = 16_000_000
FIRST_BYTES = 1_000_000
_NS_PER_HOUR = 3_600_000_000_000


class StepFile:
    """Appends rows of *columns* to the file *path*, as whole gzip members of JSON.

    A gzip member is written every ten seconds, and the first members are written earlier. If the process is
    killed, all earlier members remain readable. If steps are so short that the file grows by more than 20 MB
    an hour, only every second step is written, then every fourth step, and so on. All ranks write the same
    steps.
    """

    def __init__(self, path: Path, columns: Sequence[str], head: Callable[[], dict[str, Any]]) -> None:
        self.failure = ""
        self._path = path
        self._columns = columns
        self._head = head
        self._rows: list[Sequence[int]] = []
        self._begin_ns = self._written_ns = time.time_ns()
        self._bytes = 0
        self._apart = 1
        path.write_bytes(b"")

    def add(self, row: Sequence[int]) -> None:
        """Add the row of a boundary between steps; the first value is the step's number."""
        if row[0] % self._apart < 2:
            self._rows.append(row)
        so_far = self._written_ns - self._begin_ns
        if time.time_ns() - self._written_ns >= min(WRITE_NS, max(FIRST_WRITE_NS, so_far)):
            self.write()

    def write(self) -> None:
        """Write all pending rows, unless an earlier write has failed."""
        before, now = self._written_ns, time.time_ns()
        self._written_ns = now
        if not self._rows or self.failure:
            return
        values = zip(*self._rows, strict=True)
        steps = dict(zip(self._columns, map(list, values), strict=True))
        document = {"format": FORMAT, "version": VERSION, **self._head(), "steps": steps}
        member = gzip.compress(json.dumps(document, separators=(",", ":")).encode() + b"\n", 3)
        self._rows = []
        try:
            self._append(member)
        except OSError as error:
            self.failure = f"step times end early: {self._path}: {error.strerror}"
        is_much = len(member) * _NS_PER_HOUR > MAX_BYTES_PER_HOUR * (now - before)
        total = FIRST_BYTES + MAX_BYTES_PER_HOUR * (now - self._begin_ns) // _NS_PER_HOUR
        if is_much and self._bytes > total:
            self._apart = max(4, 2 * self._apart)  # record only every second, fourth, ... step

    def _append(self, member: bytes) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            if os.write(descriptor, member) < len(member):
                os.ftruncate(descriptor, self._bytes)
                raise OSError(errno.ENOSPC, "the disk is full, or a limit on file sizes was reached")
        finally:
            os.close(descriptor)
        self._bytes += len(member)


COLUMNS = (
    "index", "time_ns", "cpu_ns", "process_cpu_ns", "delay_ns", "voluntary", "involuntary", "faults",
    "system_ns", "read_bytes", "written_bytes", "gc_ns", "fetch_ns", *PHASE_COLUMNS, "idle_ns", "compile_ns",
    "recorded",
)  # fmt: skip
MAX_ROWS = 8192  # number of table rows for the first steps, and for the last steps
# The least time between readings of the kernel's counter files, which take about 5 us to read.
MIN_PERIOD_NS = 1_000_000
# The least time between readings of idle times, which take a millisecond on machines with hundreds of cores.
IDLE_PERIOD_NS, IDLE_SHARE = 100_000_000, 0.002
BUCKETS_PER_DOUBLING = 4
_ROW = struct.Struct(f"{len(COLUMNS)}q")
_INDEX, _TIME, _RECORDED = 0, 1, len(COLUMNS) - 1
_UNREAD = (-1,) * 7


class StepClock:
    """Reads the times and counters of the creating thread at the boundaries between steps."""

    def __init__(self, garbage: GarbageWatch) -> None:
        self._garbage = garbage
        self._thread = ThreadReadings(threading.get_native_id())
        self._process = ProcessReadings()
        self.cores = CoreReadings()
        self._first: list[bytes] = []
        self._last: deque[bytes] = deque(maxlen=MAX_ROWS)
        self._durations: Counter[int] = Counter()
        self._previous = (-2, 0)
        self._read_ns = 0
        self._idle_due_ns = 0

    def boundary(self, index: int, *, recorded: bool) -> tuple[int, ...]:
        """Record the end of step *index* (*recorded*: a profiler covered the step), and return the row."""
        now = time.time_ns()
        counters: tuple[int, ...] = _UNREAD
        if now - self._read_ns >= MIN_PERIOD_NS or index == self._previous[0]:
            self._read_ns = now
            counters = (self._thread.delay_ns(), *self._thread.usage(), *self._process.traffic()[:2])
        row = (
            index, now, time.thread_time_ns(), time.process_time_ns(), *counters, self._garbage.spent_ns,
            LOADERS.fetch_ns, *PHASES.end_step(now), self._idle_ns(now), compilation_ns(),
            int(recorded),
        )  # fmt: skip
        rows = self._first if len(self._first) < MAX_ROWS else self._last
        rows.append(_ROW.pack(*row))
        before, started = self._previous
        if before == index - 1 and now > started and not recorded:
            self._durations[int(math.log2(now - started) * BUCKETS_PER_DOUBLING)] += 1
        self._previous = (index, now)
        return row

    def _idle_ns(self, now: int) -> int:
        """Return the idle time (ns) of the cores so far, or -1 if the next reading is not due."""
        if now < self._idle_due_ns:
            return -1
        before = time.thread_time_ns()
        idle_ns = self.cores.idle_ns()
        cost_ns = time.thread_time_ns() - before
        self._idle_due_ns = now + max(IDLE_PERIOD_NS, int(cost_ns / IDLE_SHARE))
        return idle_ns

    def forget(self) -> None:
        """Drop all rows, because the steps so far were not training steps."""
        self._first.clear()
        self._last.clear()
        self._durations.clear()
        self._previous = (-2, 0)

    def unprofiled_steps(self, most: int) -> list[dict[str, int]]:
        """Return up to *most* unprofiled steps, half of them before the first recorded step."""
        sides: tuple[list[dict[str, int]], list[dict[str, int]]] = ([], [])
        seen_recorded = False
        for before, after in itertools.pairwise(self.rows()):
            if after[_RECORDED]:
                seen_recorded = True
            elif before[_INDEX] + 1 == after[_INDEX] and after[_TIME] >= before[_TIME]:
                step = {"index": before[_INDEX], "start_ns": before[_TIME], "end_ns": after[_TIME]}
                sides[seen_recorded].append(step)
        return sides[0][-(most // 2) :] + sides[1][: most // 2]

    def histogram(self) -> list[list[int]]:
        """Return the number of unprofiled steps in each bucket of a histogram of their durations (ns)."""
        return [
            [int(2 ** (key / BUCKETS_PER_DOUBLING)), count] for key, count in sorted(self._durations.items())
        ]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Return the rows of the first steps and of the last steps."""
        return _ROW.iter_unpack(b"".join(itertools.chain(self._first, self._last)))


MAX_LISTED = 4096
MIN_LISTED_NS = 100_000


class GarbageWatch:
    """While enabled, sums up the time of garbage collections, and lists long collections."""

    def __init__(self) -> None:
        self.spent_ns = 0
        self._start_ns = 0
        self._phase = -1
        self._listed: deque[tuple[int, int, int, int, int]] = deque(maxlen=MAX_LISTED)

    def start(self) -> None:
        """Register for Python's notifications of garbage collections."""
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        """Unregister from Python's notifications of garbage collections."""
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)

    def rows(self) -> list[tuple[int, int, int, int, int]]:
        """Return the start, end, generation, system thread id and collected objects of each collection."""
        return list(self._listed)

    def _note(self, phase: str, details: dict[str, Any]) -> None:
        now = time.time_ns()
        if phase == "start":
            self._start_ns = now
            self._phase = PHASES.enter(PAUSED)
            return
        PHASES.leave(self._phase)
        lasted_ns = now - self._start_ns
        if not self._start_ns or lasted_ns < 0:
            return
        self.spent_ns += lasted_ns
        if lasted_ns >= MIN_LISTED_NS:
            row = (self._start_ns, now, details.get("generation", 0), threading.get_native_id(),
                   details.get("collected", 0))  # fmt: skip
            self._listed.append(row)
