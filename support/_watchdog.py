"""Kill a process and its descendants if the process that started the watchdog is killed.

The watchdog is started as ``python -I -S _watchdog.py FD PID`` in a new session. *FD* is the read end of a
pipe, and the requesting process holds the write end open. A byte in the pipe means that the process *PID*
ended normally. The end of the pipe without a byte means that the requesting process was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Wait for the pipe, and kill the process tree of the pid in *arguments* if the requester was killed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lifeline, pid = map(int, arguments)
    if os.read(lifeline, 1):
        return
    tree = {pid}
    while tree:
        for member in tree:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGSTOP)  # a stopped process starts no further processes
        below = set().union(*map(_children, tree))
        for member in tree:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGKILL)
        tree = below


def _children(pid: int) -> set[int]:
    """Return the pids of the child processes of *pid*; empty if the system does not list children."""
    children: set[int] = set()
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children.update(map(int, file.read_text().split()))
    return children


if __name__ == "__main__":
    main(sys.argv[1:])
