"""``chakrascope trace``: capture an unmodified training script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import ChakrascopeError, UsageError
from ..support import count_text
from ._options import joined
from ._output import error_console

if TYPE_CHECKING:
    from ..runner import Study
    from ..tracer import TraceSet

study_option = click.option(
    "-o",
    "--output",
    "study_folder",
    type=click.Path(path_type=Path),
    default=Path("study"),
    show_default=True,
    help="Folder of the study; created if it does not exist.",
)


capture_options = joined(
    click.option(
        "--warmup",
        default=3,
        show_default=True,
        help="Number of training steps to skip before the capture; 0 captures from the start.",
    ),
    click.option(
        "--no-stacks",
        "stacks",
        is_flag=True,
        flag_value=False,
        default=True,
        help="Do not sample the Python stacks of the script's threads.",
    ),
    click.option(
        "--fake-world",
        default=0,
        metavar="N",
        help="Run one process as rank 0 of N; fake process groups replace the other ranks.",
    ),
    click.option(
        "--steps",
        default=3,
        show_default=True,
        help="Number of training steps to capture; 0 records only the duration of every step, for "
        "`diagnose`.",
    ),
)


def capture_into(
    study: Study,
    command: tuple[str, ...],
    *,
    warmup: int,
    steps: int,
    stacks: bool = True,
    fake_world: int = 0,
) -> TraceSet:
    """Run the training *command*, store its trace set in *study*, and print its path."""
    from ..tracer import trace

    folder = study.new_trace_dir()
    try:
        trace_set = trace(
            list(command),
            folder,
            warmup=warmup,
            steps=steps,
            stacks=stacks,
            fake_world=fake_world,
            on_status=lambda sentence: error_console.print_text(sentence, "dim"),
        )
    except ChakrascopeError:
        study.discard_empty(folder)
        raise
    partial = f" (partial: {'; '.join(trace_set.reasons)})" if trace_set.partial else ""
    error_console.print_done(f"captured {count_text(len(trace_set.ranks), 'rank')} into {folder}{partial}")
    for note in trace_set.notes:
        error_console.print_text(f"{note[0].upper()}{note[1:]}.", "dim")
    return trace_set


def _trace_set_dir(folder: Path) -> Path:
    """Return the newest trace set in the study *folder*, or *folder* if that is no study."""
    from ..runner import Study

    return Study.open(folder).latest_trace_set() if Study.is_study(folder) else folder


@click.command("trace", context_settings={"ignore_unknown_options": True})
@study_option
@capture_options
@click.option(
    "--collect",
    "folders",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Merge captures of the same job from other hosts, instead of running COMMAND. Repeatable.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def trace_command(
    *,
    study_folder: Path,
    warmup: int,
    steps: int,
    stacks: bool,
    fake_world: int,
    folders: tuple[Path, ...],
    command: tuple[str, ...],
) -> int:
    """Run COMMAND (python, torchrun, ...) unchanged and capture a few training steps of every rank.

    Everything after `--` is the training command as you would type it.
    """
    from ..runner import Study
    from ..tracer import collect

    if bool(command) == bool(folders):
        raise UsageError(
            "No command is given. Next: add the training command after `--`, or --collect FOLDER for the "
            "trace set of each host."
        )
    study = Study.create(study_folder)
    if folders:
        folder = study.new_trace_dir()
        try:
            trace_set = collect([_trace_set_dir(path) for path in folders], folder)
        except ChakrascopeError:
            study.discard_empty(folder)
            raise
        error_console.print_done(f"collected {count_text(len(trace_set.ranks), 'rank')} into {folder}")
        return 0
    window = {"warmup": warmup, "steps": steps, "fake_world": fake_world}
    return capture_into(study, command, **window, stacks=stacks).exit_code
