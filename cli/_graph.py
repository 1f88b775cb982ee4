"""``chakrascope graph``: count, find and show the nodes of a graph, and export the graph for other tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..errors import UsageError
from ..runner.analysis import FEW_HOPS, FOLDS, MAX_HOPS
from ..support import count_text, duration_text, ranks_text
from ._doctor import print_findings
from ._options import Choice, LateChoice
from ._output import console, format_option, print_frame, print_json, records
from ._studies import are_logs, holds_traces, open_run, open_study, run_option

if TYPE_CHECKING:
    import pandas as pd

    from ..converter import Workload

_TITLES = {"num_ops": "floating-point operations", "longest_chain_nodes": "longest chain, in nodes"}
_MAX_COLUMNS = 2  # maximum number of groups of ranks with a column each
_MAX_ROWS = 1_000_000  # maximum value of --count
# Columns that are left out on a terminal to save width.
_WIDE = ("start_ns", "kind", "hops", "band")


def _kinds() -> dict[str, int]:
    """Return the number of each kind of edge by its name on the command line."""
    from ..runner.analysis import EDGE_LABELS

    return {label.replace(" ", "-"): kind for kind, label in EDGE_LABELS.items()}


def _formats() -> Iterable[str]:
    from ..converter import EXPORT_FORMATS

    return EXPORT_FORMATS


# Options that select a part of a run's graph; without them, the workload's content is printed.
_OF_A_RUN = {"run_id", "rank", "node", "hops", "fold", "edges", "view"}


@click.command("graph")
@run_option
@click.argument("target", metavar="STUDY|TRACE|PREFIX|FILE.et")
@click.argument("text", required=False)
@click.option(
    "--count",
    type=click.IntRange(1, _MAX_ROWS),
    default=20,
    show_default=True,
    help="Maximum number of nodes to list for TEXT.",
)
@click.option(
    "--rank",
    type=int,
    help="Rank of the node to show. [default: the rank of the longest segment of the critical path]",
)
@click.option(
    "--node",
    type=int,
    help="Id of the node to show. [default: the node of the longest segment of the critical path]",
)
@click.option(
    "--hops",
    type=click.IntRange(1, MAX_HOPS),
    default=FEW_HOPS,
    show_default=True,
    help="Show the neighbours that are at most this many edges away from the node.",
)
@click.option(
    "--fold",
    type=Choice(list(FOLDS)),
    default="nodes",
    show_default=True,
    help="Group the nodes of one rank by module, phase or stream, or those of the whole job by rank.",
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
    "--view",
    type=Choice(["nodes", "edges"]),
    help="Print only this table of the node and its neighbours.",
)
@click.option(
    "--content",
    is_flag=True,
    help=(
        "Print counts of the graph's nodes and bytes (the default); with --node, print every attribute of "
        "the node."
    ),
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Export the graph to this file, as JSON, GraphML, DOT, Parquet, or a Chrome trace for Perfetto.",
)
@click.option(
    "--as",
    "file_format",
    type=LateChoice(_formats),
    help="Format of the file given by -o. [default: from the suffix of its name]",
)
@format_option
@click.pass_context
def graph_command(
    ctx: click.Context,
    /,
    *,
    target: str,
    run_id: str | None,
    text: str | None,
    count: int,
    rank: int | None,
    node: int | None,
    hops: int,
    fold: str,
    edges: tuple[str, ...],
    view: str | None,
    content: bool,
    output: Path | None,
    file_format: str | None,
    output_format: str,
) -> None:
    """Count the nodes and bytes of a graph, find nodes, show the dependencies of a node, or export the graph.

    Without options, `graph` prints counts. With TEXT, `graph` lists the longest nodes with TEXT in their
    name, operator or module, or the node with the id TEXT. With --node, `graph` shows the dependencies and
    dependents of a node in a run, with the kind of each edge; --fold summarises the dependencies. With -o,
    `graph` exports the graph. Parquet contains the nodes of all ranks, or the edges if the name of FILE ends
    in .edges.parquet. GraphML and DOT contain one rank.
    """
    from ..runner import Study

    if file_format is not None and output is None:
        raise UsageError("--as sets the format of an exported file. Next: add -o FILE.")
    if not Study.is_study(target) and are_logs([target]):
        raise UsageError(
            f"{target} contains production logs, not graphs. Next: chakrascope diagnose {target}"
        )
    named = [name for name in _OF_A_RUN if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if output is None and not content and (text is not None or (named and _has_runs(target))):
        _print_of_a_run(
            target,
            run_id=run_id,
            text=text,
            count=count,
            rank=rank,
            node=node,
            hops=hops,
            fold=fold,
            edges=edges,
            view=view,
            output_format=output_format,
        )
        return
    workload = _open_workload(target)
    if output is not None:
        _export(workload, output, file_format, rank or 0)
    elif node is None:
        _print_content(target, workload, output_format)
    else:
        _print_node(workload, rank or 0, node)


def _has_runs(target: str) -> bool:
    """Return whether *target* can have runs: a study, or traces, which get one, but not graph files."""
    from ..runner import Study

    path = Path(target)
    return Study.is_study(path) or (not path.name.endswith((".et", ".et.gz")) and holds_traces(path))


def _print_of_a_run(
    target: str,
    *,
    run_id: str | None,
    text: str | None,
    count: int,
    rank: int | None,
    node: int | None,
    hops: int,
    fold: str,
    edges: Sequence[str],
    view: str | None,
    output_format: str,
) -> None:
    """Print nodes of a run that match *text*, the graph around a node, or a folded graph."""
    from ..runner.analysis import graph_tables, longest_segment, node_matches

    run = open_run(Path(target), run_id, output_format)
    if text is not None:
        nodes = node_matches(run.nodes, text, count)
        print_frame(
            nodes.drop(columns="kind") if output_format == "table" else nodes, output_format, title="Nodes"
        )
        return
    longest_rank, longest_node = longest_segment(run.path)
    rank = longest_rank if rank is None else rank
    if not 0 <= rank < run.info.num_ranks:
        raise UsageError(f"There is no rank {rank}: the run has ranks 0 to {run.info.num_ranks - 1}.")
    node = longest_node if node is None and rank == longest_rank else node
    if fold == "nodes" and (node is None or run.node(rank, node) is None):
        asked = "--node is missing" if node is None else f"no node {node} of rank {rank} ran"
        raise UsageError(
            f"{asked[:1].upper()}{asked[1:]}. Next: `chakrascope graph {target} TEXT "
            f"--run {run.info.id}` lists nodes with their ids."
        )
    known = _kinds()
    kinds = [known[name] for name in edges] or list(known.values())
    tables = graph_tables(run, rank, -1 if node is None else node, fold=fold, hops=hops, kinds=kinds)
    if view is None and output_format == "json":
        print_json({name: records(table) for name, table in tables.items()})
    elif view is not None or output_format == "csv":
        print_frame(tables[view or "nodes"], output_format, limit=40)
    else:
        for name, table in tables.items():
            shown = table.drop(columns=[column for column in _WIDE if column in table])
            print_frame(shown, "table", title=name.capitalize(), limit=40)


def _open_workload(target: str) -> Workload:
    """Open the newest workload of a study or of traces, or the graph files with a PREFIX."""
    from ..converter import load_workload

    return open_study(Path(target)).workload() if _has_runs(target) else load_workload(target)


def _print_node(workload: Workload, rank: int, node: int) -> None:
    """Print all attributes of a node of *workload* as JSON."""
    from ..converter import inspect_node

    if not 0 <= rank < workload.num_ranks:
        raise UsageError(f"There is no rank {rank}: the workload has ranks 0 to {workload.num_ranks - 1}.")
    print_json(inspect_node(workload.graphs[workload.program_of_rank[rank]], node))


def _export(workload: Workload, file: Path, file_format: str | None, rank: int) -> None:
    """Write *workload* to *file*, in *file_format* or the format of its suffix."""
    from ..converter import export_graph

    by_name = {".json": "json", ".graphml": "graphml", ".dot": "dot", ".gv": "dot", ".parquet": "parquet"}
    chosen = file_format or by_name.get(file.suffix)
    if file_format is None and file.name.endswith(".edges.parquet"):
        chosen = "parquet-edges"
    if chosen is None:
        raise UsageError(f"The suffix of {file} does not identify a format. Next: add --as FORMAT.")
    console.print_text(f"Wrote {export_graph(workload, file, chosen, rank=rank)}")


def _print_content(target: str, workload: Workload, output_format: str) -> None:
    """Print each rank's number of nodes, messages and bytes, and what `doctor` finds."""
    import pandas as pd

    from ..converter import Finding, inspect_workload

    facts = inspect_workload(workload)
    if output_format == "json":
        print_json(facts)
        return
    figures = {rank: _figures(found) for rank, found in facts["ranks"].items()}
    if output_format == "csv":
        names = dict.fromkeys(name for found in figures.values() for name in found)
        rows = [
            {"figure": name} | {f"rank {rank}": found.get(name, 0) for rank, found in figures.items()}
            for name in names
        ]
        print_frame(pd.DataFrame(rows), output_format)
        return
    console.print_text(f"Workload of {target}: {count_text(workload.num_ranks, 'rank')}", "dim")
    print_frame(_folded(facts["ranks"], figures), "table", title="Workload")
    print_findings([Finding(**finding) for finding in facts["findings"]], "the graphs")
    console.print_text(
        "Add --content --node ID [--rank N] to print every attribute of a node, TEXT to find nodes by name, "
        "or -o FILE to export the graph."
    )


