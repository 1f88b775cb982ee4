"""The tables of a run that SQL may ask: what each holds, and the units of its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...study import run_table
from .._labels import edge_label
from .._layers import LAYER_TYPES
from .._links import link_table
from .._run import RunAnalysis
from .._slack_tables import slack_table

__all__ = ["SQL_TABLES", "SqlTable", "sql_columns"]

_UNITS = {
    "_bytes_per_ns": "bytes/ns (GB/s)",
    "_ns": "ns",
    "_bytes": "bytes",
}
_NAMED = {"bytes": "bytes", "share": "part of 1", "relative": "part of 1"}


class SqlTable(NamedTuple):
    """What a table holds, in a sentence, and how it is made of a run."""

    holds: str
    make: Callable[[RunAnalysis], pd.DataFrame]


def _ranks(run: RunAnalysis) -> pd.DataFrame:
    programs = np.asarray(run.workload.program_of_rank)[run.summary.ranks["rank"].to_numpy()]
    table: pd.DataFrame = run.summary.ranks.assign(program=programs)
    return table


def _edges(run: RunAnalysis) -> pd.DataFrame:
    parts = [_with_kinds(program, graph.edges) for program, graph in enumerate(run.workload.graphs)]
    table: pd.DataFrame = pd.concat(parts, ignore_index=True)
    return table


def _with_kinds(program: int, edges: pd.DataFrame) -> pd.DataFrame:
    made = edges[["src", "dst"]].assign(program=program, kind=edges["kind"].map(edge_label))
    table: pd.DataFrame = made[["program", "src", "dst", "kind"]]
    return table


def _groups(run: RunAnalysis) -> pd.DataFrame:
    pairs = [(group, rank) for group, ranks in run.workload.groups.items() for rank in ranks]
    table: pd.DataFrame = pd.DataFrame(pairs, columns=["group", "rank"], dtype=np.int64)
    return table


SQL_TABLES: Mapping[str, SqlTable] = {
    "nodes": SqlTable(
        "every executed node: when it ran, what it is, what let it start", lambda run: run.nodes
    ),
    "edges": SqlTable("every dependency of a program; ranks says which rank runs which", _edges),
    "ranks": SqlTable("compute + exposed communication + exposed copies + idle of each rank", _ranks),
    "critical_path": SqlTable("the segments that add up to the step", lambda run: run.path.segments),
    "layers": SqlTable("each module: forward, backward, communication", lambda run: run.layers),
    "collectives": SqlTable("every collective: size, skew, transfer, bandwidth", lambda run: run.collectives),
    "calls": SqlTable("a collective on one rank", lambda run: run.result.collectives),
    "groups": SqlTable("the ranks of each process group; group 0 is all ranks", _groups),
    "links": SqlTable("every directed link: bytes, busy, queued", lambda run: link_table(run.result)),
    "link_use": SqlTable("the bytes of a link in each interval", lambda run: run.result.link_use),
    "flows": SqlTable("every message, of backends that simulate messages", lambda run: run.result.flows),
    "slack": SqlTable("how much later a node could end", lambda run: slack_table(run.nodes, run.slack_ns)),
    "runs": SqlTable("the runs of the study", lambda run: run_table(run.study.runs())),
}
"""The tables by name."""


def _head(run: RunAnalysis, name: str) -> pd.DataFrame:
    """Return a table of a large run, of what has a row per node or edge that of one rank."""
    if name == "layers":
        layers: pd.DataFrame = pd.DataFrame(columns=[*LAYER_TYPES]).astype(LAYER_TYPES)
        return layers
    nodes = run.nodes_of(int(run.result.columns("ranks")["rank"][0]))
    some = {
        "nodes": lambda: nodes,
        "edges": lambda: _with_kinds(0, run.edges_of(0)),
        "slack": lambda: slack_table(nodes, pd.Series(0, nodes.index, dtype="int64")),
    }
    return some.get(name, lambda: SQL_TABLES[name].make(run))()


def sql_columns(run: RunAnalysis) -> pd.DataFrame:
    """Return a row per column of every table: ``table, column, type, unit, holds``."""
    rows = []
    for name, table in SQL_TABLES.items():
        made = _head(run, name) if run.is_large else table.make(run)
        for column, dtype in made.dtypes.items():
            kind = {"i": "integer", "u": "integer", "f": "number", "b": "yes or no"}.get(dtype.kind, "text")
            unit = next((unit for end, unit in _UNITS.items() if str(column).endswith(end)), "")
            rows.append((name, str(column), kind, unit or _NAMED.get(str(column), ""), table.holds))
    found: pd.DataFrame = pd.DataFrame(rows, columns=["table", "column", "type", "unit", "holds"])
    return found
