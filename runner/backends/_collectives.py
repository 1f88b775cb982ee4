"""The table of collectives of a result.

The table lists the nodes of each collective, and divides the time of each node into waiting and transfer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...converter import NodeType, Workload
from ...support.table import Columns, frame_of
from .._framed import changed_rows
from .._result import COLUMNS, empty_columns

if TYPE_CHECKING:
    import pandas as pd

_Integers = npt.NDArray[np.integer[Any]]

_FACTS = {"node_id": "node_id", "comm_type": "comm_type", "group": "group", "comm_size_bytes": "size_bytes"}


def collective_table(nodes: pd.DataFrame, workload: Workload) -> pd.DataFrame:
    """Return the table ``collectives`` for the executed *nodes* of a result.

    The k-th collective of a type in a group, counted in order of node ids, is the same collective on every
    rank. *wait_ns* is the time from a rank's arrival to the arrival of the last rank that it depends on.
    *transfer_ns* is the remaining time of the node.
    """
    columns = {str(name): nodes[name].to_numpy() for name in nodes}
    facts = _facts(workload)
    program = np.asarray(workload.program_of_rank, dtype=np.int64)[columns["rank"]]
    fact = _places((facts["program"], facts["node_id"]), (program, columns["node_id"]))
    chosen = np.flatnonzero(fact >= 0)
    if not len(chosen):
        return frame_of(empty_columns("collectives"))
    chosen = chosen[np.lexsort((columns["node_id"][chosen], columns["rank"][chosen]))]
    calls = {name: columns[name][chosen] for name in ("rank", "node_id", "start_ns", "end_ns")}
    calls |= {name: facts[name][fact[chosen]] for name in ("comm_type", "group", "size_bytes")}
    calls["origin_start_ns"] = _origin_start(chosen, columns)
    return frame_of(arranged_calls(calls))


def arranged_calls(calls: Mapping[str, _Integers]) -> Columns:
    """Return the columns of the table ``collectives`` for *calls*, with one row per rank and node.

    The result has no derived columns. ``origin_start_ns`` is the start of the origin node, which began the
    chain of events that ends with the collective's end.
    """
    if not len(calls["rank"]):
        return empty_columns("collectives")
    table = dict(calls)
    origin_start = np.minimum(table.pop("origin_start_ns"), table["end_ns"])
    table["wait_ns"] = np.maximum(origin_start - table["start_ns"], 0)
    table["transfer_ns"] = table["end_ns"] - table["start_ns"] - table["wait_ns"]
    turn = _counted((table["comm_type"], table["group"], table["rank"]))
    key = (turn, table["comm_type"], table["group"])
    order = np.lexsort((table["rank"], *key, _least(table["start_ns"], key)))
    table = {name: values[order] for name, values in table.items()}
    table["collective"] = np.cumsum(changed_rows([values[order] for values in key])) - 1
    return {name: table[name].astype(kind) for name, kind in COLUMNS["collectives"].items()}


def _facts(workload: Workload) -> dict[str, _Integers]:
    """Return the program, node id and properties of every collective node of every program."""
    rows: dict[str, list[_Integers]] = {name: [] for name in ("program", *_FACTS.values())}
    for index, graph in enumerate(workload.graphs):
        chosen = np.asarray(graph.node_columns["type"]) == NodeType.COMM_COLL
        rows["program"].append(np.full(np.count_nonzero(chosen), index))
        for column, name in _FACTS.items():
            rows[name].append(np.asarray(graph.node_columns[column])[chosen])
    return {name: np.concatenate(parts) for name, parts in rows.items()}


def _places(pairs: tuple[_Integers, _Integers], asked: tuple[_Integers, _Integers]) -> _Integers:
    """Return the index in *pairs* (without duplicates) of each pair in *asked*, -1 for a missing pair."""
    if not len(pairs[0]):
        return np.full(len(asked[0]), -1)
    collectives = np.unique(pairs[1])
    codes = pairs[0].astype(np.int64) * len(collectives) + np.searchsorted(collectives, pairs[1])
    order = np.argsort(codes)
    second = np.minimum(np.searchsorted(collectives, asked[1]), len(collectives) - 1)
    wanted = asked[0].astype(np.int64) * len(collectives) + second
    place = order[np.minimum(np.searchsorted(codes, wanted, sorter=order), len(order) - 1)]
    places: _Integers = np.where((collectives[second] == asked[1]) & (codes[place] == wanted), place, -1)
    return places


def _origin_start(rows: _Integers, nodes: dict[str, _Integers]) -> _Integers:
    """Return the start times of the origin nodes of the nodes in *rows*."""
    pairs, asked = ("rank", "node_id"), ("origin_rank", "origin_node")
    origin = _places((nodes[pairs[0]], nodes[pairs[1]]), (nodes[asked[0]][rows], nodes[asked[1]][rows]))
    starts: _Integers = np.where(origin >= 0, nodes["start_ns"][origin], nodes["start_ns"][rows])
    return starts


def _counted(key: tuple[_Integers, ...]) -> _Integers:
    """Return for each row the number of earlier rows with the same *key*."""
    order = np.lexsort(key)
    firsts = np.flatnonzero(changed_rows([values[order] for values in key]))
    sizes = np.diff(np.append(firsts, len(order)))
    count = np.empty(len(order), dtype=np.int64)
    count[order] = np.arange(len(order)) - np.repeat(firsts, sizes)
    return count


def _least(values: _Integers, key: tuple[_Integers, ...]) -> _Integers:
    """Return for each row the minimum of *values* over the rows with the same *key*."""
    order = np.lexsort(key)
    firsts = np.flatnonzero(changed_rows([some[order] for some in key]))
    least = np.empty_like(values)
    least[order] = np.repeat(
        np.minimum.reduceat(values[order], firsts), np.diff(np.append(firsts, len(order)))
    )
    return least
