"""``chakrascope compare``: runs of a study side by side."""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from ..errors import UsageError
from ..runner import Study, compare
from ._output import console, format_option, print_frame, print_json

__all__ = ["compare_command"]

VIEWS = ("overview", "ranks", "collectives", "nodes", "paths")


@click.command("compare")
@click.argument("study_folder", metavar="STUDY", type=click.Path(path_type=Path))
@click.option(
    "--run",
    "run_ids",
    multiple=True,
    help="A run; the first is the base. [default: the newest that can be aligned]",
)
@click.option("--view", type=click.Choice(VIEWS), help="Print this table only. [default: all of them]")
@format_option
def compare_command(
    study_folder: Path, run_ids: tuple[str, ...], view: str | None, output_format: str
) -> None:
    """Compare runs of STUDY: backends or networks against each other, or against what was measured.

    A `replay` run holds the measured times (`chakrascope run STUDY --backend replay`).
    """
    study = Study.open(study_folder)
    chosen = run_ids or _comparable(study)
    infos = [study.run_info(run_id) for run_id in chosen]
    if len({info.workload for info in infos}) > 1:
        raise UsageError("These runs simulate different workloads, so that their nodes cannot be aligned.")
    labels = [info.backend for info in infos]
    if len(set(labels)) < len(labels):
        labels = [f"{info.backend} on {info.network}" for info in infos]
    results = [study.result(info.id) for info in infos]
    comparison = compare(results, study.run_workload(infos[0].id), labels)
    if output_format == "csv" or (view and output_format == "json"):
        print_frame(getattr(comparison, view or "overview"), output_format)
    elif output_format == "json":
        print_json({name: getattr(comparison, name).to_dict(orient="records") for name in VIEWS})
    else:
        for name in (view,) if view else VIEWS:
            print_frame(_for_people(getattr(comparison, name)), "table", title=name.capitalize(), limit=20)
        console.print(f"Against {labels[0]}, the base; --run ID chooses others.")


def _comparable(study: Study) -> list[str]:
    """Return the newest runs that can be aligned, oldest first: of one workload and one number of ranks."""
    alike: dict[tuple[str, int], list[str]] = {}
    newest_first = sorted(study.runs(), key=lambda run: run.created, reverse=True)
    for run in newest_first:
        alike.setdefault((run.workload, run.num_ranks), []).append(run.id)
    several = next((ids for ids in alike.values() if len(ids) > 1), None)
    if several is None:
        raise UsageError(
            "No two runs of the study have the same workload and number of ranks; run it with another "
            "backend or network, or as measured with `chakrascope run STUDY --backend replay`."
        )
    return several[::-1]


def _for_people(table: pd.DataFrame) -> pd.DataFrame:
    """Return *table* with its shares as percentages."""
    shares = [name for name in ("relative", "p05", "median", "p95", "worst", "on_both") if name in table]
    shown: pd.DataFrame = table.assign(**{name: table[name].map("{:+.1%}".format) for name in shares})
    return shown
