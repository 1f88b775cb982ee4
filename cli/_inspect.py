"""``chakrascope inspect`` and ``export``: look into Chakra workloads, and hand them to other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pandas as pd

from ..converter import (
    EXPORT_FORMATS,
    Finding,
    Workload,
    export_graph,
    inspect_node,
    inspect_workload,
    load_workload,
)
from ..errors import UsageError
from ..runner import Study
from ._doctor import print_findings
from ._output import console, format_option, print_frame, print_json

__all__ = ["export_command", "inspect_command"]


def open_workload(target: str) -> Workload:
    """Return the workload of a study, or of ``PREFIX.<rank>.et`` files, or of one such file."""
    if Study.is_study(target):
        return Workload.load(Study.open(target).workload_prefix())
    return load_workload(target)


@click.command("inspect")
@click.argument("target", metavar="STUDY|PREFIX|FILE.et")
@click.option("--rank", default=0, show_default=True, help="The rank of --node.")
@click.option("--node", type=int, help="Show everything known about this node instead.")
@format_option
def inspect_command(target: str, rank: int, node: int | None, output_format: str) -> None:
    """Print the counts and sizes of a workload, or one node in full."""
    workload = open_workload(target)
    if node is None:
        facts = inspect_workload(workload)
        if output_format == "json":
            print_json(facts)
        else:
            _print_workload(facts, output_format)
        return
    if not 0 <= rank < workload.num_ranks:
        raise UsageError(f"There is no rank {rank}: the workload has ranks 0 to {workload.num_ranks - 1}.")
    print_json(inspect_node(workload.graphs[workload.program_of_rank[rank]], node))


def _print_workload(facts: dict[str, Any], output_format: str) -> None:
    rows = []
    for rank, figures in facts["ranks"].items():
        plain = {key: value for key, value in figures.items() if not isinstance(value, (dict, list))}
        counts = {
            f"{group} {name}": value
            for group, values in figures.items()
            if isinstance(values, dict)
            for name, value in values.items()
            if not isinstance(value, (dict, list))
        }
        rows.append(pd.Series({**plain, **counts}, name=f"rank {rank}"))
    table = pd.DataFrame(rows).T.rename_axis("figure").reset_index()
    print_frame(table.fillna(""), output_format, title="Workload")
    if output_format == "table":
        print_findings([Finding(**finding) for finding in facts["findings"]], "the graphs")
        console.print("One node in full: --node ID [--rank N]. Everything: --format json.")


@click.command("export")
@click.argument("target", metavar="STUDY|PREFIX|FILE.et")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The file to write.")
@click.option(
    "--as",
    "file_format",
    type=click.Choice(list(EXPORT_FORMATS)),
    help="[default: what the file's name says]",
)
@click.option("--rank", default=0, show_default=True, help="The rank, where the format holds one.")
def export_command(target: str, output: Path, file_format: str | None, rank: int) -> None:
    """Write a workload's graph for other tools: JSON, GraphML, DOT, Parquet, or a Chrome trace for Perfetto.

    Parquet holds the nodes of all ranks, or their edges (FILE.edges.parquet).
    """
    by_name = {".json": "json", ".graphml": "graphml", ".dot": "dot", ".gv": "dot", ".parquet": "parquet"}
    chosen = file_format or by_name.get(output.suffix)
    if file_format is None and output.name.endswith(".edges.parquet"):
        chosen = "parquet-edges"
    if chosen is None:
        raise UsageError(f"The name {output} does not say which format to write; add --as FORMAT.")
    console.print(f"Wrote {export_graph(open_workload(target), output, chosen, rank=rank)}")
