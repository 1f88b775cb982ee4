"""Save the capture before SIGTERM ends the process, and ensure that the process ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

PATIENCE_SECONDS = 2.0


class SaveOnSigterm:
    """While enabled, calls *save* when SIGTERM arrives, and afterwards lets SIGTERM end the process.

    Python runs a handler only between two instructions of the main thread. If the main thread waits inside a
    collective for a dead peer, the handler would never run, and the process would survive the signal. A
    helper thread therefore kills the process after ``PATIENCE_SECONDS`` if the handler has not started.
    """

    def __init__(self, save: Callable[[], None]) -> None:
        self._save = save
        self._begun = threading.Event()
        self._pipe: tuple[int, int] | None = None
        self._on = False

    def start(self) -> None:
        """Install the handler of SIGTERM, unless the script handles SIGTERM."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        self._on = True
        signal.signal(signal.SIGTERM, self._handle)
        self._watch()

    def stop(self) -> None:
        """Restore SIGTERM, unless the script has replaced the handler since `start`."""
        if not self._on or threading.current_thread() is not threading.main_thread():
            return
        self._on = False
        if self._ours():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._pipe is not None:
            _unset_wakeup(self._pipe[1])
            os.close(self._pipe[1])  # ends the thread, which closes the other end
            self._pipe = None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._begun.set()
        self._save()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _ours(self) -> bool:
        return signal.getsignal(signal.SIGTERM) == self._handle

    def _watch(self) -> None:
        """Make Python write each signal's number into a pipe immediately, and read the pipe in a thread."""
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if before != -1:  # the script's event loop uses the wakeup descriptor
            signal.set_wakeup_fd(before)
            os.close(reading)
            os.close(writing)
            return
        os.set_blocking(reading, True)
        self._pipe = (reading, writing)
        os.register_at_fork(after_in_child=lambda: _unset_wakeup(writing))  # a fork handles its own signals
        threading.Thread(target=self._read, args=(reading, os.getpid()), daemon=True).start()

    def _read(self, reading: int, pid: int) -> None:
        while numbers := os.read(reading, 64):
            if signal.SIGTERM in numbers and not self._begun.wait(PATIENCE_SECONDS):
                if self._on and self._ours() and os.getpid() == pid:
                    _reset_disposition(signal.SIGTERM)
                    os.kill(pid, signal.SIGTERM)
                return
        os.close(reading)


def _unset_wakeup(descriptor: int) -> None:
    """Stop Python from writing signals to *descriptor* if *descriptor* is in use."""
    with contextlib.suppress(ValueError, OSError):
        current = signal.set_wakeup_fd(-1)
        if current not in (-1, descriptor):
            signal.set_wakeup_fd(current)


def _reset_disposition(number: int) -> None:
    """Restore the default action of signal *number*, even outside the main thread."""
    set_handler = ctypes.pythonapi.PyOS_setsig
    set_handler.restype, set_handler.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    set_handler(number, None)
