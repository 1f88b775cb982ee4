"""Runs page: find, label, open, compare and delete the runs of the study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import Dash, Input, Output, Patch, State, ctx, html, no_update

from ...runner import RunInfo
from ...runner.study import compared, run_table
from .._address import go, option_id, rewrite
from .._state import Selection, StudyView
from .._theme import run_options, run_text
from . import _compare as compare
from ._parts import (
    card,
    column,
    export_links,
    fitting,
    link_to,
    no_workload,
    note_editor,
    page_address,
    page_title,
    records,
    table,
    tag_list,
    text_column,
    wrapped_column,
)

PATH, TITLE = "/runs", "Runs"
_FIND = option_id("find")
NEEDS_RUN = False
_ABOUT = (
    "The replays and simulations of this study. Click a label to open a run; tick runs to compare, label or "
    "delete them. Pages and commands use the run marked default unless you choose another run."
)
_MAX_NAMED = 8
_TABLE_HEIGHT = 620
_TWO_LINES = 54  # pixels of a row whose label takes two lines
_COLUMNS = [
    wrapped_column("label", "Label", flex=4, minWidth=178, cellRenderer="RunLink"),
    column("makespan_ns", "Step", "time", minWidth=82, maxWidth=140,
           valueFormatter={"function": "inSteps(params.value, params.data.steps)"}),
    column("ranks", "Ranks", minWidth=66, maxWidth=76),
    wrapped_column("backend", "Backend", minWidth=116, maxWidth=190),
    wrapped_column("network", "Network", minWidth=120, maxWidth=190),
    {"field": "created", "headerName": "Created (UTC)", "minWidth": 150, "maxWidth": 156,
     "valueFormatter": {"function": "toTheMinute(params.value)"}},
    text_column("workload", "Workload", minWidth=114, maxWidth=180),
    text_column("tags", "Tags", flex=2, minWidth=70),
    text_column("note", "Note", flex=3, minWidth=84),
]  # fmt: skip


def layout(view: StudyView, selection: Selection, scheme: str) -> Any:
    """Return the Runs page, or instructions to create a run if the study contains no run."""
    runs = view.runs()
    if not runs:
        return _instructions(view)
    several = any(info.steps > 1 for info in runs)
    rows = _rows(view)
    grid = table(
        "runs-table", rows, _columns(several=several), scheme,
        height=fitting(len(rows), _TABLE_HEIGHT, _TWO_LINES), getRowId="params.data.id",
        quickFilterText=selection.option("find"),
        # "Select all" takes only rows that the filter shows, so that hidden runs are not deleted.
        rowSelection={"mode": "multiRow", "selectAll": "filtered", "enableClickSelection": True},
        selectionColumnDef={"width": 46, "maxWidth": 46},
    )  # fmt: skip
    head = page_title(TITLE, _ABOUT, export_links("runs"))
    return dmc.Stack(
        [head, card(f"Runs of {view.study.path.resolve().name[:80]}", _tools(selection), grid),
         note_editor("runs", "Label, tags and note of the run", labelled=True), _question()],
        gap="md",
    )  # fmt: skip


def _columns(*, several: bool) -> list[dict[str, Any]]:
    """Return the columns of the table of runs; with *several*, Step leaves room for a step count."""
    return [
        each | {"minWidth": 142, "maxWidth": 160} if several and each["field"] == "makespan_ns" else each
        for each in _COLUMNS
    ]


def _instructions(view: StudyView) -> Any:
    if not view.study.workloads():
        return no_workload("")
    text = "Simulate its workload in the browser, or with: chakrascope run STUDY --network PRESET"
    return card("This study has no run yet", dmc.Text(text, mb="xs"), link_to("Make a run", "/new-run", ""))


def _tools(selection: Selection) -> dmc.Group:
    buttons = [
        ("runs-compare", "Compare", {}),
        ("runs-edit", "Label, tags, note", {"variant": "default"}),
        ("runs-delete", "Delete", {"variant": "outline", "color": "red"}),
    ]
    find = dmc.TextInput(
        id=_FIND,
        placeholder="Filter by any column",
        value=selection.option("find"),
        debounce=300,
        w=300,
        **{"aria-label": "Filter"},
    )
    status = dmc.Text(id="runs-told", size="sm", c="dimmed", **{"aria-live": "polite"})
    made = [dmc.Button(text, id=name, disabled=True, **style) for name, text, style in buttons]
    return dmc.Group([find, *made, status], gap="sm", mb="sm")


def _question() -> dmc.Modal:
    buttons = [
        dmc.Button("Keep", id="runs-keep", variant="default"),
        dmc.Button("Delete for good", id="runs-sure", color="red"),
    ]
    parts = [html.Div(id="runs-to-delete"), dmc.Group(buttons, justify="flex-end", mt="md")]
    return dmc.Modal(parts, id="runs-question", title="Delete?", opened=False)


def _chosen(view: StudyView, rows: Any) -> list[RunInfo]:
    """Return the study's runs whose ids are in *rows*, which come from the browser."""
    listed = rows if isinstance(rows, list) else []
    asked = [row.get("id") for row in listed if isinstance(row, dict)]
    return [info for info in view.runs() if info.id in asked]


def register(app: Dash, view: StudyView) -> None:
    """Register the filter of runs, the actions on selected runs, and the dialogues of the page."""
    _register_table(app, view)
    _register_editor(app, view)
    _register_deletion(app, view)


