"""The drawing of the Graph page: elements and style of Cytoscape, a title, and facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from ...errors import StudyError
from ...runner.analysis import (
    KIND_LABELS,
    Groups,
    Neighbour,
    causes,
    edges_of,
    folded,
    neighbourhood,
    neighbours,
)
from ...support import duration_text, share_text
from .._state import OpenRun, Selection
from .._theme import EDGE_KINDS, PATH_COLOUR, kind_colour
from ..queries import (
    edge_kinds,
    focus_of,
    fold_of,
    hops_of,
    node_details,
    opened_nodes,
    placed_groups,
    placed_nodes,
)

_TITLES = {
    "modules": "Modules of rank {}",
    "phases": "Phases of rank {}",
    "streams": "Streams of rank {}",
    "ranks": "Ranks, and whom they waited for",
}
_COLUMN, _ROW = 130, 96
_GROUP_COLUMN, _GROUP_ROW = 140, 110
_FEW_EDGES = 30


@dataclass(frozen=True)
class Drawing:
    """Cytoscape's *elements*, a *title*, (label, text) pairs about the focus, and its neighbours."""

    elements: list[dict[str, Any]]
    title: str
    details: list[tuple[str, str]]
    neighbours: list[Neighbour]


def draw(run: OpenRun, selection: Selection) -> Drawing:
    """Return the drawing for *selection*: a node's neighbourhood, or a folded graph."""
    rank, focus = focus_of(run, selection)
    node = run.node(rank, focus)
    if node is None:
        return Drawing([], "No node of this run takes time", [], [])
    edges = edges_of(run, rank, edge_kinds(selection.option("edges")))
    fold = fold_of(selection.option("fold"))
    if fold != "nodes":
        return _folded(run, rank, focus, edges, fold)
    opened = opened_nodes(selection.option("open"))
    return _around(run, node, edges, hops_of(selection.option("hops")), opened)


def _around(run: OpenRun, node: dict[str, Any], edges: pd.DataFrame, hops: int, opened: list[int]) -> Drawing:
    rank, focus = int(node["rank"]), int(node["node_id"])
    cut = neighbourhood(edges, focus, hops, opened=opened)
    described, path = run.program_of(rank).set_index("node_id"), run.path.unreasoned
    on_path = set(path.loc[path["rank"] == rank, "node_id"])
    along = causes(run, rank)
    nodes = placed_nodes(cut)
    middle = nodes.groupby("layer")["row"].transform("max") / 2
    own = run.nodes_of(rank)
    own = own[own["node_id"].isin(nodes["node_id"])]
    lasting = dict(zip(own["node_id"].tolist(), (own["end_ns"] - own["start_ns"]).tolist(), strict=True))
    longest = max([1, *lasting.values()])
    drawn = nodes.assign(
        row=nodes["row"] - middle,
        focus=nodes["node_id"] == focus,
        on_path=nodes["node_id"].isin(on_path),
        opened=nodes["node_id"].isin(opened),
        duration_ns=nodes["node_id"].map(lasting).fillna(-1).astype("int64"),
    )
    elements = [
        _node_element(row, described.loc[row["node_id"]], rank, longest) for row in drawn.to_dict("records")
    ]
    elements += [_edge_element(row, along) for row in cut.edges.to_dict("records")]
    elements += _late_peer(run, node, nodes, middle)
    more = f" (nearest {len(nodes)} nodes)" if cut.cut else ""
    title = f"Around {_short(str(node['name']), 40)}, node {focus} of rank {rank}{more}"
    among, metadata = run.measured_among(rank, focus), run.workload.metadata
    details = node_details(node, run.slack_of(rank, focus), among, metadata)
    return Drawing(
        elements, title, details, neighbours(edges, lambda near: str(described.at[near, "name"]), focus)
    )


