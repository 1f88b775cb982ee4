"""Graph page: a node's neighbourhood, or the graph folded by module, phase, stream or rank."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import dash_cytoscape as cyto
import dash_mantine_components as dmc
import pandas as pd
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from ...errors import StudyError
from ...runner.analysis import (
    FEW_HOPS,
    FOLDS,
    KIND_LABELS,
    MAX_HOPS,
    Groups,
    Neighbour,
    causes,
    edges_of,
    folded,
    neighbourhood,
    neighbours,
)
from ...support import duration_text, share_text
from .._address import option_id
from .._state import OpenRun, Selection, StudyView
from .._theme import EDGE_KINDS, PATH_COLOUR, kind_colour, short
from ..queries import (
    PATH_EDGES,
    edge_choice,
    edge_kinds,
    focus_of,
    fold_of,
    has_selected,
    hops_of,
    node_details,
    opened_nodes,
    placed_groups,
    placed_nodes,
)
from ._parts import card, details_list, error_alert, export_links, kind_legend, link_to, separator

PATH, TITLE = "/graph", "Graph"
_HOPS = option_id("hops", str(FEW_HOPS))
_DRAWN = ("nodes", "edges")
_HELP = (
    "A node, the nodes that it waits for, and the nodes that wait for it. Click a node to select it; "
    "right-click it, or press expand on the right, to draw its neighbours. If there is no room for all "
    "names, only the longest nodes are labelled."
)
_FITTED = {"name": "preset", "fit": True, "padding": 30}


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the Graph page around the selected node or the longest segment of the critical path."""
    drawing = draw(run, selection)
    # "responsive" raises an error once the page has removed the graph, and fits the drawing 100 ms
    # late, when the user may already point at a node; 20_graph.js does it instead.
    drawn = cyto.Cytoscape(
        id="graph", elements=drawing.elements, layout=_FITTED, style={"width": "100%", "height": "100%"},
        stylesheet=stylesheet(scheme), minZoom=0.1, maxZoom=3, responsive=False,
        autoRefreshLayout=False,
    )  # fmt: skip
    label = "Drawing of the graph; links to the neighbours of the selected node are next to the graph"
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
                    separator("graph-side", "Width of the details next to the graph"),
                    card("Selected", html.Div(_side(run, selection, drawing), id="graph-details"),
                         className="graph-side", id="graph-side"),
                ],
                className="graph-area",
            ),
        ],
        className="full-height",
    )  # fmt: skip


def _notices(run: OpenRun, selection: Selection) -> list[Any]:
    """Return notices about elements that cannot be drawn, and about their replacements."""
    texts = []
    if not has_selected(run, selection):
        texts.append(
            f"This run has no node {selection.node} of rank {selection.rank}; the graph shows the longest "
            "segment of the path instead."
        )
    asked = selection.option("hops", str(FEW_HOPS))
    if fold_of(selection.option("fold")) == "nodes" and str(hops_of(asked)) != asked:
        texts.append(
            f"The graph can show 1 to {MAX_HOPS} hops, not '{asked[:20]}'; it shows {hops_of(asked)}."
        )
    rank, node = focus_of(run, selection)
    path = run.path.unreasoned
    on_path = ((path["rank"] == rank) & (path["node_id"] == node)).any()
    if PATH_EDGES in edge_choice(selection.option("edges")) and not on_path:
        texts.append(
            f"Node {node} of rank {rank} is not on the critical path, but only edges of the critical path "
            "are selected below."
        )
    return [error_alert(text, mb="xs") for text in texts]


def _side(run: OpenRun, selection: Selection, drawing: Drawing) -> list[Any]:
    """Return facts about the focused node, links to its neighbours, and exports."""
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
        if near and near[0].of > len(near):
            links.append(html.Li(f"and {near[0].of - len(near):,} more"))
        if links:
            parts += [html.H4(title, className="side-title"), html.Ul(links, className="side-list")]
    return [*parts, *_exports(run, selection)] if drawing.elements else parts


def _opener(selection: Selection, node: int) -> Any:
    """Return a link that adds the neighbours of *node* to the drawing, or removes them again."""
    opened = opened_nodes(selection.option("open"))
    rest = [each for each in opened if each != node] if node in opened else [*opened, node]
    search = selection.with_option("open", ",".join(map(str, rest))).search
    return link_to("fold" if node in opened else "expand", PATH, search)


