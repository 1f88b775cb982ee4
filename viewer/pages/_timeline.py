"""Timeline: every rank's lanes on one canvas, the critical path drawn over them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, dcc, html

from .. import _perfetto as perfetto
from .._state import OpenRun, Selection, StudyView
from ..queries import Sides, stand_ins_note
from ._host_stacks import register_stacks
from ._parts import page_address, separator

__all__ = ["PATH", "TITLE", "layout", "register"]

PATH, TITLE = "/timeline", "Timeline"
# The parts of the panel, which assets/timeline/panel.js fills.
_TABS = ("details", "ranks", "arrivals", "stacks", "notes")


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the page; the scripts fetch their own data for *run*, and fill in the tools and the panel."""
    canvas = html.Canvas(
        id="timeline-canvas", tabIndex="0", role="application",
        **{"aria-label": "Timeline of all ranks", "aria-describedby": "timeline-help-open"},
    )  # fmt: skip
    parts = [html.Div(id=f"timeline-{name}", role="tabpanel") for name in _TABS]
    parts[0] = html.Div(
        id="timeline-details", className="node-details", role="tabpanel", **{"aria-live": "polite"}
    )
    return html.Div(
        [
            dmc.Group([dmc.Title("Timeline", order=2), _controls(run)], justify="space-between"),
            html.Div(id="timeline-tools", className="timeline-tools"),
            html.Div(id="timeline-legend", className="legend"),
            *_stand_ins(run),
            html.Div(canvas, id="timeline", className="timeline",
                     **{"data-run": run.info.id, "data-scheme": scheme, "data-beside": _beside(run),
                        "data-measured": "yes" if run.is_measured else "no"}),
            dcc.Store(id="timeline-sink"),
            dcc.Store(id="timeline-stacks-asked"),
            separator("timeline-panel", "Height of the panel", across=True),
            html.Div([html.Div(id="timeline-tabs", className="timeline-tabs"), *parts], id="timeline-panel",
                     className="timeline-panel"),
        ],
        className="full-height timeline-page",
    )  # fmt: skip


def _beside(run: OpenRun) -> str:
    """Return what may be compared with *run*, as the script reads it."""
    return json.dumps(Sides(run.view).beside(run.info.id))


def _stand_ins(run: OpenRun) -> list[Any]:
    """Return what the stars at ranks mean, if there are any."""
    note = stand_ins_note(run.workload.metadata, run.info.num_ranks)
    return [dmc.Text(note, size="xs", id="timeline-stand-ins")] if note else []


def _controls(run: OpenRun) -> dmc.Group:
    query = f"?{urlencode({'run': run.info.id})}"
    export = html.A("Export for Perfetto", href=page_address("/export/timeline.json", query),
                    download="timeline.json", className="text-link", title="" if perfetto.is_available()
                    else perfetto.MISSING)  # fmt: skip
    links: list[Any] = [export]
    if perfetto.is_available():
        links = [html.A("Open in Perfetto", href=page_address("/perfetto", query), target="_blank",
                        className="text-link"), export]  # fmt: skip
    keys = html.Button("Keys ( ? )", id="timeline-help-open", type="button", className="timeline-button")
    beside = html.Div(id="timeline-beside", className="timeline-tools")
    return dmc.Group([html.Div(beside, className="timeline-tools"), *links, keys], gap="lg")


def register(app: Dash, view: StudyView) -> None:
    """Hand the run and the selection to the scripts, which keep everything else in the address themselves."""
    register_stacks(app, view)
    app.clientside_callback(
        ClientsideFunction("chakrascope", "timeline"),
        Output("timeline-sink", "data"),
        Input("timeline", "data-run"),
        Input("timeline", "data-scheme"),
        Input("selection", "data"),
    )
