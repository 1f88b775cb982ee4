"""``chakrascope summary``: what bounds the step, and what would help."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ._output import console, format_option, print_frame, print_json
from ._studies import of_a_run, open_run

if TYPE_CHECKING:
    from ..runner.analysis import Summary

__all__ = ["print_headline", "summary_command"]


def print_headline(summary: Summary) -> None:
    """Print the one-sentence answer, and before it what makes it less than it seems."""
    for line in summary.qualifiers:
        console.print(f"Note: {line}", style="yellow", markup=False, soft_wrap=True)
    console.print(f"\n{summary.headline}\n", style="bold", markup=False)


@click.command("summary")
@of_a_run
@click.option(
    "--view",
    type=click.Choice(["advice", "kinds", "ranks"]),
    help="Print this table only. [default: all of them; with --format csv the advice]",
)
@format_option
def summary_command(study_folder: Path, run_id: str | None, view: str | None, output_format: str) -> None:
    """Say in one sentence what bounds a run of STUDY, and what would help, with the most each can gain."""
    from ..runner.analysis import TIME_FORMULA

    run = open_run(study_folder, run_id)
    summary = run.summary
    tables = {
        "advice": run.advice,
        "kinds": summary.kinds,
        "ranks": summary.ranks,
    }
    if view is not None or output_format == "csv":
        print_frame(tables[view or "advice"], output_format)
    elif output_format == "json":
        print_json(summary.to_json() | {"advice": tables["advice"].to_dict(orient="records")})
    else:
        print_headline(summary)
        titles = {"advice": "What would help, and what it gains at most", "kinds": "Critical path by kind"}
        for name, table in tables.items():
            print_frame(table, "table", title=titles.get(name, "Ranks"), limit=16)
        console.print(f"[dim]{TIME_FORMULA}[/]")
