"""Collect evidence of a training process from the start of training until the process end."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .evidence import EvidenceRecorder
from .profilers import foreign_profiler_is_on

# The number of steps around the capture. This number gives a robust step duration even if some steps were
# disturbed.
UNPROFILED_STEPS = 32


class Observation:
    """Collects evidence while enabled, and holds the evidence part of the manifest's *entry*."""

    def __init__(self, *, stacks: bool) -> None:
        self.entry: dict[str, Any] = {}
        self.is_profiled = False  # whether a profiler of the script was on in this step
        self._stacks = stacks
        self._recorder: EvidenceRecorder | None = None
        self._saved_steps = -1

    @property
    def is_on(self) -> bool:
        """Whether evidence is being collected."""
        return self._recorder is not None

    def is_of_this_thread(self) -> bool:
        """Return whether the steps of the calling thread are timed."""
        return self._recorder is not None and self._recorder.thread == threading.get_ident()

    def start(self) -> None:
        """Start to observe the calling thread (instead of an earlier thread), which is about to train."""
        if not self.is_of_this_thread():
            self.stop()
            self._recorder = EvidenceRecorder(stacks=self._stacks)
            self._recorder.start()

    def write_steps(self, folder: Path, rank: int, head: Callable[[], dict[str, Any]]) -> None:
        """Write all steps to a file, including earlier steps; each part begins with *head*'s result.

        Raises:
            OSError: the file could not be created.

        """
        if self._recorder is not None:
            name = f"rank{rank}.steps.json.gz"
            self._recorder.write_steps(folder / name, head)
            self.entry = {"step_times": name}

    def stop(self) -> None:
        """Stop the collection of evidence."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.stop()

    def time_step(self, steps_over: int, *, recorded: bool) -> None:
        """Record the end of a step, or the next step's start after the agent's work; takes about 10 us."""
        if self._recorder is not None:
            with contextlib.suppress(AttributeError, KeyError):  # torch is not fully imported yet
                recorded |= self.is_profiled or foreign_profiler_is_on(sys.modules["torch"])
                self._recorder.boundary(steps_over, recorded=recorded)
            self.is_profiled = False

    def enter_window(self, inside: bool) -> None:
        """Record the start of the profiled steps or, if *inside* is false, their end."""
        if self._recorder is not None:
            self._recorder.enter_window(inside)

    def forget_steps(self) -> None:
        """Drop all recorded steps, because they were not training steps."""
        if self._recorder is not None:
            self._recorder.forget_steps()

    def is_save_due(self) -> bool:
        """Return whether a periodic save is due; the interval between saves grows during the run."""
        return self._recorder is not None and self._recorder.is_save_due()

    def save(self, folder: Path, rank: int, steps_over: int) -> str:
        """Write the evidence if a step has ended since the last save; return the reason of a failure."""
        recorder = self._recorder
        if recorder is None or self._saved_steps == steps_over:
            return ""
        try:
            name = recorder.save(folder, rank, steps_over)
        except Exception as error:  # the traces are valid without evidence
            return f"the evidence of rank {rank} could not be saved ({error!r})"
        self._saved_steps = steps_over
        self.entry |= {"evidence": name, "unprofiled_steps": recorder.unprofiled_steps(UNPROFILED_STEPS)}
        return recorder.step_failure
