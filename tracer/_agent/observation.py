"""Evidence of this process, from the first sign that it trains until it ends."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from typing import Any

from .evidence import EvidenceRecorder
from .profilers import foreign_profiler_is_on

__all__ = ["Observation"]

# As many of the steps around the capture as show what one takes, whatever some of them did besides.
UNPROFILED_STEPS = 32


class Observation:
    """Collects evidence while it is on, and keeps what the manifest's *entry* says of it."""

    def __init__(self, *, stacks: bool) -> None:
        self.entry: dict[str, Any] = {}
        self.is_profiled = False  # whether a profiler of the script's was on in this step
        self._stacks = stacks
        self._recorder: EvidenceRecorder | None = None
        self._saved_steps = -1

    @property
    def is_on(self) -> bool:
        """Whether evidence is being collected."""
        return self._recorder is not None

    def is_of_this_thread(self) -> bool:
        """Return whether it is this thread's steps that are timed."""
        return self._recorder is not None and self._recorder.thread == threading.get_ident()

    def start(self) -> None:
        """Begin in this thread, which trains or is about to; anew if another one was taken for it."""
        if not self.is_of_this_thread():
            self.stop()
            self._recorder = EvidenceRecorder(stacks=self._stacks)
            self._recorder.start()

    def stop(self) -> None:
        """End."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.stop()

    def time_step(self, steps_over: int, *, recorded: bool) -> None:
        """Note when a step ended, or the next one began after work of ours; some 10 us."""
        if self._recorder is not None:
            with contextlib.suppress(AttributeError, KeyError):  # a torch that is not whole yet
                recorded |= self.is_profiled or foreign_profiler_is_on(sys.modules["torch"])
                self._recorder.boundary(steps_over, recorded=recorded)
            self.is_profiled = False

    def enter_window(self, inside: bool) -> None:
        """Note that the profiled steps begin, or if not *inside* that they are over."""
        if self._recorder is not None:
            self._recorder.enter_window(inside)

    def forget_steps(self) -> None:
        """Drop the steps so far: they were none."""
        if self._recorder is not None:
            self._recorder.forget_steps()

    def is_save_due(self) -> bool:
        """Return whether to save, lest all is lost if the process is killed; ever less often."""
        return self._recorder is not None and self._recorder.is_save_due()

    def save(self, folder: Path, rank: int, steps_over: int) -> str:
        """Write the evidence unless no step has ended since it was; return why that failed, if it did."""
        recorder = self._recorder
        if recorder is None or self._saved_steps == steps_over:
            return ""
        try:
            name = recorder.save(folder, rank, steps_over)
        except Exception as error:  # the traces count without it
            return f"the evidence of rank {rank} could not be saved ({error!r})"
        self._saved_steps = steps_over
        self.entry = {"evidence": name, "unprofiled_steps": recorder.unprofiled_steps(UNPROFILED_STEPS)}
        return ""
