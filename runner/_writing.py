"""Writing into a study: what the system refuses becomes an error that says what to do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import StudyError

__all__ = ["writing"]


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an `OSError` of the block, which writes *folder*, into a `StudyError`."""
    try:
        yield
    except OSError as error:
        # Libraries raise errors with a number and a text of their own.
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StudyError(
            f"{folder} cannot be written ({reason}); free some disk space, or see who may write there."
        ) from error
