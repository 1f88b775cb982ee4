"""Graph page: the neighbours of a node, or the graph of modules, phases, streams or ranks."""

from __future__ import annotations

from typing import Any

import dash_cytoscape as cyto
import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from ...runner.analysis import FEW_HOPS, FOLDS, MOST_HOPS
from .._address import option_id
from .._state import OpenRun, Selection, StudyView
from .._theme import EDGE_KINDS
from ..queries import PATH_EDGES, edge_choice, focus_of, fold_of, has_selected, hops_of, opened_nodes
from ._graph_drawing import Drawing, draw, stylesheet
from ._parts import card, details_list, export_links, kind_legend, link_to, separator

PATH, TITLE = "/graph", "Graph"
_HOPS = option_id("hops", str(FEW_HOPS))
_DRAWN = ("nodes", "edges")
_HELP = (
    "A node, what it waits for, and what waits for it. Click a node to select it; right-click it, or press "
    "expand on the right, to draw its neighbours. Where names have no room, the longest nodes keep theirs."
)
_FITTED = {"name": "preset", "fit": True, "padding": 30}


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the page for *run*, centred on the selected node or the path's longest segment."""
    drawing = draw(run, selection)
    # Its "responsive" mode measures the graph after it was taken down, which throws. 20_graph.js fits what is
    # drawn; the component would do so once more 100 ms later, when people already point at a node.
    drawn = cyto.Cytoscape(
        id="graph", elements=drawing.elements, layout=_FITTED, style={"width": "100%", "height": "100%"},
        stylesheet=stylesheet(scheme), minZoom=0.1, maxZoom=3, responsive=False,
        autoRefreshLayout=False,
    )  # fmt: skip
    label = "Drawing of the graph; the neighbours of the selected node are listed beside it as links"
    return html.Div(
        [
            dmc.Title(drawing.title, order=2, size="h3", id="graph-title"),
            html.Div(_notices(run, selection), id="graph-notices"),
            _controls(selection),
            html.Div([kind_legend(), _edge_legend()], className="legends"),
            dmc.Text(_HELP, size="xs", c="dimmed", id="graph-help"),
            html.Div(
                [
                    html.Div([drawn, dcc.Store(id="graph-sink")], className="graph-holder", role="group",
                             **{"aria-label": label}),
                    separator("graph-side", "Width of the facts beside the graph"),
                    card("Selected", html.Div(_side(run, selection, drawing), id="graph-details"),
                         className="graph-side", id="graph-side"),
                ],
                className="graph-area",
            ),
        ],
        className="full-height",
    )  # fmt: skip


def _notices(run: OpenRun, selection: Selection) -> list[Any]:
    """Return a notice on requests in the address that cannot be drawn, with the replacement."""
    texts = []
    if not has_selected(run, selection):
        texts.append(
            f"This run has no node {selection.node} of rank {selection.rank}; here is the longest segment of "
            "the path:"
        )
    asked = selection.option("hops", str(FEW_HOPS))
    if fold_of(selection.option("fold")) == "nodes" and str(hops_of(asked)) != asked:
        texts.append(
            f"The graph is drawn with 1 to {MOST_HOPS} hops, not with '{asked[:20]}'; here are "
            f"{hops_of(asked)}:"
        )
    rank, node = focus_of(run, selection)
    path = run.path.unreasoned
    on_path = ((path["rank"] == rank) & (path["node_id"] == node)).any()
    if PATH_EDGES in edge_choice(selection.option("edges")) and not on_path:
        texts.append(f"Node {node} of rank {rank} is not on the critical path, the only edges chosen below.")
    return [dmc.Alert(text, color="red", variant="light", mb="xs") for text in texts]


def _side(run: OpenRun, selection: Selection, drawing: Drawing) -> list[Any]:
    """Return the facts of the focus, and its neighbours as links that select them."""
    rank, _ = focus_of(run, selection)
    parts: list[Any] = [details_list(drawing.details)]
    for title, before in (("Waits for", True), ("Awaited by", False)):
        near = [found for found in drawing.neighbours if found.before == before]
        links = []
        for found in near:
            search = selection.with_run(run.info.id).with_node(rank, found.node_id).search
            text = f"{found.name[:60]}, node {found.node_id}"
            links.append(html.Li([link_to(text, PATH, search), f" ({found.why}), ",
                                  _opener(selection.with_run(run.info.id), found.node_id)]))  # fmt: skip
        if links:
            parts += [html.H4(title, className="side-title"), html.Ul(links, className="side-list")]
    return [*parts, *_exports(run, selection)] if drawing.elements else parts


