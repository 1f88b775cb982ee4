"""Kill a process and its descendants if the process that requested it is killed.

Started as ``python -I -S _watchdog.py FD PID`` in a session of its own. *FD* is the read end of a pipe whose
write end the requesting process holds open: a byte in it means that *PID* ended by itself; its end means that
the requesting process was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Wait for the requesting process to end, then kill the process tree of the pid in *arguments*."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lifeline, pid = map(int, arguments)
    if os.read(lifeline, 1):
        return
    tree = {pid}
    while tree:
        for member in tree:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGSTOP)  # so that it starts no further processes
        below = set().union(*map(_children, tree))
        for member in tree:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGKILL)
        tree = below


def _children(pid: int) -> set[int]:
    """Return the child processes of *pid*; none if the system does not list them."""
    children: set[int] = set()
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children.update(map(int, file.read_text().split()))
    return children


if __name__ == "__main__":
    main(sys.argv[1:])
