"""What the commands that explain a run of a study have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["of_a_run"]

Command = TypeVar("Command", bound=Callable[..., Any])


def of_a_run(command: Command) -> Command:
    """Add the argument STUDY and the option --run."""
    command = click.option("--run", "run_id", help="The run to explain. [default: the newest]")(command)
    return click.argument("study_folder", metavar="STUDY", type=click.Path(path_type=Path))(command)
