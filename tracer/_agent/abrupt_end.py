"""Save the capture before the process ends by SIGTERM or without running exit functions."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

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


ABRUPT = ("_exit", "abort", "execv", "execve")  # all functions of the exec family call execv or execve


class SaveOnAbruptEnd:
    """While enabled, calls *save* before ``os._exit``, ``os.abort`` and ``os.exec...``.

    *save* is called only in the enabling thread, because other threads cannot stop torch's running profiler.
    """

    def __init__(self, save: Callable[[], None]) -> None:
        self._save = save
        self._thread = 0
        self._replaced: dict[str, tuple[Any, Any]] = {}

    def start(self) -> None:
        """Replace the functions of ``os`` by wrappers that call *save* first."""
        self._thread = threading.get_ident()
        for name in ABRUPT:
            original = getattr(os, name)
            self._replaced[name] = (original, self._saving(original))
            setattr(os, name, self._replaced[name][1])

    def stop(self) -> None:
        """Restore the functions of ``os``, except functions that other code has replaced since `start`."""
        for name, (original, ours) in self._replaced.items():
            if getattr(os, name) is ours:
                setattr(os, name, original)
        self._replaced = {}

    def _saving(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def end(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == self._thread:
                self._save()
            return function(*args, **kwargs)

        return end


class SaveAtThreadEnd:
    """While enabled, calls *save* at the end of the enabling thread, except for the main thread.

    Torch's profiler can only be stopped in its own thread. If this thread ends without stopping the profiler,
    the profiler crashes the process at exit.
    """

    def __init__(self, save: Callable[[], None]) -> None:
        self._save = save
        self._of_thread = threading.local()

    def start(self) -> None:
        """Create a thread-local object that is destroyed at the end of the calling thread."""
        if threading.current_thread() is not threading.main_thread():
            self._of_thread.life = threading.Event()
            self._of_thread.at_end = weakref.finalize(self._of_thread.life, self._save)
            self._of_thread.at_end.atexit = False

    def stop(self) -> None:
        """Disable the call of *save* at the end of the thread."""
        at_end = getattr(self._of_thread, "at_end", None)
        if at_end is not None:
            at_end.detach()
