"""``chakrascope summary``: print the bottleneck of the step, and the changes that would help most."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ._options import LateChoice
from ._output import console, format_option, print_columns, print_frame, print_json, print_ranks, print_rows
from ._studies import open_run, run_option

if TYPE_CHECKING:
    from ..runner.analysis import Summary

# Columns that fit on a terminal of 80 characters; JSON and CSV have all columns.
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
_SHOWN = {"bound_by": "most time in"}
_OF_STEPS = (
    "Most of its time: the largest of a rank's computation, exposed communication, copies and host time, not "
    "the bound on the critical path across ranks of `summary`. Steps that were not converted are missing: "
    "`convert --step all` converts every captured step."
)
_MAX_STEPS = 32
_STEP_COLUMNS = ["step", "kind", "tokens", "duration_ns", "compute_ns", "idle_ns",
                 "kernels", "bound_by"]  # fmt: skip


def print_headline(summary: Summary) -> None:
    """Print the summary's one-sentence answer and the notes that qualify it."""
    console.print_text(f"\n{summary.headline}\n", "bold")
    if summary.step:
        console.print_text(f"{summary.step}\n", "dim")
    for line in summary.qualifiers:
        console.print_text(f"Note: {line}", "yellow")


def print_kinds(summary: Summary) -> None:
    """Print the critical path of *summary* by kind."""
    columns = dict(summary.columns("kinds"))
    print_columns({"kind": columns.pop("key"), **columns}, title="Critical path by kind")


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
@click.option("--rank", type=int, help="Print only the rows of this rank; needs --view.")
@click.option("--node", type=int, help="Print only the rows of the node with this id; needs --view.")
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
    """Print what bounds a run of STUDY, and the changes that would shorten the step most.

    TRACEs are Kineto traces of the ranks of a job, their folder, or an archive: `summary` explains the
    measured step. Converted traces are cached, so that the next call answers at once.

    The gain of a change comes from simulating the run with the change, as `what-if` does. For runs with more
    than 2 million events or 125,000 different nodes, gains are upper bounds, marked "at most".
    """
    from ..runner.analysis import TIME_FORMULA, advice_text, common_steps, gain_text

    if view is None and (rank is not None or node is not None):
        raise UsageError(
            "--rank and --node select rows of a table, and no table is chosen. Next: add --view, such as "
            "--view slack."
        )
    run = open_run(paths, run_id, output_format)
    if view == "steps" and output_format == "table" and rank is None and node is None:
        from ..converter.checks import step_rows

        steps = step_rows(run.workload)
        if steps:
            _print_steps(steps)
            return
    from ._views import print_clocks, print_view

    if view is not None:
        print_view(run, view, output_format, rank=rank, node=node)
        return
    if output_format == "csv":
        print_frame(run.advice, "csv")
        return
    summary = run.summary
    if output_format == "json":
        from ..converter.checks import step_kinds, step_rows

        steps = step_rows(run.workload)
        more = {"deviation": run.deviation, "steps": steps, "steps_by_kind": step_kinds(steps)}
        print_json(summary.to_json() | more)
    else:
        print_headline(summary)
        if run.deviation:
            console.print_text(f"{run.deviation}\n", "yellow")
        common = common_steps(summary.advice)
        rows = [
            {
                "what": item.what,
                "how": advice_text(item),
                "gain": gain_text(item, common),
                "share": item.share,
            }
            for item in summary.advice
        ]
        print_rows(rows, title=f"Changes that would help, and their gains{f' in {common}' * bool(common)}")
        if summary.together:
            console.print_text(f"{summary.together}\n")
        study = shlex.quote(str(paths[0] if len(paths) == 1 else run.study.path))
        for item in [item for item in summary.advice if item.key][:1]:
            command = f"chakrascope what-if {study} --run {run.info.id} --faster {shlex.quote(item.key)}"
            text = f"Next: simulate '{item.what}': {command}\n"
            console.print(text, style="dim", markup=False, soft_wrap=True)
        print_kinds(summary)
        print_ranks(summary.columns("ranks"))
        console.print_text(TIME_FORMULA, "dim")
        print_clocks(run)


def _print_steps(steps: list[dict[str, Any]]) -> None:
    """Print the durations of captured steps, by kind of step and one by one."""
    from ..converter.checks import step_kinds

    kinds = [
        {_SHOWN.get(name, name): row[name] for name in _KIND_COLUMNS} | {"kind": row["kind"] or "step"}
        for row in step_kinds(steps)
    ]
    print_rows(
        kinds, title=("Converted steps by kind, as measured (numbers of kernels and launches are medians)")
    )
    annotated = any(row["tokens"] >= 0 for row in steps)
    columns = [name for name in _STEP_COLUMNS if annotated or name not in ("kind", "tokens")]
    shown = [{_SHOWN.get(name, name): row[name] for name in columns} for row in steps[:_MAX_STEPS]]
    print_rows(shown, title="Each converted step, on the rank where it took longest")
    console.print_text(_OF_STEPS, "dim")
    if len(steps) > _MAX_STEPS:
        console.print_text(f"The first {_MAX_STEPS} of {len(steps):,} steps; --format csv has all.", "dim")
