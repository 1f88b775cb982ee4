"""Sum up the times of each layer: forward and backward pass, communication, and critical path."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...converter import Workload
from .._result import Result
from ._critical_path import CriticalPath
from ._equal_ranks import represented_ranks
from ._path_facts import NodeFacts

_COLUMNS = ("forward_ns", "backward_ns", "communication_ns", "other_ns")
_LAYERS = 60
_LEFT_OUT = ("host", "sync", "wait", "idle")
LAYER_TYPES = {"module": "str", **dict.fromkeys((*_COLUMNS, "on_path_ns"), "int64"), "share": "float64"}
"""The columns of `layer_table`."""


def cut_names(modules: pd.Series, most: int, beside: pd.Series | None = None) -> pd.Series:
    """Cut the names of *modules* at the largest depth with at most *most* distinct names.

    Equal names with different values in *beside* count as distinct.
    """
    names = modules
    for depth in range(int(modules.str.count(r"\.").max() or 0) + 1, 0, -1):
        names = modules.map({name: ".".join(name.split(".")[:depth]) for name in modules.unique()})
        if (names if beside is None else names + "\n" + beside).nunique() <= most:
            break
    return names


def layer_table(result: Result, workload: Workload, path: CriticalPath, most: int = _LAYERS) -> pd.DataFrame:
    """Return at most *most* rows of modules of equal depth, in order of first execution.

    ``forward_ns``, ``backward_ns``, ``communication_ns`` and ``other_ns`` (optimizer, and work
    without a phase) are device times as means over the ranks of *result*. Idle time and host work
    are left out, except the operators of CPU ranks, and so is work outside modules. ``on_path_ns``
    and ``share`` are the module's part of the critical path.
    """
    sums: dict[str, npt.NDArray[np.float64]] = {}
    ranks, weights = len(result.columns("ranks")["rank"]), represented_ranks(result).to_dict()
    for rank, nodes in result.table("nodes").by_rank(["start_ns", "end_ns"]):
        facts = NodeFacts(workload, np.full(len(nodes["node_id"]), rank), nodes["node_id"])
        for module, times in _of_rank(facts, nodes["end_ns"] - nodes["start_ns"]):
            sums[module] = sums.get(module, 0.0) + weights[rank] * times
    modules = pd.Series([*sums], dtype="object")
    names = cut_names(modules, most) if len(modules) else modules
    layers, order = pd.factorize(names)
    whole = np.zeros((len(order), len(_COLUMNS)))
    np.add.at(whole, layers, np.array([*sums.values()]).reshape(-1, len(_COLUMNS)))
    table = pd.DataFrame(whole / max(1, ranks), columns=[*_COLUMNS]).round().astype(np.int64)
    table.insert(0, "module", order)
    segments = path.unreasoned
    on_path = segments.groupby(segments["module"].map(dict(zip(modules, names, strict=True))))
    table["on_path_ns"] = table["module"].map(on_path["duration_ns"].sum()).fillna(0).astype(np.int64)
    table["share"] = table["on_path_ns"] / max(1, path.makespan_ns)
    named: pd.DataFrame = table[table["module"] != ""].reset_index(drop=True)
    return named


def _of_rank(
    facts: NodeFacts, duration: npt.NDArray[np.int64]
) -> Iterator[tuple[str, npt.NDArray[np.float64]]]:
    """Yield each module of a rank, in order of first execution, with its time in each column."""
    modules, phases, kinds = (facts.texts(name) for name in ("module", "phase", "kind"))
    column_of = np.array([{"forward": 0, "backward": 1}.get(name, 3) for name in phases.texts], np.int64)
    column = np.where(kinds == "communication", 2, column_of[phases.numbers])
    is_left_out = kinds.passes(_LEFT_OUT.__contains__)
    cells = np.bincount(
        modules.numbers * len(_COLUMNS) + column,
        np.where(is_left_out, 0, duration).astype(np.float64),
        minlength=len(modules.texts) * len(_COLUMNS),
    ).reshape(-1, len(_COLUMNS))
    yield from zip(modules.texts, cells, strict=True)
