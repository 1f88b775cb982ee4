"""The study of a command: opened, or created and removed again if the command fails before using it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ChakrascopeError

if TYPE_CHECKING:
    from ..runner import Study


@contextlib.contextmanager
def new_study(folder: Path) -> Iterator[Study]:
    """Open the study at *folder* for the block, created if there is none.

    If the block fails with an error of ours, a new study without a run is removed again, so a misspelled
    preset leaves nothing behind. Its workloads are copies in that case.
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
