"""``chakrascope timeline``: list the operators in a time window, and export the timeline for Perfetto."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UsageError
from ..support import duration_text, new_file, parse_duration, writing
from ._options import quantity
from ._output import console, format_option, print_frame
from ._studies import of_a_run, open_run
from ._views import print_stacks

if TYPE_CHECKING:
    import pandas as pd

    from ..runner.analysis import RunAnalysis

_RANKS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_NO_END_NS = 1 << 62
_MILLISECONDS = quantity(lambda text: float(parse_duration(text, bare="ms") / 10**6))


def parse_ranks(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Parse --ranks, such as ``3`` or ``0-7``, to the first and the last rank."""
    if value is None:
        return None
    ends = _RANKS.fullmatch(value)
    first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, -1)
    if first > last:
        raise click.BadParameter(f"'{value}' is not a range of ranks, such as 3 or 0-7.")
    return first, last


@click.command("timeline")
@of_a_run
@click.option(
    "--from",
    "from_ms",
    metavar="TIME",
    callback=_MILLISECONDS,
    default="0",
    show_default=True,
    help="Start of the window, such as 1.5ms; a number alone is in ms.",
)
@click.option(
    "--to",
    "to_ms",
    metavar="TIME",
    callback=_MILLISECONDS,
    help="End of the window, such as 2ms. [default: the end of the step]",
)
@click.option(
    "--ranks", callback=parse_ranks, metavar="FIRST[-LAST]", help="Ranks to include. [default: all]"
)
@click.option(
    "--nested", is_flag=True, help=("Also list phases, modules and operators, with times summed by name.")
)
@click.option(
    "--host", is_flag=True, help="List host calls of the captured step by call stack, instead of operators."
)
@click.option("--measured", is_flag=True, help="List measured times instead of simulated times.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the whole timeline to this Chrome trace file.",
)
@format_option
def timeline_command(
    *,
    study_folder: Path,
    run_id: str | None,
    from_ms: float,
    to_ms: float | None,
    ranks: tuple[int, int] | None,
    nested: bool,
    host: bool,
    measured: bool,
    output: Path | None,
    output_format: str,
) -> None:
    """List the operators in a time window of a run, with their number of calls, time and kind.

    With --host, list the captured step's host calls in the window, summed by call stack as in the
    viewer's flame graph. With -o FILE.json, also write the whole timeline and its critical path for
    Perfetto.
    """
    from ..runner.analysis import Lanes, at_measured_times

    run = open_run(study_folder, run_id, output_format)
    if measured and not run.is_measured:
        raise UsageError("The workload of this run was not captured, so nothing was measured.")
    if host and (nested or measured):
        raise UsageError("--host lists measured host calls. Next: leave out --nested and --measured.")
    nodes = at_measured_times(run.nodes) if measured else run.nodes
    lanes = Lanes(nodes, nested=nested)
    window = round(1e6 * from_ms), lanes.makespan_ns if to_ms is None else round(1e6 * to_ms)
    if not host and window[0] >= lanes.makespan_ns:
        end = duration_text(lanes.makespan_ns)
        raise UsageError(
            f"The window begins after the end of the step at {end}. Next: give an earlier --from."
        )
    if not 0 <= window[0] < window[1]:
        raise UsageError(f"The window from {from_ms} to {to_ms} ms is empty. Next: give --from before --to.")
    first, last = ranks or (0, run.info.num_ranks - 1)
    chosen = lanes.table.index[lanes.table["rank"].between(first, last)]
    if chosen.empty:
        raise UsageError(f"There are no ranks {first}-{last}: the run has 0 to {run.info.num_ranks - 1}.")
    if host:
        # Without --to, the window has no end: the captured step may be longer than the simulated one.
        until = window[1] if to_ms is not None else _NO_END_NS
        print_stacks(run, range(first, last + 1), (window[0], until), output_format)
    else:
        inside = lanes.area(*window, chosen.tolist())
        _print_operators(nodes, inside, window, output_format, nested=nested)
    if output is not None:
        _write(run, output, measured=measured)


def _print_operators(
    nodes: pd.DataFrame,
    inside: pd.DataFrame,
    window: tuple[int, int],
    output_format: str,
    *,
    nested: bool,
) -> None:
    """Print the operators of the slices of *nodes* *inside* a time window, with their total times."""
    from ..runner.analysis import area_names, area_overview, area_table

    table = (area_names if nested else area_table)(nodes, inside)
    if output_format != "table":
        print_frame(table, output_format)
    else:
        print_frame(table.drop(columns="longest_ns"), "table", title="Operators in the window", limit=40)
        facts = area_overview(nodes, inside, window[1] - window[0])
        console.print_text("; ".join(f"{label}: {text}" for label, text in facts), "dim")


def _write(run: RunAnalysis, file: Path, *, measured: bool) -> None:
    with (
        writing(file, UsageError),
        new_file(file, parents=True) as temporary,
        temporary.open("w", encoding="utf-8") as out,
    ):
        out.writelines(run.trace(measured=measured))
