"""Assemble the application: one shell, one page at a time, one selection shared by all of them."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from flask import Response

from ..errors import ChakrascopeError
from ..runner import RunInfo, Study
from . import pages, routes
from .state import Selection, StudyView
from .theme import duration_text

__all__ = ["create_app"]


def create_app(study: Study) -> Dash:
    """Return the viewer of *study*, ready to be served; a run is read when a page first asks for it."""
    app = Dash(
        __name__,
        title="Chakrascope",
        update_title="",
        serve_locally=True,
        suppress_callback_exceptions=True,
        compress=True,
        assets_folder="assets",
    )
    # Flask-Compress leaves the files it streams open; they are our own few assets, a few kB each.
    app.server.config["COMPRESS_STREAMS"] = False
    view = StudyView(study)
    app.layout = lambda: _shell(view)
    _register_shell(app, view)
    for page in pages.PAGES:
        page.register(app, view)
    routes.register(app.server, view)
    _protect(app)
    return app


def _shell(view: StudyView) -> dmc.MantineProvider:
    header = dmc.Group(
        [
            dmc.Group([html.Span(className="logo-mark"), dmc.Text("Chakrascope", fw=700, size="lg")], gap=8),
            dmc.Group(
                [
                    dmc.Select(
                        id="run-select",
                        data=_run_options(view),
                        placeholder="no run yet",
                        allowDeselect=False,
                        searchable=True,
                        w=460,
                        **{"aria-label": "Run shown"},
                    ),
                    dmc.Switch(id="dark", label="Dark", persistence=True, persistence_type="local"),
                ],
                gap="lg",
            ),
        ],
        justify="space-between",
        h="100%",
        px="md",
    )
    return dmc.MantineProvider(
        id="mantine",
        theme={"primaryColor": "blue", "fontFamily": "system-ui, sans-serif"},
        children=[
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="selection"),
            dcc.Store(id="run"),
            dmc.AppShell(
                [
                    dmc.AppShellHeader(header),
                    dmc.AppShellNavbar(html.Nav(id="nav"), p="xs"),
                    dmc.AppShellMain(html.Div(id="page")),
                ],
                header={"height": 56},
                navbar={"width": 190, "breakpoint": 0},
                padding="md",
            ),
        ],
    )


def _run_options(view: StudyView) -> list[dict[str, str]]:
    return [{"value": info.id, "label": _run_label(info)} for info in reversed(view.runs())]


def _run_label(info: RunInfo) -> str:
    label = info.label or f"{info.backend} on {info.network}"
    return f"{label} · {info.num_ranks} ranks · {duration_text(info.makespan_ns)}"


def _register_shell(app: Dash, view: StudyView) -> None:
    @app.callback(
        Output("selection", "data"), Output("run", "data"), Output("run-select", "value"),
        Input("url", "search"), State("run", "data"),
    )  # fmt: skip
    def read_address(search: str | None, shown: str | None) -> tuple[Any, Any, Any]:
        """Read the selection out of the address; the run changes only when it really does."""
        selection = Selection.parse(search)
        run = view.resolve(selection.run)
        data = {"run": run, "rank": selection.rank, "node": selection.node}
        return data, no_update if run == shown else run, no_update if run == shown else run

    @app.callback(
        Output("url", "search", allow_duplicate=True), Input("run-select", "value"), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def choose_run(run: str | None, search: str | None) -> Any:
        """Write the chosen run into the address, keeping the selected node."""
        selection = Selection.parse(search)
        if not run or run == view.resolve(selection.run):
            return no_update
        return Selection(run, selection.rank, selection.node).search

    @app.callback(Output("nav", "children"), Input("url", "pathname"), Input("url", "search"))
    def navigation(pathname: str | None, search: str | None) -> list[Any]:
        """Draw the links; each carries the selection along."""
        return [
            dcc.Link(
                page.TITLE,
                href=page.PATH + (search or ""),
                className="nav-link active" if pathname == page.PATH else "nav-link",
            )
            for page in pages.PAGES
        ]

    @app.callback(
        Output("page", "children"), Input("url", "pathname"), Input("run", "data"), Input("dark", "checked"),
        State("url", "search"),
    )  # fmt: skip
    def show_page(pathname: str | None, run: str | None, dark: bool, search: str | None) -> Any:
        """Lay out the page of the address, or say what is missing and what to do."""
        return _page(view, pathname or "/", run, "dark" if dark else "light", search)

    app.clientside_callback(
        ClientsideFunction("chakrascope", "scheme"),
        Output("mantine", "forceColorScheme"),
        Input("dark", "checked"),
    )


def _page(view: StudyView, pathname: str, run: str | None, scheme: str, search: str | None) -> Any:
    page = next((page for page in pages.PAGES if pathname == page.PATH), None)
    if page is None:
        return _notice("No such page", "Choose one from the list on the left.")
    if not run:
        return _notice(
            "This study has no run yet",
            "Simulate its workload with `chakrascope run STUDY --network ...`, then reload this page.",
        )
    try:
        return page.layout(view.open(run), Selection.parse(search), scheme)
    except ChakrascopeError as error:
        return _notice("This run cannot be shown", error.message)


def _notice(title: str, text: str) -> dmc.Alert:
    return dmc.Alert(text, title=title, color="yellow", variant="light", id="notice")


def _protect(app: Dash) -> None:
    """Let the browser itself refuse whatever does not come from this server."""

    @app.server.after_request
    def add_headers(response: Response) -> Response:
        scripts = " ".join(f"'{digest.strip(chr(39))}'" for digest in app.csp_hashes())
        response.headers["Content-Security-Policy"] = (
            f"default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; object-src 'none'; "
            "base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
        )
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response
