"""Give precedence to profilers of the script, and use their recordings."""

from __future__ import annotations

import contextlib
import functools
import gzip
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .recorder import Recorder


class OwnProfile(Recorder):
    """The recorded steps of this rank in *profile*, a ``torch.autograd.profiler`` of the script.

    The first of up to *wanted* + 1 steps is also recorded with the host trace's observer. No range is added
    to the script's trace, so the trace's operators have no modules. If *marked* is true, the script marks
    steps in its profiler. If *marked* is false, the agent counts the steps.
    """

    def __init__(self, out: Path, profile: Any, wanted: int, *, marked: bool) -> None:
        super().__init__(out, modules=False)
        self.profile = profile
        self.marked = marked
        self.recording = False
        self._wanted = wanted
        self._is_open = False
        self._results: Any = None
        self._record: dict[str, Any] | None = None
        self._raw_host = self._raw_host.with_name(f"{self._raw_host.name.removesuffix('.json')}.own.json")
        self._raw_device = self._raw_host.with_name(self._raw_host.name.replace(".host.", ".device."))

    @property
    def full(self) -> bool:
        """Whether all wanted steps are recorded."""
        return len(self.timed_steps) >= self._wanted

    def start(self, steps_seen: int) -> None:
        """Start to observe the step after *steps_seen* finished steps.

        Raises:
            RuntimeError: the script records an execution trace, and a process can record only one.

        """
        self.out.mkdir(parents=True, exist_ok=True)
        self._observer = self._registered_observer()
        self._observer.start()
        self._messages.enable()
        self._start_ns = time.time_ns()
        self.recording = True
        self.open_step(steps_seen)

    def open_step(self, index: int) -> None:
        """Record the start of step *index*."""
        self._step_index = index
        self._is_open = not self.full
        self._step_start_ns = time.time_ns()

    def begin_step(self) -> None:
        """Record that the open step begins now, unless the script's mark has begun it."""
        if not self.marked:
            super().begin_step()

    def close_step(self, ended_ns: int) -> None:
        """Record the open step as complete, at *ended_ns* (Unix)."""
        if not self._is_open:
            return
        self._is_open = False
        self._add_step(ended_ns)
        if self.full:
            self._end_window()

    def end(self) -> None:
        """Handle the imminent stop of the script's profiler; a step that is open is incomplete."""
        self._is_open = False
        self._end_window()

    def take(self) -> None:
        """Share the stopped profiler's results with the script, because torch saves results only once."""
        self.recording = False
        self._stop()
        self._results = self.profile.kineto_results
        self.profile.kineto_results = _SharedResults(self._results, self)

    def save_for_script(self, path: str) -> None:
        """Save the profiler's results for the script, and keep a copy if the agent has not saved one."""
        if self.files["device_trace"] is not None:
            with gzip.open(self.out / self.files["device_trace"]) as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            return
        results = self._results
        results.save(path)
        if self.structure_step is not None and not self._raw_device.exists():
            try:
                shutil.copyfile(path, self._raw_device)
            except OSError:  # the script must not get the error; the missing trace will be reported
                self._raw_device.unlink(missing_ok=True)

    def finish(self) -> None:
        """Write this rank's files; only complete files get their final names.

        Raises:
            OSError: a file could not be written whole; the files before it are kept.
            RuntimeError: the profiler, still on, could not be stopped.

        """
        if self.recording:  # the process ends, and no other code will stop the profiler
            end_early(self.profile)
        super().finish()

    def discard(self) -> None:
        """Drop the recording; the script's profiler continues, and the script keeps its results."""
        self.recording = False
        self.structure_step = None
        super().discard()
        self._raw_device.unlink(missing_ok=True)

    def source_note(self) -> str:
        """Return a sentence on the source of the recording."""
        steps = [step["index"] for step in (self.structure_step, *self.timed_steps) if step]
        named = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]}-{steps[-1]}"
        return (
            f"the script profiles itself: its own profile of {named} is used, which does not assign "
            "operators to modules"
        )

    def status(self, wanted_steps: int) -> dict[str, Any]:
        """Return this rank's entry, which is complete if the script's profiler covered all steps."""
        entry = super().status(min(wanted_steps, max(1, len(self.timed_steps))))
        if not self.timed_steps and self.structure_step and self.files["device_trace"]:
            entry["complete"] = self.files["host_trace"] is not None
        return entry

    def _end_window(self) -> None:
        """Save the communication so far, because torch's record of communication has a limited length."""
        self._messages.disable()
        self._pause_observer()
        if self._record is None:
            self._record = self._window_record()

    def _stop(self) -> None:
        self._end_window()
        if self._observer is not None:
            self._remove_observer()

    def _window_record(self) -> dict[str, Any]:
        return self._record if self._record is not None else super()._window_record()

    def _export_device(self) -> None:
        if not self._raw_device.exists():
            self._results.save(str(self._raw_device))


class _SharedResults:
    """A profiler's results with a replaced ``save`` method."""

    def __init__(self, results: Any, owner: OwnProfile) -> None:
        self._results = results
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._results, name)

    def save(self, path: str) -> None:
        """Save the profiler's trace to *path*."""
        self._owner.save_for_script(path)


_foreign: weakref.WeakSet[Any] = weakref.WeakSet()
_ended_early: weakref.WeakSet[Any] = weakref.WeakSet()
# The instances of torch.autograd's profile that torch.profiler created, each with a flag for whether the
# script marks steps in it.
_marking: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
_state: dict[str, Any] = {"ours": False, "recording": None}


@functools.cache  # another call has no effect
def watch(profiler_module: Any, listener: Callable[[], Any]) -> None:
    """Notify *listener*, an agent, of the script's profilers; two sessions in a process crash torch."""
    profile = profiler_module.profile
    prepare, start, leave = profile._prepare_trace, profile._start_trace, profile.__exit__

    @functools.wraps(prepare)
    def watched_prepare(self: Any) -> Any:
        observer = listener()
        if not _state["ours"]:
            if observer is not None:
                observer.yield_to_script()
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


@functools.cache  # another call has no effect
def watch_steps(profiler_module: Any, listener: Callable[[], Any]) -> None:
    """Notify *listener* of the steps that the script marks in profilers with a schedule."""
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
    """Return the script's profile that records the calling thread, or None if no profile records."""
    recording = _state["recording"]
    return recording[0]() if recording and recording[1] == threading.get_ident() else None


def marks_steps(profile: Any) -> bool:
    """Return whether the script marks steps in *profile*, as a profiler with a schedule requires."""
    return _marking.get(profile, False)


def end_early(profile: Any) -> None:
    """Stop *profile* at the end of the script; a later stop by the script has no effect."""
    profile.__exit__(None, None, None)
    _ended_early.add(profile)
