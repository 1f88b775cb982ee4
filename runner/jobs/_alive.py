"""Whether a job's process is alive: it locks a file, and the system releases the lock when it dies."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

__all__ = ["Launch", "end_group", "launch_process", "take_lock"]


class Launch(Protocol):
    """Starts the process of a job, passes it the lock, and returns its id."""

    def __call__(self, study: Path, job: int, slots: int, lock: IO[bytes], log: Path) -> int:
        """Start the process; *lock* may be closed afterwards, *log* receives its output."""
        ...


def take_lock(path: Path) -> IO[bytes] | None:
    """Return *path* opened and locked, or ``None`` if another process has the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def launch_process(study: Path, job: int, slots: int, lock: IO[bytes], log: Path) -> int:
    """Start a Python process that outlives this one, in a separate process group."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker", str(study.resolve()), str(job), str(slots)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[lock.fileno()],
            start_new_session=True,
        )
    # The process must be reaped, or it stays a zombie.
    threading.Thread(target=child.wait, daemon=True).start()
    return child.pid


def end_group(pid: int) -> None:
    """Kill a process and all its descendants."""
    if pid > 1:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
