"""A study for one command: opened, or made and taken back if the command fails before it holds anything."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ChakrascopeError

if TYPE_CHECKING:
    from ..runner import Study

__all__ = ["new_study"]


@contextlib.contextmanager
def new_study(folder: Path) -> Iterator[Study]:
    """Hold the study at *folder* for the block, made if there is none.

    One that was made for a block that fails with an error of ours, and holds no run, is removed again: a
    misspelled preset leaves nothing behind. Workloads in it are copies then.
    """
    from ..runner import Study

    known, existed = Study.is_study(folder), folder.exists()
    study = Study.create(folder)
    try:
        yield study
    except ChakrascopeError:
        if not known and not study.runs():
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if not existed:
                folder.rmdir()
        raise
