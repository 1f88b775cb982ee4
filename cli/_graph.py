"""``chakrascope graph``: find nodes, show a node's dependencies and dependents, or fold the graph."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..errors import UsageError
from ..runner.analysis import FEW_HOPS, FOLDS, MOST_HOPS
from ._options import LateChoice
from ._output import format_option, print_frame, print_json
from ._studies import of_a_run, open_run

_MOST_ROWS = 1_000_000  # that a terminal, or a program behind it, is given
# Columns that do not fit on a terminal.
_WIDE = ("start_ns", "kind", "hops", "band")


def _kinds() -> dict[str, int]:
    """Return the kinds of edges by their names on the command line."""
    from ..runner.analysis import EDGE_LABELS

    return {label.replace(" ", "-"): kind for kind, label in EDGE_LABELS.items()}


@click.command("graph")
@of_a_run
@click.argument("text", required=False)
@click.option(
    "--count",
    type=click.IntRange(1, _MOST_ROWS),
    default=20,
    show_default=True,
    help="With TEXT: maximum number of nodes to list.",
)
@click.option(
    "--rank", type=int, help="The node's rank. [default: that of the longest segment of the critical path]"
)
@click.option("--node", type=int, help="Id of the node. [default: that of the longest segment]")
@click.option(
    "--hops",
    type=click.IntRange(1, MOST_HOPS),
    default=FEW_HOPS,
    show_default=True,
    help="Number of hops around the node.",
)
@click.option(
    "--fold",
    type=click.Choice(list(FOLDS)),
    default="nodes",
    show_default=True,
    help="Instead, aggregate one rank by module, phase or stream, or the whole job by rank.",
)
@click.option(
    "--edge",
    "edges",
    multiple=True,
    type=LateChoice(_kinds),
    metavar="KIND",
    help="Follow only edges of this kind, such as data. Repeatable.",
)
@click.option(
    "--view", type=click.Choice(["nodes", "edges"]), help="Print this table only. [default: both; CSV: nodes]"
)
@format_option
def graph_command(
    *,
    study_folder: Path,
    run_id: str | None,
    text: str | None,
    count: int,
    rank: int | None,
    node: int | None,
    hops: int,
    fold: str,
    edges: tuple[str, ...],
    view: str | None,
    output_format: str,
) -> None:
    """Show the dependencies and dependents of a node, with the kind of each edge, or summarise the graph.

    With TEXT, list the longest nodes whose name, operator or module contains TEXT, or whose id it is.
    """
    from ..runner.analysis import found_nodes, graph_tables, longest_segment

    run = open_run(study_folder, run_id, output_format)
    if text is not None:
        nodes = found_nodes(run.nodes, run.words, text, count)
        print_frame(
            nodes.drop(columns="kind") if output_format == "table" else nodes, output_format, title="Nodes"
        )
        return
    longest_rank, longest_node = longest_segment(run.path)
    rank = longest_rank if rank is None else rank
    if not 0 <= rank < run.info.num_ranks:
        raise UsageError(f"There is no rank {rank}: the run has ranks 0 to {run.info.num_ranks - 1}.")
    node = longest_node if node is None and rank == longest_rank else node
    if fold == "nodes" and (node is None or run.row(rank, node) < 0):
        asked = "no --node is given" if node is None else f"no node {node} of rank {rank} ran"
        raise UsageError(
            f"{asked[:1].upper()}{asked[1:]}. Next: `chakrascope graph {study_folder} TEXT "
            f"--run {run.info.id}` lists nodes with their ids."
        )
    known = _kinds()
    kinds = [known[name] for name in edges] or list(known.values())
    tables = graph_tables(run, rank, -1 if node is None else node, fold=fold, hops=hops, kinds=kinds)
    if view is None and output_format == "json":
        print_json({name: json.loads(table.to_json(orient="records")) for name, table in tables.items()})
    elif view is not None or output_format == "csv":
        print_frame(tables[view or "nodes"], output_format, limit=40)
    else:
        for name, table in tables.items():
            shown = table.drop(columns=[column for column in _WIDE if column in table])
            print_frame(shown, "table", title=name.capitalize(), limit=40)
