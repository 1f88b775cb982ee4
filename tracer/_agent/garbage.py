"""Time Python's garbage collections."""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from typing import Any

from .phases import PAUSED, PHASES

MAX_LISTED = 4096
MIN_LISTED_NS = 100_000


class GarbageWatch:
    """While enabled, sums up the time of garbage collections, and lists long collections."""

    def __init__(self) -> None:
        self.spent_ns = 0
        self._start_ns = 0
        self._phase = -1
        self._listed: deque[tuple[int, int, int, int, int]] = deque(maxlen=MAX_LISTED)

    def start(self) -> None:
        """Register for Python's notifications of garbage collections."""
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        """Unregister from Python's notifications of garbage collections."""
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)

    def rows(self) -> list[tuple[int, int, int, int, int]]:
        """Return the start, end, generation, system thread id and collected objects of each collection."""
        return list(self._listed)

    def _note(self, phase: str, details: dict[str, Any]) -> None:
        now = time.time_ns()
        if phase == "start":
            self._start_ns = now
            self._phase = PHASES.enter(PAUSED)
            return
        PHASES.leave(self._phase)
        lasted_ns = now - self._start_ns
        if not self._start_ns or lasted_ns < 0:
            return
        self.spent_ns += lasted_ns
        if lasted_ns >= MIN_LISTED_NS:
            row = (self._start_ns, now, details.get("generation", 0), threading.get_native_id(),
                   details.get("collected", 0))  # fmt: skip
            self._listed.append(row)
