"""``chakrascope find``: nodes by what they are called."""

from __future__ import annotations

from pathlib import Path

import click

from ._output import format_option, print_frame
from ._studies import of_a_run, open_run

__all__ = ["find_command"]

_MOST = 1_000_000  # rows that a terminal, or a program behind it, is given


@click.command("find")
@of_a_run
@click.argument("text")
@click.option("--count", default=20, show_default=True, type=click.IntRange(1, _MOST), help="How many.")
@format_option
def find_command(study_folder: Path, run_id: str | None, text: str, count: int, output_format: str) -> None:
    """List the longest nodes of a run of STUDY with TEXT in their name, operator or module, or as id."""
    from ..runner.analysis import found_nodes

    run = open_run(study_folder, run_id)
    found = found_nodes(run.nodes, run.words, text, count)
    shown = found.drop(columns="kind") if output_format == "table" else found
    print_frame(shown, output_format, title="Nodes found")
