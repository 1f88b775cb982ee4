"""``chakrascope runs``: the runs of a study, what they are called and what was noted about them."""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from ..errors import UsageError
from ..runner import Study
from ..runner.study import run_table
from ._output import console, format_option, print_frame

__all__ = ["runs_command"]


@click.command("runs")
@click.argument("study_folder", metavar="STUDY", type=click.Path(path_type=Path))
@click.option(
    "--find", default="", metavar="TEXT", help="Only runs with this text: in label, note, network..."
)
@click.option("--run", "run_id", metavar="ID", help="The run that --label, --tag and --note apply to.")
@click.option("--label", help='A new label for the run; "" restores the original one.')
@click.option("--tag", "tags", multiple=True, help='Tags that replace those of the run; "" removes all.')
@click.option("--note", help='A note on the run; "" removes it.')
@click.option("--delete", "doomed", multiple=True, metavar="ID", help="Delete a run; may be repeated.")
@format_option
def runs_command(
    *,
    study_folder: Path,
    find: str,
    run_id: str | None,
    label: str | None,
    tags: tuple[str, ...],
    note: str | None,
    doomed: tuple[str, ...],
    output_format: str,
) -> None:
    """List the runs of STUDY, the newest first, after labelling, tagging, annotating or deleting some.

    The first letters of an ID are enough if no other begins with them. A result itself never changes.
    """
    study = Study.open(study_folder)
    if (run_id is None) != (label is None and note is None and not tags):
        raise UsageError("--run ID goes with --label, --tag or --note. Next: name a run and what to write.")
    if run_id is not None:
        study.annotate(study.run_info(run_id).id, label=label, note=note, tags=tags or None)
    for found in [study.run_info(name).id for name in doomed]:
        study.delete_run(found)
        if output_format == "table":
            console.print(f"Deleted run {found}.")
    table = run_table(study.runs(), find)
    print_frame(_for_people(table) if output_format == "table" else table, output_format, title="Runs")


def _for_people(table: pd.DataFrame) -> pd.DataFrame:
    """Return what fits on a terminal."""
    notes = [name for name in ("tags", "note") if (table[name] != "").any()]
    shown: pd.DataFrame = table[["id", "label", "backend", "network", "ranks", "makespan_ns", *notes]]
    return shown
