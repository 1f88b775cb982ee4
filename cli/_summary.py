"""``chakrascope summary``: what bounds the step, and what would help."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ._output import console, format_option, print_columns, print_frame, print_json, print_rows
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
    if view is not None or output_format == "csv":
        frames = {"kinds": lambda: summary.kinds, "ranks": lambda: summary.ranks}
        print_frame(frames.get(view or "advice", lambda: run.advice)(), output_format)
        return
    advice = [asdict(item) for item in run.advices()]
    if output_format == "json":
        print_json(summary.to_json() | {"advice": advice})
    else:
        print_headline(summary)
        print_rows(advice, title="What would help, and what it gains at most")
        print_columns(summary.columns("kinds"), title="Critical path by kind", limit=16)
        print_columns(summary.columns("ranks"), title="Ranks", limit=16)
        console.print(f"[dim]{TIME_FORMULA}[/]")
