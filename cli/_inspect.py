"""``chakrascope inspect``: the content of a workload, one node in full, and exports for other tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..support import ranks_text
from ._doctor import print_findings
from ._logs import are_logs
from ._options import LateChoice
from ._output import console, format_option, print_frame, print_json

if TYPE_CHECKING:
    import pandas as pd

    from ..converter import Workload

_MOST_COLUMNS = 2


def _formats() -> Iterable[str]:
    from ..converter import EXPORT_FORMATS

    return EXPORT_FORMATS


def open_workload(target: str) -> Workload:
    """Return the workload of a study, or of ``PREFIX.<rank>.et`` files, or of one such file."""
    from ..converter import Workload, load_workload
    from ..runner import Study

    if Study.is_study(target):
        return Workload.load(Study.open(target).workload_prefix())
    return load_workload(target)


@click.command("inspect")
@click.argument("target", metavar="STUDY|PREFIX|FILE.et")
@click.option(
    "--rank", default=0, show_default=True, help="Rank for --node, and for formats that hold one rank."
)
@click.option("--node", type=int, help="Print every attribute of this node instead.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the graph to this file instead: JSON, GraphML, DOT, Parquet, or a Chrome trace for Perfetto.",
)
@click.option(
    "--as", "file_format", type=LateChoice(_formats), help="Format of -o. [default: from the file's name]"
)
@format_option
def inspect_command(
    *,
    target: str,
    rank: int,
    node: int | None,
    output: Path | None,
    file_format: str | None,
    output_format: str,
) -> None:
    """Count the nodes, messages and bytes of a workload, print one node in full, or export the graph.

    Parquet holds the nodes of all ranks, or their edges (FILE.edges.parquet); GraphML and DOT hold one rank.
    """
    from ..converter import inspect_node, inspect_workload
    from ..runner import Study

    if not Study.is_study(target) and are_logs([target]):
        raise UsageError(f"{target} holds production logs. Next: 'chakrascope diagnose {target}'.")
    workload = open_workload(target)
    if output is not None:
        _export(workload, output, file_format, rank)
        return
    if file_format is not None:
        raise UsageError("--as is the format of a file. Next: add -o FILE.")
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


def _export(workload: Workload, file: Path, file_format: str | None, rank: int) -> None:
    """Write *workload* to *file* in *file_format*, or in the format of the file's suffix."""
    from ..converter import export_graph

    by_name = {".json": "json", ".graphml": "graphml", ".dot": "dot", ".gv": "dot", ".parquet": "parquet"}
    chosen = file_format or by_name.get(file.suffix)
    if file_format is None and file.name.endswith(".edges.parquet"):
        chosen = "parquet-edges"
    if chosen is None:
        raise UsageError(f"The name {file} has no suffix of a known format. Next: add --as FORMAT.")
    console.print(f"Wrote {export_graph(workload, file, chosen, rank=rank)}")


def _print_workload(facts: dict[str, Any], output_format: str) -> None:
    import pandas as pd

    from ..converter import Finding

    figures = {rank: _figures(found) for rank, found in facts["ranks"].items()}
    if output_format == "csv":
        names = dict.fromkeys(name for found in figures.values() for name in found)
        rows = [
            {"figure": name} | {f"rank {rank}": found.get(name, 0) for rank, found in figures.items()}
            for name in names
        ]
        print_frame(pd.DataFrame(rows), output_format)
        return
    print_frame(_folded(facts["ranks"], figures), "table", title="Workload")
    print_findings([Finding(**finding) for finding in facts["findings"]], "the graphs")
    console.print("One node in full: --node ID [--rank N]. Everything: --format json.")


def _figures(found: dict[str, Any]) -> dict[str, int]:
    """Return the scalar figures of one program."""
    plain = {key: value for key, value in found.items() if not isinstance(value, (dict, list))}
    counts = {
        f"{group} {name}": value
        for group, values in found.items()
        if isinstance(values, dict)
        for name, value in values.items()
    }
    return plain | counts


def _folded(programs: Mapping[str, Any], figures: Mapping[str, Mapping[str, int]]) -> pd.DataFrame:
    """Return a column for ranks with equal figures; minimum and maximum if there are many such groups."""
    import pandas as pd

    names = list(dict.fromkeys(name for found in figures.values() for name in found))
    alike: dict[tuple[int, ...], list[int]] = {}
    for program, found in figures.items():
        alike.setdefault(tuple(found.get(name, 0) for name in names), []).extend(programs[program]["ranks"])
    if len(alike) <= _MOST_COLUMNS:
        heads = [f"{'ranks' if len(ranks) > 1 else 'rank'} {ranks_text(ranks)}" for ranks in alike.values()]
        columns: pd.DataFrame = pd.DataFrame({"figure": names, **dict(zip(heads, alike, strict=True))})
        return columns
    rows = []
    for name, values in zip(names, zip(*alike, strict=True), strict=True):
        ends = [min(values), max(values)]
        where = [_ranks_with(values, end, list(alike.values())) for end in ends]
        rows.append((name, ends[0], where[0], ends[1], where[1]))
    table: pd.DataFrame = pd.DataFrame(rows, columns=["figure", "least", "ranks", "most", " ranks"])
    return table


def _ranks_with(values: Sequence[int], value: int, ranks: Sequence[Sequence[int]]) -> str:
    """Return the ranks with *value* among *values*, which belong to *ranks*."""
    if len(set(values)) == 1:
        return "all"
    having = [rank for own, those in zip(values, ranks, strict=True) if own == value for rank in those]
    return ranks_text(having, most=1)
