"""Graph: what a node waits for and what waits for it."""

from __future__ import annotations

from typing import Any

import dash_cytoscape as cyto
import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html, no_update

from ..queries.details import node_details
from ..queries.neighbourhood import neighbourhood, neighbours
from ..queries.path import longest_segment
from ..state import OpenRun, Selection, StudyView
from ..theme import EDGE_KINDS, kind_colour
from .parts import card, details_list, kind_legend, node_address, option_address
from .search import node_search, register_search

__all__ = ["PATH", "TITLE", "layout", "register"]

PATH, TITLE = "/graph", "Graph"
_COLUMN, _ROW = 190, 64
_FEW_HOPS, _MOST_HOPS = 2, 8
_FITTED = {"name": "preset", "fit": True, "padding": 30}


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the page for *run*, centred on the selected node or the path's longest segment."""
    hops = _hops(selection.option("hops"))
    elements, title, pairs = _drawing(run, selection, hops)
    return dmc.Stack(
        [
            dmc.Group(
                [
                    dmc.Title(title, order=2, size="h3", id="graph-title"),
                    dmc.Group(
                        [
                            node_search("graph-search"),
                            dmc.NumberInput(id="graph-hops", value=hops, min=1, max=_MOST_HOPS, w=110,
                                            suffix=" hops", allowDecimal=False,
                                            **{"aria-label": "Hops around the node"}),
                        ]
                    ),
                ],
                justify="space-between",
            ),
            html.Div([kind_legend(), _edge_legend()], className="legends"),
            html.Div(
                [
                    cyto.Cytoscape(id="graph", elements=elements, layout=_FITTED,
                                   style={"width": "100%", "height": "100%"}, stylesheet=_stylesheet(scheme),
                                   minZoom=0.1, maxZoom=3, responsive=True),
                    card("Node", html.Div(details_list(pairs), id="graph-details"), className="graph-side"),
                ],
                className="graph-area",
            ),
        ],
        gap="xs",
    )  # fmt: skip


def _hops(asked: Any) -> int:
    try:
        return min(_MOST_HOPS, max(1, int(asked)))
    except (TypeError, ValueError):
        return _FEW_HOPS


def _focus(run: OpenRun, selection: Selection) -> tuple[int, int]:
    if selection.has_node and run.node(selection.rank, selection.node) is not None:
        return selection.rank, selection.node
    return longest_segment(run.path)


def _drawing(
    run: OpenRun, selection: Selection, hops: int
) -> tuple[list[dict[str, Any]], str, list[tuple[str, str]]]:
    rank, focus = _focus(run, selection)
    node = run.node(rank, focus)
    if node is None:
        return [], "No node of this run takes time", []
    program = run.workload.graphs[int(run.workload.program_of_rank[rank])]
    cut = neighbourhood(program.edges, focus, hops)
    described = program.nodes.set_index("node_id")
    on_path = set(run.path.segments.loc[run.path.segments["rank"] == rank, "node_id"])
    elements = [
        _node_element(row, described.loc[row.node_id], bool(row.node_id == focus), row.node_id in on_path)
        for row in cut.nodes.itertuples(index=False)
    ]
    elements += [_edge_element(row) for row in cut.edges.itertuples(index=False)]
    more = f" (nearest {len(cut.nodes)} nodes)" if cut.cut else ""
    name = str(node["name"])
    title = f"Around {name[:40]}{'…' if len(name) > 40 else ''}, node {focus} of rank {rank}{more}"
    waits = neighbours(program.edges, program.nodes, focus)
    return elements, title, [*node_details(node), *((label, text) for label, text in waits)]


def _node_element(row: Any, node: Any, focus: bool, on_path: bool) -> dict[str, Any]:
    name = str(node["name"])
    label = name if len(name) <= 24 else f"{name[:12]}…{name[-10:]}"
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


def _stylesheet(scheme: str) -> list[dict[str, Any]]:
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
    focus = {"width": 34, "height": 34, "border-width": 4, "border-color": ink, "font-weight": "bold"}
    return [
        {"selector": "node", "style": node},
        {"selector": "edge", "style": edge},
        {
            "selector": "edge:selected",
            "style": {"label": "data(label)", "color": ink, "font-size": 11, "width": 3},
        },
        {"selector": ".path", "style": {"border-width": 3, "border-color": "#d6264f"}},
        {"selector": ".focus", "style": focus},
        {"selector": ".focus.path", "style": {"border-color": "#d6264f"}},
    ]


def _edge_legend() -> html.Div:
    items = [
        html.Span(
            [html.I(className="edge", style={"borderTop": f"2px {line} {colour}"}), label],
            className="legend-item",
        )
        for label, colour, line in EDGE_KINDS.values()
    ]
    on_path = html.Span([html.I(className="on-path"), "on the critical path"], className="legend-item")
    return html.Div([*items, on_path], className="legend")


def register(app: Dash, view: StudyView) -> None:
    """Wire search, hop count, tapping a node, and following the selection."""
    register_search(app, view, "graph-search")

    @app.callback(
        Output("url", "search", allow_duplicate=True), Input("graph", "tapNodeData"), State("run", "data"),
        State("url", "search"), prevent_initial_call=True,
    )  # fmt: skip
    def tap(data: dict[str, Any] | None, run: str, search: str | None) -> Any:
        if not data:
            return no_update
        rank, _ = _focus(view.open(run), Selection.parse(search))
        return node_address(search, run, rank, data["id"])

    @app.callback(
        Output("url", "search", allow_duplicate=True), Input("graph-hops", "value"), State("run", "data"),
        State("url", "search"), prevent_initial_call=True,
    )  # fmt: skip
    def widen(hops: Any, run: str, search: str | None) -> Any:
        return option_address(search, run, "hops", str(_hops(hops)), str(_FEW_HOPS))

    @app.callback(
        Output("graph", "elements"), Output("graph-title", "children"), Output("graph-details", "children"),
        Input("url", "search"), State("run", "data"), prevent_initial_call=True,
    )  # fmt: skip
    def redraw(search: str | None, run: str | None) -> Any:
        if not run:
            return no_update, no_update, no_update
        selection = Selection.parse(search)
        elements, title, pairs = _drawing(view.open(run), selection, _hops(selection.option("hops")))
        return elements, title, details_list(pairs)
