"""Settings of the Graph page in an address, and positions of its nodes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ...runner.analysis import FEW_HOPS, FOLDS, MAX_HOPS, ON_PATH, Groups, Neighbourhood, longest_segment
from .._state import OpenRun, Selection
from .._theme import EDGE_KINDS

PATH_EDGES = "path"
"""Restricts edges to those on the critical path."""
_MAX_OPENED = 24


def hops_of(asked: Any) -> int:
    """Parse the number of hops; the default if *asked* is invalid."""
    text = str(asked)
    return int(text) if text in map(str, range(1, MAX_HOPS + 1)) else FEW_HOPS


def edge_kinds(asked: str) -> list[int]:
    """Parse edge kinds such as "path,0,3"; all kinds if there are none.

    "path" becomes the kind `ON_PATH`.
    """
    chosen = edge_choice(asked)
    kinds = [int(text) for text in chosen if text != PATH_EDGES] or list(EDGE_KINDS)
    return [*([ON_PATH] if PATH_EDGES in chosen else []), *kinds]


def edge_choice(asked: str) -> list[str]:
    """Return the valid parts of edge kinds such as "path,0,3"."""
    return [text for text in asked.split(",") if text in {PATH_EDGES, *map(str, EDGE_KINDS)}]


def opened_nodes(asked: str) -> list[int]:
    """Parse the ids of at most 24 expanded nodes, such as "12,45"."""
    texts = [text for text in asked.split(",") if text.isascii() and text.isdigit() and len(text) <= 18]
    return list(dict.fromkeys(map(int, texts)))[:_MAX_OPENED]


def fold_of(asked: str) -> str:
    """Return the property by which *asked* folds the graph, or "nodes" (no folding) if unknown."""
    return asked if asked in FOLDS else "nodes"


def has_selected(run: OpenRun, selection: Selection) -> bool:
    """Return whether *run* has the selected node; true if no node is selected."""
    return not selection.has_node or run.node(selection.rank, selection.node) is not None


def focus_of(run: OpenRun, selection: Selection) -> tuple[int, int]:
    """Return (rank, node) of the selected node, or of the critical path's longest segment."""
    if selection.has_node and run.node(selection.rank, selection.node) is not None:
        return selection.rank, selection.node
    return longest_segment(run.path)


_SWEEPS = 4
_PER_ROW = 8
_MAX_IN_CIRCLE = 32
_MAX_BENDS = 400
_BEND_HEIGHT = 0.4  # rows
Place = tuple[int, int] | int  # the bend of an edge (number of the edge, layer), or the id of a node


@dataclass(frozen=True)
class Placed:
    """Nodes with a ``row`` in their layer, and the bends of each edge as (layer, row), from source to target.

    Rows are relative to the middle of the layer. Edges bend around the nodes of the layers that they cross.
    """

    nodes: pd.DataFrame
    bends: list[list[tuple[int, float]]]


def placed_nodes(near: Neighbourhood) -> Placed:
    """Return the rows of nodes and bends, in an order that avoids crossings."""
    layer = dict(zip(near.nodes["node_id"].tolist(), near.nodes["layer"].tolist(), strict=True))
    ends = list(zip(near.edges["src"].tolist(), near.edges["dst"].tolist(), strict=True))
    bent: list[list[tuple[int, int]]] = [[] for _ in ends]
    left = _MAX_BENDS
    for edge in sorted(range(len(ends)), key=lambda edge: layer[ends[edge][1]] - layer[ends[edge][0]]):
        crossed = range(layer[ends[edge][0]] + 1, layer[ends[edge][1]])
        if len(crossed) > left:
            break
        bent[edge], left = [(edge, each) for each in crossed], left - len(crossed)
    row = _rows(layer, [[src, *bends, dst] for (src, dst), bends in zip(ends, bent, strict=True)])
    nodes: pd.DataFrame = near.nodes.assign(row=[row[node] for node in near.nodes["node_id"].tolist()])
    return Placed(nodes, [[(bend[1], row[bend]) for bend in bends] for bends in bent])


def _rows(layer: dict[int, int], lines: list[list[Place]]) -> dict[Place, float]:
    """Return a row per place: the places of a layer are sorted by the mean row of their neighbours."""
    near: dict[Place, list[Place]] = {node: [] for node in layer}
    for line in lines:
        for a, b in itertools.pairwise(line):
            near.setdefault(a, []).append(b)
            near.setdefault(b, []).append(a)
    layers: dict[int, list[Place]] = {}
    for place in near:
        layers.setdefault(layer[place] if isinstance(place, int) else place[1], []).append(place)
    order: dict[Place, float] = {}
    for places in layers.values():
        order |= _stacked(places)
    for _ in range(_SWEEPS):
        for number in sorted(layers):
            places = layers[number]
            wish = {p: sum(order[q] for q in near[p]) / len(near[p]) if near[p] else order[p] for p in places}
            places.sort(key=lambda place: (wish[place], order[place]))
            order |= _stacked(places)
    return order


def _stacked(places: list[Place]) -> dict[Place, float]:
    """Return the row of each place, relative to their middle; a bend takes less height than a node."""
    heights = [1.0 if isinstance(place, int) else _BEND_HEIGHT for place in places]
    tops = itertools.accumulate(heights, initial=-sum(heights) / 2)
    return {place: top + height / 2 for place, top, height in zip(places, tops, heights, strict=False)}


def placed_groups(groups: Groups, *, square: bool = False) -> pd.DataFrame:
    """Return the groups with ``column`` and ``row``.

    Groups of a single band lie on a circle; otherwise, each band has separate rows. With *square*, rows get
    longer with the number of groups.
    """
    count = len(groups.nodes)
    return _placed(groups.nodes, max(_PER_ROW, int(np.ceil(np.sqrt(2 * count)))) if square else _PER_ROW)


def _placed(groups: pd.DataFrame, per_row: int) -> pd.DataFrame:
    """Place *groups* on a circle, or on rows of at most *per_row* groups of one band."""
    if groups["band"].nunique() <= 1 and len(groups) <= _MAX_IN_CIRCLE:
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
