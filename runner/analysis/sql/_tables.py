"""The tables of a run for SQL: their content, how they are made, and example queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....converter import NODE_COLUMNS
from ....converter.building import group_name
from ....converter.chakra import TextColumn
from ....errors import ChakrascopeError
from ..._result import COLUMNS
from ...study import run_table
from .._labels import edge_label
from .._layers import LAYER_TYPES
from .._links import link_table
from .._path_facts import NodeFacts, coded_facts
from .._run import RunAnalysis
from .._slack import slack_columns, slack_table

Made = Mapping[str, npt.NDArray[Any] | TextColumn]


def _nodes(run: RunAnalysis, names: Sequence[str]) -> Made:
    """Return the columns *names* of every executed node (see `RunAnalysis.nodes`), by rank and id."""
    recorded = [name for name in names if name in COLUMNS["nodes"]]
    derived = [name for name in names if name not in recorded]
    numbers = [name for name in derived if NODE_COLUMNS[name][0] != "str"]
    parts: dict[str, list[npt.NDArray[Any]]] = {
        name: [np.empty(0, COLUMNS["nodes"].get(name) or NODE_COLUMNS[name][0])]
        for name in dict.fromkeys(("rank", "node_id", *recorded, *numbers))
    }
    for rank, nodes in run.result.table("nodes").by_rank([name for name in recorded if name != "rank"]):
        facts = NodeFacts(run.workload, np.full(len(nodes["node_id"]), rank), nodes["node_id"])
        numeric = {name: facts.numbers(name).astype(NODE_COLUMNS[name][0]) for name in numbers}
        for name, column in (
            {"rank": np.full(len(nodes["node_id"]), rank, np.int32)} | nodes | numeric
        ).items():
            parts[name].append(column)
    made = {name: np.concatenate(parts.pop(name)) for name in [*parts]}
    texts = coded_facts(
        run.workload, made["rank"], made["node_id"], [name for name in derived if name not in numbers]
    )
    return {name: texts[name] if name in texts else made[name] for name in names}


def _slack(run: RunAnalysis, names: Sequence[str]) -> Made:
    """Return the columns *names* of `slack_table`; without rows if the slack is unknown."""
    try:
        columns = slack_columns(run.result, run.workload)
    except ChakrascopeError:
        columns = {
            name: np.empty(0, np.int64) for name in ("rank", "node_id", "start_ns", "end_ns", "slack_ns")
        }
    columns["duration_ns"] = columns.pop("end_ns") - columns["start_ns"]
    order = np.lexsort((-columns["duration_ns"], columns["slack_ns"]))
    missing = [name for name in names if name not in columns]
    texts = coded_facts(run.workload, columns["rank"], columns["node_id"], missing)
    return {name: (texts | columns)[name][order] for name in names}


SQL_EXAMPLES: Mapping[str, str] = {
    "Operators by time on the critical path": """\
SELECT operator, kind, count(*) AS segments, sum(duration_ns) AS on_path_ns
FROM critical_path GROUP BY ALL ORDER BY on_path_ns DESC LIMIT 20""",
    "Which rank made the others wait, in which collective": """\
SELECT c.collective, c.operation, c.size_bytes, c.rank AS last_rank, c.skew_ns
FROM collectives c ORDER BY c.skew_ns DESC LIMIT 20""",
    "Time of each operator, rank against rank": """\
SELECT operator, min(total_ns) AS least_ns, max(total_ns) AS most_ns, arg_max(rank, total_ns) AS slowest_rank
FROM (SELECT operator, rank, sum(end_ns - start_ns) AS total_ns FROM nodes GROUP BY ALL)
GROUP BY operator ORDER BY most_ns - least_ns DESC LIMIT 20""",
    "Simulated against measured duration": """\
SELECT kind, count(*) AS nodes, sum(end_ns - start_ns) AS simulated_ns, sum(duration_ns) AS measured_ns
FROM nodes GROUP BY kind ORDER BY simulated_ns DESC""",
    "Gaps in which a rank's lane had nothing to do": """\
SELECT rank, stream, start_ns - before AS gap_ns, name AS followed_by, node_id
FROM (SELECT *, lag(end_ns) OVER (PARTITION BY rank, stream ORDER BY start_ns) AS before FROM nodes)
WHERE gap_ns > 0 ORDER BY gap_ns DESC LIMIT 20""",
    "Bytes by process group and operation": """\
SELECT c."group", c.operation, count(*) AS times, sum(c.size_bytes) AS size_bytes
FROM collectives c GROUP BY ALL ORDER BY size_bytes DESC""",
    "The busiest links": """\
