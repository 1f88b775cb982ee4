"""The stretch of time that is converted."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import msgspec
import numpy as np

from ...tracer import StepRange

__all__ = ["Window"]

_start_ns = attrgetter("start_ns")


class Window(msgspec.Struct, frozen=True):
    """The stretch of time that is converted, and the steps in it."""

    start_ns: int
    end_ns: int
    steps: tuple[StepRange, ...]

    @classmethod
    def of(cls, steps: Sequence[StepRange]) -> Window:
        """Return the window from the first of *steps* to the end of the last."""
        return cls(min(s.start_ns for s in steps), max(s.end_ns for s in steps), tuple(steps))

    def step_at(self, time_ns: int) -> int:
        """Return the step that *time_ns* belongs to: the one that began last, the first one before all."""
        begun = [step for step in self.steps if step.start_ns <= time_ns]
        last = max(begun, key=_start_ns) if begun else min(self.steps, key=_start_ns)
        return last.index

    def steps_at(self, times_ns: np.ndarray) -> np.ndarray:
        """Return the step that each of *times_ns* belongs to, as `step_at`.

        What a device does after the host has ended a step is that step's, until the next one begins.
        """
        ordered = sorted(self.steps, key=_start_ns)
        begun = np.searchsorted([step.start_ns for step in ordered], times_ns, side="right") - 1
        numbers = np.array([step.index for step in ordered], dtype=np.int64)
        found: np.ndarray = numbers[np.maximum(begun, 0)]
        return found
