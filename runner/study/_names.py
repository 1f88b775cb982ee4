"""Validate names in a study: the only place where a name becomes part of a path."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ...errors import StudyError

__all__ = ["NAME_LENGTH", "check_name", "named_entry", "safe_name"]

NAME_LENGTH = 80
_NAME = re.compile(rf"\w[\w .+-]{{0,{NAME_LENGTH - 1}}}")
_ENTRY_BYTES = 200  # with temporary suffixes it stays below the 255 characters of file systems


def check_name(name: str, what: str) -> None:
    """Raise `StudyError` unless *name* is valid for a new *what*, such as ``a workload``.

    It is never a path.
    """
    if not _NAME.fullmatch(name):
        raise StudyError(
            f"'{name[:NAME_LENGTH]}' cannot name {what}; use up to {NAME_LENGTH} letters, digits, blanks and "
            ". _ + -, and begin with a letter or digit."
        )


def safe_name(text: str, default: str) -> str:
    """Return *text*, which was not given as a name, as a valid name; *default* if it is empty."""
    plain = re.sub(r"[^\w .+-]+", "-", text).lstrip(" .+-")[:NAME_LENGTH].rstrip(" .+-")
    return plain or default


def named_entry(folder: Path, name: str, what: str) -> Path:
    """Return the path of the *what* called *name* in *folder*, never outside.

    Existing names, such as "job (copy)", may be less strict than new ones. Raises `StudyError` for a name
    that leads elsewhere or is hidden.
    """
    if not 0 < len(os.fsencode(name)) <= _ENTRY_BYTES or name.startswith(".") or {"/", "\0"} & {*name}:
        raise StudyError(
            f"'{name[:NAME_LENGTH]}' is not the name of {what} in a study; give a plain name, without a path."
        )
    return folder / name
