"""Give precedence to profilers of the script, and follow their recordings."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

_foreign: weakref.WeakSet[Any] = weakref.WeakSet()
_ended_early: weakref.WeakSet[Any] = weakref.WeakSet()
# The instances of torch.autograd's profile that torch.profiler created, each with a flag for whether the
# script marks steps in it.
_marking: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
_state: dict[str, Any] = {"watching": False, "watching_steps": False, "ours": False, "recording": None}


class ProfileListener(Protocol):
    """The interface that is notified of the script's profilers; its methods must not raise."""

    def make_way(self) -> None:
        """Handle the imminent start of a profiler of the script."""

    def profile_started(self) -> None:
        """Handle the start of recording of the script's profiler."""

    def profile_ends(self, profile: Any) -> None:
        """Handle the imminent stop of the script's profiler *profile*."""

    def profile_ended(self, profile: Any) -> None:
        """Handle the results of *profile*, which has stopped."""

    def marked_step_ends(self) -> None:
        """Handle the end of a step that the script marks in its profiler."""

    def marked_step_begins(self) -> None:
        """Handle the start of the next step that the script marks in its profiler."""


def watch(profiler_module: Any, listener: Callable[[], ProfileListener | None]) -> None:
    """Notify *listener* of the script's profilers, because two sessions in a process crash torch."""
    if _state["watching"]:
        return
    _state["watching"] = True
    profile = profiler_module.profile
    prepare, start, leave = profile._prepare_trace, profile._start_trace, profile.__exit__

    @functools.wraps(prepare)
    def watched_prepare(self: Any) -> Any:
        observer = listener()
        if not _state["ours"]:
            if observer is not None:
                observer.make_way()
            _foreign.add(self)
        return prepare(self)

    @functools.wraps(start)
    def watched_start(self: Any) -> Any:
        result = start(self)
        if self in _foreign:
            _state["recording"] = (weakref.ref(self), threading.get_ident())
            observer = listener()
            if observer is not None:
                observer.profile_started()
        return result

    @functools.wraps(leave)
    def watched_leave(self: Any, *exception: Any) -> Any:
        if self in _ended_early:
            _ended_early.discard(self)
            return False
        observer = listener() if self in _foreign else None
        if self in _foreign:
            _foreign.discard(self)
            _state["recording"] = None
        if observer is None:
            return leave(self, *exception)
        observer.profile_ends(self)
        result = leave(self, *exception)
        observer.profile_ended(self)
        return result

    profile._prepare_trace, profile._start_trace = watched_prepare, watched_start
    profile.__exit__ = watched_leave


def watch_steps(profiler_module: Any, listener: Callable[[], ProfileListener | None]) -> None:
    """Notify *listener* of the steps that the script marks in profilers with a schedule."""
    if _state["watching_steps"]:
        return
    _state["watching_steps"] = True
    start, step = profiler_module._KinetoProfile.start_trace, profiler_module.profile.step

    @functools.wraps(start)
    def watched_start(self: Any) -> Any:
        if self.profiler is not None:
            _marking[self.profiler] = getattr(self, "record_steps", False)
        return start(self)

    @functools.wraps(step)
    def watched_step(self: Any) -> Any:
        observer = listener()
        if observer is None:
            return step(self)
        observer.marked_step_ends()
        result = step(self)
        observer.marked_step_begins()
        return result

    profiler_module._KinetoProfile.start_trace, profiler_module.profile.step = watched_start, watched_step


@contextlib.contextmanager
def starting_ours() -> Iterator[None]:
    """Treat a profiler that is started in the block as the agent's profiler, not the script's."""
    _state["ours"] = True
    try:
        yield
    finally:
        _state["ours"] = False


def foreign_profiler_is_on(torch: Any) -> bool:
    """Return whether a profiler of the script is recording or preparing to record."""
    return bool(_foreign) or torch.autograd._profiler_enabled()


def recording_profile() -> Any:
    """Return the script's profile that records the calling thread, or None without a recording profile."""
    reference, thread = _state["recording"] or (_none, 0)
    return reference() if thread == threading.get_ident() else None


def marks_steps(profile: Any) -> bool:
    """Return whether the script marks steps in *profile*, as a profiler with a schedule requires."""
    return _marking.get(profile, False)


def end_early(profile: Any) -> None:
    """Stop *profile* at the end of the script; a later stop by the script has no effect."""
    profile.__exit__(None, None, None)
    _ended_early.add(profile)


def _none() -> None:
    """Return None, like a dead weak reference."""
