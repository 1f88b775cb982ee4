"""``chakrascope critical-path``: print the chain of work and waits that determines the step time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import BackendError
from ..runner.analysis import RUN_BREAKDOWNS
from ..support import count_text
from ._options import Choice
from ._output import console, format_option, print_columns, print_frame
from ._studies import of_a_run, open_run
from ._summary import print_headline, print_kinds

if TYPE_CHECKING:
    from ..runner import Summary


def print_critical_path(summary: Summary) -> None:
    """Print the headline of *summary*, the critical path by kind of work, and its longest segments."""
    columns = summary.path.columns
    answer = summary.to_json()
    print_headline(answer)
    print_kinds(answer)
    durations = columns["duration_ns"]
    longest = (-durations).argsort(kind="stable")[:8]
    names = ("rank", "name", "kind", "start_ns", "duration_ns", "module")
    shown = {name: columns[name][longest] for name in names}
    print_columns(shown, title=f"Longest of the path's {count_text(len(durations), 'segment')}")
    console.print_text(
        "`critical-path --format csv` also prints why each segment waited; `critical-path --by` groups "
        "the segments.",
        "dim",
    )


@click.command("critical-path")
@of_a_run
@click.option(
    "--by",
    type=Choice(RUN_BREAKDOWNS),
    help="Sum the segments by this property, instead of listing them.",
)
@format_option
def critical_path_command(study_folder: Path, run_id: str | None, by: str | None, output_format: str) -> None:
    """Print the critical path across ranks of a run of STUDY. Its segments add up exactly to the step."""
    run = open_run(study_folder, run_id, output_format)
    if by == "link":
        from ..runner.analysis import why_no_links

        if why_no_links(run.result):
            raise BackendError(why_no_links(run.result))
    if by is not None:
        table = run.breakdown(by)
        if output_format == "table":
            table = table.rename(columns={"key": by})
        print_frame(table, output_format, title=f"Critical path by {by}", limit=40)
    elif output_format == "table":
        print_critical_path(run.summary)
    else:
        print_frame(run.path.segments, output_format)