def _register_table(app: Dash, view: StudyView) -> None:
    @app.callback(Output("runs-table", "dashGridOptions"), Input(_FIND, "value"), prevent_initial_call=True)
    def find(text: str | None) -> Any:
        """Filter the table to runs with *text* in any column."""
        options = Patch()
        options["quickFilterText"] = text or ""
        return options

    @app.callback(
        Output("runs-compare", "disabled"), Output("runs-edit", "disabled"),
        Output("runs-delete", "disabled"), Output("runs-told", "children"),
        Input("runs-table", "selectedRows"),
    )  # fmt: skip
    def tick(rows: Any) -> tuple[bool, bool, bool, str]:
        """Enable the actions that apply to the selected number of runs."""
        count = len(_chosen(view, rows))
        too_many = count > compare.MAX_RUNS + 1
        status = f"At most {compare.MAX_RUNS + 1} runs are compared." if too_many else f"{count} ticked"
        return count < 2 or too_many, count != 1, count == 0, status if count else ""

    @app.callback(
        Input("runs-compare", "n_clicks"), State("runs-table", "selectedRows"), prevent_initial_call=True
    )
    def open_comparison(clicks: int | None, rows: Any) -> None:
        """Open the selected runs on the Compare page."""
        chosen = [info.id for info in _chosen(view, rows)]
        if clicks and 2 <= len(chosen) <= compare.MAX_RUNS + 1:
            base, others = compared(view.runs(), chosen)
            go(
                page_address(compare.PATH, ""),
                Selection(base).with_option("against", ",".join(others)).search,
            )


def _register_editor(app: Dash, view: StudyView) -> None:
    @app.callback(
        Output("runs-editor", "opened"), Output("runs-label", "value"), Output("runs-note", "value"),
        Output("runs-tags", "value"),
        Input("runs-edit", "n_clicks"), State("runs-table", "selectedRows"), prevent_initial_call=True,
    )  # fmt: skip
    def edit(clicks: int | None, rows: Any) -> tuple[Any, Any, Any, Any]:
        """Open the dialogue for the selected run's label, tags and note."""
        chosen = _chosen(view, rows)
        if not clicks or len(chosen) != 1:
            return (no_update,) * 4
        return True, chosen[0].label, chosen[0].note, list(chosen[0].tags)

    @app.callback(
        Output("runs-editor", "opened", allow_duplicate=True),
        Output("runs-table", "rowData", allow_duplicate=True),
        Output("run-select", "data", allow_duplicate=True), Input("runs-save", "n_clicks"),
        State("runs-table", "selectedRows"), State("runs-label", "value"), State("runs-note", "value"),
        State("runs-tags", "value"), prevent_initial_call=True,
    )  # fmt: skip
    def save(clicks: int | None, rows: Any, label: Any, note: Any, tags: Any) -> tuple[Any, Any, Any]:
        """Save the run's label, tags and note; after an error, the dialogue stays open."""
        chosen = _chosen(view, rows)
        if not clicks or len(chosen) != 1:
            return no_update, no_update, no_update
        view.annotate(chosen[0].id, str(label or ""), str(note or ""), tag_list(tags))
        return False, records(_rows(view)), run_options(view.runs())


def _rows(view: StudyView) -> pd.DataFrame:
    """Return the table of runs, with the default run marked."""
    rows = run_table(view.runs())
    marked: pd.DataFrame = rows.assign(default=rows["id"] == view.resolve(""))
    return marked


def _register_deletion(app: Dash, view: StudyView) -> None:
    @app.callback(
        Output("runs-question", "opened"), Output("runs-to-delete", "children"),
        Input("runs-delete", "n_clicks"), Input("runs-keep", "n_clicks"), State("runs-table", "selectedRows"),
        prevent_initial_call=True,
    )  # fmt: skip
    def ask(clicks: int | None, _keep: int | None, rows: Any) -> tuple[Any, Any]:
        """Open the dialogue that lists the runs to delete, or close it."""
        chosen = _chosen(view, rows)
        if ctx.triggered_id == "runs-keep":
            return False, no_update
        return (True, _doomed(chosen)) if clicks and chosen else (no_update, no_update)

    @app.callback(
        Output("runs-question", "opened", allow_duplicate=True),
        Output("runs-table", "rowData", allow_duplicate=True), Output("runs-table", "selectedRows"),
        Output("run-select", "data", allow_duplicate=True), Output("run", "data", allow_duplicate=True),
        Output("run-select", "value", allow_duplicate=True), Input("runs-sure", "n_clicks"),
        State("runs-table", "selectedRows"), State("run", "data"), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def delete(clicks: int | None, rows: Any, shown: str | None, search: str | None) -> tuple[Any, ...]:
        """Delete the selected runs; if the current run was among them, show the default run."""
        if not clicks:
            return (no_update,) * 6
        chosen = [info.id for info in _chosen(view, rows)]
        for run_id in chosen:
            view.delete(run_id)
        left: tuple[Any, ...] = (False, records(_rows(view)), [], run_options(view.runs()))
        if shown not in chosen:
            return *left, no_update, no_update
        default = view.resolve("")
        rewrite(PATH, Selection(default, options=Selection.parse(search).options).search)
        return *left, default, default or None


def _doomed(chosen: Sequence[RunInfo]) -> Any:
    count = "this run" if len(chosen) == 1 else f"these {len(chosen)} runs"
    more = [dmc.ListItem(f"and {len(chosen) - _MAX_NAMED} more")] if len(chosen) > _MAX_NAMED else []
    named = [dmc.ListItem(run_text(info), className="finding") for info in chosen[:_MAX_NAMED]]
    text = "This cannot be undone. The workload remains and can be simulated again."
    return html.Div([
        dmc.Text(f"The results, labels and notes of {count} will be deleted:", mb="xs"),
        dmc.List([*named, *more], size="sm"),
        dmc.Text(text, mt="xs", size="sm", c="dimmed"),
    ])  # fmt: skip
