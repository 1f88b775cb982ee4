"""Start child processes that never outlive the process that started them."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

_GUARD = Path(__file__).with_name("_guard.py")
_POLL_S = 0.2


class Lifeline:
    """A pipe that only this process holds open; when it closes, the programs started with it are killed.

    The operating system closes it even if this process is killed. All descendants of a program are killed
    too, including those in other sessions.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
    """The signals that a program gets from its terminal or from `send`, and not from its guard."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def start(
        self, command: Sequence[str], *, foreground: bool = False, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start *command* under this lifeline; *options* are those of `subprocess.Popen`.

        The exit status is the program's, or 128 + n if signal n ended it. The program has a separate
        session. In the *foreground*, it keeps the terminal, and processes that it leaves running survive
        its end, unless it ends after Ctrl-C or another terminating signal. Raises `OSError` if the program
        does not exist or is not executable.
        """
        import subprocess  # noqa: PLC0415 - slow, and most commands start no program

        if shutil.which(command[0]) is None:
            code = errno.EACCES if os.path.exists(command[0]) else errno.ENOENT
            raise OSError(code, os.strerror(code), command[0])
        with signals_blocked(*self.SIGNALS):  # the guard unblocks them when it can handle them
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(self._reading), *command],
                pass_fds=(self._reading,),
                start_new_session=not foreground,
                **options,
            )

    def send(self, number: int) -> None:
        """Send the signal *number* to the program under this lifeline, which must be the only one."""
        os.write(self._writing, bytes([number]))

    def close(self) -> None:
        """Close the pipe, which kills the programs still running under it."""
        os.close(self._writing)
        os.close(self._reading)


@contextlib.contextmanager
def signals_blocked(*numbers: int) -> Iterator[None]:
    """Block signals during the block; processes that it starts do not receive them either."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
