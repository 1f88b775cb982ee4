"""Operators page: each operator and its rates, below the roofline of its chip."""

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
from ._parts import card, column, empty, export_links, page_address, table_card, text_column

PATH, TITLE = "/operators", "Operators"
_COLUMNS = [
    text_column("operator", "Operator", minWidth=170),
    text_column("arguments", "Arguments", minWidth=190, flex=3),
    {"field": "precision", "headerName": "Type", "minWidth": 76, "maxWidth": 90},
    column("calls", "Calls", "count", maxWidth=96),
    column("time_ns", "Time", "time", minWidth=90),
    column("share", "Share", "%", maxWidth=96),
    column("flops", "FLOP a call", "count", minWidth=130),
    column("size_bytes", "Bytes a call", "bytes", minWidth=100),
    {"field": "reached", "headerName": "Reaches", "minWidth": 120},
    {"field": "bound", "headerName": "Bound by", "minWidth": 96},
    column("roofline_share", "Of the roofline", "%", minWidth=96),
]
_ROOFLINE_NOTE = (
    "Area: time of all calls. Below the slope, memory bounds an operator; below the flat part, the peak of "
    "its type does. Copies, which have no operations, are in the table alone. Select a point to see its "
    "longest call on the timeline."
)


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the page for *run*."""
    del selection
    table = TABLES["operators"](run)
    if table.empty:
        text = "The workload was not converted from traces with operators, so their work is unknown."
        return dmc.Stack([dmc.Title(TITLE, order=2), card("Roofline", empty(text))], gap="md")
    rows = joined_operators(table)
    points = roofline_points(rows)
    # In the browser's JSON, a missing number is null only as a float.
    rows = rows.astype({"flops": "float64", "size_bytes": "float64"})
    drawn: Any = empty("No operator has a model and recorded shapes: capture with record_shapes=True.")
    if len(points):
        drawn = graph(roofline_scatter(points, rooflines(points), scheme), id="roofline")
    exports = export_links("operators", run=run.info.id)
    return dmc.Stack(
        [
            dmc.Title(TITLE, order=2),
            dmc.Text(operators_text(table), id="operators-text"),
            card("Roofline", drawn, note=_ROOFLINE_NOTE, exports=exports),
            table_card(
                "Operators and shapes", "operators", rows, _COLUMNS, scheme, query={"run": run.info.id}
            ),
        ],
        gap="md",
    )


def register(app: Dash, view: StudyView) -> None:
    """Register the link from a point to the timeline."""

    @app.callback(
        Input("roofline", "clickData"), State("run", "data"), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def open_call(clicked: dict[str, Any] | None, run: str, search: str | None) -> None:
        """Show the longest call of a point on the timeline."""
        if not clicked or "customdata" not in clicked["points"][0]:
            return
        shown = view.open(run)
        points = roofline_points(joined_operators(TABLES["operators"](shown)))
        row = points.iloc[int(clicked["points"][0]["customdata"])]
        rank, node = longest_call(shown, str(row["operator"]), int(row["size_bytes"]))
        if node >= 0:
            go(
                page_address("/timeline", ""),
                Selection.parse(search).with_run(run).with_node(rank, node).search,
            )
