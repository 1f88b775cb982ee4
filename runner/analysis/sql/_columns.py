"""Tables with a row for each node, of which no column is made that a question does not ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ....converter import NODE_COLUMNS
from ....converter.chakra import TextColumn
from ....errors import ChakrascopeError
from ..._result import COLUMNS
from .._path_facts import NodeFacts, coded_facts
from .._run import RunAnalysis
from .._slack import slack_columns

__all__ = ["COLUMN_TABLES", "ColumnTable", "Made"]

Made = Mapping[str, npt.NDArray[Any] | TextColumn]


class ColumnTable(NamedTuple):
    """The names of a table's columns in their order, and how some of them are made of a run."""

    names: tuple[str, ...]
    make: Callable[[RunAnalysis, Sequence[str]], Made]


def _nodes(run: RunAnalysis, names: Sequence[str]) -> Made:
    """Return columns of every executed node, as `RunAnalysis.nodes` has them, by rank and id."""
    recorded = [name for name in names if name in COLUMNS["nodes"]]
    known = [name for name in names if name not in recorded]
    numbers = [name for name in known if NODE_COLUMNS[name][0] != "str"]
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
        run.workload, made["rank"], made["node_id"], [name for name in known if name not in numbers]
    )
    return {name: texts[name] if name in texts else made[name] for name in names}


def _slack(run: RunAnalysis, names: Sequence[str]) -> Made:
    """Return columns of every node with its slack, as `slack_table` has them; no row if it is not known."""
    try:
        found = slack_columns(run.result, run.workload)
    except ChakrascopeError:
        found = {
            name: np.empty(0, np.int64) for name in ("rank", "node_id", "start_ns", "end_ns", "slack_ns")
        }
    found["duration_ns"] = found.pop("end_ns") - found["start_ns"]
    order = np.lexsort((-found["duration_ns"], found["slack_ns"]))
    known = [name for name in names if name not in found]
    texts = coded_facts(run.workload, found["rank"], found["node_id"], known)
    return {name: (texts | found)[name][order] for name in names}


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


COLUMN_TABLES: Mapping[str, ColumnTable] = {
    "nodes": ColumnTable(_distinct([*COLUMNS["nodes"], *NODE_COLUMNS]), _nodes),
    "slack": ColumnTable(
        ("rank", "node_id", "name", "kind", "module", "start_ns", "duration_ns", "slack_ns"), _slack
    ),
}
"""The tables by name whose columns are made one by one."""
