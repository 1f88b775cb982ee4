"""Sweep: which settings give the shortest step, and what each is worth."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
import numpy as np
from dash import Dash, Input, Output, State, dcc, html, no_update

from ...errors import ChakrascopeError
from ...runner import Sweep, read_sweep, sweep_names
from ..charts import graph, heat_map, sweep_scatter
from ..queries.sweeps import answered, best_by, frontier, setting_title, swept_settings
from ..state import Selection, StudyView
from ..theme import duration_text
from .parts import card, column, empty, fitting, option_address, page_address, table, text_column

__all__ = ["NEEDS_RUN", "PATH", "TITLE", "layout", "register"]

PATH, TITLE = "/sweep", "Sweep"
NEEDS_RUN = False
_RANKS_NOTE = (
    "Marked: points that none beats with as few ranks. Where a captured workload is scaled out, each rank "
    "brings its own batch: more ranks then do more work in the same step."
)
_FIGURES = [
    column("ranks", "Ranks", maxWidth=90),
    column("makespan_ns", "Step (ms)", "ms"),
    column("exposed_comm_ns", "Exposed comm. (ms)", "ms", minWidth=110),
    column("comm_ns", "Communication (ms)", "ms", minWidth=120),
    {"field": "state", "headerName": "State", "minWidth": 84, "maxWidth": 100},
    text_column("error", "Error"),
]


def layout(view: StudyView, selection: Selection, scheme: str) -> Any:
    """Return the page; it needs a sweep but no run."""
    names = sweep_names(view.study)
    if not names:
        text = "chakrascope sweep STUDY --network PRESET --over network.bandwidth=25,50,100 --keep 3"
        how = "Simulate the workload over a range of settings, then reload this page:"
        return card("This study has no sweep yet", dmc.Text(how, mb="xs"), dmc.Code(text, block=True))
    shown = selection.option("sweep") if selection.option("sweep") in names else names[-1]
    return dmc.Stack(
        [
            dmc.Group([dmc.Title(TITLE, order=2),
                       dmc.Select(id="sweep-name", data=names, value=shown, allowDeselect=False, w=320,
                                  **{"aria-label": "Sweep shown"})], justify="space-between"),
            html.Div(_sweep(view, read_sweep(view.study, shown), scheme), id="sweep"),
        ],
        gap="md",
    )  # fmt: skip


def _sweep(view: StudyView, found: Sweep, scheme: str) -> Any:
    points = answered(found.points)
    if points.empty:
        return card("No point of this sweep has an answer", _points(found, scheme))
    settings = swept_settings(found.points)
    best = points.iloc[0]
    chosen = ", ".join(f"{setting_title(name)} = {best[name]}" for name in settings) or "its only point"
    shortest, longest = int(best["makespan_ns"]), int(points["makespan_ns"].max())
    times = f"the longest is {longest / max(1, shortest):.2f} times it"
    text = f"The shortest step is {duration_text(shortest)}, with {chosen}; {times}."
    parts: list[Any] = [dmc.Title(text, order=3, size="h4", id="sweep-best")]
    if best["id"] in {info.id for info in view.runs()}:
        address = page_address("/", Selection(str(best["id"])).search)
        parts.append(dcc.Link("Open this run", href=address, className="text-link"))
    parts.append(_heat(points, settings, scheme))
    if points["ranks"].nunique() > 1:
        scatter = sweep_scatter(points.assign(best=frontier(points)), settings, scheme)
        parts.append(card("Ranks and time", graph(scatter), note=_RANKS_NOTE))
    return dmc.Stack([*parts, _points(found, scheme)], gap="md")


def _heat(points: Any, settings: list[str], scheme: str) -> dmc.Paper:
    if len(settings) < 2:
        return card("Two settings against each other", empty("Only one setting was swept."))
    row, column_ = settings[1], settings[0]
    matrix = best_by(points, row, column_)
    texts = np.vectorize(_time_text, otypes=[object])
    note = f"The shortest step for each {setting_title(row)} (rows) and {setting_title(column_)} (columns)."
    return card(
        "Two settings against each other", graph(heat_map(matrix, texts(matrix.values), scheme)), note=note
    )


def _time_text(nanoseconds: float) -> str:
    return "no answer" if np.isnan(nanoseconds) else duration_text(nanoseconds)


def _points(found: Sweep, scheme: str) -> dmc.Paper:
    settings = [text_column(name, setting_title(name)) for name in swept_settings(found.points)]
    # Columns of settings have dots in their names, which the table would take for nested fields.
    renamed = {name: name.replace(".", " ") for name in found.points.columns}
    for made in settings:
        made |= {"field": renamed[made["field"]], "tooltipField": renamed[made["field"]]}
    rows = found.points.rename(columns=renamed).drop(columns="settings")
    rows = rows.astype(object).where(rows.notna(), None)
    address = page_address("/export/sweep.csv", f"?{urlencode({'sweep': found.name})}")
    link = html.A("Export CSV", href=address, className="text-link", download="sweep.csv")
    height = fitting(len(rows), 460)
    return card(f"All {len(rows):,} points, best first", link,
                table("sweep-table", rows, [*settings, *_FIGURES], scheme, height=height))  # fmt: skip


def register(app: Dash, view: StudyView) -> None:
    """Wire the choice of a sweep."""

    @app.callback(
        Output("sweep", "children"), Output("url", "search", allow_duplicate=True),
        Input("sweep-name", "value"), State("dark", "checked"), State("run", "data"),
        State("url", "search"), prevent_initial_call=True,
    )  # fmt: skip
    def show(name: str, dark: bool, run: str | None, search: str | None) -> tuple[Any, Any]:
        names = sweep_names(view.study)
        try:
            drawn = _sweep(view, read_sweep(view.study, name), "dark" if dark else "light")
        except ChakrascopeError as error:
            return dmc.Alert(error.message, color="red", variant="light"), no_update
        return drawn, option_address(search, run or "", "sweep", name, names[-1])