def _exports(run: OpenRun, selection: Selection) -> list[Any]:
    """Return links to export the nodes and edges of the drawing."""
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
            # An invalid number stays in the field, and a notice says how many hops are drawn.
            dmc.NumberInput(id=_HOPS, value=_requested_hops(selection), min=1, max=MAX_HOPS,
                            w=100, size="xs", prefix="hops: ", allowDecimal=False, clampBehavior="none",
                            style=_hops_style(fold_of(selection.option("fold"))),
                            **{"aria-label": "Hops around the node"}),
            dmc.MultiSelect(id=option_id("edges"), data=kinds, size="xs", miw=220, clearable=True,
                            value=edge_choice(selection.option("edges")),
                            placeholder="edges: all kinds", **{"aria-label": "Kinds of edges shown"}),
        ],
        gap="sm",
    )  # fmt: skip


def _requested_hops(selection: Selection) -> int | str:
    asked = selection.option("hops", str(FEW_HOPS))
    return int(asked) if asked.isascii() and asked.isdecimal() else asked


def _hops_style(fold: str) -> dict[str, str]:
    """Return the style of the field for hops, hidden for a folded graph."""
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
    """Register the callback that draws the graph; 20_graph.js handles clicks on nodes."""

    @app.callback(
        Output("graph", "elements"), Output("graph-title", "children"), Output("graph-details", "children"),
        Output("graph-notices", "children"), Output(_HOPS, "style"),
        Input("url", "search"), State("url", "pathname"), State("run", "data"),
        prevent_initial_call=True,
    )  # fmt: skip
    def redraw(search: str | None, pathname: str | None, run: str | None) -> Any:
        # The browser may have opened another page, which has no graph.
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


_TITLES = {
    "modules": "Modules of rank {}",
    "phases": "Phases of rank {}",
    "streams": "Streams of rank {}",
    "ranks": "Ranks, and the ranks for which they waited",
}
_COLUMN, _ROW = 130, 96
_GROUP_COLUMN, _GROUP_ROW = 140, 110
_FEW_EDGES = 30


@dataclass(frozen=True)
class Drawing:
    """A graph as Cytoscape *elements*, its *title*, and facts about the focused node.

    *details* are (label, text) pairs of that node, and *neighbours* the nodes linked to it.
    """

    elements: list[dict[str, Any]]
    title: str
    details: list[tuple[str, str]]
    neighbours: list[Neighbour]


def draw(run: OpenRun, selection: Selection) -> Drawing:
    """Draw what *selection* asks for: a node's neighbourhood, or a folded graph."""
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
    placed = placed_nodes(cut)
    nodes = placed.nodes
    own = run.nodes_of(rank)
    own = own[own["node_id"].isin(nodes["node_id"])]
    lasting = dict(zip(own["node_id"].tolist(), (own["end_ns"] - own["start_ns"]).tolist(), strict=True))
    longest = max([1, *lasting.values()])
    drawn = nodes.assign(
        focus=nodes["node_id"] == focus,
        on_path=nodes["node_id"].isin(on_path),
        opened=nodes["node_id"].isin(opened),
        duration_ns=nodes["node_id"].map(lasting).fillna(-1).astype("int64"),
    )
    elements = [
        _node_element(row, described.loc[row["node_id"]], rank, longest) for row in drawn.to_dict("records")
    ]
    for number, row in enumerate(cut.edges.to_dict("records")):
        elements += _edge_elements(row, along, number, placed.bends[number])
    elements += _late_peer(run, node, nodes)
    more = f" (nearest {len(nodes)} nodes)" if cut.cut else ""
    title = f"Around {short(str(node['name']), 40)}, node {focus} of rank {rank}{more}"
    among, metadata = run.measured_among(rank, focus), run.workload.metadata
    details = node_details(node, run.slack_of(rank, focus), among, metadata)
    return Drawing(
        elements, title, details, neighbours(edges, lambda near: str(described.at[near, "name"]), focus)
    )


