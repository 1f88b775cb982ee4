"""What the graph page draws: elements and style of Cytoscape, a title, and the facts beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..queries.details import node_details
from ..queries.groups import Groups, module_groups
from ..queries.neighbourhood import neighbourhood, neighbours
from ..queries.path import longest_segment
from ..state import OpenRun, Selection
from ..theme import EDGE_KINDS, KIND_LABELS, duration_text, kind_colour, share_text

__all__ = ["Drawing", "draw", "edge_kinds", "focus_of", "hops_of", "stylesheet"]

FEW_HOPS, MOST_HOPS = 2, 8
_COLUMN, _ROW = 190, 64
_GROUP_COLUMN, _GROUP_ROW = 140, 95


@dataclass(frozen=True)
class Drawing:
    """Cytoscape's *elements*, a *title*, and (label, text) pairs about the focus."""

    elements: list[dict[str, Any]]
    title: str
    details: list[tuple[str, str]]


def hops_of(asked: Any) -> int:
    """Return how many hops to draw; anything but a number of hops is the default."""
    try:
        return min(MOST_HOPS, max(1, int(asked)))
    except (TypeError, ValueError):
        return FEW_HOPS


def edge_kinds(asked: str) -> list[int]:
    """Return the kinds of edges written as "0,3"; all kinds if none is."""
    wanted = [int(text) for text in asked.split(",") if text.isascii() and text.isdigit()]
    return [kind for kind in wanted if kind in EDGE_KINDS] or list(EDGE_KINDS)


def focus_of(run: OpenRun, selection: Selection) -> tuple[int, int]:
    """Return (rank, node) of the selection, or of the longest segment of the path."""
    if selection.has_node and run.node(selection.rank, selection.node) is not None:
        return selection.rank, selection.node
    return longest_segment(run.path)


def draw(run: OpenRun, selection: Selection) -> Drawing:
    """Return the drawing of what *selection* asks for: a node's surroundings, or its rank's modules."""
    rank, focus = focus_of(run, selection)
    node = run.node(rank, focus)
    if node is None:
        return Drawing([], "No node of this run takes time", [])
    program = run.workload.graphs[int(run.workload.program_of_rank[rank])]
    kinds = edge_kinds(selection.option("edges"))
    edges = program.edges[program.edges["kind"].isin(kinds)]
    if selection.option("fold") == "modules":
        return _folded(run, rank, focus, edges)
    return _around(run, node, edges, hops_of(selection.option("hops")))


def _around(run: OpenRun, node: dict[str, Any], edges: Any, hops: int) -> Drawing:
    rank, focus = int(node["rank"]), int(node["node_id"])
    cut = neighbourhood(edges, focus, hops)
    described = run.workload.graphs[int(run.workload.program_of_rank[rank])].nodes.set_index("node_id")
    on_path = set(run.path.segments.loc[run.path.segments["rank"] == rank, "node_id"])
    elements = [
        _node_element(row, described.loc[row.node_id], bool(row.node_id == focus), row.node_id in on_path)
        for row in cut.nodes.itertuples(index=False)
    ]
    elements += [_edge_element(row) for row in cut.edges.itertuples(index=False)]
    more = f" (nearest {len(cut.nodes)} nodes)" if cut.cut else ""
    title = f"Around {_short(str(node['name']), 40)}, node {focus} of rank {rank}{more}"
    return Drawing(elements, title, [*node_details(node), *neighbours(edges, described["name"], focus)])


def _folded(run: OpenRun, rank: int, focus: int, edges: Any) -> Drawing:
    own = run.nodes[run.nodes["rank"] == rank]
    path = run.path.segments
    groups = module_groups(own, edges, path[path["rank"] == rank])
    chosen = int(groups.group_of.get(focus, -1))
    largest = max(1, int(groups.nodes["duration_ns"].max()))
    elements = [_group_element(row, chosen, largest) for row in groups.nodes.to_dict("records")]
    elements += [
        {"data": {"source": f"g{row.src}", "target": f"g{row.dst}", "label": f"{row.count_:,} edges",
                  "colour": "#9aa3ad", "line": "solid"}}
        for row in groups.edges.rename(columns={"count": "count_"}).itertuples(index=False)
    ]  # fmt: skip
    return Drawing(elements, f"Modules of rank {rank}", _group_details(groups, chosen, run))


