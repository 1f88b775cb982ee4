"""``chakrascope convert``: turn a captured trace set into Chakra graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click
import pandas as pd

from ..converter import Workload, convert
from ..runner import Study
from ._output import console, print_frame, stage

__all__ = ["convert_command", "convert_latest"]


Step = int | Literal["all", "median"]


def parse_step(context: click.Context, parameter: click.Parameter, text: str) -> Step:
    """Return the step that *text* names: its number, ``median`` or ``all``."""
    if text == "all":
        return "all"
    if text == "median":
        return "median"
    if text.isdigit():
        return int(text)
    raise click.BadParameter(f"'{text}' is no step; use median, all or a step's number.", context, parameter)


def convert_latest(study: Study, step: Step) -> Workload:
    """Convert the newest trace set of *study* and keep the workload there."""
    trace_dir = study.latest_trace_set()
    with stage(f"converted {trace_dir.name} to Chakra graphs"):
        workload = convert(trace_dir, step=step)
        study.add_workload(workload, trace_dir.name)
    return workload


def print_accounting(workload: Workload) -> None:
    """Say how much of each rank's measured step the graph explains."""
    accounting = workload.metadata.get("accounting", {})
    if accounting:
        rows = [{"rank": int(rank), **figures} for rank, figures in accounting.items()]
        print_frame(pd.DataFrame(rows), "table", title="Measured step, explained by the graph")


@click.command("convert")
@click.argument("study_folder", metavar="STUDY", type=click.Path(path_type=Path))
@click.option(
    "--step",
    default="median",
    show_default=True,
    callback=parse_step,
    help="Which captured step: median, all, or its number.",
)
def convert_command(study_folder: Path, step: Step) -> None:
    """Turn the newest trace set of STUDY into one Chakra graph a rank (.et files ASTRA-sim reads)."""
    workload = convert_latest(Study.open(study_folder), step)
    print_accounting(workload)
    nodes = sum(len(graph.nodes) for graph in workload.graphs)
    console.print(f"{workload.num_ranks} rank(s), {nodes:,} nodes.")
    console.print(f"Next: chakrascope run {study_folder} --network PRESET")