def _late_peer(
    run: OpenRun, node: dict[str, Any], drawn: pd.DataFrame, middle: pd.Series
) -> list[dict[str, Any]]:
    """Return the last rank to arrive at the focus' communication, with an edge; empty for its own rank."""
    rank, focus = int(node["rank"]), int(node["node_id"])
    other, its_node = int(node["origin_rank"]), int(node["origin_node"])
    peer = run.node(other, its_node) if other != rank else None
    if peer is None:
        return []
    here = drawn[drawn["node_id"] == focus].iloc[0]
    top = -float(middle.max() if len(middle) else 0) - 1
    place = {"x": (int(here["layer"]) - 1) * _COLUMN, "y": round(top * _ROW)}
    label = f"rank {other} came last\n{_short(str(peer['name']), 20)}"
    return [
        {
            "data": {"id": f"{other}:{its_node}", "rank": other, "node": its_node, "label": label,
                     "colour": kind_colour(str(peer["kind"])), "size": 30, "weight": 0, "place": place},
            "position": place,
            "classes": "peer",
        },
        {"data": {"source": f"{other}:{its_node}", "target": str(focus), "label": "came last",
                  "colour": PATH_COLOUR, "line": "dashed"}},
    ]  # fmt: skip


def _folded(run: OpenRun, rank: int, focus: int, edges: pd.DataFrame, fold: str) -> Drawing:
    try:
        groups = folded(run, rank, fold, edges)
    except StudyError as error:
        return Drawing([], error.message, [], [])
    own = run.nodes_of(rank)["node_id"]
    chosen = int(groups.group_of.get(own.index[own == focus][0], -1))
    largest = max(1, int(groups.nodes["duration_ns"].max()))
    labelled = "labelled" if len(groups.edges) <= _FEW_EDGES else ""
    placed = placed_groups(groups, square=fold == "ranks")
    elements = [_group_element(row, chosen, largest) for row in placed.to_dict("records")]
    elements += [
        {"data": {"source": f"g{row['src']}", "target": f"g{row['dst']}", "label": row["label"],
                  "colour": "#9aa3ad", "line": "solid"}, "classes": labelled}
        for row in groups.edges.to_dict("records")
    ]  # fmt: skip
    return Drawing(elements, _TITLES[fold].format(rank), _group_details(groups, chosen, run), [])


def _group_element(row: dict[Any, Any], chosen: int, largest: int) -> dict[str, Any]:
    marks = (("group", True), ("focus", row["group"] == chosen), ("path", row["on_path_ns"] > 0),
             ("above", float(row["column"]) % 2 == 1))  # fmt: skip
    share = (row["duration_ns"] / largest) ** 0.5
    place = {"x": round(row["column"] * _GROUP_COLUMN), "y": round(row["row"] * _GROUP_ROW)}
    return {
        "data": {
            "id": f"g{row['group']}",
            "rank": int(row["rank"]),
            "node": int(row["node_id"]),
            "label": f"{_short(str(row['name']), 22)}\n{_band(row)}{duration_text(row['duration_ns'])}",
            "weight": int(row["duration_ns"]),
            "colour": kind_colour(str(row["kind"])),
            "size": round(16 + 44 * share),
            "place": place,
        },
        "position": place,
        "classes": " ".join(name for name, on in marks if on),
    }


def _band(row: dict[Any, Any]) -> str:
    return f"{row['band']}, " if row["band"] else ""


