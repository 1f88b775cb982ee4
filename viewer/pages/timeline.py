"""Timeline: every rank's lanes on one canvas, the critical path drawn over them."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, dcc, html

from ..state import OpenRun, Selection, StudyView
from .parts import kind_legend

__all__ = ["PATH", "TITLE", "layout", "register"]

PATH, TITLE = "/timeline", "Timeline"
_HELP = (
    "W/S zoom · A/D or drag pan · wheel scrolls, Ctrl+wheel zooms · click selects · F fits · P path on/off"
)


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the page; the canvas fetches its own data for *run*."""
    del selection
    return dmc.Stack(
        [
            dmc.Group(
                [dmc.Title("Timeline", order=2), dmc.Text(_HELP, size="sm", c="dimmed")],
                justify="space-between",
            ),
            kind_legend(),
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


def register(app: Dash, view: StudyView) -> None:
    """Hand the selection to the canvas whenever it or the page changes."""
    del view
    app.clientside_callback(
        ClientsideFunction("chakrascope", "timeline"),
        Output("timeline-sink", "data"),
        Input("timeline", "data-run"),
        Input("timeline", "data-scheme"),
        Input("selection", "data"),
    )
