"""Studies page: find, open, describe and create the studies of a workspace."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode

import dash_mantine_components as dmc
from dash import Dash, Input, Output, Patch, State, no_update

from ...runner import Study, Workspace, describe_study
from ._parts import (
    card,
    column,
    export_links,
    fitting,
    note_editor,
    page_title,
    records,
    table,
    tag_list,
    text_column,
)

_FIND_LENGTH = 200
_ABOUT = "The studies of this server. Click a name to open a study; tick one to give it tags and a note."
_TABLE_HEIGHT = 640
_COLUMNS = [
    text_column("name", "Study", flex=3, minWidth=180, cellRenderer="StudyLink"),
    text_column("tags", "Tags", minWidth=110),
    column("ranks", "Ranks", maxWidth=90),
    column("runs", "Runs", maxWidth=90),
    column("shortest_ns", "Shortest step", minWidth=110, maxWidth=140,
           valueFormatter={"function": "inTimeIfAny(params.value)"}),
    {"field": "changed", "headerName": "Changed (UTC)", "minWidth": 148, "maxWidth": 156,
     "valueFormatter": {"function": "toTheMinute(params.value)"}},
    text_column("note", "Note", flex=3, minWidth=140),
]  # fmt: skip


def layout(workspace: Workspace, pathname: str, search: str | None, scheme: str) -> Any:
    """Return the list of studies, below a notice if the address is invalid."""
    rows = _rows(workspace)
    parts: list[Any] = []
    if pathname != "/":
        parts.append(
            dmc.Alert("No such study is here; choose one from the list.", color="yellow", id="notice")
        )
    if rows:
        grid = table(
            "studies-table", workspace.table().head(0), _COLUMNS, scheme,
            height=fitting(len(rows), _TABLE_HEIGHT), getRowId="params.data.name",
            quickFilterText=_find_of(search),
            rowSelection={"mode": "singleRow", "enableClickSelection": True},
            selectionColumnDef={"width": 46, "maxWidth": 46, "headerName": "✓"},
        )  # fmt: skip
        grid.rowData = rows
        parts.append(card("All studies", _tools(workspace, search), grid, exports=export_links("studies")))
    else:
        parts.append(_instructions(workspace))
    editor = note_editor("study", "Tags and note of the study", labelled=False)
    return dmc.Stack([page_title("Studies", _ABOUT), *parts, editor, _new_study()], gap="md")


def _rows(workspace: Workspace) -> list[dict[str, Any]]:
    found = workspace.table()
    damaged = found["problem"] != ""
    found.loc[damaged, "note"] = "cannot be read: " + found["problem"][damaged]
    return records(found.drop(columns=["problem", "workloads"]))


def _find_of(search: str | None) -> str:
    return parse_qs((search or "").lstrip("?")).get("find", [""])[0][:_FIND_LENGTH]


def _instructions(workspace: Workspace) -> Any:
    begin = [dmc.Button("New study", id="studies-new", mb="sm")] if workspace.home else []
    text = "Create a study here and import into it, or capture a training job into this folder:"
    code = "chakrascope profile -o FOLDER/NAME --network PRESET -- torchrun --nproc-per-node 2 train.py"
    return card("There is no study here yet", dmc.Text(text, mb="xs"), *begin, dmc.Code(code, block=True))


def _tools(workspace: Workspace, search: str | None) -> dmc.Group:
    find = dmc.TextInput(id="studies-find", placeholder="Filter by any column", value=_find_of(search),
                         debounce=300, w=300, **{"aria-label": "Filter"})  # fmt: skip
    made = [dmc.Button("Tags and note", id="study-edit", disabled=True, variant="default")]
    if workspace.home:
        made.append(dmc.Button("New study", id="studies-new", variant="default"))
    return dmc.Group([find, *made], gap="sm", mb="sm")


def _new_study() -> dmc.Modal:
    help_text = "The name of its folder: at most 80 letters, digits, spaces and . _ + -"
    name = dmc.TextInput(id="studies-name", label="Name", description=help_text, **{"data-autofocus": True})
    button = dmc.Group([dmc.Button("Create", id="studies-begin")], justify="flex-end")
    return dmc.Modal(dmc.Stack([name, button]), id="studies-begun", title="New study", opened=False)


def register(app: Dash, workspace: Workspace) -> None:
    """Register the callbacks that list, filter, edit and create studies."""

    @app.callback(
        Output("page", "children"), Input("url", "pathname"), Input("dark", "checked"), State("url", "search")
    )
    def show(pathname: str | None, dark: bool, search: str | None) -> Any:
        return layout(workspace, pathname or "/", search, "dark" if dark else "light")

    @app.callback(
        Output("studies-table", "dashGridOptions"), Output("url", "search"), Input("studies-find", "value"),
        State("url", "search"), prevent_initial_call=True,
    )  # fmt: skip
    def find(text: str | None, search: str | None) -> tuple[Any, Any]:
        """Filter the table to studies with *text*, and put the filter into the address."""
        options = Patch()
        options["quickFilterText"] = text or ""
        same = _find_of(search) == (text or "")
        return options, no_update if same else f"?{urlencode({'find': text})}" if text else ""

    _register_editor(app, workspace)
    _register_new(app, workspace)


def _chosen(workspace: Workspace, rows: Any) -> Study | None:
    """Return the study in the first of *rows*, or None."""
    row = rows[0] if isinstance(rows, list) and rows else None
    name = row.get("name") if isinstance(row, dict) else None
    return workspace.studies().get(name) if isinstance(name, str) else None


def _register_editor(app: Dash, workspace: Workspace) -> None:
    @app.callback(Output("study-edit", "disabled"), Input("studies-table", "selectedRows"))
    def tick(rows: Any) -> bool:
        return _chosen(workspace, rows) is None

    @app.callback(
        Output("study-editor", "opened"), Output("study-tags", "value"), Output("study-note", "value"),
        Input("study-edit", "n_clicks"), State("studies-table", "selectedRows"), prevent_initial_call=True,
    )  # fmt: skip
    def edit(clicks: int | None, rows: Any) -> tuple[Any, Any, Any]:
        """Open the dialogue that edits the tags and the note of the selected study."""
        study = _chosen(workspace, rows)
        if not clicks or study is None:
            return no_update, no_update, no_update
        name = next(name for name, known in workspace.studies().items() if known.path == study.path)
        info = next(info for info in workspace.infos() if info.name == name)
        return True, list(info.tags), info.note

    @app.callback(
        Output("study-editor", "opened", allow_duplicate=True), Output("studies-table", "rowData"),
        Input("study-save", "n_clicks"), State("studies-table", "selectedRows"), State("study-tags", "value"),
        State("study-note", "value"), prevent_initial_call=True,
    )  # fmt: skip
    def save(clicks: int | None, rows: Any, tags: Any, note: Any) -> tuple[Any, Any]:
        """Save the study's tags and note; after an error, the dialogue stays open."""
        study = _chosen(workspace, rows)
        if not clicks or study is None:
            return no_update, no_update
        describe_study(study, note=str(note or ""), tags=tag_list(tags))
        return False, _rows(workspace)


def _register_new(app: Dash, workspace: Workspace) -> None:
    @app.callback(
        Output("studies-begun", "opened"), Input("studies-new", "n_clicks"), prevent_initial_call=True
    )
    def ask(clicks: int | None) -> Any:
        """Open the dialogue that asks for the name of a new study."""
        return True if clicks else no_update

    @app.callback(
        Output("studies-begun", "opened", allow_duplicate=True),
        Output("page", "children", allow_duplicate=True),
        Input("studies-begin", "n_clicks"), State("studies-name", "value"), State("url", "search"),
        State("dark", "checked"), prevent_initial_call=True,
    )  # fmt: skip
    def begin(clicks: int | None, name: Any, search: str | None, dark: bool) -> tuple[Any, Any]:
        """Create a study with the entered name, and add it to the list."""
        if not clicks:
            return no_update, no_update
        workspace.create(str(name or "").strip())
        return False, layout(workspace, "/", search, "dark" if dark else "light")
