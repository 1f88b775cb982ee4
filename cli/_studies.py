"""What the commands that explain a run of a study have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..support import count_text
from ._output import console

if TYPE_CHECKING:
    from ..runner import RunInfo
    from ..runner.analysis import RunAnalysis

__all__ = ["of_a_run", "open_run", "print_run", "run_option"]

Command = TypeVar("Command", bound=Callable[..., Any])


run_option = click.option(
    "--run", "run_id", metavar="ID", help="The run to explain; see `chakrascope runs`. [default: the newest]"
)


def of_a_run(command: Command) -> Command:
    """Add the argument STUDY and the option --run."""
    return click.argument("study_folder", metavar="STUDY", type=click.Path(path_type=Path))(
        run_option(command)
    )


def open_run(study_folder: Path, run_id: str | None, output_format: str = "") -> RunAnalysis:
    """Return a run of a study, the newest unless *run_id* names one, with every answer derived from it.

    A table for people begins with what the run is of.
    """
    from ..runner import Study
    from ..runner.analysis import analyse_run

    run = analyse_run(Study.open(study_folder), run_id)
    if output_format == "table":
        print_run(run.info)
    return run


def print_run(info: RunInfo) -> None:
    """Print what an answer is about: the run, its workload, ranks, backend and network."""
    ranks = count_text(info.num_ranks, "rank")
    where = "as measured" if info.backend == "replay" else f"{info.backend} on {info.network}"
    console.print(f"Run {info.id[:8]}: {info.workload}, {ranks}, {where}", style="dim", markup=False)
