"""Decide what may name a folder of a study, wherever the name comes from."""

from __future__ import annotations

import re

from ...errors import StudyError

__all__ = ["check_name"]

_LENGTH = 80
_NAME = re.compile(rf"\w[\w .+-]{{0,{_LENGTH - 1}}}")


def check_name(name: str, what: str) -> None:
    """Raise `StudyError` unless *name* can name *what*, such as ``a workload``; it is never a path."""
    if not _NAME.fullmatch(name):
        raise StudyError(
            f"'{name[:_LENGTH]}' cannot name {what}; use up to {_LENGTH} letters, digits, blanks and . _ + "
            "-, and begin with a letter or digit."
        )
