"""Operators page: time and rates of each operator, with the roofline of its chip."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, State

from ...runner.analysis import (
    TABLES,
    joined_operators,
    longest_call,
    operators_text,
    roofline_points,
    rooflines,
)
from .._address import go
from .._state import OpenRun, Selection, StudyView
from ..charts import graph, roofline_scatter
from ._parts import card, column, empty, export_links, page_address, page_title, table_card, text_column

PATH, TITLE = "/operators", "Operators"
_COLUMNS = [
    text_column("operator", "Operator", width=700, minWidth=140),
    text_column("arguments", "Arguments", width=400, minWidth=100),
    {"field": "precision", "headerName": "Type", "minWidth": 62, "maxWidth": 90},
    column("calls", "Calls", "count", minWidth=64, maxWidth=96),
    column("time_ns", "Time", "time", minWidth=80, maxWidth=110),
    column("share", "Share", "%", minWidth=74, maxWidth=96),
    column("flops", "Operations per call", "operations", minWidth=112, maxWidth=140),
    column("size_bytes", "Bytes per call", "bytes", minWidth=86, maxWidth=130),
    {"field": "reached", "headerName": "Reaches", "minWidth": 124, "maxWidth": 140},
    {"field": "bound", "headerName": "Bound by", "minWidth": 84, "maxWidth": 110},
    column("roofline_share", "Share of the roofline", "%", minWidth=86, maxWidth=130),
]
_ABOUT = (
    "The time of each operator, and its rates compared with the peaks of its chip. Select a point to see the "
    "longest call of an operator on the timeline."
)
_POINTS_NOTE = (
    "The area of a point is the time of all its calls. Copies have no operations and are in the table only."
)
_ROOFLINE_NOTE = (
    f"{_POINTS_NOTE} Memory bounds operators below the slope; the peak of their data type bounds operators "
    "below the flat part."
)


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the Operators page for *run*."""
    del selection
    table = TABLES["operators"](run)
    if table.empty:
        text = "The workload was not converted from traces with operators, so their work is unknown."
        return dmc.Stack([page_title(TITLE, _ABOUT), card("Roofline", empty(text))], gap="md")
    rows = joined_operators(table)
    points = roofline_points(rows)
    # Only missing floats become null in JSON.
    rows = rows.astype({"flops": "float64", "size_bytes": "float64"})
    roofs = rooflines(points)
    drawn: Any = empty("No operator has a model and recorded shapes: capture with record_shapes=True.")
    if len(points):
        drawn = graph(roofline_scatter(points, roofs, scheme), id="roofline")
    exports = export_links("operators", run=run.info.id)
    return dmc.Stack(
        [
            page_title(TITLE, _ABOUT),
            dmc.Text(operators_text(table), id="operators-text"),
            card("Roofline" if roofs else "Work and rate of each operator", drawn,
                 note=_ROOFLINE_NOTE if roofs else _POINTS_NOTE, exports=exports),
            table_card(
                "Operators and shapes", "operators", rows, _COLUMNS, scheme, query={"run": run.info.id}
            ),
        ],
        gap="md",
    )  # fmt: skip


def register(app: Dash, view: StudyView) -> None:
    """Register the callback that shows a clicked point of the roofline on the timeline."""

    @app.callback(
        Input("roofline", "clickData"), State("run", "data"), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def open_call(clicked: dict[str, Any] | None, run: str, search: str | None) -> None:
        """Show the longest call of the clicked operator on the timeline."""
        if not clicked or "customdata" not in clicked["points"][0]:
            return
        shown = view.open(run)
        points = roofline_points(joined_operators(TABLES["operators"](shown)))
        row = points.iloc[int(clicked["points"][0]["customdata"])]
        rank, node = longest_call(shown.workload, str(row["operator"]), int(row["size_bytes"]))
        if node >= 0:
            go(
                page_address("/timeline", ""),
                Selection.parse(search).with_run(run).with_node(rank, node).search,
            )
