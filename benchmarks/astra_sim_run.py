"""Run an analytical binary of ASTRA-sim on input files, and parse its output."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Answer", "run"]

_LINES = {
    "cycles": r"finished, (\d+) cycles",
    "exposed": r"finished, \d+ cycles, exposed communication (\d+) cycles",
    "gpu_time": r"GPU time: (\d+)",
    "comm_time": r"Comm time: (\d+)",
    "overlap": r"Total compute-communication overlap: (\d+)",
    "compute_bound_pct": r"Compute bound percentage: (\S+?)%",
    "compute_util_pct": r"Average compute utilization: (\S+?)%",
    "memory_util_pct": r"Average memory utilization: (\S+?)%",
    "operation_intensity": r"Average operation intensity: (\S+)",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _LINES.items()}
_RANK = re.compile(r"sys\[(\d+)\]")
_REASON = re.compile(r"critical|what\(\)|Assertion|\[Error\]|warning!", re.IGNORECASE)


@dataclass
class Answer:
    """The result of one run: figures of each finished rank, in the order of finishing, and how it ended.

    *exit_code* is the exit code of the process (negative: ended by this signal; None: the time limit was
    exceeded).
    """

    exit_code: int | None
    ranks: dict[int, dict[str, float]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0

    def status(self, num_ranks: int) -> str:
        """Return how the run ended: finishes, stalls (a rank never finishes), aborts or loops."""
        if self.exit_code is None:
            return "loops"
        if self.exit_code:
            return "aborts"
        return "finishes" if len(self.ranks) == num_ranks else "stalls"


def run(
    binary: Path,
    folder: Path,
    options: Sequence[str] = (),
    *,
    limit_s: float = 20.0,
    memory_bytes: int = 8 << 30,
) -> Answer:
    """Run *binary* on the files in *folder*: workload.<rank>.et, system.json, network.yml and memory.json.

    ``groups.json`` is used if it exists. The process gets at most *limit_s* seconds and *memory_bytes*.
    """
    command = [
        str(binary.resolve()),
        "--workload-configuration=workload",
        "--system-configuration=system.json",
        "--remote-memory-configuration=memory.json",
        "--network-configuration=network.yml",
        *(["--comm-group-configuration=groups.json"] if (folder / "groups.json").exists() else []),
        *options,
    ]
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        resource.prlimit(process.pid, resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        exit_code, usage = _wait(process, limit_s)
        seconds = time.perf_counter() - start
        output.seek(0)
        answer = _read(output.read().decode("utf-8", "replace"))
    answer.exit_code, answer.seconds = exit_code, seconds
    if exit_code is not None and exit_code < 0 and not answer.reason:
        answer.reason = f"ended by {signal.Signals(-exit_code).name}"
    answer.cpu_seconds = usage.ru_utime + usage.ru_stime
    answer.peak_bytes = usage.ru_maxrss * 1024
    return answer


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> tuple[int | None, resource.struct_rusage]:
    """Return the exit code (None if the process had to be killed) and the resources that the process used."""
    previous = signal.signal(signal.SIGALRM, lambda *_: process.kill())
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    process.returncode = os.waitstatus_to_exitcode(status)
    killed = process.returncode == -signal.SIGKILL
    return None if killed else process.returncode, usage


def _read(text: str) -> Answer:
    answer = Answer(0)
    for line in text.splitlines():
        rank = _RANK.search(line)
        found = {name: match[1] for name, pattern in _PATTERNS.items() if (match := pattern.search(line))}
        if rank and found:
            if "cycles" in found:
                answer.order.append(int(rank[1]))
            figures = answer.ranks.setdefault(int(rank[1]), {})
            figures.update(
                {name: float(value) if "." in value else int(value) for name, value in found.items()}
            )
        elif not answer.reason and _REASON.search(line):
            answer.reason = line[:300]
    return answer
