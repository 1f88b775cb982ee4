"""The shell around every page: settings of the application, header, and error messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, dcc, html, set_props

from ..errors import ChakrascopeError
from ._access import protect, refuse_malformed

_log = logging.getLogger(__name__)
_PATIENCE_MS = 300
_LONGEST_TITLE = 120  # maximum number of characters
# Dash's default index page, plus the language of the text.
_INDEX = """<!DOCTYPE html>
<html lang="en">
    <head>
        {%metas%}
        <title>{%title%}</title>
        {%favicon%}
        {%css%}
    </head>
    <body>
        {%app_entry%}
        <footer>
            {%config%}
            {%scripts%}
            {%renderer%}
        </footer>
    </body>
</html>"""


def new_dash(prefix: str = "/") -> Dash:
    """Return a Dash application without pages, served below *prefix*, which ends in a slash."""
    app = Dash(
        __name__,
        title="Chakrascope",
        update_title="",
        serve_locally=True,
        suppress_callback_exceptions=True,
        compress=True,
        assets_folder="assets",
        # ES modules of the timeline, imported by 03_shell.js when that page opens.
        assets_path_ignore=["^timeline$"],
        routes_pathname_prefix="/",
        requests_pathname_prefix=prefix,
        on_error=_report_error,
        index_string=_INDEX,
    )

    @app.server.get("/api/alive")
    def alive() -> str:
        return "yes"

    # Flask-Compress would leave streamed files open, and assets are small enough without compression.
    app.server.config["COMPRESS_STREAMS"] = False
    app.clientside_callback(
        ClientsideFunction("chakrascope", "firstScheme"), Output("dark", "checked"), Input("dark", "id")
    )
    app.clientside_callback(
        ClientsideFunction("chakrascope", "scheme"),
        Output("mantine", "forceColorScheme"),
        Input("dark", "checked"),
    )
    protect(app)
    refuse_malformed(app)
    return app


def share_link() -> list[Any]:
    """Return the button for a link to the current view, and the dialog that shows the link."""
    field = dmc.TextInput(
        id="share-link", label=("Link that opens this view; it contains the token"), readOnly=True
    )
    notes = [html.Div(id="share-done", role="status"), dmc.Text(id="share-note", size="sm")]
    shown = dmc.Modal([field, *notes], id="share-shown", title="Link to this view", opened=False, size="lg")
    return [dmc.Button("Link", id="share", variant="default", size="compact-sm",
                       **{"aria-label": "Copy a link to what is shown"}), shown]  # fmt: skip


def register_share(app: Dash) -> None:
    """Register the callback of the button from :func:`share_link`."""
    app.clientside_callback(
        ClientsideFunction("chakrascope", "share"),
        Output("share-shown", "opened"),
        Output("share-link", "value"),
        Output("share-note", "children"),
        Input("share", "n_clicks"),
        prevent_initial_call=True,
    )


_THEME = {
    # On shade 8 of blue, white text has a contrast of at least 4.5 to 1.
    "primaryColor": "blue", "primaryShade": 8, "fontFamily": "system-ui, sans-serif",
    # The button that closes a dialogue needs a name, and the dialogue's header is no banner of the page.
    "components": {"Modal": {"defaultProps": {
        "closeButtonProps": {"aria-label": "Close"}, "attributes": {"header": {"role": "presentation"}},
    }}},
}  # fmt: skip


def frame(
    titles: Sequence[Any], tools: Sequence[Any], stores: Sequence[Any], navigation: Any = None
) -> dmc.MantineProvider:
    """Return the shell of pages: *titles* after the product's name, *tools* at the right."""
    name = [
        html.Span(className="logo-mark"),
        dmc.Title("Chakrascope", order=1, fw=700, size="lg", className="logo-name"),
    ]
    # assets/03_shell.js sets it for the dark colour scheme before any page is drawn.
    switch = dmc.Switch(id="dark", label="Dark")
    head = dmc.Group(
        [
            dmc.Group([dmc.Group(name, gap=8, wrap="nowrap"), *titles], wrap="nowrap", className="titles"),
            dmc.Group([*tools, switch], wrap="nowrap", justify="flex-end", className="tools"),
        ],
        justify="space-between",
        wrap="nowrap",
        h="100%",
        px="md",
    )
    side = [] if navigation is None else [dmc.AppShellNavbar(navigation, p="xs")]
    bar = {} if navigation is None else {"navbar": {"width": 190, "breakpoint": 0}}
    return dmc.MantineProvider(
        id="mantine",
        theme=_THEME,
        defaultColorScheme="auto",
        children=[
            dcc.Location(id="url", refresh=False),
            *stores,
            dmc.NotificationContainer(id="notifications", position="bottom-right"),
            html.A("To the content", href="#page", className="skip-link"),
            dmc.AppShell(
                [dmc.AppShellHeader(head), *side, dmc.AppShellMain(_page())],
                header={"height": 56},
                padding="md",
                **bar,
            ),
        ],
    )


def _page() -> dcc.Loading:
    """Return the container of a page, with a spinner while a slow page loads."""
    spinner = html.I(className="spinner")
    first = html.Div([spinner, "Reading the study…"], className="loading", role="status")
    notice = html.Div([spinner, "Reading the run…"], id="loading", className="loading", role="status")
    return dcc.Loading(
        html.Div(first, id="page", tabIndex="-1"),
        custom_spinner=notice,
        # The spinner covers whole pages only and appears late, so that fast pages do not flicker.
        target_components={"page": "children"},
        delay_show=_PATIENCE_MS,
        # While the next page loads, the previous one remains visible at 35 % opacity.
        overlay_style={"visibility": "visible", "opacity": 0.35, "pointerEvents": "none"},
        parent_className="page-holder",
    )


def _headed(error: ChakrascopeError) -> tuple[str, str]:
    """Return the title and text of the notification about *error*.

    The title is the first sentence of the message or, if that is long or the only one, the kind of
    error.
    """
    problem, _, rest = error.message.partition(". ")
    kind = (type(error).__doc__ or "").partition(".")[0]
    return (problem, rest) if rest and len(problem) <= _LONGEST_TITLE else (kind, error.message)


def _report_error(error: Exception) -> None:
    """Show the error of a callback as a notification; the page stays as it is.

    Dash updates nothing if this returns None; `no_update` is not allowed for callbacks without an
    output.
    """
    if isinstance(error, ChakrascopeError):
        title, text = _headed(error)
    else:
        _log.exception("an error in the viewer", exc_info=error)
        title, text = (
            "An error in the viewer itself",
            f"{type(error).__name__}; the terminal shows the details.",
        )
    note = {"action": "show", "title": title, "message": text, "color": "red", "autoClose": False}
    set_props("notifications", {"sendNotifications": [note]})
