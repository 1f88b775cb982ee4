"""Sum up what each layer takes: its forward and backward pass, its communication, its part of the path."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from ._critical_path import CriticalPath

__all__ = ["cut_names", "layer_table"]

_COLUMNS = ("forward_ns", "backward_ns", "communication_ns", "other_ns")
_LAYERS = 60


def cut_names(modules: pd.Series, most: int, beside: pd.Series | None = None) -> pd.Series:
    """Return the names of *modules* cut to the greatest depth that leaves at most *most* different ones.

    With *beside*, names count once for each value they have beside them.
    """
    names = modules
    for depth in range(int(modules.str.count(r"\.").max() or 0) + 1, 0, -1):
        names = modules.map({name: ".".join(name.split(".")[:depth]) for name in modules.unique()})
        if (names if beside is None else names + "\n" + beside).nunique() <= most:
            break
    return names


def layer_table(nodes: pd.DataFrame, path: CriticalPath, most: int = _LAYERS) -> pd.DataFrame:
    """Return a row per module, as deep as *most* rows allow, in the order in which they first run.

    Times are means over the ranks of *nodes*: ``forward_ns``, ``backward_ns``, ``communication_ns`` and
    ``other_ns`` (optimizer, and what has no phase); ``on_path_ns`` and ``share`` are the module's part of the
    critical path. Work outside every module is left out.
    """
    codes, modules = pd.factorize(nodes["module"].fillna(""))
    names = cut_names(pd.Series(modules, dtype="object"), most) if len(modules) else pd.Series(dtype="object")
    layers, order = pd.factorize(names)
    layer = layers[codes]
    duration = (nodes["end_ns"] - nodes["start_ns"]).to_numpy(np.float64)
    place = _places(nodes)
    ranks = max(1, nodes["rank"].nunique())
    sums = [
        np.bincount(layer[place == i], duration[place == i], minlength=len(order)) / ranks
        for i in range(len(_COLUMNS))
    ]
    table = pd.DataFrame(dict(zip(_COLUMNS, sums, strict=True))).round().astype(np.int64)
    table.insert(0, "module", order)
    on_path = path.unreasoned.groupby(path.unreasoned["module"].map(dict(zip(modules, names, strict=True))))
    table["on_path_ns"] = table["module"].map(on_path["duration_ns"].sum()).fillna(0).astype(np.int64)
    table["share"] = table["on_path_ns"] / max(1, path.makespan_ns)
    named: pd.DataFrame = table[table["module"] != ""].reset_index(drop=True)
    return named


def _places(nodes: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return which of the columns of times each node counts to."""
    phases = nodes["phase"].map({"forward": 0, "backward": 1}).fillna(3).to_numpy(np.int64)
    return np.where((nodes["kind"] == "communication").to_numpy(), 2, phases)