def _group_element(row: dict[Any, Any], chosen: int, largest: int) -> dict[str, Any]:
    marks = (("group", True), ("focus", row["group"] == chosen), ("path", row["on_path_ns"] > 0))
    share = (row["duration_ns"] / largest) ** 0.5
    return {
        "data": {
            "id": f"g{row['group']}",
            "node": int(row["node_id"]),
            "label": f"{_short(str(row['name']), 22)}\n{row['phase']}, {duration_text(row['duration_ns'])}",
            "colour": kind_colour(str(row["kind"])),
            "size": round(16 + 44 * share),
        },
        "position": {"x": int(row["column"]) * _GROUP_COLUMN, "y": int(row["row"]) * _GROUP_ROW},
        "classes": " ".join(name for name, on in marks if on),
    }


def _group_details(groups: Groups, chosen: int, run: OpenRun) -> list[tuple[str, str]]:
    found = groups.nodes[groups.nodes["group"] == chosen]
    if found.empty:
        return []
    row = found.iloc[0]
    return [
        ("Module", str(row["name"])),
        ("Phase", str(row["phase"])),
        ("Nodes", f"{row['count']:,}"),
        ("Together", duration_text(int(row["duration_ns"]))),
        ("On the path", f"{duration_text(int(row['on_path_ns']))} "
         f"({share_text(row['on_path_ns'] / max(1, run.result.makespan_ns))})"),
        ("Mostly", KIND_LABELS.get(str(row["kind"]), str(row["kind"]))),
        ("Longest node", str(row["node_id"])),
    ]  # fmt: skip


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[-(limit // 2 - 1) :]}"


def _node_element(row: Any, node: Any, focus: bool, on_path: bool) -> dict[str, Any]:
    label = _short(str(node["name"]), 24)
    classes = " ".join(c for c, on in (("focus", focus), ("path", on_path)) if on)
    return {
        "data": {"id": str(row.node_id), "label": label, "colour": kind_colour(node["kind"])},
        "position": {"x": int(row.layer) * _COLUMN, "y": int(row.row) * _ROW},
        "classes": classes,
    }


def _edge_element(row: Any) -> dict[str, Any]:
    label, colour, style = EDGE_KINDS.get(int(row.kind), EDGE_KINDS[8])
    return {
        "data": {
            "source": str(row.src),
            "target": str(row.dst),
            "label": label,
            "colour": colour,
            "line": style,
        }
    }


def stylesheet(scheme: str) -> list[dict[str, Any]]:
    """Return Cytoscape's style for a colour scheme, ``light`` or ``dark``."""
    ink, paper = ("#d5dbe1", "#242424") if scheme == "dark" else ("#1f2933", "#ffffff")
    edge = {
        "width": 1.6,
        "line-color": "data(colour)",
        "line-style": "data(line)",
        "target-arrow-color": "data(colour)",
        "target-arrow-shape": "triangle",
        "arrow-scale": 0.8,
        "curve-style": "bezier",
    }
    node = {
        "label": "data(label)",
        "background-color": "data(colour)",
        "color": ink,
        "font-size": 11,
        "width": 22,
        "height": 22,
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
            "selector": "edge:selected",
            "style": {"label": "data(label)", "color": ink, "font-size": 11, "width": 3},
        },
        {
            "selector": ".group",
            "style": {"width": "data(size)", "height": "data(size)", "text-wrap": "wrap", "font-size": 13},
        },
        {"selector": ".path", "style": {"border-width": 3, "border-color": "#d6264f"}},
        {"selector": ".focus", "style": focus},
        {"selector": ".focus[!size]", "style": {"width": 34, "height": 34}},
        {"selector": ".focus.path", "style": {"border-color": "#d6264f"}},
    ]
