"""Save the capture before the process or the training thread ends without running exit functions."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

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
            self._of_thread.last_act = _LastAct(self._save)

    def stop(self) -> None:
        """Disable the call of *save* at the end of the thread."""
        last_act = getattr(self._of_thread, "last_act", None)
        if last_act is not None:
            last_act.cancel()


class _LastAct:
    """An object that calls a function when the object is destroyed."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def cancel(self) -> None:
        """Disable the function call at the destruction of the object."""
        self._function = _nothing

    def __del__(self) -> None:
        """Call the function; exceptions of the function are printed and ignored."""
        self._function()


def _nothing() -> None:
    """Do nothing, as a function without effect."""
