"""Turns at a service, which holds one simulation: a second client would overwrite the first one's files.

A turn is a lock on a file of the user. The file names the simulation at the service, so that the next client
notices if a process was killed before it could stop its simulation.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ....errors import BackendError

__all__ = ["Turn", "turn"]

_POLL_S = 0.1


class Turn:
    """The right to use a service, with a note of the running simulation."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        file.seek(0)
        self.left_behind = file.read(100).decode("ascii", "replace")
        """What may still run at the service, as nobody saw it end; ``""`` if nothing does."""

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Note that *name* runs; the note is removed when the block ends without an error."""
        self._write(name)
        yield
        self._write("")

    def _write(self, name: str) -> None:
        self._file.truncate(0)
        self._file.write(name.encode("ascii"))
        self._file.flush()


@contextmanager
def turn(place: str, keep_on: Callable[[], None]) -> Iterator[Turn]:
    """Wait until no other process of this user uses the service at *place*, and lock it.

    *keep_on* is called ten times a second meanwhile. The turn of a process that dies ends with it.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", "~"), ".cache")
    folder = Path(base).expanduser() / "chakrascope" / "service"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / place.strip("[]").replace(":", "-")).open("a+b")
    except OSError as error:
        raise BackendError(
            f"The folder {folder}, where clients of one service agree on their turns, cannot be used "
            f"({error.strerror}); set XDG_CACHE_HOME to another folder."
        ) from error
    with file:
        while not _try_lock(file.fileno()):
            keep_on()
            time.sleep(_POLL_S)
        yield Turn(file)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
