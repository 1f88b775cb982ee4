"""Save before the process, or the thread that trains, ends in a way that skips its exit functions."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["SaveAtThreadEnd", "SaveOnAbruptEnd"]

ABRUPT = ("_exit", "abort", "execv", "execve")  # the other members of the exec family call these two


class SaveOnAbruptEnd:
    """While on, calls *save* before ``os._exit``, ``os.abort`` and ``os.exec...``.

    Only in the thread that turned it on: others cannot stop torch's profiler while that one runs.
    """

    def __init__(self, save: Callable[[], None]) -> None:
        self._save = save
        self._thread = 0
        self._replaced: dict[str, tuple[Any, Any]] = {}

    def start(self) -> None:
        """Put the calls of *save* in place."""
        self._thread = threading.get_ident()
        for name in ABRUPT:
            original = getattr(os, name)
            self._replaced[name] = (original, self._saving(original))
            setattr(os, name, self._replaced[name][1])

    def stop(self) -> None:
        """Restore the functions that nobody else has replaced meanwhile."""
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
    """While on, calls *save* when the thread that turned it on ends, unless that is the main one.

    Torch's profiler stops in its own thread only, and crashes the process at exit if that has ended without.
    """

    def __init__(self, save: Callable[[], None]) -> None:
        self._save = save
        self._of_thread = threading.local()

    def start(self) -> None:
        """Leave something that the end of this thread destroys."""
        if threading.current_thread() is not threading.main_thread():
            self._of_thread.last_act = _LastAct(self._save)

    def stop(self) -> None:
        """Let this thread end as it would."""
        last_act = getattr(self._of_thread, "last_act", None)
        if last_act is not None:
            last_act.cancel()


class _LastAct:
    """Calls a function when it is destroyed."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def cancel(self) -> None:
        """Do nothing at the end."""
        self._function = _nothing

    def __del__(self) -> None:
        """Call the function; what it raises is printed and ignored."""
        self._function()


def _nothing() -> None:
    """Do nothing."""
