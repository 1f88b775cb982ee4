"""Kill a process and its descendants if the process that started this watchdog is killed.

Started as ``python -I -S _watchdog.py FD PID`` in a new session. *FD* is the read end of a pipe
whose write end the starting process holds. A byte in the pipe means that *PID* ended normally; the
end of the pipe without a byte means that the starting process was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Wait for the pipe; kill the tree of the process in *arguments* if the starting process was killed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lifeline, pid = map(int, arguments)
    if os.read(lifeline, 1):
        return
    tree = {pid}
    while tree:
        for member in tree:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGSTOP)  # stopped processes cannot start others
        below = set().union(*map(_children, tree))
        for member in tree:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGKILL)
        tree = below


def _children(pid: int) -> set[int]:
    """Return the pids of the children of *pid*; empty if the system does not list them."""
    children: set[int] = set()
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children.update(map(int, file.read_text().split()))
    return children


if __name__ == "__main__":
    main(sys.argv[1:])
