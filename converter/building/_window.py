"""The stretch of time that is converted."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from ...tracer import StepRange

__all__ = ["Window"]


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
        """Return the step that *time_ns* lies in, -1 between steps."""
        return next((step.index for step in self.steps if step.start_ns <= time_ns < step.end_ns), -1)

    def steps_at(self, times_ns: np.ndarray) -> np.ndarray:
        """Return the step that each of *times_ns* lies in, as `step_at`."""
        found = np.full(len(times_ns), -1, dtype=np.int64)
        for step in reversed(self.steps):
            found[(times_ns >= step.start_ns) & (times_ns < step.end_ns)] = step.index
        return found
