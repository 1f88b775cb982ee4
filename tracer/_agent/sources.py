"""Describe a source location by its function, file (with the path that imports use), line and callee."""

from __future__ import annotations

import dis
import os
import sys
import sysconfig
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_STANDARD = tuple(
    os.path.join(path, "") for key in ("stdlib", "platstdlib") if (path := sysconfig.get_paths().get(key))
)
_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
_COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")
_NAMES = ("LOAD_METHOD", "LOAD_ATTR", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_FAST")
_BETWEEN = ("CACHE", "EXTENDED_ARG", "KW_NAMES", "PRECALL", "PUSH_NULL", "NOP")
_OPENING = ("BEFORE_WITH", "SETUP_WITH")
_CALLING = ("CALL", "PRECALL")  # Python 3.11 specializes PRECALL for calls of C functions


class SourceFiles:
    """The files of code objects, in order of their first use."""

    def __init__(self) -> None:
        self.listed: list[dict[str, str]] = []
        self._numbers: dict[str, int] = {}

    def number(self, path: str) -> int:
        """Return the index of the file *path*, which is absolute or relative as in the code object."""
        if path not in self._numbers:
            self._numbers[path] = len(self.listed)
            self.listed.append(_described(path))
        return self._numbers[path]


def _described(path: str) -> dict[str, str]:
    """Return the import path of *path*, and whether it belongs to the script, a library or Python."""
    if path.startswith("<"):
        return {"path": path, "origin": "builtin"}
    path = _absolute(path)
    if path.startswith(_OURS):
        return {"path": f"chakrascope/tracer/_agent/{path[len(_OURS) :]}", "origin": "library"}
    for folder in _PACKAGES:
        if folder in path:
            return {"path": path.rpartition(folder)[2], "origin": "library"}
    for folder in _STANDARD:
        if path.startswith(folder):
            return {"path": path[len(folder) :], "origin": "standard"}
    inside = [os.path.join(_absolute(one), "") for one in (os.curdir, *sys.path)]
    folder = max((one for one in inside if path.startswith(one)), key=len, default="")
    return {"path": path[len(folder) :], "origin": "script"}


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)
    except FileNotFoundError:  # the working directory was deleted
        return path


_described_once = lru_cache(maxsize=1 << 12)(_described)


def is_of_script(code: CodeType) -> bool:
    """Return whether *code* belongs to the script, and not to a library or Python."""
    return _described_once(code.co_filename)["origin"] == "script"


def script_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the script at or around *frame*, or None outside the script."""
    while frame is not None and not is_of_script(frame.f_code):
        frame = frame.f_back
    return frame


def script_place(frame: FrameType | None) -> str:
    """Return ``function (path:line)`` of the innermost script frame at or around *frame*.

    Returns "" outside the script.
    """
    own = script_frame(frame)
    if own is None:
        return ""
    file = _described_once(own.f_code.co_filename)
    return f"{outer_function(function_name(own.f_code))} ({file['path']}:{own.f_lineno})"


def outer_function(name: str) -> str:
    """Return the function of a comprehension or generator expression called *name*, or else *name*.

    A lambda keeps its own name, because it may run after its function has returned.
    """
    around, _, own = name.rpartition(".<locals>.")
    return outer_function(around) if around and own in _COMPREHENSIONS else name


def function_name(code: CodeType) -> str:
    """Return the qualified name of the function of *code*.

    A generator expression outside functions belongs to its module. Before Python 3.11, code has no qualified
    name, so the function around a generator expression is unknown.
    """
    name: str | None = getattr(code, "co_qualname", None)
    return code.co_name if name is None else "<module>" if name in _COMPREHENSIONS else name


def line_of(code: CodeType, position: int) -> int:
    """Return the line of the instruction at *position* (``f_lasti``) of *code*.

    A jump back to the start of a loop may have no line. Python switches threads at such jumps, so a jump gets
    the line of the previous instruction.
    """
    line = code.co_firstlineno
    for start, _, number in code.co_lines():
        if start > position:
            break
        line = line if number is None else number
    return line


def callee(code: CodeType, position: int) -> str:
    """Return the name of the function that *code* calls at *position*, or "" if there is no call.

    The call's arguments are skipped by their stack effect. If the arguments branch, "" is returned.
    """
    before: list[Any] = []
    for instruction in dis.get_instructions(code):
        if instruction.offset >= position:
            break
        before.append(instruction)
    else:
        return ""
    if instruction.opname in _OPENING:
        return "__enter__"
    if not instruction.opname.startswith(_CALLING):
        return ""
    wanted = (instruction.arg or 0) + (instruction.opname in ("CALL_KW", "CALL_FUNCTION_KW"))
    if instruction.opname == "CALL_FUNCTION_EX":
        wanted = 1 + (instruction.arg or 0) % 2
    _drop_prefixes(before)
    while before and wanted > 0:
        past = before.pop()
        if past.opcode in dis.hasjrel or past.opcode in dis.hasjabs:
            return ""
        wanted -= dis.stack_effect(past.opcode, past.arg)
    _drop_prefixes(before)
    if before and wanted == 0 and before[-1].opname in _NAMES:
        return str(before[-1].argval)
    return ""


def _drop_prefixes(instructions: list[Any]) -> None:
    while instructions and instructions[-1].opname in _BETWEEN:
        instructions.pop()
