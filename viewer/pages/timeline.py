"""Timeline: every rank's lanes on one canvas, the critical path drawn over them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, dcc, html

from ..state import OpenRun, Selection, StudyView
from .parts import kind_legend, page_address
from .search import node_search, register_search

__all__ = ["PATH", "TITLE", "layout", "register"]

PATH, TITLE = "/timeline", "Timeline"
_HELP = (
    "W/S zoom · A/D or drag pan · wheel scrolls, Ctrl+wheel zooms · click selects · Shift+drag measures · "
    "[ and ] walk to the cause and back · F fits · P path on/off"
)


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the page; the canvas fetches its own data for *run*."""
    del selection
    return dmc.Stack(
        [
            dmc.Group(
                [dmc.Title("Timeline", order=2), node_search("timeline-search")],
                justify="space-between",
            ),
            html.Div(
                [kind_legend(), dmc.Text(_HELP, size="xs", c="dimmed"), _export(run)], className="legends"
            ),
            html.Div(
                html.Canvas(id="timeline-canvas", tabIndex="0", **{"aria-label": "Timeline of all ranks"}),
                id="timeline",
                className="timeline",
                **{"data-run": run.info.id, "data-scheme": scheme},
            ),
            dcc.Store(id="timeline-sink"),
            html.Div("Select a slice to see what it is.", id="timeline-details", className="node-details"),
        ],
        gap="xs",
    )


def _export(run: OpenRun) -> html.A:
    address = page_address("/export/timeline.json", f"?{urlencode({'run': run.info.id})}")
    return html.A("Export for Perfetto", href=address, download="timeline.json", className="text-link")


def register(app: Dash, view: StudyView) -> None:
    """Hand the selection to the canvas whenever it or the page changes, and wire the search."""
    register_search(app, view, "timeline-search")
    app.clientside_callback(
        ClientsideFunction("chakrascope", "timeline"),
        Output("timeline-sink", "data"),
        Input("timeline", "data-run"),
        Input("timeline", "data-scheme"),
        Input("selection", "data"),
    )
