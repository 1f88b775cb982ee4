"""Run a command, and kill it and its descendants when the requesting process ends.

Started as ``python -I -S _guard.py FD COMMAND...``. *FD* is the read end of a pipe whose write end the
requesting process holds. A byte in the pipe is the number of a signal for the command. Whatever ends the
requesting process also closes the pipe. The exit code is the command's, or 128 + n after signal n. A guard
that leads a session also kills the processes that its command has left running. Other guards do so only
after a terminating signal, and send SIGTERM first.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

_SUBREAPER = 36  # of prctl(2): orphaned descendants become children of this process
_TO_END = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}
_GRACE_S = 5.0  # ranks of a training script write their captures first
_PATIENCE_S = 10.0  # a process in an uninterruptible system call ends only after the call
_POLL_S = 0.005


def main(arguments: list[str]) -> int:
    """Run the command in *arguments*; return its exit code."""
    lifeline, (woken, waker) = int(arguments[0]), os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _hold_signals()
    _adopt_orphans()
    try:
        command = subprocess.Popen(arguments[1:])
    except OSError as error:
        print(f"cannot start {arguments[1]}: {error.strerror}", file=sys.stderr)
        return 127
    leads, was_asked = os.getsid(0) == os.getpid(), False
    while True:
        ready, _, _ = select.select([lifeline, woken], [], [])
        numbers = b""
        if lifeline in ready:
            numbers = os.read(lifeline, 1)
            if not numbers:
                _end_descendants(signal.SIGKILL)
                return 128 + signal.SIGKILL
            os.kill(command.pid, numbers[0])
        with contextlib.suppress(BlockingIOError):
            numbers += os.read(woken, 512)
        was_asked |= not _TO_END.isdisjoint(numbers)
        for pid, status in _ended():
            if pid == command.pid:
                if leads or was_asked:
                    _end_descendants(signal.SIGKILL if leads else signal.SIGTERM)
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code


def _hold_signals() -> None:
    """Let signals received so far end this process, and do nothing on later ones.

    The requesting process has blocked these signals, because they would end Python with a traceback during
    its start. They get an empty handler, because the command would inherit ignored signals.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    held = [number for number in blocked if signal.getsignal(number) != signal.SIG_IGN]
    for number in held:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
    for number in held:
        signal.signal(number, lambda *_: None)


def _adopt_orphans() -> None:
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes  # noqa: PLC0415 - some builds of Python lack it

        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _ended() -> Iterator[tuple[int, int]]:
    """Yield the id and status of each child that has ended; raises `ChildProcessError` without children."""
    while (ended := os.waitpid(-1, os.WNOHANG))[0]:
        yield ended


def _end_descendants(number: int) -> None:
    """Send *number* to this process's children, including all orphans; kill those that keep running."""
    begin, asked = time.monotonic(), set[int]()
    with contextlib.suppress(ChildProcessError):
        while (waited_s := time.monotonic() - begin) < _GRACE_S + _PATIENCE_S:
            list(_ended())
            for child in _children():
                if waited_s > _GRACE_S or child not in asked:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(child, signal.SIGKILL if waited_s > _GRACE_S else number)
                asked.add(child)
            time.sleep(_POLL_S)


def _children() -> Iterator[int]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                yield int(name)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
