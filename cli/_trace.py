"""``chakrascope trace``: capture an unmodified training script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..runner import Study
from ..tracer import TraceSet, trace
from ._output import error_console

__all__ = ["capture_into", "capture_options", "trace_command"]

Command = TypeVar("Command", bound=Callable[..., Any])


def capture_options(command: Command) -> Command:
    """Add the options that say which steps to capture."""
    command = click.option("--steps", default=3, show_default=True, help="Training steps to capture.")(
        command
    )
    return click.option(
        "--warmup", default=3, show_default=True, help="Training steps to let pass before capturing."
    )(command)


def capture_into(study: Study, command: tuple[str, ...], *, warmup: int, steps: int) -> TraceSet:
    """Run *command*, leave its trace set in *study*, and say where."""
    folder = study.new_trace_dir()
    trace_set = trace(list(command), folder, warmup=warmup, steps=steps)
    error_console.print(
        f"[green]✓[/] captured {len(trace_set.ranks)} rank(s) into {folder}"
        + (f" [yellow](partial: {'; '.join(trace_set.reasons)})[/]" if trace_set.partial else "")
    )
    return trace_set


@click.command("trace", context_settings={"ignore_unknown_options": True})
@click.option(
    "-o",
    "--output",
    "study_folder",
    type=click.Path(path_type=Path),
    default=Path("study"),
    show_default=True,
    help="The study folder; made when it does not exist.",
)
@capture_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def trace_command(study_folder: Path, warmup: int, steps: int, command: tuple[str, ...]) -> int:
    """Run COMMAND (python, torchrun, ...) unchanged and capture a few training steps of every rank.

    Everything after `--` is the command as you would type it.
    """
    trace_set = capture_into(Study.create(study_folder), command, warmup=warmup, steps=steps)
    return trace_set.exit_code
