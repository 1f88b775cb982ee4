"""``chakrascope summary``: print the bottleneck of the step, and the changes that would help most."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ._options import LateChoice
from ._output import console, format_option, print_columns, print_frame, print_json, print_rows
from ._studies import open_run, run_option

if TYPE_CHECKING:
    from ..runner.analysis import Summary

# Columns that fit on a terminal 80 characters wide; JSON and CSV contain all columns.
_KIND_COLUMNS = (
    "kind",
    "steps",
    "min_ns",
    "median_ns",
    "max_ns",
    "idle_ns",
    "kernels",
    "launches",
    "bound_by",
)
_MOST_STEPS = 32
_STEP_COLUMNS = ["step", "kind", "tokens", "duration_ns", "compute_ns", "idle_ns",
                 "kernels", "bound_by"]  # fmt: skip


def print_headline(summary: Summary) -> None:
    """Print the one-sentence answer of the summary, and the notes that qualify the answer."""
    console.print(f"\n{summary.headline}\n", style="bold", markup=False)
    if summary.step:
        console.print(f"{summary.step}\n", style="dim", markup=False)
    for line in summary.qualifiers:
        console.print(f"Note: {line}", style="yellow", markup=False, soft_wrap=True)


def _views() -> tuple[str, ...]:
    from ._views import VIEWS

    return tuple(VIEWS)


@click.command("summary")
@click.argument("paths", metavar="STUDY|TRACE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@run_option
@click.option(
    "--view",
    type=LateChoice(_views),
    metavar="TABLE",
    help="Print one table instead of the summary: advice, kinds, operators, ranks, streams, steps, layers, "
    "collectives, slack, links, dimensions, loads, traffic, traffic-busy, traffic-flows, link-use, flows, "
    "packets or calibration.",
)
@click.option("--rank", type=int, help="Print only rows of this rank (with --view).")
@click.option("--node", type=int, help="Print only rows of the node with this id (with --view).")
@format_option
def summary_command(
    *,
    paths: tuple[Path, ...],
    run_id: str | None,
    view: str | None,
    rank: int | None,
    node: int | None,
    output_format: str,
) -> None:
    """Print what bounds a run of STUDY, and the changes that would help most, each with its gain.

    TRACEs are Kineto traces of the ranks of a job, their folder, or an archive: `summary` explains their
    measured step.
    Converted traces are cached, so that the next call answers at once.

    Gains come from simulating the run with the change, as `what-if` does. Runs of more
    than 2 million events, or of 125,000 different nodes, have upper bounds instead, marked "at most".
    """
    from ..converter.checks import step_kinds, step_rows
    from ..runner.analysis import TIME_FORMULA, advice_text, gain_text

    if view is None and (rank is not None or node is not None):
        raise UsageError("--rank and --node select rows of a table. Next: add --view, such as --view slack.")
    run = open_run(paths, run_id, output_format)
    if view == "steps" and output_format == "table" and rank is None and node is None:
        steps = step_rows(run.workload)
        if steps:
            _print_steps(steps)
            return
    if view is not None:
        from ._views import print_view

        print_view(run, view, output_format, rank=rank, node=node)
        return
    if output_format == "csv":
        print_frame(run.advice, "csv")
        return
    summary = run.summary
    if output_format == "json":
        steps = step_rows(run.workload)
        more = {"deviation": run.deviation, "steps": steps, "steps_by_kind": step_kinds(steps)}
        print_json(summary.to_json() | more)
    else:
        print_headline(summary)
        if run.deviation:
            console.print(f"{run.deviation}\n", style="yellow", markup=False)
        rows = [
            {"what": item.what, "how": advice_text(item), "gain": gain_text(item), "share": item.share}
            for item in summary.advice
        ]
        print_rows(rows, title="What would help, and what it gains")
        if summary.together:
            console.print(f"{summary.together}\n", markup=False)
        study = shlex.quote(str(paths[0] if len(paths) == 1 else run.study.path))
        for key in [item.key for item in summary.advice if item.key][:1]:
            command = f"chakrascope what-if {study} --run {run.info.id} --faster {shlex.quote(key)}"
            console.print(f"Simulate the first again: {command}\n", style="dim", markup=False, soft_wrap=True)
        print_columns(summary.columns("kinds"), title="Critical path by kind", limit=16)
        print_columns(summary.columns("ranks"), title="Ranks", limit=16)
        console.print(f"[dim]{TIME_FORMULA}[/]")


def _print_steps(steps: list[dict[str, Any]]) -> None:
    """Print the measured times of captured steps as two tables, by kind of step and by single step."""
    from ..converter.checks import step_kinds

    kinds = [
        {name: row[name] for name in _KIND_COLUMNS} | {"kind": row["kind"] or "step"}
        for row in step_kinds(steps)
    ]
    print_rows(kinds, title="Captured steps by kind, as measured (kernels, launches: medians)")
    shown = [{name: row[name] for name in _STEP_COLUMNS} for row in steps[:_MOST_STEPS]]
    print_rows(shown, title="Each captured step, on the rank where it took longest")
    if len(steps) > _MOST_STEPS:
        console.print(f"The first {_MOST_STEPS} of {len(steps):,} steps; --format csv has all.", style="dim")
