"""``chakrascope runs``: the runs of a study, with their labels, tags and notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from ._output import console, format_option, print_frame, print_json, print_rows


@click.command("runs")
@click.argument("study_folder", metavar="STUDY", type=click.Path(path_type=Path))
@click.option(
    "--find", default="", metavar="TEXT", help="Only runs with this text: in label, note, network..."
)
@click.option("--run", "run_id", metavar="ID", help="The run that --label, --tag and --note apply to.")
@click.option("--label", help='A new label for the run; "" restores the original one.')
@click.option("--tag", "tags", multiple=True, help='Tags that replace those of the run; "" removes all.')
@click.option("--note", help='A note on the run; "" removes it.')
@click.option("--delete", "doomed", multiple=True, metavar="ID", help="Delete a run. Repeatable.")
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
    from ..runner import REPLAY, Study
    from ..runner.study import run_rows, run_table

    study = Study.open(study_folder)
    if (run_id is None) != (label is None and note is None and not tags):
        raise UsageError("--run ID needs --label, --tag or --note, and the reverse. Next: give both.")
    if run_id is not None:
        study.annotate(study.run_info(run_id).id, label=label, note=note, tags=tags or None)
    for found in [study.run_info(name).id for name in doomed]:
        study.delete_run(found)
        if output_format == "table":
            console.print(f"Deleted run {found}.")
    if output_format == "csv":
        print_frame(run_table(study.runs(), find), "csv")
        return
    rows = run_rows(study.runs(), find)
    if output_format == "json":
        print_json(rows)
    else:
        print_rows(_for_people(rows), title="Runs")
        default = study.default_run()
        if default is not None and default.backend == REPLAY:
            console.print(f"Without --run, commands answer for {default.id[:8]}, the capture.", style="dim")


def _for_people(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the columns that fit on a terminal."""
    notes = [name for name in ("tags", "note") if any(row[name] for row in rows)]
    # A default label contains both.
    redundant = all(row["label"] == f"{row['backend']} on {row['network']}" for row in rows)
    what = [] if redundant else ["backend", "network"]
    steps = ["steps"] if any(row["steps"] > 1 for row in rows) else []
    names = ["id", "label", *what, "ranks", "makespan_ns", *steps, *notes]
    return [{name: row[name] for name in names} for row in rows]
