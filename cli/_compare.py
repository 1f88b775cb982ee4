"""``chakrascope compare``: compare the runs of a study with each other and with the measurement."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UsageError
from ..support import change_text, count_text, duration_text, new_file, share_text
from ..support.table import frame_bytes
from ._options import Choice
from ._output import (
    console,
    counter,
    error_console,
    format_option,
    print_columns,
    print_frame,
    print_json,
    print_other_views,
    records,
    stage,
)
from ._run import print_foreign_compute
from ._studies import MEASURED

if TYPE_CHECKING:
    import pandas as pd

    from ..runner import Comparison, Study

VIEWS = ("settings", "overview", "kinds", "ranks", "nodes", "collectives", "flows", "errors", "paths")
# Columns of each table that fit on a terminal, some of them under shorter names.
_SHOWN = {
    "overview": ["makespan_ns", "relative", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"],
    "kinds": ["key", "duration_ns", "share"],
    "ranks": ["rank", "finish_ns_base", "finish_ns_other", "relative",
              "exposed_comm_ns_base", "exposed_comm_ns_other"],
    "nodes": ["rank", "node_id", "name", "base_ns", "other_ns", "delta_ns", "relative"],
    "collectives": ["operation", "size_bytes", "base_ns", "other_ns", "delta_ns", "relative"],
    "flows": ["src", "dst", "bytes", "turn", "base_ns", "other_ns", "delta_ns", "relative"],
    "errors": ["of", "key", "count", "median", "worst", "worst_is"],
    "paths": ["segments_in_common", "diverge_at_ns", "base_goes_to", "other_goes_to", "on_both"],
}  # fmt: skip
_NAMES = {
    "finish_ns_base": "base_ns",
    "finish_ns_other": "other_ns",
    "exposed_comm_ns_base": "exposed_base_ns",
    "exposed_comm_ns_other": "exposed_other_ns",
    "segments_in_common": "common",
}
_TITLES = {"overview": "Step time of each result", "kinds": "Critical path by kind"}
_MAX_SHOWN = 10
_TEXTS = {"median": change_text, "worst": change_text, "on_both": share_text}
# Tables that fit on one screen together; --view prints any other.
_FIRST = ("settings", "overview", "kinds")


@click.command("compare")
@click.argument("study_folder", metavar="STUDY", type=click.Path(path_type=Path))
@click.option(
    "--run",
    "run_ids",
    multiple=True,
    help="Run to compare; the first run is the reference. [default: the newest runs that can be aligned]",
)
@click.option("--measured", is_flag=True, help="Use the measured step as the reference run.")
@click.option(
    "--why",
    is_flag=True,
    help="Simulate how much each differing setting contributes to the difference in step time.",
)
@click.option(
    "--view",
    type=Choice(VIEWS),
    help="Table of the comparison to print. [default: settings, overview and kinds; JSON: all]",
)
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Folder for all tables of the comparison, as Parquet files.",
)
@format_option
def compare_command(
    *,
    study_folder: Path,
    run_ids: tuple[str, ...],
    measured: bool,
    why: bool,
    view: str | None,
    folder: Path | None,
    output_format: str,
) -> None:
    """Compare runs of STUDY on several backends or networks, or simulated runs with the measured step.

    Both runs need the same number of ranks; `chakrascope sweep STUDY --over network=A,B` compares clusters
    of any size.

    The tables compare settings, totals, ranks, nodes, collectives and messages, and show the distribution
    of errors and the point where the critical paths diverge. Nodes are aligned by their ids.

    With --why, all combinations of the differing settings are simulated, at most 32. The contribution of a
    setting is the mean effect of changing it, over all orders in which the settings can be changed; the
    contributions add up to the difference.
    """
    from ..runner import Study
    from ..runner.analysis import TIME_FORMULA, comparison_text

    study = Study.open(study_folder)
    if MEASURED in run_ids:
        raise UsageError(
            "--why simulates the settings by which two runs differ, and a measurement has no such settings. "
            "Next: name two simulations with --run."
            if why
            else (
                "'measured' is not the ID of a run. Next: use --measured, which makes the measured step the "
                "reference run."
            )
        )
    if why:
        if measured or view is not None or folder is not None:
            raise UsageError(
                "--why prints only the contributions of settings. Next: leave out --measured, --view and -o."
            )
        _print_causes(study, run_ids, output_format)
        return
    comparison = _comparison(study, run_ids, measured=measured)
    if output_format == "table":
        _print_subject(study, _chosen(study, run_ids, at_least=1 if measured else 2))
    if folder is not None:
        _write(comparison, folder)
    if output_format == "csv" and view == "nodes":
        print_columns(comparison.node_columns(comparison.num_nodes), output_format="csv")
    elif output_format == "csv" or (view and output_format == "json"):
        print_frame(getattr(comparison, view or "overview"), output_format)
    elif output_format == "json":
        tables = {name: records(getattr(comparison, name)) for name in VIEWS}
        print_json(tables | {"formula": TIME_FORMULA, "notes": comparison.notes})
    else:
        if view is None:
            console.print_text(f"\n{comparison_text(comparison.labels, comparison.overview)}\n", "bold")
        for name in (view,) if view else _FIRST:
            if name == "settings":
                _print_settings(comparison.settings)
            elif name == "nodes":
                _print(name, comparison.first_nodes(_MAX_SHOWN), comparison.num_nodes)
            else:
                _print(name, getattr(comparison, name))
        for note in comparison.notes:
            console.print_text(note)
        console.print_text(TIME_FORMULA, "dim")
        if view is None:
            print_other_views(VIEWS, _FIRST)
            if _is_attributable(comparison):
                console.print_text("--why simulates how much each differing setting contributes.", "dim")
        console.print_text(f"Reference run: {comparison.labels[0]}; --run ID and --measured choose another.")


def _is_attributable(comparison: Comparison) -> bool:
    """Return whether --why accepts the compared runs: two simulations with different settings."""
    from ..runner import about_backend

    replay = any(about_backend(result.backend).replays for result in comparison.results)
    return len(comparison.results) == 2 and not replay and bool(comparison.settings["differs"].any())


def _print_subject(study: Study, run_ids: Sequence[str]) -> None:
    """Print the first line of the output, with the workload, the runs, their backends and networks."""
    infos = [study.run_info(run_id) for run_id in run_ids]
    ranks = count_text(infos[0].num_ranks, "rank")
    runs = ", ".join(f"{info.id[:8]} ({info.backend} on {info.network})" for info in infos)
    text = f"{infos[0].workload}, {ranks}: {'run' if len(infos) == 1 else 'runs'} {runs}"
    console.print_text(text, "dim")


def _print_causes(study: Study, run_ids: tuple[str, ...], output_format: str) -> None:
    """Print how much each differing setting contributes to the difference in step time of two runs."""
    from ..runner.analysis import analyse_run, difference_of_runs
    from ..runner.study import run_name

    chosen = _chosen(study, run_ids, at_least=2)
    if len(chosen) > 2 and run_ids:
        raise UsageError(
            "--why explains the difference between exactly two runs. Next: name two runs with --run."
        )
    base, other = (analyse_run(study, run_id) for run_id in chosen[-2:])
    with stage(f"simulated the settings by which {base.info.id} and {other.info.id} differ") as status:
        table = difference_of_runs(base, other, counter(status, "simulations, at most"))
    if output_format != "table":
        print_frame(table, output_format)
        return
    _print_subject(study, [base.info.id, other.info.id])
    print_foreign_compute(study, [base.info.id, other.info.id])
    delta = other.result.makespan_ns - base.result.makespan_ns
    print_frame(table.drop(columns="share"), "table", title="Contribution of each setting to the step time")
    console.print_text(
        f"{run_name(other.info)} ({other.info.id[:8]}) takes {duration_text(abs(delta))} "
        f"{'longer' if delta >= 0 else 'less'} than {run_name(base.info)} ({base.info.id[:8]}), which is "
        "the sum of the column delta. The column alone is the change if only that setting differs."
    )


def _comparison(study: Study, run_ids: tuple[str, ...], *, measured: bool) -> Comparison:
    from ..runner import compare, measured_result
    from ..runner.study import run_name

    chosen = _chosen(study, run_ids, at_least=1 if measured else 2)
    infos = [study.run_info(run_id) for run_id in chosen]
    if len({info.workload for info in infos}) > 1:
        raise UsageError(
            "These runs simulate different workloads, so their nodes cannot be aligned. Next: compare their "
            "steps with `chakrascope diff`, or clusters with `chakrascope sweep`."
        )
    workload = study.run_workload(infos[0].id)
    labels = [info.backend for info in infos]
    if len(set(labels)) < len(labels):
        labels = [run_name(info) for info in infos]
    if len(set(labels)) < len(labels):
        labels = [f"{run_name(info)} ({info.id[:6]})" for info in infos]
    results = [study.result(info.id) for info in infos]
    if measured:
        results, labels = [measured_result(workload), *results], ["measured", *labels]
    return compare(results, workload, labels)


def _chosen(study: Study, run_ids: tuple[str, ...], at_least: int) -> Sequence[str]:
    """Return the runs that the user named, or else the newest runs whose nodes can be matched."""
    if run_ids and len(run_ids) < at_least:
        raise UsageError(
            "A comparison needs a second run. Next: name it with another --run (`chakrascope runs "
            f"{study.path}` lists them), or add --measured."
        )
    return run_ids or _comparable(study, at_least)


def _comparable(study: Study, at_least: int) -> list[str]:
    """Return the newest runs of the same workload and number of ranks, the oldest first.

    Only their nodes can be matched. Raises `UsageError` for fewer than *at_least*.
    """
    alike: dict[tuple[str, int], list[str]] = {}
    for run in reversed(study.runs()):
        alike.setdefault((run.workload, run.num_ranks), []).append(run.id)
    several = next((ids for ids in alike.values() if len(ids) >= at_least), None)
    if several is None:
        raise UsageError(
            "No two runs of the study have the same workload and number of ranks. Next: run the workload on "
            "another backend or network, or add --measured to compare a run with the measurement."
        )
    return several[::-1]


def _write(comparison: Comparison, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in VIEWS:
        with new_file(folder / f"{name}.parquet") as temporary:
            temporary.write_bytes(frame_bytes(getattr(comparison, name)))
    error_console.print_done(f"wrote {', '.join(f'{name}.parquet' for name in VIEWS)} into {folder}.")


def _print_settings(table: pd.DataFrame) -> None:
    """Print the settings that differ between the runs, and count those that do not."""
    unlike = table[table["differs"]].drop(columns="differs")
    alike = count_text(len(table) - len(unlike), "setting")
    if unlike.empty:
        console.print_text(f"All {alike} are equal.")
    else:
        print_frame(unlike, "table", title="Settings that differ", all_columns=True)
        console.print_text(f"The other {alike} are equal; --view settings --format csv lists them.", "dim")


def _print(name: str, table: pd.DataFrame, count: int | None = None) -> None:
    """Print those columns of *table* that fit on a terminal.

    *table* may hold only the first of *count* rows.
    """
    if name == "flows" and table.empty:
        console.print_text("No two of these results recorded flows.", "dim")
        return
    several = name == "overview" or table["result"].nunique() > 1
    names = _NAMES | ({"key": "kind"} if name == "kinds" else {})
    shown = table[[*["result"] * several, *_SHOWN[name]]].rename(columns=names)
    texts = {column: text for column, text in _TEXTS.items() if column in shown}
    shown = shown.assign(**{column: shown[column].map(text) for column, text in texts.items()})
    print_frame(shown, "table", title=_TITLES.get(name, name.capitalize()), limit=_MAX_SHOWN, count=count)