def _late_peer(run: OpenRun, node: dict[str, Any], drawn: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the node of the rank that arrived last, and its edge to the focus.

    The list is empty if the rank of the focused node arrived last.
    """
    rank, focus = int(node["rank"]), int(node["node_id"])
    other, its_node = int(node["origin_rank"]), int(node["origin_node"])
    peer = run.node(other, its_node) if other != rank else None
    if peer is None:
        return []
    here = drawn[drawn["node_id"] == focus].iloc[0]
    top = float(drawn["row"].min()) - 1
    place = _place(int(here["layer"]) - 1, top)
    label = f"rank {other} came last\n{short(str(peer['name']), 20)}"
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
    # Tables of all ranks and of one rank number their rows differently.
    nodes = run.nodes if fold == "ranks" else run.nodes_of(rank)
    chosen = int(groups.group_of[(nodes["rank"] == rank) & (nodes["node_id"] == focus)].iloc[0])
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
            "label": f"{short(str(row['name']), 22)}\n{row['band'] and row['band'] + ', '}"
            f"{duration_text(row['duration_ns'])}",
            "weight": int(row["duration_ns"]),
            "colour": kind_colour(str(row["kind"])),
            "size": round(16 + 44 * share),
            "place": place,
        },
        "position": place,
        "classes": " ".join(name for name, on in marks if on),
    }


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


def _node_element(row: dict[Any, Any], node: Any, rank: int, longest: int) -> dict[str, Any]:
    number, lasts = int(row["node_id"]), int(row["duration_ns"])
    marks = (("focus", row["focus"]), ("path", row["on_path"]), ("opened", row["opened"]),
             ("above", row["layer"] % 2))  # fmt: skip
    place = _place(int(row["layer"]), float(row["row"]))
    length = f"\n{duration_text(lasts)}" if lasts >= 0 else ""
    return {
        "data": {
            "id": str(number),
            "rank": rank,
            "node": number,
            "label": f"{short(str(node['name']), 24)}{length}",
            "weight": max(0, lasts),
            "colour": kind_colour(str(node["kind"])),
            "size": round(18 + 26 * (max(0, lasts) / longest) ** 0.5),
            "place": place,
        },
        "position": place,
        "classes": " ".join(name for name, on in marks if on),
    }


def _edge_elements(
    row: dict[Any, Any], along: set[tuple[int, int]], number: int, bends: list[tuple[int, float]]
) -> list[dict[str, Any]]:
    """Return the lines of an edge from bend to bend, and its bends."""
    label, colour, style = EDGE_KINDS.get(int(row["kind"]), EDGE_KINDS[8])
    source, target = int(row["src"]), int(row["dst"])
    elements: list[dict[str, Any]] = []
    for layer, height in bends:
        place = _place(layer, height)
        elements.append({"data": {"id": f"bend{number}:{layer}", "place": place}, "position": place,
                         "classes": "bend"})  # fmt: skip
    names = [str(source), *(element["data"]["id"] for element in elements), str(target)]
    classes = " ".join(["path"] * ((source, target) in along))
    for start, end in itertools.pairwise(names):
        data = {"source": start, "target": end, "label": label, "colour": colour, "line": style}
        elements.append({"data": data, "classes": classes if end == names[-1] else f"{classes} through"})
    return elements


def _place(layer: float, row: float) -> dict[str, int]:
    return {"x": round(layer * _COLUMN), "y": round(row * _ROW)}


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
        "line-cap": "round",
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
        {"selector": ".bend", "style": {"label": "", "width": 1, "height": 1, "opacity": 0, "events": "no"}},
        {"selector": ".through", "style": {"target-arrow-shape": "none"}},
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
        # Names are above the nodes in every second column, so that each name may be two columns wide.
        {"selector": ".above", "style": {"text-valign": "top", "text-margin-y": -4}},
        {"selector": ".opened", "style": {"shape": "round-octagon"}},
        {"selector": "node.path", "style": {"border-width": 3, "border-color": PATH_COLOUR}},
        {"selector": "edge.path", "style": {"line-color": PATH_COLOUR, "target-arrow-color": PATH_COLOUR,
                                            "arrow-scale": 0.5, "z-index": 1}},
        {"selector": ".peer", "style": {"border-width": 2, "border-style": "dashed",
                                        "border-color": PATH_COLOUR}},
        {"selector": ".focus", "style": focus},
        # 20_graph.js hides names and changes font sizes with the zoom.
        {"selector": ".quiet", "style": {"text-opacity": 0, "text-background-opacity": 0}},
        {"selector": ".focus.path", "style": {"border-color": PATH_COLOUR}},
    ]  # fmt: skip
