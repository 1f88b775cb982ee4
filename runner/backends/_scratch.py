"""Scratch folders for files of external programs; those of killed processes are removed, too."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["require_space", "scratch_folder"]

_PREFIX = "chakrascope-"
_LOCK = ".in-use"
_SPACE_BYTES = 1 << 16


@contextlib.contextmanager
def scratch_folder(base: Path | None = None) -> Iterator[Path]:
    """Create and lock a new folder in *base*, by default the temporary folder, and remove it afterwards.

    A killed process leaves its folder behind; unlocked ones are removed first. Raises `OSError` if none can
    be created.
    """
    place = Path(tempfile.gettempdir()) if base is None else base
    _clear(place)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        fresh = folder / f"{_LOCK}.new"
        with fresh.open("wb") as lock:
            # Renamed only once it is locked, or another process might take the folder for abandoned.
            fcntl.flock(lock, fcntl.LOCK_EX)
            fresh.rename(folder / _LOCK)
            yield folder


def require_space(folder: Path) -> None:
    """Raise `OSError` if the disk of *folder* is full: a program may have written truncated files."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        os.posix_fallocate(probe.fileno(), 0, _SPACE_BYTES)


def _clear(place: Path) -> None:
    """Remove the folders in *place* that no process locks any more."""
    for lock in place.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError), lock.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
