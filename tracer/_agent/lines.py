"""Mark in the trace which line of the script runs; samples of the stack rarely show short operators."""

from __future__ import annotations

import os
import sys
from collections import Counter
from types import CodeType, FrameType
from typing import Any

from .modules import quick_range
from .sources import is_of_script, script_frame, script_place

# Limits on marks and on traced calls and lines, which take about 2 us and 0.3 us, and on the marks of one
# function, whose lines are not distinguished after that.
MAX_MARKS, MAX_EVENTS, MAX_MARKS_OF_FUNCTION = 5_000, 200_000, 500
_MARK = "chakrascope::line "
_active: list[ScriptLines] = []


class ScriptLines:
    """Profiler marks ``chakrascope::line <place>`` wherever a thread continues on another line of the script.

    A mark takes no time and applies until the next mark. A mark without a place means an unknown line: after
    the last line, or because a limit was reached. A debugger or a coverage tool that traces the thread keeps
    the thread.
    """

    def __init__(self) -> None:
        self._trace_call, self._trace_line = self._call, self._line  # the same objects for each frame
        self._range: Any = None
        self._marks = self._events = 0
        self._marks_of: Counter[str] = Counter()
        self._places: dict[tuple[int, int], str] = {}
        self._codes: list[CodeType] = []  # keeps ids valid
        self._last = ""
        self._frames: list[FrameType] = []

    def enable(self) -> None:
        """Trace the calling thread, also in the functions that are already running."""
        if sys.gettrace() is not None:
            return
        self._range = quick_range()
        own = frame = script_frame(sys._getframe(1))
        while frame is not None:
            if is_of_script(frame.f_code) and frame.f_trace is None:
                frame.f_trace = self._trace_line
                self._frames.append(frame)
            frame = frame.f_back
        if own is not None:
            self._mark(own)
        _active.append(self)
        sys.settrace(self._trace_call)

    def disable(self) -> None:
        """Stop to trace; only the thread that called `enable` can."""
        if self not in _active or sys.gettrace() is not self._trace_call:
            return
        sys.settrace(None)
        _active.remove(self)
        for frame in self._frames:
            if frame.f_trace is self._trace_line:
                frame.f_trace = None
        self._frames = []
        with self._range(_MARK):
            pass

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        self._events += 1
        if self._events > MAX_EVENTS:
            self.disable()
            return None
        return self._trace_line if is_of_script(frame.f_code) else None

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        self._events += 1
        if event == "line":
            self._mark(frame)
        elif event == "return":
            caller = script_frame(frame.f_back)
            if caller is not None:
                self._mark(caller)
        return self._trace_line

    def _mark(self, frame: FrameType) -> None:
        position = (id(frame.f_code), frame.f_lineno)
        if position not in self._places:
            self._places[position] = script_place(frame)
            self._codes.append(frame.f_code)
        place = self._places[position]
        if place == self._last:
            return
        function, _, _ = place.rpartition(":")
        if self._marks_of[function] >= MAX_MARKS_OF_FUNCTION:
            frame.f_trace_lines = False
            if self._last.startswith(f"{function}:"):
                return
        self._last = place
        self._marks_of[function] += 1
        self._marks += 1
        with self._range(_MARK + place):
            pass
        if max(self._marks - MAX_MARKS, self._events - MAX_EVENTS) >= 0:
            self.disable()


def _after_fork_in_child() -> None:
    """Stop to trace in a fork, such as a data loader's worker, in which no profiler records marks."""
    while _active:
        if sys.gettrace() is _active.pop()._trace_call:
            sys.settrace(None)


os.register_at_fork(after_in_child=_after_fork_in_child)
