"""Decide what may name something in a study: the one place where a name becomes part of a path."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ...errors import StudyError

__all__ = ["NAME_LENGTH", "check_name", "named_entry", "safe_name"]

NAME_LENGTH = 80
_NAME = re.compile(rf"\w[\w .+-]{{0,{NAME_LENGTH - 1}}}")
_ENTRY_BYTES = 200  # with the endings of files in the making it stays below the 255 of file systems


def check_name(name: str, what: str) -> None:
    """Raise `StudyError` unless *name* can name a new *what*, such as ``a workload``; it is never a path."""
    if not _NAME.fullmatch(name):
        raise StudyError(
            f"'{name[:NAME_LENGTH]}' cannot name {what}; use up to {NAME_LENGTH} letters, digits, blanks and "
            ". _ + -, and begin with a letter or digit."
        )


def safe_name(text: str, default: str) -> str:
    """Return *text*, not given as a name, as one that `check_name` takes; *default* if it is empty."""
    plain = re.sub(r"[^\w .+-]+", "-", text).lstrip(" .+-")[:NAME_LENGTH].rstrip(" .+-")
    return plain or default


def named_entry(folder: Path, name: str, what: str) -> Path:
    """Return the path of the *what* called *name* in *folder*, never another's.

    Names that are there already, such as "job (copy)", may be stranger than `check_name` lets new ones be.
    Raises `StudyError` for one that leads elsewhere or is hidden.
    """
    if not 0 < len(os.fsencode(name)) <= _ENTRY_BYTES or name.startswith(".") or {"/", "\0"} & {*name}:
        raise StudyError(
            f"'{name[:NAME_LENGTH]}' is not the name of {what} in a study; give a plain name, without a path."
        )
    return folder / name
