"""Sample the Python stacks of all threads, to attribute time between operators to code lines."""

from __future__ import annotations

import gc
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from .readings import ProcessReadings, ThreadReadings, thread_clock

SAMPLE_COLUMNS = ("time_ns", "late_ns", "thread", "stack", "cpu_ns", "delay_ns", "wait")
COUNTER_COLUMNS = (
    "time_ns", "process_cpu_ns", "read_bytes", "written_bytes", "disk_read_bytes", "disk_written_bytes",
    "throttled_periods", "throttled_ns",
)  # fmt: skip
MAX_ROWS = 32768  # limit on rows inside the profiled window, and on rows outside the window
MAX_STACKS = 65536
MAX_FRAMES = 128
# The shortest sampling periods inside and outside the window, and the sampler's largest share of CPU time.
MIN_PERIOD_NS = {True: 5_000_000, False: 25_000_000}
SHARE = {True: 0.02, False: 0.005}
COUNTER_PERIOD_NS = {True: 20_000_000, False: 200_000_000}
MIN_CPU_NS = 100_000
_STEP = 1.125  # factor by which a sample changes the estimated cost of samples
RUNNING, UNKNOWN = -1, -2

_Position = tuple[CodeType, int]


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Disable the garbage collector while frame objects are created.

    Python 3.11 may collect garbage in the middle of that. Finalizers and callbacks of the collector then
    release the interpreter lock, other threads leave the frames being read, and the process crashes, or
    waits forever for a lock that `sys._current_frames` holds (CPython issue 106883).

    A race remains: if the interpreter switches to the script within the pause and the script calls
    `gc.disable`, the end of the pause enables the collector again.
    """
    pauses = sys.version_info < (3, 12) and gc.isenabled()
    if pauses:
        gc.disable()
    try:
        yield
    finally:
        if pauses:
            gc.enable()


def _positions(frame: FrameType | None) -> list[_Position]:
    """Return the positions of *frame* and its callers."""
    positions: list[_Position] = []
    while frame is not None and len(positions) < MAX_FRAMES:
        positions.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return positions


class _Rows:
    """A limited number of rows of integers; when the limit is reached, every second sample is dropped."""

    def __init__(self, columns: int) -> None:
        self._format = struct.Struct(f"{columns}q")
        self._packed = bytearray()
        self.thinned = 1

    def add(self, *values: int) -> None:
        """Add a row; rows with the same time (the first value) form a sample."""
        self._packed += self._format.pack(*values)

    def thin_if_full(self) -> None:
        """Drop every second sample if the number of rows exceeds the limit."""
        if len(self._packed) < MAX_ROWS * self._format.size:
            return
        remaining, last, keep = bytearray(), None, False
        for row in self:
            if row[0] != last:
                last, keep = row[0], not keep
            if keep:
                remaining += self._format.pack(*row)
        self._packed = remaining
        self.thinned *= 2

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._format.iter_unpack(bytes(self._packed))


class StackSampler:
    """A thread that records the position of each other thread of the process every few milliseconds.

    During the sampling, the thread *stepping* (identified by Python's id and the system's id) has a row in
    each sample. Other threads have a row if they used CPU time or moved. A sample takes no locks and never
    releases the interpreter lock, so that a forked child cannot deadlock.
    """

    def __init__(self, stepping: tuple[int, int]) -> None:
        self.frames: dict[tuple[int, int], int] = {}
        self.codes: list[tuple[CodeType, int]] = []  # code and position of each frame; keeps code ids valid
        self.stacks: dict[tuple[int, int], int] = {(-1, -1): 0}
        self.threads: list[tuple[int, str]] = [(stepping[1], "")]
        self.taken = 0
        self.cpu_ns = 0
        self._stepping = stepping[0]
        self._readings = ThreadReadings(stepping[1])
        self._process = ProcessReadings()
        self._clocks: dict[int, tuple[int, int | None]] = {}
        self._seen: dict[int, tuple[int, int]] = {}
        self._latest: dict[int, tuple[int, int]] = {}
        self._samples = {inside: _Rows(len(SAMPLE_COLUMNS)) for inside in (True, False)}
        self._counters = {inside: _Rows(len(COUNTER_COLUMNS)) for inside in (True, False)}
        self._counted_ns = 0
        self._in_window = False
        self.failure = ""
        self._wake = threading.Lock()
        self._wake.acquire()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the sampling thread."""
        if self._thread is None:
            arguments = (self._wake,)
            thread = threading.Thread(target=self._run, args=arguments, name="chakrascope", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the limit on threads is reached
                self.failure = repr(error)
            else:
                self._thread = thread

    def stop(self) -> None:
        """Stop the sampling thread and wait for its end."""
        thread, self._thread = self._thread, None
        if thread is not None:
            wake, self._wake = self._wake, threading.Lock()
            self._wake.acquire()
            wake.release()
            thread.join(timeout=1.0)

    def abandon(self) -> None:
        """Disable the sampler in a fork, in which the sampling thread does not exist."""
        self._thread = None

    def enter_window(self, inside: bool) -> None:
        """Set a shorter sampling interval while *inside* the profiled steps."""
        self._in_window = inside
        if self._thread is not None:  # otherwise the next sample might come only after tens of milliseconds
            self.stop()
            self.start()

    def samples(self) -> list[tuple[Any, ...]]:
        """Return the rows of all samples in order of time; ``wait`` is the number of a system call."""
        return sorted([*self._samples[True], *self._samples[False]])

    def counters(self) -> list[tuple[Any, ...]]:
        """Return the rows of the process counters in order of time."""
        return sorted([*self._counters[True], *self._counters[False]])

    def _run(self, wake: Any) -> None:
        cost_ns = float(MIN_PERIOD_NS[True] * SHARE[True])
        before = time.thread_time_ns()
        try:
            while True:
                inside = self._in_window
                period_ns = max(MIN_PERIOD_NS[inside], cost_ns / SHARE[inside])
                period_ns *= self._samples[inside].thinned
                due_ns = time.time_ns() + int(period_ns)
                if wake.acquire(timeout=period_ns / 1e9):
                    return
                self._sample(due_ns, inside=inside)
                after = time.thread_time_ns()
                # The median cost, because samples after a fork cost much more: they copy pages.
                cost_ns *= _STEP if after - before > cost_ns else 1 / _STEP
                self.cpu_ns += after - before
                before = after
        except Exception as error:  # an error must not reach the script
            self.failure = repr(error)

    def _sample(self, due_ns: int, *, inside: bool) -> None:
        now = time.time_ns()
        own, rows = threading.get_ident(), self._samples[inside]
        late_ns = max(0, now - due_ns)
        self.taken += 1
        taken: list[tuple[int, int, list[_Position] | None]] = []
        with _collector_paused():
            frames = sys._current_frames()
            del frames[own]  # the mapping is a local variable of this frame
            for ident in sorted(frames, key=self._stepping.__ne__):
                known = self._clocks.get(ident)
                cpu_ns = self._cpu_ns(ident, known[1]) if known else -1
                # With equal CPU time, the thread did not run.
                has_run = cpu_ns == -1 or cpu_ns != self._seen.get(ident, (-1, 0))[0]
                taken.append((ident, cpu_ns, _positions(frames[ident]) if has_run else None))
            frames.clear()
        for ident, read_ns, positions in taken:
            number, clock = self._clocks.get(ident) or self._clock_of(ident)
            cpu_ns = self._cpu_ns(ident, clock) if read_ns == -1 else read_ns
            if positions is not None:
                self._seen[ident] = (cpu_ns, self._stack_of(positions))
            stack = self._seen[ident][1]
            if number == 0:
                syscall = self._readings.syscall()
                wait = UNKNOWN if syscall is None else syscall
                rows.add(now, late_ns, 0, stack, cpu_ns, self._readings.delay_ns(), wait)
            elif self._moved(number, stack, cpu_ns):
                rows.add(now, late_ns, number, stack, cpu_ns, -1, UNKNOWN)
        if now - self._counted_ns >= COUNTER_PERIOD_NS[inside] * self._counters[inside].thinned:
            self._counted_ns = now
            readings = (*self._process.traffic(), *self._process.throttling())
            self._counters[inside].add(now, time.process_time_ns(), *readings)
            self._counters[inside].thin_if_full()
        rows.thin_if_full()

    def _moved(self, number: int, stack: int, cpu_ns: int) -> bool:
        """Return whether a thread has moved or used CPU time since the thread's last row."""
        last_stack, last_cpu_ns = self._latest.get(number, (-1, 0))
        if stack == last_stack and cpu_ns - last_cpu_ns < MIN_CPU_NS:
            return False
        self._latest[number] = (stack, cpu_ns)
        return True

    def _clock_of(self, ident: int) -> tuple[int, int | None]:
        """Return the system's id and the clock of the thread *ident*; the clock is None if unknown."""
        thread = next((one for one in threading.enumerate() if one.ident == ident), None)
        tid, name = (thread.native_id or 0, thread.name) if thread else (0, "")
        if ident == self._stepping:
            number, tid = 0, self.threads[0][0]
            self.threads[0] = (tid, name)
        else:
            number = len(self.threads)
            self.threads.append((tid, name))
        try:
            clock = thread_clock(tid) if tid else None
        except OSError:
            clock = None
        self._clocks[ident] = (number, clock)
        return self._clocks[ident]

    def _cpu_ns(self, ident: int, clock: int | None) -> int:
        """Return the CPU time (ns) of the thread *ident*, or -1 if unknown."""
        if clock is None:
            return -1
        try:
            return time.clock_gettime_ns(clock)
        except OSError:  # the thread has ended, and another thread has reused the id
            del self._clocks[ident]
            return -1

    def _stack_of(self, positions: Sequence[_Position]) -> int:
        """Return the index of the stack with *positions*, innermost first, or 0 for too many stacks."""
        stack = 0
        for code, position in reversed(positions):
            key = (id(code), position)
            number = self.frames.get(key)
            if number is None:
                if len(self.codes) >= MAX_STACKS:
                    return 0
                number = self.frames[key] = len(self.codes)
                self.codes.append((code, position))
            pair = (stack, number)
            inner = self.stacks.get(pair)
            if inner is None:
                if len(self.stacks) >= MAX_STACKS:
                    return 0
                inner = self.stacks[pair] = len(self.stacks)
            stack = inner
        return stack
