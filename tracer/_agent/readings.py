"""Read the kernel's counters of this process and of its threads, in a few microseconds each."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import math
import mmap
import os
import resource
import sys
import time
from pathlib import Path

MIN_DESCRIPTOR = 3
_CONTROL_GROUPS = "/sys/fs/cgroup"
_BYTES_PER_CORE = 256  # bytes per core in /proc/stat
_pread = ctypes.PyDLL(None).pread
_pread.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long]
_pread.restype = ctypes.c_ssize_t


class CounterFile:
    """A file of counters; it is never closed, because the script may have reused its descriptor.

    The file is read without releasing the interpreter lock, because reacquiring the lock might take
    milliseconds.
    """

    def __init__(self, path: str, size_bytes: int = 1024) -> None:
        self._buffer = ctypes.create_string_buffer(size_bytes)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel without this file, or without permission to read the file
            self._descriptor = -1
            return
        try:  # avoids the descriptor of a standard stream that the job closed
            self._descriptor = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, MIN_DESCRIPTOR)
        except OSError:  # the limit on open files is reached
            self._descriptor = -1
        finally:
            os.close(descriptor)

    @property
    def is_open(self) -> bool:
        """Whether the file exists."""
        return self._descriptor >= 0

    def words(self) -> list[bytes]:
        """Return the words in the counter file, or [] if the file cannot be read."""
        if self._descriptor < 0:
            return []
        length = _pread(self._descriptor, self._buffer, len(self._buffer), 0)
        return self._buffer.raw[:length].split() if length > 0 else []


class ThreadReadings:
    """Counters of the calling thread, or of the thread with the id *tid*."""

    def __init__(self, tid: int) -> None:
        self._schedule = CounterFile(f"/proc/self/task/{tid}/schedstat")
        self._syscall = CounterFile(f"/proc/self/task/{tid}/syscall")

    def delay_ns(self) -> int:
        """Return the time (ns) that the thread has waited for a processor so far; -1 if unknown."""
        return _number(self._schedule.words(), 1)

    def syscall(self) -> int | None:
        """Return the number of the thread's system call; -1 if the thread is running, None if unknown."""
        words = self._syscall.words()
        if not words:
            return None
        return -1 if words[0] == b"running" else _number(words, 0)

    @staticmethod
    def usage() -> tuple[int, int, int, int]:
        """Return the calling thread's voluntary and involuntary switches, page faults and system time."""
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        return usage.ru_nvcsw, usage.ru_nivcsw, usage.ru_minflt, int(usage.ru_stime * 1e9)


class ProcessReadings:
    """Counters of this process and, for throttling, of its control groups."""

    def __init__(self) -> None:
        self._traffic = CounterFile("/proc/self/io")
        paths = (str(folder / "cpu.stat") for folder in _control_groups())
        self._throttling = [file for path in paths if (file := CounterFile(path)).is_open]

    def traffic(self) -> tuple[int, int, int, int]:
        """Return the bytes read and written by system calls, and read and written on disks; -1 if unknown."""
        words = self._traffic.words()
        return _number(words, 1), _number(words, 3), _number(words, 9), _number(words, 11)

    def throttling(self) -> tuple[int, int]:
        """Return the number of throttled periods and their time in nanoseconds; -1 if unknown."""
        periods, lasted_ns = -1, -1
        for file in self._throttling:
            words = file.words()
            counters = dict(zip(words[::2], words[1::2], strict=False))
            if b"nr_throttled" in counters:
                micros = counters.get(b"throttled_usec")
                nanos = int(micros) * 1000 if micros else int(counters.get(b"throttled_time", 0))
                periods, lasted_ns = (
                    max(periods, 0) + int(counters[b"nr_throttled"]),
                    max(lasted_ns, 0) + nanos,
                )
        return periods, lasted_ns


class CoreReadings:
    """The idle time of the cores that this process may use, which depends on the load by all processes."""

    def __init__(self) -> None:
        cores = os.sched_getaffinity(0)
        self._names = {f"cpu{core}".encode() for core in cores}
        self._file = CounterFile("/proc/stat", _BYTES_PER_CORE * (1 + (os.cpu_count() or len(cores))))
        self._tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        self.count = len(cores)
        self.quota = min([quota_cores(folder) for folder in _control_groups()], default=math.inf)

    def idle_ns(self) -> int:
        """Return the total idle time (ns) of the usable cores so far; -1 if unknown."""
        words = self._file.words()
        places = [place for place, word in enumerate(words) if word in self._names]
        # The kernel's fourth and fifth columns are the idle time and the idle time during disk accesses.
        ticks = [_number(words, place + column) for place in places for column in (4, 5)]
        return sum(ticks) * self._tick_ns if ticks and min(ticks) >= 0 else -1


def quota_cores(folder: Path) -> float:
    """Return the number of cores that a control group may use, or infinity without a limit."""
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    return math.inf


def has_bfloat16() -> bool | None:
    """Return whether the processor has units for bfloat16; None if unknown.

    The names of the features are those of the Linux kernel (arch/x86/include/asm/cpufeatures.h and
    Documentation/arch/arm64/elf_hwcaps.rst).
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            name, _, features = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(features.split())
    return None


def _number(words: list[bytes], position: int) -> int:
    try:
        return int(words[position])
    except (IndexError, ValueError):
        return -1


def _control_groups() -> list[Path]:
    """Return the folders of this process's control groups of processors, and of their parents."""
    paths: list[Path] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            root = Path(_CONTROL_GROUPS, controllers)
            inner = root / group.strip("/")
            around = [inner, *inner.parents]
            folders = around[: around.index(root) + 1] if root in around else [root]
            paths += folders[:8]
    return list(dict.fromkeys(paths))


def compilation_ns() -> int:
    """Return the time (ns) that torch.compile has compiled so far, 0 if PyTorch does not count this time."""
    utilities = sys.modules.get("torch._dynamo.utils")
    spent = getattr(utilities, "cumulative_time_spent_ns", {})
    return int(spent.get("entire_frame_compile", 0) + spent.get("entire_backward_compile", 0))


@functools.cache
def page_fault_ns() -> int:
    """Return the CPU time (ns) of mapping and unmapping a page of memory, measured on 256 pages."""
    before = time.thread_time_ns()
    with mmap.mmap(-1, 256 * mmap.PAGESIZE) as memory:
        memory[:: mmap.PAGESIZE] = bytes(256)
    return (time.thread_time_ns() - before) // 256


def thread_clock(tid: int) -> int:
    """Return the clock of a thread's CPU time, which fails once the thread has ended.

    See CPUCLOCK_PERTHREAD_MASK and CPUCLOCK_SCHED in the kernel's posix-timers.h.
    """
    clock = (~tid << 3) | 6
    time.clock_gettime_ns(clock)
    return clock
