"""Assemble the viewer application from its shell, its pages, and the selection that pages share."""

from __future__ import annotations

import threading
from typing import Any

import dash_mantine_components as dmc
from dash import MATCH, ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html

from ..converter.building import stand_in_of
from ..errors import ChakrascopeError
from ..runner import Study
from ..support import duration_text
from . import _perfetto as perfetto
from . import _routes as routes
from . import pages
from ._address import later_id, register_address
from ._shell import frame, new_dash, register_share, share_link
from ._state import Selection, StudyView, Surroundings
from ._theme import run_options
from .pages import card, error_alert, link_to, no_workload, node_search, page_address, prose
from .queries import rank_text, stragglers_of


def create_app(
    study: Study, *, warm: bool = False, near: Surroundings | None = None, prefix: str = "/"
) -> Dash:
    """Return the viewer of *study*, to be served below the path *prefix*.

    *near* describes the server's other studies and the folder for imports. Runs are read when a
    page first needs them; *warm* reads the default run in the background at once.
    """
    app = new_dash(prefix)
    view = StudyView(study, near)
    app.layout = lambda: _shell(view)
    register_address(app, view)
    _register_shell(app, view)
    for page in pages.REGISTERED:
        page.register(app, view)
    routes.register(app.server, view)
    perfetto.register(app.server)
    if warm:
        threading.Thread(target=view.warm, daemon=True).start()
    return app


def _shell(view: StudyView) -> dmc.MantineProvider:
    runs = dmc.Select(
        id="run-select",
        data=run_options(view.runs()),
        placeholder="no run yet",
        allowDeselect=False,
        searchable=True,
        className="run-select",
        **{"aria-label": "Run shown"},
    )
    name = view.near.name or view.study.path.resolve().name
    stores = [dcc.Store(id=part) for part in ("selection", "run", "rewritten", "returned")]
    stores.append(dcc.Store(id="study-name", data=name[:80]))
    navigation = [html.Nav(id="nav", **{"aria-label": "Pages"}), html.Div(id="selected")]
    return frame(_studies(view), [node_search(), runs, *share_link()], stores, navigation)


def _studies(view: StudyView) -> list[Any]:
    """Return the selector of the study; empty if the server has only one."""
    workspace = view.near.workspace
    if workspace is None:
        return []
    choice = dmc.Select(
        id="study-select",
        data=list(workspace.studies()),
        value=view.near.name,
        allowDeselect=False,
        searchable=True,
        w=210,
        **{"aria-label": "Study shown"},
    )
    # The list of studies is a separate application, two levels up.
    return [dmc.Group([html.A("Studies", href="../../", className="text-link"), choice], gap="sm")]


def _register_shell(app: Dash, view: StudyView) -> None:
    """Register the callbacks for navigation links, selected node and current page."""

    @app.callback(Output("nav", "children"), Input("url", "pathname"), Input("url", "search"))
    def navigation(pathname: str | None, search: str | None) -> list[Any]:
        """Draw the links to all pages, with the selection in their addresses."""
        return [
            dcc.Link(
                page.TITLE,
                href=page_address(page.PATH, search or ""),
                className="nav-link active" if _path(pathname) == page.PATH else "nav-link",
            )
            for page in pages.PAGES
        ]

    @app.callback(
        Output("page", "children"), Input("url", "pathname"), Input("run", "data"), Input("dark", "checked"),
        Input("returned", "data"), State("url", "search"),
    )  # fmt: skip
    def show_page(
        pathname: str | None, run: str | None, dark: bool, _returned: Any, search: str | None
    ) -> Any:
        """Return the page, or explain which data is missing and how to get it."""
        page = _page(view, _path(pathname), run, "dark" if dark else "light", search)
        view.shown.set()
        return page

    makers = {name: make for page in pages.PAGES for name, make in getattr(page, "LATER", {}).items()}

    @app.callback(
        Output(later_id(MATCH), "children"), Input(later_id(MATCH), "id"), State("run", "data"),
        State("dark", "checked"),
    )  # fmt: skip
    def make_later(_id: Any, run: str, dark: bool) -> Any:
        """Make a part of a page that takes longer than the other parts."""
        make = makers.get(ctx.outputs_list["id"]["later"])
        try:
            return make and make(view.open(run), "dark" if dark else "light")
        except ChakrascopeError as error:
            return error_alert(error.message)

    @app.callback(Output("selected", "children"), Input("selection", "data"))
    def show_selected(selection: dict[str, Any] | None) -> Any:
        """Show the selected node's name, rank and duration below the navigation."""
        return _selected(view, selection or {})

    app.clientside_callback(
        ClientsideFunction("chakrascope", "title"),
        Output("nav", "data-titled"),
        Input("nav", "children"),
        Input("run-select", "value"),
        Input("run-select", "data"),
        State("study-name", "data"),
    )
    app.clientside_callback(
        ClientsideFunction("chakrascope", "returned"),
        Output("returned", "data"),
        Input("url", "pathname"),
        Input("url", "search"),
    )
    register_share(app)
    if view.near.workspace is not None:
        app.clientside_callback(
            ClientsideFunction("chakrascope", "openStudy"),
            Output("study-select", "data-opened"),
            Input("study-select", "value"),
            State("url", "pathname"),
            prevent_initial_call=True,
        )


