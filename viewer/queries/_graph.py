"""Read from an address what the page Graph is to draw."""

from __future__ import annotations

from typing import Any

from ...runner.analysis import FEW_HOPS, FOLDS, MOST_HOPS, ON_PATH, longest_segment
from .._state import OpenRun, Selection
from .._theme import EDGE_KINDS

__all__ = [
    "PATH_EDGES",
    "edge_choice",
    "edge_kinds",
    "focus_of",
    "fold_of",
    "has_selected",
    "hops_of",
    "opened_nodes",
]

PATH_EDGES = "path"
"""Chooses the edges of the critical path alone, next to the kinds of edges."""

_MOST_OPENED = 24


def hops_of(asked: Any) -> int:
    """Return how many hops to draw: what is *asked*, or the default where that is no number of hops."""
    text = str(asked)
    return int(text) if text in map(str, range(1, MOST_HOPS + 1)) else FEW_HOPS


def edge_kinds(asked: str) -> list[int]:
    """Return the kinds of edges written as "0,3", all if none is; "path" is `ON_PATH`."""
    chosen = edge_choice(asked)
    kinds = [int(text) for text in chosen if text != PATH_EDGES] or list(EDGE_KINDS)
    return [*([ON_PATH] if PATH_EDGES in chosen else []), *kinds]


def edge_choice(asked: str) -> list[str]:
    """Return what of "path,0,3" is a choice of edges."""
    return [text for text in asked.split(",") if text in {PATH_EDGES, *map(str, EDGE_KINDS)}]


def opened_nodes(asked: str) -> list[int]:
    """Return the nodes whose neighbours are drawn as well, written as "12,45"; at most 24."""
    texts = [text for text in asked.split(",") if text.isascii() and text.isdigit() and len(text) <= 18]
    return list(dict.fromkeys(map(int, texts)))[:_MOST_OPENED]


def fold_of(asked: str) -> str:
    """Return what the graph is folded into; anything unknown is the graph as it is."""
    return asked if asked in FOLDS else "nodes"


def has_selected(run: OpenRun, selection: Selection) -> bool:
    """Return whether *run* has the node selected, if one is."""
    return not selection.has_node or run.node(selection.rank, selection.node) is not None


def focus_of(run: OpenRun, selection: Selection) -> tuple[int, int]:
    """Return (rank, node) of the selection, or of the longest segment of the path."""
    if selection.has_node and run.node(selection.rank, selection.node) is not None:
        return selection.rank, selection.node
    return longest_segment(run.path)
