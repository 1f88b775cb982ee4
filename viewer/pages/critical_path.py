"""Critical path: the chain of segments across ranks whose lengths sum to the step exactly."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html, no_update

from ...runner import BREAKDOWNS
from ..charts import contributors_bar, graph, path_strip
from ..queries.path import segment_table, strip
from ..state import OpenRun, Selection, StudyView
from ..theme import duration_text
from .parts import card, table

__all__ = ["PATH", "TITLE", "layout", "register"]

PATH, TITLE = "/critical-path", "Critical path"
_COLUMNS: list[dict[str, Any]] = [
    {"field": "segment", "headerName": "#", "maxWidth": 80, "type": "rightAligned"},
    {"field": "rank", "headerName": "Rank", "minWidth": 72, "maxWidth": 90, "type": "rightAligned"},
    {"field": "name", "headerName": "Name", "minWidth": 200, "flex": 3, "tooltipField": "name"},
    {"field": "kind", "headerName": "Kind", "maxWidth": 150},
    {"field": "start_ns", "headerName": "Start (ms)", "maxWidth": 120, "type": "rightAligned",
     "valueFormatter": {"function": "d3.format(',.3f')(params.value / 1e6)"}},
    {"field": "duration_ns", "headerName": "Duration (ms)", "maxWidth": 140, "type": "rightAligned",
     "valueFormatter": {"function": "d3.format(',.3f')(params.value / 1e6)"}},
    {"field": "share", "headerName": "Share", "minWidth": 84, "maxWidth": 100, "type": "rightAligned",
     "valueFormatter": {"function": "d3.format('.1%')(params.value)"}},
    {"field": "module", "headerName": "Module", "minWidth": 120, "flex": 2, "tooltipField": "module"},
    {"field": "reason", "headerName": "Why it had to wait", "minWidth": 200, "flex": 4,
     "tooltipField": "reason"},
]  # fmt: skip
# The order people ask in; what the runner knows beyond it comes last.
_ASKED = ("kind", "operator", "module", "collective", "rank", "phase")
_BREAKDOWNS = sorted(BREAKDOWNS, key=lambda by: _ASKED.index(by) if by in _ASKED else len(_ASKED))
_SINGLE = {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True}


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the page for *run*."""
    rows = segment_table(run.path)
    rows["id"] = rows["segment"].astype(str)
    text = f"{len(rows):,} segments, together exactly {duration_text(run.result.makespan_ns)}"
    return dmc.Stack(
        [
            dmc.Title("Critical path", order=2),
            card("Across ranks", graph(path_strip(strip(run.path), scheme), id="strip", mode_bar=True),
                 note="Select a bar or a row to find it on the timeline and in the graph."),
            card(
                "Contributors",
                dmc.SegmentedControl(id="breakdown-by", data=[*_BREAKDOWNS], value="kind", mb="xs"),
                html.Div(_breakdown(run, "kind", scheme), id="breakdown"),
            ),
            card(
                "Segments",
                dmc.Group(
                    [
                        dmc.Text(text, size="sm", c="dimmed"),
                        dmc.Button("Export CSV", id="export", size="xs", variant="default"),
                    ],
                    justify="space-between",
                    mb="xs",
                ),
                table("segments", rows, _COLUMNS, scheme, height="520px", rowSelection=_SINGLE),
            ),
        ],
        gap="md",
    )  # fmt: skip


def _breakdown(run: OpenRun, by: str, scheme: str) -> Any:
    ordered = run.path.breakdown(by).sort_values("duration_ns", ascending=False)
    return graph(contributors_bar(ordered, scheme))


def register(app: Dash, view: StudyView) -> None:
    """Wire the breakdown selector, the export and the selection of a segment."""

    @app.callback(
        Output("breakdown", "children"), Input("breakdown-by", "value"), State("run", "data"),
        State("dark", "checked"), prevent_initial_call=True,
    )  # fmt: skip
    def break_down(by: str, run: str, dark: bool) -> Any:
        return _breakdown(view.open(run), by if by in BREAKDOWNS else "kind", "dark" if dark else "light")

    @app.callback(
        Output("segments", "exportDataAsCsv"), Output("segments", "csvExportParams"),
        Input("export", "n_clicks"), prevent_initial_call=True,
    )  # fmt: skip
    def export(_clicks: int) -> tuple[bool, dict[str, str]]:
        return True, {"fileName": "critical-path.csv"}

    @app.callback(
        Output("url", "search", allow_duplicate=True), Input("segments", "selectedRows"),
        State("url", "search"), State("run", "data"), prevent_initial_call=True,
    )  # fmt: skip
    def select_row(rows: list[dict[str, Any]] | None, search: str | None, run: str) -> Any:
        return _select(rows[0]["rank"], rows[0]["node_id"], search, run) if rows else no_update

    @app.callback(
        Output("url", "search", allow_duplicate=True), Input("strip", "clickData"), State("url", "search"),
        State("run", "data"), prevent_initial_call=True,
    )  # fmt: skip
    def select_bar(click: dict[str, Any] | None, search: str | None, run: str) -> Any:
        if not click:
            return no_update
        rank, node, _ = click["points"][0]["customdata"]
        return _select(rank, node, search, run)

    @app.callback(
        Output("segments", "selectedRows"), Output("segments", "scrollTo"), Input("selection", "data"),
        Input("segments", "id"), State("segments", "selectedRows"),
    )  # fmt: skip
    def show_selected(selection: dict[str, Any] | None, _id: str, shown: list[dict[str, Any]] | None) -> Any:
        return _selected_row(view, selection or {}, shown or [])


def _select(rank: Any, node: Any, search: str | None, run: str) -> Any:
    if int(node) < 0:
        return no_update
    address = Selection(run).with_node(rank, node).search
    return no_update if address == (search or "") else address


def _selected_row(view: StudyView, selection: dict[str, Any], shown: list[dict[str, Any]]) -> tuple[Any, Any]:
    rank, node = selection.get("rank", -1), selection.get("node", -1)
    if not selection.get("run") or node < 0 or any(r["rank"] == rank and r["node_id"] == node for r in shown):
        return no_update, no_update
    segments = view.open(selection["run"]).path.segments
    found = segments[(segments["rank"] == rank) & (segments["node_id"] == node)]
    if found.empty:
        return {"ids": []}, no_update
    row = str(found.iloc[0]["segment"])
    return {"ids": [row]}, {"rowId": row, "rowPosition": "middle"}
