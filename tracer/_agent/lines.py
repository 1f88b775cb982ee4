"""Mark in the trace which line of the script runs; samples of the stack rarely show short operators."""

from __future__ import annotations

import os
import sys
from collections import Counter
from types import CodeType, FrameType
from typing import Any

from .modules import quick_range
from .sources import is_of_script, script_frame, script_place

# Limits on marks and on traced calls and lines, which take about 2 us and 0.5 us, and on the marks of one
# function, whose lines are not distinguished after that. Its lines still count as events, because tracing
# slows down Python even where no lines are reported.
MAX_MARKS, MAX_EVENTS, MAX_MARKS_OF_FUNCTION = 5_000, 200_000, 500
_MARK = "chakrascope::line "


class ScriptLines:
    """Profiler marks ``chakrascope::line <place>`` wherever a thread continues on another line of the script.

    A mark takes no time and applies until the next mark. A mark without a place means an unknown line:
    outside the script, after the last line or because of a limit. A function with too many marks gets the
    line of its definition. A debugger or a coverage tool that traces the thread keeps the thread.
    """

    def __init__(self) -> None:
        self._trace_call, self._trace_line = self._call, self._line  # the same objects for each frame
        self._range: Any = None
        self._is_on = False
        self._marks = self._events = 0
        self._marks_of: Counter[str] = Counter()
        self._definitions: dict[str, str] = {}
        self._places: dict[tuple[int, int], str] = {}
        self._codes: list[CodeType] = []  # keeps ids valid
        self._last = ""

    def enable(self) -> None:
        """Trace the calling thread, also in the functions that are already running."""
        if sys.gettrace() is not None:
            return
        self._range, self._is_on = quick_range(), True
        frame = script_frame(sys._getframe(1))
        self._mark(frame)
        while frame is not None:
            if is_of_script(frame.f_code) and frame.f_trace is None:
                frame.f_trace = self._trace_line
            frame = frame.f_back
        sys.settrace(self._trace_call)

    def disable(self) -> None:
        """Stop to trace; a thread other than the calling one stops at its next call or line."""
        self._is_on = False
        if self.leave_thread():
            with self._range(_MARK):
                pass

    def leave_thread(self) -> bool:
        """Return whether the calling thread was traced, and stop its trace without a mark."""
        if sys.gettrace() is not self._trace_call:
            return False
        sys.settrace(None)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_trace is self._trace_line:
                frame.f_trace = None
            frame = frame.f_back
        return True

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._trace_line if self._continues() and is_of_script(frame.f_code) else None

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if not self._continues():
            frame.f_trace = None  # of a generator, or because the script restored this trace
            return None
        if event == "line":
            self._mark(frame)
        elif event == "return":
            self._mark(script_frame(frame.f_back))
        return self._trace_line

    def _continues(self) -> bool:
        """Count a call or a line, and return whether no limit is reached; otherwise stop to trace."""
        self._events += 1
        if self._is_on and self._events <= MAX_EVENTS and self._marks < MAX_MARKS:
            return True
        self.disable()
        return False

    def _mark(self, frame: FrameType | None) -> None:
        place = "" if frame is None else self._place(frame)
        if place == self._last:
            return
        self._last = place
        self._marks_of[_function(place)] += 1
        self._marks += 1
        with self._range(_MARK + place):
            pass

    def _place(self, frame: FrameType) -> str:
        position = (id(frame.f_code), frame.f_lineno)
        if position not in self._places:
            self._places[position] = script_place(frame)
            self._codes.append(frame.f_code)
        place = self._places[position]
        if place != self._last and self._marks_of[_function(place)] >= MAX_MARKS_OF_FUNCTION:
            defined = f"{_function(place)}:{frame.f_code.co_firstlineno})"
            place = self._places[position] = self._definitions.setdefault(_function(place), defined)
        return place


def _function(place: str) -> str:
    return place.rpartition(":")[0]


def _after_fork_in_child() -> None:
    """Stop to trace in a fork, such as a data loader's worker, in which no profiler records marks."""
    own = getattr(sys.gettrace(), "__self__", None)
    if isinstance(own, ScriptLines):
        own.leave_thread()


os.register_at_fork(after_in_child=_after_fork_in_child)
