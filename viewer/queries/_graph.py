"""Read the settings of the Graph page from an address, and place the nodes of its drawing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ...runner.analysis import FEW_HOPS, FOLDS, MOST_HOPS, ON_PATH, Groups, Neighbourhood, longest_segment
from .._state import OpenRun, Selection
from .._theme import EDGE_KINDS

PATH_EDGES = "path"
"""Option of the edge filter that selects only edges on the critical path."""
_MOST_OPENED = 24


def hops_of(asked: Any) -> int:
    """Return the number of hops that *asked* gives, or the default number if *asked* is invalid."""
    text = str(asked)
    return int(text) if text in map(str, range(1, MOST_HOPS + 1)) else FEW_HOPS


def edge_kinds(asked: str) -> list[int]:
    """Return the edge kinds in *asked*, such as "path,0,3"; all kinds if *asked* names no kind.

    "path" becomes `ON_PATH`.
    """
    chosen = edge_choice(asked)
    kinds = [int(text) for text in chosen if text != PATH_EDGES] or list(EDGE_KINDS)
    return [*([ON_PATH] if PATH_EDGES in chosen else []), *kinds]


def edge_choice(asked: str) -> list[str]:
    """Return the valid parts of an edge filter such as "path,0,3"."""
    return [text for text in asked.split(",") if text in {PATH_EDGES, *map(str, EDGE_KINDS)}]


def opened_nodes(asked: str) -> list[int]:
    """Return the ids of expanded nodes in *asked*, such as "12,45"; at most 24 ids are returned."""
    texts = [text for text in asked.split(",") if text.isascii() and text.isdigit() and len(text) <= 18]
    return list(dict.fromkeys(map(int, texts)))[:_MOST_OPENED]


def fold_of(asked: str) -> str:
    """Return the fold of the graph that *asked* names, or "nodes" (no folding) for unknown names."""
    return asked if asked in FOLDS else "nodes"


def has_selected(run: OpenRun, selection: Selection) -> bool:
    """Return whether *run* has the selected node; true if no node is selected."""
    return not selection.has_node or run.node(selection.rank, selection.node) is not None


def focus_of(run: OpenRun, selection: Selection) -> tuple[int, int]:
    """Return (rank, node) of the selected node, or of the longest segment of the critical path."""
    if selection.has_node and run.node(selection.rank, selection.node) is not None:
        return selection.rank, selection.node
    return longest_segment(run.path)


_SWEEPS = 4
_PER_ROW = 8
_MOST_IN_CIRCLE = 32


def placed_nodes(near: Neighbourhood) -> pd.DataFrame:
    """Return the nodes of *near* with a column ``row``, the place in a layer with few edge crossings."""
    placed: pd.DataFrame = near.nodes.assign(row=_rows(near.nodes, near.edges))
    return placed


def _rows(nodes: pd.DataFrame, edges: pd.DataFrame) -> list[int]:
    """Return a row for each node; sorting nodes by the mean row of their neighbours avoids edge crossings."""
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
    """Return the groups of nodes with their positions ``column`` and ``row``.

    Groups of a single band lie on a circle, and several bands lie on separate rows. With *square*, the
    length of rows grows with the number of groups.
    """
    count = len(groups.nodes)
    return _placed(groups.nodes, max(_PER_ROW, int(np.ceil(np.sqrt(2 * count)))) if square else _PER_ROW)


def _placed(groups: pd.DataFrame, per_row: int) -> pd.DataFrame:
    """Return *groups* with positions on a circle, or on rows of *per_row* groups, separate for each band."""
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
