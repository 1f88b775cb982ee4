"""``chakrascope report``: write the report of a run as one self-contained HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import UsageError
from ._output import console
from ._studies import of_a_run, open_run


@click.command("report")
@of_a_run
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="HTML file to write.",
)
@click.option("--overwrite", is_flag=True, help="Replace the HTML file if it exists.")
def report_command(study_folder: Path, run_id: str | None, output: Path, *, overwrite: bool) -> None:
    """Write a report on a run of STUDY to one HTML file, which needs no server and no network."""
    from ..viewer import write_report

    if output.is_file() and not overwrite:
        raise UsageError(f"{output} exists already. Next: add --overwrite, or -o with another name.")
    run = open_run(study_folder, run_id, "table")
    console.print_text(f"Wrote {write_report(run.study, run.info.id, output)}")
