"""``chakrascope sweep``: simulate one workload on many clusters."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BackendError, UsageError, did_you_mean
from ..runner.sweep import FIGURES
from ..support import count_text
from ._output import (
    cluster_option,
    console,
    error_console,
    format_option,
    print_frame,
    print_next,
    progress_bar,
)
from ._run import machine_option, on_machine
from ._target import refuse_with_on

if TYPE_CHECKING:
    import pandas as pd

    from ..runner import Study, Sweep
    from ..runner.sweep import Goal, Range
    from ._output import OutputConsole

_MAX_ROWS = 20


def _figure(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    """Return the figure that ``--least`` names, with or without its unit."""
    from ..runner.sweep import figure_of

    if figure_of(name) not in FIGURES:
        raise click.BadParameter(f"'{name}' is not a column of a sweep{did_you_mean(name, FIGURES)}")
    return figure_of(name)


@click.command("sweep")
@click.argument("study_folder", metavar="STUDY", type=click.Path(path_type=Path))
@click.option(
    "--over",
    "axes",
    multiple=True,
    metavar="KEY=VALUE,VALUE,...",
    help="Setting to vary, with its values, such as network.bandwidth=25,50. KEY is network, system, "
    "memory, workload, a key of one of these files, or the algorithm of a collective "
    "(algorithm.all-reduce=ring,FILE). Repeatable.",
)
@click.option(
    "--list",
    "points_file",
    metavar="FILE",
    help="File with the points to simulate, one JSON object of settings per line.",
)
@click.option(
    "--on",
    "machine_names",
    metavar="MACHINE,MACHINE,...",
    help="Clusters to compare: chips with their default network (64xa100,64xh100), presets, or YAML files "
    "with chip, network and memory.",
)
@click.option("--network", help="Network YAML file or preset whose settings --over varies.")
@click.option(
    "--system",
    default="default",
    show_default=True,
    help="System JSON file or preset whose settings --over varies.",
)
@click.option("--memory", help="Memory JSON file or preset whose settings --over varies.")
@click.option("--workload", help="Workload of the study. [default: the newest workload]")
@click.option(
    "--backend",
    "backends",
    multiple=True,
    help="Backend that simulates the workload (repeatable). [default: analytical-unaware]",
)
@machine_option
@click.option(
    "--show", "shown", metavar="NAME", help="Print the table of this earlier sweep, without simulating."
)
@click.option(
    "--front",
    is_flag=True,
    help="Print only the Pareto front of the step time and a second objective (--against).",
)
@click.option(
    "--against",
    metavar="SETTING",
    help="Second objective of --front. [default: ranks, or cost if ranks are equal]",
)
@click.option(
    "--pairs",
    is_flag=True,
    help="Print the shortest step times as a table of the two settings with the most values.",
)
@click.option("--name", help="Name of the sweep. [default: derived from its settings]")
@click.option(
    "--workers",
    type=click.IntRange(0),
    help="Number of worker processes, or of jobs on a batch system (--cluster); with 0, the sweep "
    "runs in the calling process. [default: one per CPU]",
)
@cluster_option
@click.option(
    "--trials",
    type=click.IntRange(min=1, max=100_000),
    help="Let Optuna choose this number of points; --over may then give ranges (LOW..HIGH).",
)
@click.option(
    "--least",
    callback=_figure,
    default="makespan_ns",
    show_default=True,
    metavar="FIGURE",
    help=f"Objective to minimise: {', '.join(FIGURES)}.",
)
@click.option(
    "--at-most",
    "limits",
    multiple=True,
    metavar="FIGURE=NUMBER",
    help="Constraint on the best points, such as makespan_ns=5000000. Repeatable.",
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="[NETWORK=]NUMBER",
    help="Price per rank-hour, on all networks or on one network; or a YAML file of prices.",
)
@click.option(
    "--keep",
    default=1,
    show_default=True,
    type=click.IntRange(0),
    help="Number of best points to store as runs.",
)
@format_option
def sweep_command(
    *,
    study_folder: Path,
    axes: tuple[str, ...],
    points_file: str | None,
    machine_names: str | None,
    backends: tuple[str, ...],
    machine: str | None,
    limits: tuple[str, ...],
    prices: tuple[str, ...],
    least: str,
    trials: int | None,
    shown: str | None,
    front: bool,
    against: str | None,
    pairs: bool,
    output_format: str,
    **choices: Any,
) -> None:
    """Simulate STUDY's workload on several clusters, or with every combination of settings, best first.

    `--on 64xa100,64xh100` compares two clusters. `--over` varies one setting, such as a bandwidth.

    A point (one combination of settings) is simulated only once, so the same command resumes a sweep.
    """
    from ..runner import DEFAULT_BACKEND, Study, read_sweep, run_sweep
    from ..runner.sweep import (
        Goal,
        Prices,
        available_goal,
        comparison_notes,
        grid,
        multiply,
        pair_table,
        parse_limits,
        possible_objectives,
        read_points,
        values_of,
    )

    if (shown is None) == (not axes and points_file is None and machine_names is None):
        raise UsageError(
            "No points are given. Next: add --on 64xa100,64xh100 to compare clusters, --over KEY=VALUE,VALUE "
            "or --list FILE to vary settings, or only --show NAME to print an earlier sweep."
        )
    study = Study.open(study_folder)
    at_most = parse_limits(limits)
    machines = _machines(
        study, machine_names, choices, console if output_format == "table" else error_console
    )
    if shown is not None:
        found = read_sweep(study, shown)
        goal = available_goal(found.points, Goal(least, at_most))
        found = replace(found, points=goal.best_first(found.points))
    else:
        backends = on_machine(machine, backends)
        over = _axes(axes, backends)
        fixed = "--list" if points_file is not None else "--on" if machines else ""
        if trials is None:
            listed = read_points(points_file) if points_file is not None else [{}]
            points = multiply(list(machines.values()) or [{}], multiply(listed, grid(over)))
        elif fixed:
            raise UsageError(
                f"--trials lets a search choose the points, but {fixed} fixes them. Next: leave out one of "
                "the two options."
            )
        if against is not None:
            names = possible_objectives(
                over if trials is not None else values_of(points), priced=bool(prices)
            )
            _check_objective(against, names)
        choices |= {"backend": backends[0] if backends else DEFAULT_BACKEND}
        with _resumable(study_folder), progress_bar("Simulating") as progress:
            found = run_sweep(
                study,
                points if trials is None else over,
                trials=trials,
                least=least,
                at_most=at_most,
                prices=Prices.parse(prices),
                progress=progress,
                **choices,
            )
    failed = shown is None and found.failed == len(found.points)
    raised = found.points["error"].iloc[0] if failed else None
    notes = comparison_notes(study, found.name, found.points)
    for note in notes if output_format == "table" else ():
        console.print_text(note, "bold yellow")
    if pairs:
        print_frame(pair_table(found.points), output_format, title=f"Sweep {found.name}, in pairs")
        _print_errors(found.points, raised)
    else:
        found = replace(found, points=found.points.assign(caveats=" ".join(notes)))
        second = against or ("" if front else None)  # objective of the Pareto front; "": the default
        _print(study_folder, found, output_format, least, machines, front=second, raised=raised)
    _print_unmet_limits(found, Goal(least, at_most))
    if failed:
        count = int((found.points["error"] == raised).sum())
        counted = "" if count == found.failed else f"{count} failed: "
        raise BackendError(f"No point of the sweep has a result: {counted}{raised}")


def _print_errors(points: pd.DataFrame, raised: str | None) -> None:
    """Print the errors of the failed *points* except *raised*, each with the number of its points."""
    errors = points["error"][points["state"] == "failed"]
    for error, count in errors[errors != raised].value_counts().items():
        error_console.print_text(f"{count} failed: {error}", "red")


def _axes(texts: tuple[str, ...], backends: tuple[str, ...]) -> dict[str, list[Any] | Range]:
    from ..runner.sweep import parse_axis

    axes: dict[str, list[Any] | Range] = {}
    for text in texts:
        key, values = parse_axis(text)
        if key in axes:
            raise UsageError(
                f"The setting '{key}' is given twice. Next: give all of its values in one --over."
            )
        axes[key] = values
    return axes | ({"backend": list(backends)} if len(backends) > 1 else {})


@contextmanager
def _resumable(study_folder: Path) -> Iterator[None]:
    """On Ctrl-C, print how far the sweep is, and the command that resumes it."""
    from ..runner.sweep import SweepInterrupted

    try:
        yield
    except SweepInterrupted as stopped:
        show = shlex.join(["chakrascope", "sweep", str(study_folder), "--show", stopped.name])
        error_console.print_text(
            f"{stopped.done:,} of {count_text(stopped.points, 'point')} are stored. Next: repeat the command "
            f"to continue{f', or print the results so far: `{show}`' if stopped.done else '.'}",
        )
        raise


def _worth_their_cost(points: pd.DataFrame, against: str) -> pd.DataFrame:
    """Return the points on the Pareto front; raises `UsageError` for an unknown objective."""
    from ..runner.sweep import answered, front_table, frontier, has_one_value, objectives

    done = points[points["state"] == "done"]
    if not len(done):  # the caller prints why
        empty: pd.DataFrame = done
        return empty
    if not against:
        table: pd.DataFrame = done[frontier(done, "ranks" if done["cost"].isna().any() else "cost")]
        return table
    if has_one_value(done, against):
        fastest: pd.DataFrame = answered(points).head(1)
        return fastest
    _check_objective(against, objectives(done))
    return front_table(points, against)


def _check_objective(against: str, names: list[str]) -> None:
    """Raise `UsageError` if *against* is not among *names*, the second objectives that a sweep can have."""
    if against not in names:
        raise UsageError(
            f"The second objective of the Pareto front cannot be '{against}'{did_you_mean(against, names)}"
        )


def _machines(
    study: Study, names: str | None, choices: dict[str, Any], output: OutputConsole
) -> dict[str, dict[str, Any]]:
    """Return the settings of each machine in ``--on``; print where its compute times come from."""
    from ..runner.prediction import Origin, find_machine

    if names is None:
        return {}
    refuse_with_on(network=choices["network"], memory=choices["memory"], system=choices["system"])
    origin = Origin.of(study.workload(choices["workload"]))
    machines = [find_machine(name) for name in names.split(",") if name.strip()]
    for machine in machines:
        output.print_text(machine.text(origin), "dim")
    return {machine.name: machine.settings(origin) for machine in machines}


def _print(
    study_folder: Path,
    found: Sweep,
    output_format: str,
    least: str,
    machines: Mapping[str, Mapping[str, Any]],
    *,
    front: str | None,
    raised: str | None,
) -> None:
    """Print the points of *found*, or its Pareto *front*; the caller prints the error *raised*."""
    from ..runner.sweep import per_captured_step

    done = found.points[found.points["state"] == "done"]
    if front is not None:
        done = _worth_their_cost(found.points, front)
    if output_format != "table":
        print_frame((found.points if front is None else done).drop(columns="settings"), output_format)
        return
    if len(done):
        scale = "" if per_captured_step(done) is done else " per captured step"
        order = f"by {least.removesuffix('_ns')}" if front is None else f"Pareto front{scale}"
        title = f"Sweep {found.name}, {order}"
        print_frame(_for_people(done, least, machines), "table", title=title, limit=_MAX_ROWS)
    _print_errors(found.points, raised)
    more = f", {found.failed} failed" if found.failed else ""
    console.print_text(
        f"{found.simulated} simulated, {found.reused} from the cache{more}; all points are stored in "
        f"{found.path}"
    )
    if found.missing:
        points = count_text(len(found.points) + found.missing, "point")
        error_console.print_text(
            f"The table has {len(found.points):,} of {points}, because the sweep was interrupted or is still "
            "running. Next: repeat the command that started the sweep to simulate the others.",
            "yellow",
        )
    if found.kept:
        console.print_text(f"Stored as runs: {', '.join(found.kept)}.")
        print_next("view", study_folder, "--run", found.kept[0])


def _print_unmet_limits(found: Sweep, goal: Goal) -> None:
    """Print a notice if no point meets the limits."""
    done = found.points[found.points["state"] == "done"]
    if len(done) and goal.excess(done).min() > 0:
        limits = ", ".join(f"{name}={limit:g}" for name, limit in goal.at_most.items())
        error_console.print_text(f"No point is within the limits ({limits}); the first point comes closest.")


def _for_people(points: pd.DataFrame, least: str, machines: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Return the columns of *points* for a terminal: settings under short names, and the main figures.

    The name of a machine replaces all its settings.
    """
    from ..runner.sweep import WORK

    if machines:
        keys = list(dict.fromkeys(key for machine in machines.values() for key in machine))
        named = [
            next(
                name
                for name, machine in machines.items()
                if all(_equal(row[key], machine.get(key)) for key in keys)
            )
            for row in points[keys].to_dict("records")
        ]
        points = points.drop(columns=keys)
        points.insert(0, "on", named)
    settings = list(points.columns[: points.columns.get_loc("id")])
    ranks = ["ranks"] if points["ranks"].nunique() > 1 else []
    work = WORK if ranks and points[WORK[0]].notna().any() else ()
    cost = ["cost"] if points["cost"].notna().any() else []
    figures = dict.fromkeys([*ranks, "makespan_ns", "exposed_comm_ns", *work, *cost, least])
    shown: pd.DataFrame = points[[*settings, *figures]].round(dict.fromkeys(work, 3))
    short = {name: name.partition(".")[2].removesuffix("-implementation") or name for name in settings}
    unique = len(set(short.values())) == len(short)
    return shown.rename(columns=short) if unique else shown


def _equal(value: Any, setting: Any) -> bool:
    """Return whether the table cell *value* equals *setting*; an empty cell equals None."""
    return value == setting or (
        setting is None and (value is None or (isinstance(value, float) and math.isnan(value)))
    )