SELECT src, dst, bytes, busy_ns, queue_ns FROM links ORDER BY busy_ns DESC LIMIT 20""",
    "Kinds of dependencies": "SELECT kind, count(*) AS edges FROM edges GROUP BY kind ORDER BY edges DESC",
}
"""Example questions and the query for each."""
_UNITS = {
    "_bytes_per_ns": "bytes/ns (GB/s)",
    "_ns": "ns",
    "_bytes": "bytes",
}
_NAMED = {"bytes": "bytes", "share": "part of 1", "relative": "part of 1"}


class SqlTable(NamedTuple):
    """A SQL table: a sentence on its content, and the function that makes it from a run.

    If the table has *names*, the function makes only the columns that its second argument names.
    """

    holds: str
    make: Callable[..., Any]
    names: tuple[str, ...] = ()


def _ranks(run: RunAnalysis) -> pd.DataFrame:
    programs = np.asarray(run.workload.program_of_rank)[run.summary.ranks["rank"].to_numpy()]
    table: pd.DataFrame = run.summary.ranks.assign(program=programs)
    return table


def _edges(run: RunAnalysis) -> pd.DataFrame:
    parts = [_with_kinds(program, graph.edges) for program, graph in enumerate(run.workload.graphs)]
    return pd.concat(parts, ignore_index=True)


def _with_kinds(program: int, edges: pd.DataFrame) -> pd.DataFrame:
    made = edges[["src", "dst"]].assign(program=program, kind=edges["kind"].map(edge_label))
    table: pd.DataFrame = made[["program", "src", "dst", "kind"]]
    return table


def _groups(run: RunAnalysis) -> pd.DataFrame:
    rows = [
        (group, group_name(run.workload.metadata, group), rank)
        for group, ranks in run.workload.groups.items()
        for rank in ranks
    ]
    table: pd.DataFrame = pd.DataFrame(rows, columns=["group", "name", "rank"]).astype(
        {"group": "int64", "name": "object", "rank": "int64"}
    )
    return table


SQL_TABLES: Mapping[str, SqlTable] = {
    "nodes": SqlTable(
        "every executed node: its times, its properties, and the node that it waited for",
        _nodes,
        tuple(dict.fromkeys([*COLUMNS["nodes"], *NODE_COLUMNS])),
    ),
    "edges": SqlTable("every dependency of a program; the table ranks maps ranks to programs", _edges),
    "ranks": SqlTable("compute + exposed communication + exposed copies + idle of each rank", _ranks),
    "critical_path": SqlTable("the segments that add up to the step", lambda run: run.path.segments),
    "layers": SqlTable("each module: forward, backward, communication", lambda run: run.layers),
    "collectives": SqlTable("every collective: size, skew, transfer, bandwidth", lambda run: run.collectives),
    "calls": SqlTable("a collective on one rank", lambda run: run.result.collectives),
    "groups": SqlTable("the ranks of each process group; group 0 is all ranks", _groups),
    "links": SqlTable("every directed link: bytes, busy, queued", lambda run: link_table(run.result)),
    "link_use": SqlTable("the bytes of a link in each interval", lambda run: run.result.link_use),
    "flows": SqlTable("every message, for backends that simulate messages", lambda run: run.result.flows),
    "slack": SqlTable(
        "how much later a node could end",
        _slack,
        ("rank", "node_id", "name", "kind", "module", "start_ns", "duration_ns", "slack_ns"),
    ),
    "runs": SqlTable("the runs of the study", lambda run: run_table(run.study.runs())),
}
"""The SQL tables by name."""


def _head(run: RunAnalysis, name: str) -> pd.DataFrame:
    """Return the table *name*, or its rows of one rank if there are many, to read column types."""
    if name == "layers":
        layers: pd.DataFrame = pd.DataFrame(columns=[*LAYER_TYPES]).astype(LAYER_TYPES)
        return layers
    nodes = run.nodes_of(int(run.result.columns("ranks")["rank"][0]))
    some: Mapping[str, Callable[[], pd.DataFrame]] = {
        "nodes": lambda: nodes,
        "edges": lambda: _with_kinds(0, run.edges_of(0)),
        "slack": lambda: slack_table(nodes, pd.Series(0, nodes.index, dtype="int64")),
    }
    return some[name]() if name in some else SQL_TABLES[name].make(run)


def sql_columns(run: RunAnalysis) -> pd.DataFrame:
    """List the columns of every SQL table: ``table, column, type, unit, holds``."""
    rows = []
    for name, table in SQL_TABLES.items():
        for column, dtype in _head(run, name).dtypes.items():
            kind = {"i": "integer", "u": "integer", "f": "number", "b": "yes or no"}.get(dtype.kind, "text")
            unit = next((unit for end, unit in _UNITS.items() if str(column).endswith(end)), "")
            rows.append((name, str(column), kind, unit or _NAMED.get(str(column), ""), table.holds))
    found: pd.DataFrame = pd.DataFrame(rows, columns=["table", "column", "type", "unit", "holds"])
    return found