def _group_details(groups: Groups, chosen: int, run: OpenRun) -> list[tuple[str, str]]:
    found = groups.nodes[groups.nodes["group"] == chosen]
    if found.empty:
        return []
    row = found.iloc[0]
    pairs = [
        ("Group", str(row["name"])),
        ("Phase", str(row["band"])),
        ("Nodes", f"{row['count']:,}"),
        ("Together", duration_text(int(row["duration_ns"]))),
        ("On the path", f"{duration_text(int(row['on_path_ns']))} "
         f"({share_text(row['on_path_ns'] / max(1, run.result.makespan_ns))})"),
        ("Mostly", KIND_LABELS.get(str(row["kind"]), str(row["kind"]))),
        ("Longest node", f"{row['node_id']} of rank {row['rank']}"),
    ]  # fmt: skip
    return [(label, text) for label, text in pairs if text]


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[-(limit // 2 - 1) :]}"


def _node_element(row: dict[Any, Any], node: Any, rank: int, longest: int) -> dict[str, Any]:
    number, lasts = int(row["node_id"]), int(row["duration_ns"])
    marks = (("focus", row["focus"]), ("path", row["on_path"]), ("opened", row["opened"]),
             ("above", row["layer"] % 2))  # fmt: skip
    place = {"x": int(row["layer"]) * _COLUMN, "y": round(float(row["row"]) * _ROW)}
    length = f"\n{duration_text(lasts)}" if lasts >= 0 else ""
    return {
        "data": {
            "id": str(number),
            "rank": rank,
            "node": number,
            "label": f"{_short(str(node['name']), 24)}{length}",
            "weight": max(0, lasts),
            "colour": kind_colour(str(node["kind"])),
            "size": round(18 + 26 * (max(0, lasts) / longest) ** 0.5),
            "place": place,
        },
        "position": place,
        "classes": " ".join(name for name, on in marks if on),
    }


def _edge_element(row: dict[Any, Any], along: set[tuple[int, int]]) -> dict[str, Any]:
    label, colour, style = EDGE_KINDS.get(int(row["kind"]), EDGE_KINDS[8])
    source, target = int(row["src"]), int(row["dst"])
    return {
        "data": {
            "source": str(source),
            "target": str(target),
            "label": label,
            "colour": colour,
            "line": style,
        },
        "classes": "path" if (source, target) in along else "",
    }


def stylesheet(scheme: str) -> list[dict[str, Any]]:
    """Return Cytoscape's style for a colour scheme, ``light`` or ``dark``."""
    ink, paper = ("#d5dbe1", "#242424") if scheme == "dark" else ("#1f2933", "#ffffff")
    edge = {
        "line-color": "data(colour)",
        "arrow-scale": 0.7,
        "line-style": "data(line)",
        "target-arrow-color": "data(colour)",
        "target-arrow-shape": "triangle",
        "curve-style": "bezier",
    }
    node = {
        "label": "data(label)",
        "background-color": "data(colour)",
        "color": ink,
        "font-size": 12,
        "text-wrap": "wrap",
        "text-max-width": 128,
        "width": "data(size)",
        "height": "data(size)",
        "text-valign": "bottom",
        "text-margin-y": 4,
        "text-background-color": paper,
        "text-background-opacity": 0.8,
        "text-background-padding": 1,
        "shape": "round-rectangle",
    }
    focus = {"border-width": 4, "border-color": ink, "font-weight": "bold"}
    return [
        {"selector": "node", "style": node},
        {"selector": "edge", "style": edge},
        {
            "selector": "edge:selected, .labelled",
            "style": {
                "label": "data(label)",
                "color": ink,
                "font-size": 11,
                "text-background-color": paper,
                "text-background-opacity": 0.85,
            },
        },
        # Every second column has its names above, so that each has room for two.
        {"selector": ".above", "style": {"text-valign": "top", "text-margin-y": -4}},
        {"selector": ".opened", "style": {"shape": "round-octagon"}},
        {"selector": "node.path", "style": {"border-width": 3, "border-color": PATH_COLOUR}},
        {"selector": "edge.path", "style": {"line-color": PATH_COLOUR, "target-arrow-color": PATH_COLOUR,
                                            "arrow-scale": 0.5, "z-index": 1}},
        {"selector": ".peer", "style": {"border-width": 2, "border-style": "dashed",
                                        "border-color": PATH_COLOUR}},
        {"selector": ".focus", "style": focus},
        # Which names are drawn, and the size of names and lines, depend on the zoom: assets/20_graph.js.
        {"selector": ".quiet", "style": {"text-opacity": 0, "text-background-opacity": 0}},
        {"selector": ".focus.path", "style": {"border-color": PATH_COLOUR}},
    ]  # fmt: skip
