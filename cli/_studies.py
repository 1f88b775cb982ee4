"""What the commands that explain a run of a study have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ..runner.analysis import RunAnalysis

__all__ = ["of_a_run", "open_run"]

Command = TypeVar("Command", bound=Callable[..., Any])


def of_a_run(command: Command) -> Command:
    """Add the argument STUDY and the option --run."""
    command = click.option("--run", "run_id", help="The run to explain. [default: the newest]")(command)
    return click.argument("study_folder", metavar="STUDY", type=click.Path(path_type=Path))(command)


def open_run(study_folder: Path, run_id: str | None) -> RunAnalysis:
    """Return a run of a study, the newest unless *run_id* names one, with every answer derived from it."""
    from ..runner import Study
    from ..runner.analysis import analyse_run

    return analyse_run(Study.open(study_folder), run_id)
