"""Timeline page: lanes of all ranks, the critical path, and call stacks of the host."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
import pandas as pd
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html

from ...converter import NodeType
from ...converter.chakra import DEVICE_LANE
from ...errors import ChakrascopeError
from ...runner.analysis import host_stack_table
from ...support import duration_text
from .. import _perfetto as perfetto
from .._state import MANY_NODES, OpenRun, Selection, StudyView
from ..charts import graph, stacks_icicle
from ..queries import Sides, stand_ins_note
from ._parts import card, empty, error_alert, export_links, page_address, page_title, separator

PATH, TITLE = "/timeline", "Timeline"
_ABOUT = (
    "The work of each rank over time; the red line is the critical path. Click a slice for its details; drag "
    "with Shift to sum up an area."
)
_MAX_DEFAULT_BYTES = 64 << 20

# Tabs of the side panel, whose content is from assets/timeline/panel.js.
_TABS = ("details", "ranks", "arrivals", "stacks", "notes")


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the Timeline page; scripts fetch its data and fill its tools and panel."""
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
            page_title(TITLE, _ABOUT, _controls(run)),
            html.Div(id="timeline-tools", className="timeline-tools"),
            html.Div(id="timeline-legend", className="legend"),
            *_stand_ins(run),
            html.Div(canvas, id="timeline", className="timeline",
                     **{"data-run": run.info.id, "data-scheme": scheme,
                        "data-beside": json.dumps(Sides(run.view).beside(run.info.id)),
                        # "1" shows measured times at first, "0" on request, and "" never.
                        "data-measured": str(int(run.shows_measured)) if run.is_measured else "",
                        "data-calls": _default_calls(run)}),
            dcc.Store(id="timeline-sink"),
            dcc.Store(id="timeline-stacks-asked"),
            separator("timeline-panel", "Height of the panel", across=True),
            html.Div([html.Div(id="timeline-tabs", className="timeline-tabs"), *parts], id="timeline-panel",
                     className="timeline-panel"),
        ],
        className="full-height timeline-page",
    )  # fmt: skip


def _default_calls(run: OpenRun) -> str:
    """Return whether host calls are shown by default ("1"), only on request ("0"), or unknown ("").

    They are shown by default if the traces are small and the ranks few.
    """
    if not run.calls or not run.is_measured:
        return ""
    is_small = run.has_few_ranks and run.result.num_nodes <= MANY_NODES
    return str(int(is_small and run.calls.size_bytes <= _MAX_DEFAULT_BYTES))


def _stand_ins(run: OpenRun) -> list[Any]:
    """Return the note that explains stars next to ranks; empty if there are none."""
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
    """Register the callback that passes run and selection to the timeline's scripts."""
    register_stacks(app, view)
    app.clientside_callback(
        ClientsideFunction("chakrascope", "timeline"),
        Output("timeline-sink", "data"),
        Input("timeline", "data-run"),
        Input("timeline", "data-scheme"),
        Input("selection", "data"),
    )


_MAX_RANKS = 8
_NO_CALLS = "The device traces of this run's workload are missing here, so its host calls are unknown."
_PATH_NOTE = (
    "Calls of the host threads while the critical path was in host work, each below its caller, separately "
    "for each thread. Drag along the axis to zoom, double-click to zoom out."
)


def path_stacks(run: OpenRun, scheme: str) -> Any:
    """Return the card of host calls on the path, on the rank with most host time there."""
    path = run.path.unreasoned
    by_rank = path[path["kind"] == "host"].groupby("rank")["duration_ns"].sum()
    if not run.calls or by_rank.empty:
        return None
    rank = int(by_rank.idxmax())
    stacks = host_stack_table(run, [rank])
    if not stacks["on_path_ns"].any():
        return None
    title = f"Host calls of the critical path, rank {rank}: {duration_text(int(by_rank.max()))}"
    return card(title, graph(stacks_icicle(stacks, "on_path_ns", scheme)), note=_PATH_NOTE,
                exports=export_links("host", run=run.info.id))  # fmt: skip


def _window_stacks(run: OpenRun, asked: dict[str, Any], scheme: str) -> Any:
    """Chart the host calls in a time window, for the first eight requested ranks."""
    if not run.calls:
        return empty(_NO_CALLS)
    ranks, window = [int(rank) for rank in asked["ranks"]], (int(asked["t0"]), int(asked["t1"]))
    shown = ranks[:_MAX_RANKS]
    if not asked.get("measured"):
        window = _measured_window(run, shown, window)
    stacks = host_stack_table(run, shown, window)
    if not stacks["total_ns"].any():
        return empty("No host thread of these ranks made a call in this window.")
    more = f" The first {_MAX_RANKS} of {len(ranks)} ranks." if len(ranks) > _MAX_RANKS else ""
    text = (
        f"Calls of the host threads from {duration_text(window[0])} to {duration_text(window[1])} of the "
        f"captured step, each below its caller.{more} "
    )
    query = {"run": run.info.id, "ranks": ",".join(map(str, shown)), "t0": str(window[0])}
    return [
        dmc.Text([text, export_links("host", **query, t1=str(window[1]))], size="sm"),
        graph(stacks_icicle(stacks, "total_ns", scheme)),
    ]


def _measured_window(run: OpenRun, ranks: Sequence[int], window: tuple[int, int]) -> tuple[int, int]:
    """Return when the host work in a simulated *window* was measured; an empty window if there is none."""
    nodes = pd.concat([run.nodes_of(rank) for rank in ranks])
    inside = (nodes["start_ns"] < window[1]) & (nodes["end_ns"] > window[0])
    on_host = (nodes["stream"] < DEVICE_LANE) & (nodes["type"] == NodeType.COMP)
    simulated = nodes[inside & on_host & (nodes["measured_start_ns"] >= 0)]
    if simulated.empty:
        return window[0], window[0]
    measured = simulated["measured_start_ns"]
    first = measured + (window[0] - simulated["start_ns"]).clip(lower=0)
    last = measured + simulated["duration_ns"] - (simulated["end_ns"] - window[1]).clip(lower=0)
    return int(first.min()), int(max(first.min(), last.max()))


def register_stacks(app: Dash, view: StudyView) -> None:
    """Register the callback that charts host calls in a time window."""

    @app.callback(
        Output("timeline-stacks", "children"), Input("timeline-stacks-asked", "data"),
        State("dark", "checked"), prevent_initial_call=True,
    )  # fmt: skip
    def show_window(asked: dict[str, Any] | None, dark: bool) -> Any:
        if not asked or "run" not in asked:
            return None
        try:
            return _window_stacks(view.open(str(asked["run"])), asked, "dark" if dark else "light")
        except ChakrascopeError as error:
            return error_alert(error.message)