def _figures(found: dict[str, Any]) -> dict[str, int]:
    """Return the numbers among a graph's figures; nested ones are prefixed with their group."""
    plain = {key: value for key, value in found.items() if not isinstance(value, (dict, list))}
    counts = {
        f"{group} {name}": value
        for group, values in found.items()
        if isinstance(values, dict)
        for name, value in values.items()
    }
    return plain | counts


def _folded(programs: Mapping[str, Any], figures: Mapping[str, Mapping[str, int]]) -> pd.DataFrame:
    """Return figures as a table with a column per group of ranks whose figures are equal.

    If there are many groups, the columns are the minimum and the maximum instead.
    """
    import pandas as pd

    names = list(dict.fromkeys(name for found in figures.values() for name in found))
    titles = [_TITLES.get(name) or _figure_title(*name.partition(" ")) for name in names]
    alike: dict[tuple[int, ...], list[int]] = {}
    for program, found in figures.items():
        alike.setdefault(tuple(found.get(name, 0) for name in names), []).extend(programs[program]["ranks"])
    if len(alike) <= _MAX_COLUMNS:
        heads = [f"{'ranks' if len(ranks) > 1 else 'rank'} {ranks_text(ranks)}" for ranks in alike.values()]
        texts = ([*map(_figure_text, names, values)] for values in alike)
        table: pd.DataFrame = pd.DataFrame({"figure": titles, **dict(zip(heads, texts, strict=True))})
    else:
        rows = []
        for name, title, values in zip(names, titles, zip(*alike, strict=True), strict=True):
            ends = [min(values), max(values)]
            where = [_ranks_with(values, end, list(alike.values())) for end in ends]
            least, most = (_figure_text(name, end) for end in ends)
            rows.append((title, least, where[0], most, where[1]))
        table = pd.DataFrame(rows, columns=["figure", "least", "ranks", "most", " ranks"])
    return table


def _figure_title(group: str, space: str, name: str) -> str:
    return f"{group.removesuffix('_ns').replace('_ns_', '_').replace('_', ' ')}{space}{name}"


def _figure_text(name: str, value: int) -> str:
    """Return the *value* of the figure *name* with its unit; -1 is the time of a graph that cannot run."""
    if value < 0:
        return "cannot run"
    return duration_text(value) if name.endswith("_ns") or "_ns_by_" in name else f"{value:,}"


def _ranks_with(values: Sequence[int], value: int, ranks: Sequence[Sequence[int]]) -> str:
    """List the ranks whose value is *value*; *values* has an entry per group."""
    if len(set(values)) == 1:
        return "all"
    having = [rank for own, those in zip(values, ranks, strict=True) if own == value for rank in those]
    return ranks_text(having, most=1)
