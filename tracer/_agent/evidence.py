"""Collect evidence on the causes of step times in one file per rank, from training start to process end."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from .loaders import LOADERS
from .phases import PHASES
from .process import write_atomically
from .profilers import foreign_profiler_is_on
from .readings import has_bfloat16, page_fault_ns
from .sources import SourceFiles, callee, function_name, line_of
from .stacks import COUNTER_COLUMNS, SAMPLE_COLUMNS, UNKNOWN, StackSampler
from .step_clock import COLUMNS, GarbageWatch, StepClock, StepFile

FORMAT, VERSION = "chakrascope-evidence", 1
COLLECTION_COLUMNS = ("start_ns", "end_ns", "generation", "thread", "collected")
FIRST_SAVE_NS = 10_000_000_000
# The number of steps around the capture. This number gives a robust step duration even if some steps were
# disturbed.
UNPROFILED_STEPS = 32
_SYSCALLS = {
    "x86_64": {
        0: "read", 1: "write", 7: "poll", 17: "pread64", 18: "pwrite64", 20: "writev", 23: "select",
        24: "sched_yield", 35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom",
        46: "sendmsg", 47: "recvmsg", 61: "wait4", 74: "fsync", 75: "fdatasync", 202: "futex",
        230: "clock_nanosleep", 232: "epoll_wait", 257: "openat", 270: "pselect6", 271: "ppoll",
        281: "epoll_pwait",
    },
    "aarch64": {
        22: "epoll_pwait", 56: "openat", 63: "read", 64: "write", 66: "writev", 67: "pread64",
        68: "pwrite64", 72: "pselect6", 73: "ppoll", 82: "fsync", 83: "fdatasync", 98: "futex",
        101: "nanosleep", 115: "clock_nanosleep", 124: "sched_yield", 202: "accept", 203: "connect",
        206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 260: "wait4",
    },
}  # fmt: skip
_running: dict[int, EvidenceRecorder] = {}  # keyed by process id, because forks do not inherit the recorder


class EvidenceRecorder:
    """Records step times, stacks, counters and garbage collections of one thread while enabled.

    *entry* is the evidence part of the manifest's entry. *is_profiled* states whether a profiler of the
    script was on in this step.
    """

    def __init__(self, *, stacks: bool) -> None:
        self.entry: dict[str, Any] = {}
        self.is_profiled = False
        self._samples_stacks = stacks
        self._saved_steps = -1
        self._thread: int | None = None

    @property
    def is_on(self) -> bool:
        """Whether evidence is being collected."""
        return self._thread is not None

    def is_of_this_thread(self) -> bool:
        """Return whether the steps of the calling thread are timed."""
        return self._thread == threading.get_ident()

    def start(self) -> None:
        """Start to observe the calling thread (instead of an earlier thread), which is about to train."""
        if self.is_of_this_thread():
            return
        self.stop()
        thread, self._tid = threading.get_ident(), threading.get_native_id()
        self._garbage = GarbageWatch()
        self.clock = StepClock(self._garbage)
        self._sampler = StackSampler((thread, self._tid))
        self._step_file: StepFile | None = None
        _running.clear()
        _running[os.getpid()] = self
        self._started_ns = time.time_ns()
        self._save_ns = self._started_ns + FIRST_SAVE_NS
        # Only now, because the handler of a signal may close the capture at any time.
        self._thread = PHASES.thread = thread
        self._garbage.start()
        if self._samples_stacks:
            self._sampler.start()

    def stop(self) -> None:
        """Stop the collection of evidence."""
        if not self.is_on:
            return
        self._thread = PHASES.thread = None
        _running.pop(os.getpid(), None)
        self._garbage.stop()
        self._sampler.stop()

    def time_step(self, steps_over: int, *, recorded: bool) -> None:
        """Record the end of a step like `boundary`, and whether a profiler of the script was on."""
        if self.is_on:
            with contextlib.suppress(AttributeError, KeyError):  # torch is not fully imported yet
                recorded |= self.is_profiled or foreign_profiler_is_on(sys.modules["torch"])
                self.boundary(steps_over, recorded=recorded)
            self.is_profiled = False

    def boundary(self, steps_over: int, *, recorded: bool) -> None:
        """Record the end of a step, or the next step's start after the agent's work; takes about 10 us."""
        if self.is_of_this_thread():
            row = self.clock.boundary(steps_over, recorded=recorded)
            if self._step_file is not None:
                self._step_file.add(row)

    def write_steps(self, folder: Path, rank: int, head: Callable[[], dict[str, Any]]) -> None:
        """Write all steps to a file, including earlier steps; each part begins with *head*'s result.

        Raises:
            OSError: the file could not be created.

        """
        if self.is_on:
            name = f"rank{rank}.steps.json.gz"
            self._step_file = StepFile(folder / name, COLUMNS, head)
            for row in self.clock.rows():
                self._step_file.add(row)
            self.entry = {"step_times": name}

    def enter_window(self, inside: bool) -> None:
        """Record the start of the profiled steps or, if *inside* is false, their end."""
        if self.is_on and self._samples_stacks:
            self._sampler.enter_window(inside)

    def forget_steps(self) -> None:
        """Drop all recorded steps, because they were not training steps."""
        if self.is_on:
            self.clock.forget()

    def is_save_due(self) -> bool:
        """Return whether a periodic save is due; the interval between saves grows during the run."""
        now = time.time_ns()
        if not self.is_on or now < self._save_ns:
            return False
        self._save_ns = now + max(FIRST_SAVE_NS, now - self._started_ns)
        return True

    def save(self, folder: Path, rank: int, steps_over: int) -> str:
        """Write the evidence if a step has ended since the last save; return the reason of a failure."""
        if not self.is_on or self._saved_steps == steps_over:
            return ""
        try:
            name = self.write(folder, rank, steps_over)
        except Exception as error:  # the traces are valid without evidence
            return f"the evidence of rank {rank} could not be saved ({error!r})"
        self._saved_steps = steps_over
        self.entry |= {"evidence": name, "unprofiled_steps": self.clock.unprofiled_steps(UNPROFILED_STEPS)}
        return "" if self._step_file is None else self._step_file.failure

    def write(self, folder: Path, rank: int, steps_total: int) -> str:
        """Write the evidence so far atomically and return the file's name.

        Raises:
            OSError: the evidence file, or the file of all steps, could not be written.

        """
        if self._step_file is not None:
            self._step_file.write()
        name = f"rank{rank}.evidence.json.gz"
        document = json.dumps(self._document(rank, steps_total), separators=(",", ":"))
        write_atomically(folder / name, gzip.compress(document.encode(), 3))
        return name

    def _document(self, rank: int, steps_total: int) -> dict[str, Any]:
        sampler, files = self._sampler, SourceFiles()
        samples, waits = _with_waits(sampler.samples())
        stacks = [list(pair) for pair in tuple(sampler.stacks)]
        innermost = {stacks[row[3]][1] for row in samples}
        frames = [
            [function_name(code), files.number(code.co_filename), line_of(code, position),
             callee(code, position) if number in innermost else ""]
            for number, (code, position) in enumerate(tuple(sampler.codes))
        ]  # fmt: skip
        threads = [{"tid": tid, "name": name} for tid, name in tuple(sampler.threads)]
        collections = _with_threads(self._garbage.rows(), threads)
        return {
            "format": FORMAT,
            "version": VERSION,
            "rank": rank,
            "pid": os.getpid(),
            "thread": self._tid,
            "threads": threads,
            "frames": frames,
            "stacks": stacks,
            "waits": waits,
            "loaders": [_with_file(loader, files) for loader in LOADERS.listed],
            "files": files.listed,
            "steps": _columns(COLUMNS, self.clock.rows()),
            "cores": self.clock.cores.count,
            "quota_cores": self.clock.cores.quota if self.clock.cores.quota < math.inf else 0.0,
            "bfloat16": has_bfloat16(),
            "samples": _columns(SAMPLE_COLUMNS, samples),
            "counters": _columns(COUNTER_COLUMNS, sampler.counters()),
            "collections": _columns(COLLECTION_COLUMNS, collections),
            "steps_total": steps_total,
            "step_histogram": self.clock.histogram(),
            "switch_interval_ns": int(sys.getswitchinterval() * 1e9),
            "sampling": {
                "on": self._samples_stacks and not sampler.failure,
                "cpu_ns": sampler.cpu_ns,
                "samples": sampler.taken,
            },
            "page_fault_ns": page_fault_ns(),
            "end_ns": time.time_ns(),
        }


def _columns(names: Sequence[str], rows: Iterable[Sequence[int]]) -> dict[str, list[int]]:
    values = list(zip(*rows, strict=True)) or [()] * len(names)
    return {name: list(column) for name, column in zip(names, values, strict=True)}


def _with_waits(rows: list[tuple[int, ...]]) -> tuple[list[tuple[int, ...]], list[str]]:
    """Return *rows* with their last value, a system call, as an index into the returned names."""
    names = {UNKNOWN: "", -1: "running", **_SYSCALLS.get(platform.machine(), {})}
    numbers = {UNKNOWN: 0}
    for row in rows:
        numbers.setdefault(row[-1], len(numbers))
    return (
        [(*row[:-1], numbers[row[-1]]) for row in rows],
        [names.get(number, f"system call {number}") for number in numbers],
    )


def _with_threads(rows: Iterable[tuple[int, ...]], threads: list[dict[str, Any]]) -> list[tuple[int, ...]]:
    """Return *rows* of garbage collections with threads as indices into *threads*, which grows as needed."""
    numbers = {thread["tid"]: number for number, thread in enumerate(threads)}
    for row in rows:
        if row[3] not in numbers:
            numbers[row[3]] = len(threads)
            threads.append({"tid": row[3], "name": ""})
    return sorted(((*row[:3], numbers[row[3]], row[4]) for row in rows), key=lambda row: row[1])


def _with_file(loader: dict[str, Any], files: SourceFiles) -> dict[str, Any]:
    path = loader["path"]
    described = {key: value for key, value in loader.items() if key != "path"}
    return {**described, "file": files.number(path) if path else -1}


def _before_fork() -> None:
    """Stop the sampler's thread, because Python warns of forks in processes with several threads."""
    recorder = _running.get(os.getpid())
    if recorder is not None:
        recorder._sampler.stop()


def _after_fork_in_parent() -> None:
    recorder = _running.get(os.getpid())
    if recorder is not None and recorder._samples_stacks:
        recorder._sampler.start()


def _after_fork_in_child() -> None:
    for recorder in _running.values():
        recorder._garbage.stop()
        recorder._sampler.abandon()
    _running.clear()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
