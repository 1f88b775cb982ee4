"""Pieces that several pages share."""

from __future__ import annotations

from typing import Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
import pandas as pd
from dash import html

from ..theme import KIND_LABELS, KINDS, kind_colour

__all__ = ["card", "details_list", "kind_legend", "table"]

_DARK_GRID = {
    "function": "themeQuartz.withParams({backgroundColor: '#242424', foregroundColor: '#d5dbe1', "
    "headerBackgroundColor: '#2e2e2e', borderColor: '#424242', browserColorScheme: 'dark'})"
}


def card(title: str, *children: Any, note: str = "", **properties: Any) -> dmc.Paper:
    """Return a titled panel; *note* explains in small print how to read it."""
    heading = [dmc.Text(title, fw=600, mb=4)]
    if note:
        heading.append(dmc.Text(note, size="sm", c="dimmed", mb=8))
    return dmc.Paper([*heading, *children], withBorder=True, p="md", radius="md", **properties)


def kind_legend() -> html.Div:
    """Return the colours of the kinds with their names."""
    return html.Div(
        [
            html.Span(
                [html.I(style={"background": kind_colour(kind)}), KIND_LABELS[kind]], className="legend-item"
            )
            for kind in KINDS
        ],
        className="legend",
    )


def details_list(pairs: list[tuple[str, str]]) -> html.Dl:
    """Return (label, text) pairs as a description list."""
    parts = [part for label, text in pairs for part in (html.Dt(label), html.Dd(text))]
    return html.Dl(parts, className="details")


def table(
    identity: str, rows: pd.DataFrame, columns: list[dict[str, Any]], scheme: str, **options: Any
) -> dag.AgGrid:
    """Return a sortable, filterable table of *rows*; *options* go to the grid."""
    height = options.pop("height", "420px")
    column = {"sortable": True, "filter": options.pop("filter", True), "resizable": True, "minWidth": 70}
    column |= {"wrapHeaderText": True, "suppressHeaderMenuButton": True, "suppressHeaderFilterButton": True}
    grid: dict[str, Any] = {
        "rowHeight": 32,
        "headerHeight": 40,
        "animateRows": False,
        "enableCellTextSelection": True,
    }
    if scheme == "dark":
        grid["theme"] = _DARK_GRID
    return dag.AgGrid(
        id=identity,
        rowData=rows.to_dict("records"),
        columnDefs=columns,
        defaultColDef=column,
        columnSize="responsiveSizeToFit",
        style={"height": height},
        dashGridOptions=grid | options,
    )
