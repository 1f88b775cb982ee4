"""Time every step of the run, and read the counters of the training thread and the process."""

from __future__ import annotations

import itertools
import math
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from .garbage import GarbageWatch
from .loaders import LOADERS
from .phases import PHASE_COLUMNS, PHASES
from .readings import CoreReadings, ProcessReadings, ThreadReadings, compilation_ns

COLUMNS = (
    "index", "time_ns", "cpu_ns", "process_cpu_ns", "delay_ns", "voluntary", "involuntary", "faults",
    "system_ns", "read_bytes", "written_bytes", "gc_ns", "fetch_ns", *PHASE_COLUMNS, "idle_ns", "compile_ns",
    "recorded",
)  # fmt: skip
MOST_ROWS = 8192  # number of rows for the first steps, and for the last steps
# The least time between readings of the kernel's counter files, which take about 5 us to read.
LEAST_APART_NS = 1_000_000
# The least time between readings of idle times, which take a millisecond on machines with hundreds of cores.
IDLE_APART_NS, IDLE_SHARE = 100_000_000, 0.002
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
        self._last: deque[bytes] = deque(maxlen=MOST_ROWS)
        self._durations: Counter[int] = Counter()
        self._previous = (-2, 0)
        self._read_ns = 0
        self._idle_due_ns = 0

    def boundary(self, index: int, *, recorded: bool) -> tuple[int, ...]:
        """Record the end of step *index* (*recorded*: a profiler covered the step), and return the row."""
        now = time.time_ns()
        counters: tuple[int, ...] = _UNREAD
        if now - self._read_ns >= LEAST_APART_NS or index == self._previous[0]:
            self._read_ns = now
            counters = (self._thread.delay_ns(), *self._thread.usage(), *self._process.traffic()[:2])
        row = (
            index, now, time.thread_time_ns(), time.process_time_ns(), *counters, self._garbage.spent_ns,
            LOADERS.fetch_ns, *PHASES.end_step(now), self._idle_ns(now), compilation_ns(),
            int(recorded),
        )  # fmt: skip
        rows = self._first if len(self._first) < MOST_ROWS else self._last
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
        self._idle_due_ns = now + max(IDLE_APART_NS, int(cost_ns / IDLE_SHARE))
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

    def table(self) -> dict[str, list[int]]:
        """Return the columns of the step table by name."""
        columns = zip(*self.rows(), strict=True) if self._first else ([] for _ in COLUMNS)
        return {name: list(values) for name, values in zip(COLUMNS, columns, strict=True)}

    def histogram(self) -> list[list[int]]:
        """Return the number of unprofiled steps in each bucket of a histogram of their durations (ns)."""
        return [
            [int(2 ** (key / BUCKETS_PER_DOUBLING)), count] for key, count in sorted(self._durations.items())
        ]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Return the rows of the first steps and of the last steps."""
        return _ROW.iter_unpack(b"".join(itertools.chain(self._first, self._last)))
