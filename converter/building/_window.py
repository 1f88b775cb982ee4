"""The interval of a trace that is converted."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import msgspec
import numpy as np

from ...tracer import StepRange
from ..linking import Linked
from ._conventions import DEVICE_LANE

__all__ = ["Extent", "Window"]


_start_ns = attrgetter("start_ns")


class Window(msgspec.Struct, frozen=True):
    """The interval that is converted, and its steps."""

    start_ns: int
    end_ns: int
    steps: tuple[StepRange, ...]

    @classmethod
    def of(cls, steps: Sequence[StepRange]) -> Window:
        """Return the window from the first of *steps* to the end of the last."""
        return cls(min(s.start_ns for s in steps), max(s.end_ns for s in steps), tuple(steps))

    def steps_at(self, times_ns: np.ndarray) -> np.ndarray:
        """Return the step that each of *times_ns* belongs to: the last one to begin, else the first.

        What the host does after it has ended a step is that step's, until the next one begins.
        """
        ordered = sorted(self.steps, key=_start_ns)
        begun = np.searchsorted([step.start_ns for step in ordered], times_ns, side="right") - 1
        numbers = np.array([step.index for step in ordered], dtype=np.int64)
        found: np.ndarray = numbers[np.maximum(begun, 0)]
        return found

    def own_times(self) -> list[list[int]]:
        """Return number, start and end of each step on the host, from the window's start."""
        ordered = sorted(self.steps, key=_start_ns)
        return [[s.index, s.start_ns - self.start_ns, s.end_ns - self.start_ns] for s in ordered]

    def shares(self, issued_ns: np.ndarray, ended_ns: np.ndarray, busy_until_ns: int) -> np.ndarray:
        """Return the time that is each step's own: rows of number, start and end, in order of start.

        *issued_ns* and *ended_ns* are when the host issued device work and the device had done it,
        *busy_until_ns* until when it did what was issued before the window. A step ends when the host is
        through with it and the device with all that it issued; it begins with the host's, or when the device
        has done what was issued before, if that is later. So steps that overlap on the device add up.
        """
        order = np.argsort(issued_ns, kind="stable")
        done = np.maximum.accumulate(np.append(busy_until_ns, ended_ns[order]))
        rows = []
        for step in sorted(self.steps, key=_start_ns):
            before, own = np.searchsorted(issued_ns[order], [step.start_ns, step.end_ns]).tolist()
            start, end = (max(step.start_ns, int(done[before])), max(step.end_ns, int(done[own])))
            rows.append((step.index, min(start, end), end))
        return np.array(rows, dtype=np.int64).reshape(-1, 3)


class Extent(msgspec.Struct, frozen=True):
    """The time from the first work of a device to the end of its last, *start_ns* to *end_ns*."""

    start_ns: int
    end_ns: int

    @classmethod
    def of(cls, linked: Linked) -> Extent | None:
        """Return the extent of all that was *linked* with the host, None if nothing was."""
        launches = linked.launches
        if not len(launches):
            return None
        return cls(int(launches.start_ns.min()), int(launches.end_ns.max()))

    def cut(self, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the nodes' *columns*, where host time outside the extent is none."""
        host = columns["stream"] < DEVICE_LANE
        starts, ends = columns["start_ns"], columns["start_ns"] + columns["duration_ns"]
        begin, end = (np.clip(times, self.start_ns, self.end_ns) for times in (starts, ends))
        return columns | {
            "start_ns": np.where(host, begin, starts),
            "duration_ns": np.where(host, end - begin, columns["duration_ns"]),
        }
