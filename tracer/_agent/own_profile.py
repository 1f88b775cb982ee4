"""Use the recording of the script's profiler if the agent's profiler cannot run."""

from __future__ import annotations

import gzip
import shutil
import time
from pathlib import Path
from typing import Any

from .process import compress, without_chatter
from .profilers import end_early
from .recorder import Recorder


class OwnProfile(Recorder):
    """The recorded steps of this rank in *profile*, a ``torch.autograd.profiler`` of the script.

    The first of up to *wanted* + 1 steps is also recorded with the host trace's observer. No range is
    added to the script's trace, so the trace's operators have no modules. With *marked*, the script marks
    steps in its profiler. Without *marked*, the agent counts the steps.
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

        Raises: RuntimeError: the script records an execution trace, and a process can record only one.

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

    def close_step(self, ended_ns: int) -> None:
        """Record the open step as complete, at *ended_ns* (Unix)."""
        if not self._is_open:
            return
        self._is_open = False
        times = {"index": self._step_index, "start_ns": self._step_start_ns, "end_ns": ended_ns}
        if self.structure_step is None:
            self.structure_step = times
            self._pause_observer()
        else:
            self.timed_steps.append(times)
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
            f"the script profiles itself: its own profile of {named} was taken, in which operators name no "
            "modules"
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

    def _save_device(self) -> None:
        if not self._raw_device.exists():
            with without_chatter():
                self._results.save(str(self._raw_device))
        name = f"rank{self.rank}.device.json.gz"
        compress(self._raw_device, self.out / name)
        self.files["device_trace"] = name


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