def _opener(selection: Selection, node: int) -> Any:
    """Return a link that adds or removes the neighbours of *node*."""
    opened = opened_nodes(selection.option("open"))
    rest = [each for each in opened if each != node] if node in opened else [*opened, node]
    search = selection.with_option("open", ",".join(map(str, rest))).search
    return link_to("fold" if node in opened else "expand", PATH, search)


def _exports(run: OpenRun, selection: Selection) -> list[Any]:
    """Return links that export the drawing."""
    rank, node = focus_of(run, selection)
    asked = {"run": run.info.id, "rank": str(rank), "node": str(node)}
    asked |= {name: value for name in ("fold", "hops", "edges", "open") if (value := selection.option(name))}
    links = [html.Li([part.capitalize(), ": ", export_links(f"graph-{part}", **asked)]) for part in _DRAWN]
    return [html.H4("What is drawn", className="side-title"), html.Ul(links, className="side-list")]


def _controls(selection: Selection) -> dmc.Group:
    folds = [{"value": key, "label": label} for key, label in FOLDS.items()]
    kinds = [{"value": PATH_EDGES, "label": "critical path only"}]
    kinds += [{"value": str(kind), "label": label} for kind, (label, _, _) in EDGE_KINDS.items()]
    return dmc.Group(
        [
            dmc.SegmentedControl(id=option_id("fold", "nodes"), data=folds,
                                 value=fold_of(selection.option("fold")), size="xs",
                                 **{"aria-label": "What the graph shows"}),
            # It holds what was asked for and clamps nothing in silence; the notice says what is drawn.
            dmc.NumberInput(id=_HOPS, value=_asked_hops(selection), min=1, max=MOST_HOPS,
                            w=100, size="xs", prefix="hops: ", allowDecimal=False, clampBehavior="none",
                            style=_hops_style(fold_of(selection.option("fold"))),
                            **{"aria-label": "Hops around the node"}),
            dmc.MultiSelect(id=option_id("edges"), data=kinds, size="xs", miw=220, clearable=True,
                            value=edge_choice(selection.option("edges")),
                            placeholder="edges: all kinds", **{"aria-label": "Kinds of edges shown"}),
        ],
        gap="sm",
    )  # fmt: skip


def _asked_hops(selection: Selection) -> int | str:
    asked = selection.option("hops", str(FEW_HOPS))
    return int(asked) if asked.isascii() and asked.isdecimal() else asked


def _hops_style(fold: str) -> dict[str, str]:
    """Return the style of the field of hops, which is hidden for folded graphs."""
    return {} if fold == "nodes" else {"display": "none"}


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
    """Draw the graph of the address; 20_graph.js selects the node that is clicked."""

    @app.callback(
        Output("graph", "elements"), Output("graph-title", "children"), Output("graph-details", "children"),
        Output("graph-notices", "children"), Output(_HOPS, "style"),
        Input("url", "search"), State("url", "pathname"), State("run", "data"),
        prevent_initial_call=True,
    )  # fmt: skip
    def redraw(search: str | None, pathname: str | None, run: str | None) -> Any:
        # While the page is being left, its graph must not be drawn again: it is about to be taken away.
        if not run or not (pathname or "").endswith(PATH):
            return (no_update,) * 5
        shown, selection = view.open(run), Selection.parse(search)
        drawing = draw(shown, selection)
        side = _side(shown, selection, drawing)
        style = _hops_style(fold_of(selection.option("fold")))
        return drawing.elements, drawing.title, side, _notices(shown, selection), style

    app.clientside_callback(
        ClientsideFunction("chakrascope", "fitGraph"),
        Output("graph-sink", "data"),
        Input("graph", "elements"),
    )
