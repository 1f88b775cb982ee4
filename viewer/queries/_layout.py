"""Find a place for each node of a graph that is drawn."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...runner.analysis import Groups, Neighbourhood

__all__ = ["placed_groups", "placed_nodes"]

_SWEEPS = 4
_PER_ROW = 8
_MOST_IN_CIRCLE = 32


def placed_nodes(near: Neighbourhood) -> pd.DataFrame:
    """Return the nodes of *near* with a ``row`` in their layer, so that few edges cross."""
    placed: pd.DataFrame = near.nodes.assign(row=_rows(near.nodes, near.edges))
    return placed


def _rows(nodes: pd.DataFrame, edges: pd.DataFrame) -> list[int]:
    """Return a row for each node so that few edges cross: each stands where its neighbours do on average."""
    near: dict[int, list[int]] = {int(node): [] for node in nodes["node_id"]}
    for a, b in zip(edges["src"].tolist(), edges["dst"].tolist(), strict=True):
        near[a].append(b)
        near[b].append(a)
    layers = [part["node_id"].tolist() for _, part in nodes.groupby("layer")]
    row = {node: place for layer in layers for place, node in enumerate(layer)}
    for _ in range(_SWEEPS):
        for layer in layers:
            wish = {n: sum(row[m] for m in near[n]) / len(near[n]) if near[n] else row[n] for n in layer}
            ordered = sorted((wish[node], row[node], node) for node in layer)
            row |= {node: place for place, (_, _, node) in enumerate(ordered)}
    return [row[int(node)] for node in nodes["node_id"]]


def placed_groups(groups: Groups, *, square: bool = False) -> pd.DataFrame:
    """Return the groups with ``column`` and ``row``: a single band on a circle, several on rows of their own.

    With *square*, rows are longer the more groups there are.
    """
    count = len(groups.nodes)
    return _placed(groups.nodes, max(_PER_ROW, int(np.ceil(np.sqrt(2 * count)))) if square else _PER_ROW)


def _placed(groups: pd.DataFrame, per_row: int) -> pd.DataFrame:
    """Return *groups* with a place each: in their order, on a circle or each band on rows of its own."""
    if groups["band"].nunique() <= 1 and len(groups) <= _MOST_IN_CIRCLE:
        angle = 2 * np.pi * np.arange(len(groups)) / max(1, len(groups))
        radius = 0.0 if len(groups) == 1 else 0.8 + len(groups) / 6
        circle: pd.DataFrame = groups.reset_index(drop=True).assign(
            column=(1.3 * radius * np.sin(angle)).round(3), row=(-radius * np.cos(angle)).round(3)
        )
        return circle
    number = (groups["band"] != groups["band"].shift()).cumsum()
    place = groups.groupby(number).cumcount()
    rows = groups.groupby(number).size().add(per_row - 1).floordiv(per_row)
    above = rows.cumsum() - rows
    placed: pd.DataFrame = groups.assign(
        column=place % per_row, row=number.map(above).astype(int) + place // per_row
    ).reset_index(drop=True)
    return placed
