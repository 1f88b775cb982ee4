"""Import page: list, check and import what is in the import folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, ctx, html, no_update

from ...converter import Finding
from ...runner import ImportItem, ImportRequest, JobStore, find_items
from ...runner.study import item_table, proposed_name
from ...support import bytes_text
from .._address import table_id
from .._state import Selection, StudyView
from ._jobs import jobs_card
from ._parts import (
    SINGLE_ROW,
    card,
    column,
    details_list,
    empty,
    error_alert,
    export_links,
    finding_line,
    fitting,
    page_title,
    table,
    text_column,
)

PATH, TITLE = "/import", "Import"
NEEDS_RUN = False
_ABOUT = "Import traces and graphs from other tools as workloads of this study, to simulate them."
_TABLE_HEIGHT = 380
_MAX_FINDINGS = 100
_MAX_FILES = 4
_WITHOUT_STEPS = ("graphs", "logs")
_STEPS = ("median", "all")
_KINDS = {
    "trace set": "The output of 'chakrascope trace': a folder with a manifest.json and two traces per rank.",
    "traces": "Host and device traces captured by other tools: et_0.json.gz and kineto_0.json.gz, and so on.",
    "logs": "Production logs without a profiler, of one job in a folder, such as dumps of PyTorch's flight "
    "recorder.",
    "archive": (
        "A tar or zip archive of one of the other kinds; it is unpacked for the check and for the import."
    ),
    "graphs": "Chakra graphs, one per rank: job.0.et, job.1.et, and so on.",
}
_COLUMNS = [
    text_column("place", "What", flex=5, minWidth=220),
    {"field": "kind", "headerName": "Kind", "minWidth": 100, "maxWidth": 120},
    column("ranks", "Ranks", maxWidth=90),
    column("files", "Files", maxWidth=90),
    column("size_bytes", "Size", "bytes", maxWidth=120),
    text_column("problem", "Why it cannot be imported", minWidth=160),
]


def layout(view: StudyView, selection: Selection, scheme: str) -> Any:
    """Return the Import page, or instructions to start the viewer with a folder of traces."""
    folder = view.near.import_from
    if folder is None:
        return dmc.Stack([page_title(TITLE, _ABOUT), _nowhere()], gap="md")
    items = find_items(folder)
    rows = item_table(items)
    if rows.empty:
        return dmc.Stack([page_title(TITLE, _ABOUT), _instructions()], gap="md")
    chosen = selection.option("item")
    grid = table(
        table_id("imports", "item"), rows, _COLUMNS, scheme, height=fitting(len(rows), _TABLE_HEIGHT),
        getRowId="params.data.id", rowSelection=SINGLE_ROW,
    )  # fmt: skip
    grid.selectedRows = {"ids": [chosen]} if chosen else []
    note = "Select an item to check it; nothing changes until you press Import. Links are not followed."
    return dmc.Stack(
        [
            page_title(TITLE, _ABOUT),
            card(
                "Available to import",
                html.Div(grid, id="imports-table"),
                note=note,
                exports=export_links("imports"),
            ),
            html.Div(_details(_item(items, chosen)), id="import-details"),
            jobs_card(),
        ],
        gap="md",
    )


def _nowhere() -> Any:
    text = "Restart the viewer with a folder to import from; the page can only import from this folder:"
    code = "chakrascope view STUDY --import-from FOLDER"
    return card(
        "There is no folder to import from", dmc.Text(text, mb="xs"), dmc.Code(code, block=True), _kinds()
    )


def _instructions() -> Any:
    text = "Put one of the following into the folder, at most four levels deep, and reload this page:"
    return card("The folder to import from has nothing to import", dmc.Text(text, mb="xs"), _kinds())


def _kinds() -> html.Div:
    return html.Div(details_list(list(_KINDS.items())), style={"marginTop": "12px"})


def _item(items: Sequence[ImportItem], identity: str) -> ImportItem | None:
    return next((item for item in items if item.id == identity), None)


def _details(item: ImportItem | None) -> Any:
    """Return the panel about an item; a callback fills in the findings."""
    if item is None:
        return None
    if item.problem:
        return card(item.place, error_alert(f"It cannot be imported: {item.problem}."))
    more = len(item.files) + len(item.host_files) - _MAX_FILES
    named = ", ".join([*item.files, *item.host_files][:_MAX_FILES]) + (
        f" and {more:,} more" if more > 0 else ""
    )
    ranks = f"{item.ranks:,}" if item.ranks else "known once it is checked"
    facts = [("Kind", f"{item.kind}: {_KINDS[item.kind]}"), ("Ranks", ranks),
             ("Size", bytes_text(item.size_bytes)), ("Files", named)]  # fmt: skip
    if item.kind == "traces" and not item.host_files:
        facts.append(("Host traces", "none: costs and data dependencies will be unknown"))
    buttons = dmc.Group(
        [
            dmc.Button("Check it", id="import-look", variant="default"),
            dmc.TextInput(id="import-name", label="Name of the workload", value=proposed_name(item), w=320,
                          debounce=True),
            *([] if item.kind in _WITHOUT_STEPS else [_step_input()]),
            dmc.Button("Import", id="import-go", disabled=True),
            dmc.Text(id="import-told", size="sm", c="dimmed", **{"aria-live": "polite"}),
        ],
        align="end", mt="sm",
    )  # fmt: skip
    return card(item.place, details_list(facts), buttons, html.Div(id="import-findings"))


def _step_input() -> dmc.Autocomplete:
    """Return the field for the step to import, with options that suit any trace."""
    hint = "median, all, a number, or an annotation: NAME, NAME#3 (counted from 0), or a pattern"
    return dmc.Autocomplete(id="import-step", label="Step", description=hint, placeholder="median", w=420,
                            data=[*_STEPS, "ProfilerStep#*"], debounce=True)  # fmt: skip


def _findings(found: Sequence[Finding] | None) -> Any:
    if found is None:
        return empty("Not checked yet. A check converts the item once and reports errors.")
    if not found:
        return dmc.Alert("No problems found.", color="green", variant="light", mt="sm")
    lines = [finding_line(each.severity, f"{each.place}: {each.text}") for each in found[:_MAX_FINDINGS]]
    more = [empty(f"and {len(found) - _MAX_FINDINGS:,} more")] if len(found) > _MAX_FINDINGS else []
    return dmc.Stack([*lines, *more], gap=4, mt="sm")


def register(app: Dash, view: StudyView) -> None:
    """Register the callbacks that select, check and import items, if there is an import folder."""
    if view.near.import_from is not None:
        _register(app, JobStore(view.study), view.near.import_from)


def _register(app: Dash, jobs: JobStore, folder: Path) -> None:
    place = str(folder.resolve())

    @app.callback(
        Output("import-details", "children"), Input("url", "search"), State("url", "pathname"),
        prevent_initial_call=True,
    )  # fmt: skip
    def show(search: str | None, pathname: str | None) -> Any:
        """Show the item in the address."""
        if not (pathname or "").endswith(PATH):
            return no_update
        return _details(_item(find_items(folder), Selection.parse(search).option("item")))

    @app.callback(
        Output("import-findings", "children"), Output("import-go", "disabled"), Input("jobs-seen", "data"),
        Input("import-name", "id"), State("url", "search"),
    )  # fmt: skip
    def show_findings(_seen: Any, _shown: Any, search: str | None) -> tuple[Any, bool]:
        """Show the findings about the item, which can be imported only after a check without errors."""
        item = _known_item(folder, search)
        found = jobs.findings(ImportRequest(place, item.id)) if item else None
        blocked = found is None or any(each.severity == "error" for each in found)
        return _findings(found), blocked

    @app.callback(
        Output("import-step", "data"), Input("jobs-seen", "data"), Input("import-step", "id"),
        State("url", "search"), prevent_initial_call=True,
    )  # fmt: skip
    def suggest(_seen: Any, _shown: Any, search: str | None) -> Any:
        """Offer the annotations of the trace as steps, once a check has found them."""
        item = _known_item(folder, search)
        names = jobs.step_names(ImportRequest(place, item.id)) if item else []
        return list(dict.fromkeys([*_STEPS, *names])) if names else no_update

    @app.callback(
        Output("import-told", "children"), Input("import-look", "n_clicks"), Input("import-go", "n_clicks"),
        State("import-name", "value"), State("import-step", "value", allow_optional=True),
        State("url", "search"), prevent_initial_call=True,
    )  # fmt: skip
    def start_job(looks: int | None, goes: int | None, name: Any, step: Any, search: str | None) -> Any:
        """Start a job that checks the item, or that imports the item under the entered name."""
        item = _known_item(folder, search)
        if not (looks or goes) or item is None:
            return no_update
        if ctx.triggered_id == "import-look":
            jobs.submit_import(ImportRequest(place, item.id), label=item.place)
            return "The check runs as a job."
        chosen = str(step or "").strip() or "median"
        request = ImportRequest(place, item.id, str(name or "").strip(), chosen)
        jobs.submit_import(request, label=item.place)
        return "The import runs as a job. You can close this page while it runs."


def _known_item(folder: Path, search: str | None) -> ImportItem | None:
    """Return the item in the address, or None if it is unknown or has a problem."""
    item = _item(find_items(folder), Selection.parse(search).option("item"))
    return item if item is not None and not item.problem else None
