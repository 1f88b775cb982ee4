"""Start child processes that never outlive the process that started them."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_GUARD = Path(__file__).with_name("_guard.py")
_WATCHDOG = Path(__file__).with_name("_watchdog.py")
_POLL_S = 0.2


class Lifeline:
    """A pipe held open by this process alone; programs under it are killed when it closes.

    The operating system closes it even if this process is killed.
    """

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe()

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs *command* under this lifeline.

        Start it in a new session, with `reading` in ``pass_fds``. Raises `OSError` if the program
        of *command* cannot be started.
        """
        if shutil.which(command[0]) is None:
            code = errno.EACCES if os.path.exists(command[0]) else errno.ENOENT
            raise OSError(code, os.strerror(code), command[0])
        return [sys.executable, "-I", "-S", str(_GUARD), str(self.reading), *command]

    def close(self) -> None:
        """Close the pipe, which kills the programs still running under it."""
        os.close(self._writing)
        os.close(self.reading)


@contextlib.contextmanager
def ends_with_us(pid: int) -> Iterator[None]:
    """Kill the child *pid* and its descendants if this process dies before the block ends.

    Unlike a program under a `Lifeline`, the child stays in the terminal's foreground.
    """
    reading, writing = os.pipe()
    try:
        watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_WATCHDOG), str(reading), str(pid)],
            pass_fds=(reading,),
            start_new_session=True,
        )
    finally:
        os.close(reading)
    try:
        yield
    finally:
        with contextlib.suppress(BrokenPipeError):
            os.write(writing, b".")
        os.close(writing)
        watchdog.wait()


def end_with_parent(parent: int) -> None:
    """Kill this process soon after the process *parent* (a pid) has ended.

    If this process leads a process group, the whole group is killed.
    """
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    if os.getpgid(0) == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
