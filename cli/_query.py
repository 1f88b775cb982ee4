"""``chakrascope query``: answer SQL queries of a run."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import UsageError
from ..support import parse_duration
from ._options import quantity
from ._output import console, error_console, format_option, print_frame
from ._studies import of_a_run, open_run

_LONGEST_NS = 86_400 * 10**9


@click.command("query")
@of_a_run
@click.argument("sql", required=False)
@click.option("--tables", is_flag=True, help="List the tables with their columns and units.")
@click.option("--examples", is_flag=True, help="Print example queries.")
@click.option(
    "--rows",
    default=1_000,
    show_default=True,
    type=click.IntRange(1, 10_000_000),
    help="Maximum number of rows of the result.",
)
@click.option(
    "--timeout",
    "timeout_ns",
    default="30s",
    show_default=True,
    callback=quantity(lambda text: float(parse_duration(text, bare="s"))),
    help="Time limit of the query.",
)
@format_option
def query_command(
    *,
    study_folder: Path,
    run_id: str | None,
    sql: str | None,
    tables: bool,
    examples: bool,
    rows: int,
    timeout_ns: float,
    output_format: str,
) -> None:
    """Query a run of STUDY with one SQL SELECT over its nodes, ranks, collectives, links and other tables.

    A query cannot write, and cannot access files or the network. `query` needs DuckDB (pip install
    chakrascope[query]).
    """
    from ..runner.analysis import SQL_EXAMPLES, query_run, sql_columns

    if examples:
        for title, text in SQL_EXAMPLES.items():
            console.print(f"-- {title}\n{text};\n", markup=False, soft_wrap=True)
        return
    if timeout_ns > _LONGEST_NS:
        raise UsageError("--timeout must be a day or less.")
    run = open_run(study_folder, run_id, output_format)
    if tables:
        print_frame(sql_columns(run), output_format)
        return
    if not sql:
        raise UsageError("The query is missing. Give a SELECT, or --tables or --examples.")
    answer = query_run(run, sql, rows=rows, timeout_s=timeout_ns / 1e9)
    print_frame(answer.table, output_format)
    if answer.more:
        error_console.print_text(
            f"The result has more rows; --rows {10 * rows} prints up to {10 * rows} rows.", "yellow"
        )
