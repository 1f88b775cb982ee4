"""``chakrascope summary``: print the bottleneck of the step, and the changes that would help most."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from ._options import LateChoice
from ._output import (
    console,
    format_option,
    print_clocks,
    print_frame,
    print_json,
    print_ranks,
    print_rows,
)
from ._studies import chosen_run, open_run, open_study, print_run, run_option

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


def print_headline(answer: Mapping[str, Any]) -> None:
    """Print the headline of a summary as JSON, and the notes that qualify it."""
    console.print_text(f"\n{answer['headline']}\n", "bold")
    if answer["step"]:
        console.print_text(f"{answer['step']}\n", "dim")
    for line in answer["qualifiers"]:
        console.print_text(f"Note: {line}", "yellow")


def print_kinds(answer: Mapping[str, Any]) -> None:
    """Print the critical path by kind of a summary as JSON."""
    rows = [
        {"kind" if name == "key" else name: value for name, value in row.items()}
        for row in answer["critical_path_by_kind"]
    ]
    print_rows(rows, title="Critical path by kind")


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
    if view is None and (rank is not None or node is not None):
        raise UsageError(
            "--rank and --node select rows of a table, and no table is chosen. Next: add --view, such as "
            "--view slack."
        )
    if view is None and output_format != "csv":
        _print_answer(paths, run_id, output_format)
        return
    run = open_run(paths, run_id, output_format)
    if view == "steps" and output_format == "table" and rank is None and node is None:
        from ..converter.checks import step_rows

        steps = step_rows(run.workload)
        if steps:
            _print_steps(steps)
            return
    if view is None:
        print_frame(run.advice, "csv")
        return
    from ._views import print_view

    print_view(run, view, output_format, rank=rank, node=node)


def _print_answer(paths: Sequence[Path], run_id: str | None, output_format: str) -> None:
    """Print the summary of a run. A cached summary needs no analysis, whose imports take long."""
    from ..runner.analysis import TIME_FORMULA, Advice, advice_text, answer_of, common_steps, gain_text

    study = open_study(paths)
    info = study.run_info(chosen_run(study, run_id))
    answer = answer_of(study, info.id)
    if output_format == "json":
        print_json(answer)
        return
    print_run(info, study.runs() if run_id is None else (), answer["measured_ranks"])
    print_headline(answer)
    if answer["deviation"]:
        console.print_text(f"{answer['deviation']}\n", "yellow")
    advice = [Advice(**item) for item in answer["advice"]]
    common = common_steps(advice)
    rows = [
        {"what": item.what, "how": advice_text(item), "gain": gain_text(item, common), "share": item.share}
        for item in advice
    ]
    print_rows(rows, title=f"Changes that would help, and their gains{f' in {common}' * bool(common)}")
    if answer["together"]:
        console.print_text(f"{answer['together']}\n")
    given = shlex.quote(str(paths[0] if len(paths) == 1 else study.path))
    for item in [item for item in advice if item.key][:1]:
        command = f"chakrascope what-if {given} --run {info.id} --faster {shlex.quote(item.key)}"
        text = f"Next: simulate '{item.what}': {command}\n"
        console.print(text, style="dim", markup=False, soft_wrap=True)
    print_kinds(answer)
    print_ranks(answer["ranks"])
    console.print_text(TIME_FORMULA, "dim")
    print_clocks(answer["clocks"], answer["measured_ranks"], info.num_ranks)


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