def _selected(view: StudyView, selection: dict[str, Any]) -> Any:
    run, rank, node_id = selection.get("run"), selection.get("rank", -1), selection.get("node", -1)
    if node_id < 0 or run not in {info.id for info in view.runs()}:
        return None
    node = view.open(run).node(rank, node_id)
    if node is None:
        facts = [dmc.Text(f"This run has no node {node_id} of rank {rank}.", size="sm", c="red")]
    else:
        stand_in = stand_in_of(view.open(run).workload.metadata, rank)
        facts = [
            dmc.Text("Selected on every page", size="xs", c="dimmed"),
            dmc.Text(str(node["name"])[:80], size="sm", fw=600, className="selected-name"),
            dmc.Text(f"rank {rank_text(rank, stand_in)} · node {node_id}", size="xs"),
            dmc.Text(duration_text(int(node["end_ns"] - node["start_ns"])), size="xs"),
        ]
    clear = dmc.Button("Clear", id={"clear": "selection"}, size="compact-xs", variant="default", mt=4)
    search = Selection(str(run), rank, node_id).search
    seen = [link_to(name, path, search) for name, path in (("Timeline", "/timeline"), ("Graph", "/graph"))]
    onward = [html.Div(seen, className="selected-links")] if node is not None else []
    return html.Div([*facts, *onward, clear], className="selected-card")


def _path(pathname: str | None) -> str:
    """Return a page's path without the study's prefix."""
    return "/" + (pathname or "").rpartition("/")[2]


def _page(view: StudyView, pathname: str, run: str | None, scheme: str, search: str | None) -> Any:
    page = next((page for page in pages.PAGES if pathname == page.PATH), None)
    if page is None:
        return _notice("No such page", "Choose one from the list on the left.")
    try:
        if not getattr(page, "NEEDS_RUN", True):
            return page.layout(view, Selection.parse(search), scheme)
        if not run and stragglers_of(view.study) is not None:
            return _notice(
                "This study has a recording of many steps, but no run yet",
                "The recording shows which worker makes which step slow.",
                link_to("Stragglers", pages.STRAGGLERS_PATH, ""),
            )
        if not run and not view.study.workloads():
            return html.Div(no_workload(""), id="notice")
        if not run:
            return _notice(
                "This study has no run yet",
                "Simulate its workload in the browser, or with `chakrascope run STUDY --network ...`.",
                link_to("Make a run", pages.NEW_RUN_PATH, ""),
            )
        return page.layout(view.open(run), Selection.parse(search), scheme)
    except ChakrascopeError as error:
        return _notice("This run cannot be shown", error.message)


def _notice(title: str, text: str, *more: Any) -> html.Div:
    return html.Div(card(title, dmc.Text(prose(text), mb="xs"), *more, order=2), id="notice")
