"""Take what a profiler of the script's own records, where ours cannot start beside it."""

from __future__ import annotations

import gzip
import shutil
import time
from pathlib import Path
from typing import Any

from .process import compress, without_chatter
from .profilers import end_early
from .recorder import Recorder

__all__ = ["OwnProfile"]


class OwnProfile(Recorder):
    """The steps of this rank inside *profile*, ``torch.autograd.profiler``'s, that the script has started.

    The first of up to *wanted* + 1 steps is recorded with the host trace's observer too. The script's trace
    stays as it is: no range is added to it, so that operators name no modules. With *marked* steps are what
    the script tells its profiler, else what the agent counts.
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
        """Whether all wanted steps are in it."""
        return len(self.timed_steps) >= self._wanted

    @property
    def step_index(self) -> int:
        """The number of the step that is open, else of the last one."""
        return self._step_index

    def start(self, steps_seen: int) -> None:
        """Begin to observe the step after *steps_seen* finished ones.

        Raises:
            RuntimeError: the script records an execution trace of its own, and a process can have one.

        """
        self.out.mkdir(parents=True, exist_ok=True)
        self._note_groups()
        self._observer = self._registered_observer()
        self._observer.start()
        self._messages.enable()
        self._start_ns = time.time_ns()
        self.recording = True
        self.open_step(steps_seen)

    def open_step(self, index: int) -> None:
        """Note that step *index* begins."""
        self._step_index = index
        self._is_open = not self.full
        self._step_start_ns = time.time_ns()

    def close_step(self) -> None:
        """Note the open step as whole."""
        if not self._is_open:
            return
        self._is_open = False
        times = {"index": self._step_index, "start_ns": self._step_start_ns, "end_ns": time.time_ns()}
        if self.structure_step is None:
            self.structure_step = times
            self._pause_observer()
        else:
            self.timed_steps.append(times)
        if self.full:
            self._end_window()

    def end(self) -> None:
        """Note that the script's profiler is about to stop; what is open is not a whole step."""
        self._is_open = False
        self._end_window()

    def take(self) -> None:
        """Share the stopped profiler's results with the script: torch saves them once only."""
        self.recording = False
        self._stop()
        self._results = self.profile.kineto_results
        self.profile.kineto_results = _SharedResults(self._results, self)

    def save_for_script(self, path: str) -> None:
        """Do as the results' own ``save``, and keep a copy unless ours has been saved before."""
        if self.files["device_trace"] is not None:
            with gzip.open(self.out / self.files["device_trace"]) as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            return
        results = self._results
        results.save(path)
        if self.structure_step is not None and not self._raw_device.exists():
            try:
                shutil.copyfile(path, self._raw_device)
            except OSError:  # never the script's problem; that there is no trace will show
                self._raw_device.unlink(missing_ok=True)

    def finish(self) -> None:
        """Write this rank's files, each under its final name only when whole.

        Raises:
            OSError: a file could not be written whole; the files before it are kept.
            RuntimeError: the profiler, still on, could not be stopped.

        """
        if self.recording:  # the process ends: nobody else will stop it
            end_early(self.profile)
        super().finish()

    def discard(self) -> None:
        """Keep nothing; the script's profiler goes on, and its results stay its own."""
        self.recording = False
        self.structure_step = None
        super().discard()
        self._raw_device.unlink(missing_ok=True)

    def told(self) -> str:
        """Return what was taken, as a sentence."""
        steps = [step["index"] for step in (self.structure_step, *self.timed_steps) if step]
        named = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]}-{steps[-1]}"
        return (
            f"the script profiles itself: its own profile of {named} was taken, in which operators name no "
            "modules"
        )

    def status(self, wanted_steps: int) -> dict[str, Any]:
        """Return this rank's entry; it is complete with what the script's profiler saw."""
        entry = super().status(min(wanted_steps, max(1, len(self.timed_steps))))
        if not self.timed_steps and self.structure_step and self.files["device_trace"]:
            entry["complete"] = self.files["host_trace"] is not None
        return entry

    def _end_window(self) -> None:
        """Note what was communicated so far: torch's own record of it does not reach back for ever."""
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

    def _save_device(self) -> None:
        if not self._raw_device.exists():
            with without_chatter():
                self._results.save(str(self._raw_device))
        name = f"rank{self.rank}.device.json.gz"
        compress(self._raw_device, self.out / name)
        self.files["device_trace"] = name


class _SharedResults:
    """A profiler's results, in all but ``save``."""

    def __init__(self, results: Any, owner: OwnProfile) -> None:
        self._results = results
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._results, name)

    def save(self, path: str) -> None:
        """Save the trace to *path*."""
        self._owner.save_for_script(path)
