"""Parts that several pages share: cards, tables, node search, note dialogs, progress bars."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import dash_ag_grid as dag
import dash_mantine_components as dmc
import pandas as pd
from dash import Dash, Input, Output, State, dcc, html, no_update

from ...runner import Study
from ...runner.analysis import KIND_LABELS
from ...support import count_text
from .._address import table_id
from .._theme import KINDS, kind_colour
from ..queries import Begun, Work

_DARK_GRID = {
    "function": "themeQuartz.withParams({backgroundColor: '#242424', foregroundColor: '#d5dbe1', "
    "headerBackgroundColor: '#2e2e2e', borderColor: '#424242', browserColorScheme: 'dark'})"
}
# assets/05_pages.js presses the button with these properties on Ctrl+Enter.
BY_CTRL_ENTER = {"aria-keyshortcuts": "Control+Enter"}
SINGLE_ROW = {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True}


# Unit of a numeric column -> the function of assets/05_pages.js that formats it.
_FORMATS = {
    "time": "inTime",
    "±time": "inSignedTime",
    "instant": "asInstant",
    "%": "inPercent",
    "±%": "inSignedPercent",
    "rate": "inRate",
    "count": "inThousands",
    "operations": "inOperations",
    "bytes": "inBytes",
}
MAX_ROWS = 5_000
_MAX_TEXT = 300
_MOST_WHOLE = 8
_SHORT_NS = 10_000_000
_FINE = f"{_FORMATS['instant']}(params.value, 1)"
_MAX_NAME = 120
_CODE = re.compile("`([^`]+)`")
_INSIDE_NAME = re.compile(r"(?<=[^\W\d][./]|>[./])(?=[<\w])")
_SEVERITIES = {"error": "red", "warning": "yellow", "note": "gray"}


def page_title(title: str, about: str, *tools: Any) -> html.Div:
    """Return the heading of a page; *about* states its content and the next step.

    *tools* are at its right.
    """
    heading: Any = dmc.Title(title, order=2)
    if tools:
        heading = dmc.Group([heading, *tools], justify="space-between")
    return html.Div([heading, dmc.Text(about, size="sm", c="dimmed", className="page-about")])


def card(
    title: str,
    *children: Any,
    note: str = "",
    exports: html.Span | None = None,
    order: int = 3,
    count: str = "",
    **properties: Any,
) -> dmc.Paper:
    """Return a panel with a title, a *count* next to it, a *note* in small print, and export links.

    *order* is the level of its heading: 2 if the panel fills the page.
    """
    heading: list[Any] = [dmc.Title(title, order=order, size="h5", mb=4)]
    if count:
        heading = [dmc.Group([*heading, dmc.Text(count, size="sm", c="dimmed")], gap="sm")]
    if exports is not None:
        heading = [dmc.Group([*heading, exports], justify="space-between", align="start")]
    if note:
        heading.append(dmc.Text(note, size="sm", c="dimmed", mb=8))
    return dmc.Paper([*heading, *children], withBorder=True, p="md", radius="md", **properties)


def ignored_notice(ignored: Sequence[str]) -> Any:
    """Return a notice about the *ignored* parts of an address, or None."""
    if not ignored:
        return None
    text = " ".join(ignored) + " These values are replaced by those of the presets."
    return dmc.Alert(text, title="Part of the address could not be read", color="yellow", variant="light")


def begun_notice(begun: Begun) -> Any:
    """Return a notice about the run that a form starts from, and settings the form cannot show."""
    if not begun.of:
        return None
    return dmc.Text(
        ["Based on the run on screen, ", html.B(begun.of[:_MAX_NAME]), ".", *(f" {n}" for n in begun.notes)],
        size="sm", className="begun",
    )  # fmt: skip


def empty(text: str) -> dmc.Text:
    """Return a placeholder for missing content; *text* states the reason and the next step."""
    return dmc.Text(prose(text), size="sm", c="dimmed", className="empty")


def error_alert(text: str, **properties: Any) -> dmc.Alert:
    """Return a notice about an error."""
    return dmc.Alert(prose(text), color="red", variant="light", **properties)


def finding_line(severity: str, text: str) -> dmc.Group:
    """Return a line with one finding of a check."""
    badge = dmc.Badge(severity, color=_SEVERITIES[severity], variant="light", className="level")
    words = dmc.Text(text, size="sm", className="finding")
    return dmc.Group([badge, words], gap="xs", wrap="nowrap", align="start")


def prose(text: str) -> Any:
    """Return *text* as the content of a component, with commands between backticks as code."""
    parts = _CODE.split(text)
    return [html.Code(part) if place % 2 else part for place, part in enumerate(parts)] if parts[1:] else text


def breakable(text: str) -> list[Any]:
    """Return *text* as the content of a component; its long names break after dots and slashes first."""
    return [piece for part in _INSIDE_NAME.split(text) for piece in (part, html.Wbr())][:-1]


def kind_legend(kinds: Iterable[str] = KINDS) -> html.Div:
    """Return a legend of the colours of *kinds*."""
    shown = set(kinds)
    return html.Div(
        [
            html.Span(
                [html.I(style={"background": kind_colour(kind)}), KIND_LABELS[kind]], className="legend-item"
            )
            for kind in KINDS
            if kind in shown
        ],
        className="legend",
    )


def details_list(pairs: list[tuple[str, str]]) -> html.Dl:
    """Return (label, text) pairs as an HTML description list."""
    return html.Dl([html.Div([html.Dt(label), html.Dd(text)]) for label, text in pairs], className="details")


def separator(pane: str, label: str, *, across: bool = False) -> html.Div:
    """Return a handle that changes the width of the next *pane* or, if *across*, its height.

    assets/05_pages.js moves it by pointer and keys.
    """
    aria = {"controls": pane, "label": label, "orientation": "horizontal" if across else "vertical"}
    aria |= {"valuenow": "50", "valuemin": "0", "valuemax": "100"}
    named = {f"aria-{name}": value for name, value in aria.items()}
    title = "Drag, or use the arrow keys; Enter or a double click restores the default size"
    return html.Div(className="separator", role="separator", tabIndex="0", title=title, **named)


def no_workload(search: str) -> dmc.Paper:
    """Return instructions to create a workload, for pages of a study without workloads."""
    code = "chakrascope trace -o STUDY -- torchrun --nproc-per-node 2 train.py\nchakrascope convert STUDY"
    return card(
        "This study has no workload yet",
        dmc.Text("Capture a training job and convert it, then reload this page:", mb="xs"),
        dmc.Code(code, block=True, mb="xs"),
        dmc.Text(["Or import traces or graphs that exist already: ", link_to("Import", "/import", search)]),
        order=2,
    )


def link_to(text: Any, path: str, search: str) -> dcc.Link:
    """Return a link to another page with the selection *search*."""
    return dcc.Link(text, href=page_address(path, search), className="text-link")


def page_address(path: str, search: str) -> str:
    """Return the address of a page relative to any other page of the study.

    Relative, because each study has its own path.
    """
    return f".{path}{search}"


def export_links(name: str, **query: str) -> html.Span:
    """Return links to download the table *name* of a run as CSV and Parquet."""
    asked = urlencode(query)
    links: list[Any] = []
    for label, extension in (("CSV", "csv"), ("Parquet", "parquet")):
        address = page_address(f"/export/{name}.{extension}", f"?{asked}" if asked else "")
        links.append(html.A(label, href=address, download=f"{name}.{extension}", className="text-link"))
    return html.Span(["Export ", links[0], " · ", links[1]], className="exports")


def column(field: str, name: str, unit: str = "", **more: Any) -> dict[str, Any]:
    """Return a numeric column; *unit* is a key of ``_FORMATS``, or "" for plain numbers."""
    width = 124 if unit == "instant" else 84  # such as 12,345.678 ms
    made: dict[str, Any] = {"field": field, "headerName": name, "type": "rightAligned", "minWidth": width}
    if unit:
        made["valueFormatter"] = {"function": f"{_FORMATS[unit]}(params.value)"}
    return made | more


def kind_column(field: str = "kind") -> dict[str, Any]:
    """Return a column of kinds of work, named as in legends."""
    return {"field": field, "headerName": "Kind", "minWidth": 144, "maxWidth": 160, "refData": KIND_LABELS}


def text_column(field: str, name: str, **more: Any) -> dict[str, Any]:
    """Return a column of texts; texts that are too long for their cell have a tooltip."""
    return {"field": field, "headerName": name, "minWidth": 110, "flex": 2, "tooltipField": field} | more


def wrapped_column(field: str, name: str, **more: Any) -> dict[str, Any]:
    """Return a column of names that wrap."""
    return text_column(field, name, wrapText=True, autoHeight=True, cellClass="wrapped", **more)


COLLECTIVE_COLUMNS = (
    column("collective", "#", minWidth=50, maxWidth=64),
    {"field": "operation", "headerName": "Operation", "minWidth": 128},
    text_column("module", "Issued in", minWidth=90),
    column("ranks", "Ranks", minWidth=70, maxWidth=90),
    column("size_bytes", "Size", "bytes", minWidth=96),
    column("skew_ns", "Skew", "time", minWidth=88),
    column("transfer_ns", "Transfer", "time", minWidth=92),
    column("algorithm_bytes_per_ns", "Algorithm bandwidth", "rate", minWidth=98),
    column("bus_bytes_per_ns", "Bus bandwidth", "rate", minWidth=96),
)
"""The columns that all tables of collectives have."""


def table(
    identity: str | dict[str, str],
    rows: pd.DataFrame,
    columns: list[dict[str, Any]],
    scheme: str,
    **options: Any,
) -> dag.AgGrid:
    """Return a sortable, filterable table of the first *rows*; *options* are those of the grid."""
    height = options.pop("height", "420px")
    named = {"getRowId": options.pop("getRowId")} if "getRowId" in options else {}
    default = {"sortable": True, "filter": options.pop("filter", True), "resizable": True, "minWidth": 70}
    default |= {"wrapHeaderText": True, "suppressHeaderMenuButton": True, "suppressHeaderFilterButton": True}
    grid: dict[str, Any] = {
        "rowHeight": 32,
        "headerHeight": 44,
        "animateRows": False,
        "enableCellTextSelection": True,
        "suppressFieldDotNotation": True,  # columns of a query may have dots in their names
        "tooltipShowDelay": 400,
    }
    if scheme == "dark":
        grid["theme"] = _DARK_GRID
    return dag.AgGrid(
        id=identity,
        rowData=records(rows),
        columnDefs=columns,
        defaultColDef=default,
        columnSize="responsiveSizeToFit",
        style={"height": height},
        **named,
        dashGridOptions=grid | options,
    )


def table_card(
    title: str,
    name: str,
    rows: pd.DataFrame,
    columns: list[dict[str, Any]],
    scheme: str,
    *,
    query: Mapping[str, str],
    note: str = "",
    most: int = 420,
    selects: bool = False,
    row_id: str = "",
    tall: int = 32,
    whole: bool = False,
) -> dmc.Paper:
    """Return a panel with the table *name*, and links to export all its rows.

    Rows are *tall* pixels high, the table at most *most*. With *selects*, a click selects the node
    in ``rank`` and ``node_id``. *row_id* is the column that identifies rows. With *whole*, a table
    of at most 8 rows is as high as its texts.
    """
    options: dict[str, Any] = {"height": fitting(len(rows), most, tall)}
    if whole and len(rows) <= _MOST_WHOLE:
        options = {"height": None, "domLayout": "autoHeight"}
    if selects:
        options["rowSelection"] = SINGLE_ROW
    if row_id:
        options["getRowId"] = f"'' + params.data.{row_id}"
    known = count_text(len(rows), "row")
    shown = known if len(rows) <= MAX_ROWS else f"{MAX_ROWS:,} of {known}"
    # Callbacks find the table by its pattern id; style sheets and tests find the panel by its plain id.
    identity = table_id(name) if selects else f"{name}-table"
    named: dict[str, Any] = {"id": f"{name}-table"} if selects else {}
    grid = empty("No rows.")
    if len(rows):
        grid = table(identity, rows, _fine(_filled(columns, rows), rows), scheme, **options)
    return card(title, grid, note=note, exports=export_links(name, **query), count=shown, **named)


def _filled(columns: list[dict[str, Any]], rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return those *columns* that have a value in *rows*."""
    shown = rows[[one["field"] for one in columns if one["field"] in rows]]
    filled = (shown.notna() & (shown.astype(str) != "")).any()
    return [one for one in columns if filled.get(one["field"], True)]


def _fine(columns: list[dict[str, Any]], rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return *columns*; if all times in *rows* are below 10 ms, instants show nanoseconds."""
    made = []
    for one in columns:
        is_instant = one.get("valueFormatter") == {"function": f"{_FORMATS['instant']}(params.value)"}
        fine = is_instant and one["field"] in rows and rows[one["field"]].max() < _SHORT_NS
        made.append(one | {"valueFormatter": {"function": _FINE}} if fine else one)
    return made


def rows_table(head: Sequence[str], rows: Sequence[Sequence[Any]], **properties: Any) -> dmc.Table:
    """Return a plain table of *rows*, whose cells may be links."""
    titles = dmc.TableThead(dmc.TableTr([dmc.TableTh(title) for title in head]))
    body = dmc.TableTbody([dmc.TableTr([dmc.TableTd(cell) for cell in row]) for row in rows])
    return dmc.Table([titles, body], **properties)


def fitting(rows: int, most: int, tall: int = 32) -> str:
    """Return the height in pixels of a table with rows of *tall* pixels, at most *most*."""
    return f"{min(most, 48 + tall * max(1, rows))}px"


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the first 5,000 of *rows* as records for a table, with long texts cut."""
    rows = rows.head(MAX_ROWS)
    texts = rows.select_dtypes(include=["object", "string"]).columns
    cut = rows.assign(**{name: pd.Series([*map(_cut, rows[name])], rows.index, object) for name in texts})
    made: list[dict[str, Any]] = cut.to_dict("records")
    return made


def _cut(value: Any) -> Any:
    """Return a text cut to 300 characters, or any other *value* as it is."""
    return value[:_MAX_TEXT] if isinstance(value, str) else value


def node_search() -> html.Div:
    """Return the search box for nodes and modules.

    assets/03_shell.js searches in the browser, so that typing never waits for the server.
    """
    field = dmc.TextInput(
        id="node-search",
        placeholder="find a node or module",
        autoComplete="off",
        **{"aria-label": "Find a module, an operator or a node"},
    )
    hits = html.Div(id="search-hits", role="listbox", hidden=True, **{"aria-label": "Found"})
    status = html.Div(id="search-told", role="status", className="for-readers")
    return html.Div([field, hits, status], className="node-search")


_MAX_TAGS = 20


def note_editor(what: str, title: str, *, labelled: bool) -> dmc.Modal:
    """Return a closed dialogue for an item's tags and note and, if *labelled*, its label.

    Ids of its parts are *what* with -label, -tags, -note or -save.
    """
    label = dmc.TextInput(
        id=f"{what}-label",
        label="Label",
        description=f"At most {Study.LABEL_LENGTH} characters; empty restores the original label.",
    )
    tags = dmc.TagsInput(
        id=f"{what}-tags",
        label="Tags",
        description=f"End each tag with Enter or a comma; at most {Study.TAG_LENGTH} characters.",
        maxTags=_MAX_TAGS,
        acceptValueOnBlur=True,
        splitChars=[","],
    )
    note = dmc.Textarea(id=f"{what}-note", label="Note", autosize=True, minRows=3, maxRows=12,
                        description=f"At most {Study.NOTE_LENGTH:,} characters.")  # fmt: skip
    save = dmc.Group([dmc.Button("Save", id=f"{what}-save")], justify="flex-end")
    parts = [label, tags, note, save] if labelled else [tags, note, save]
    return dmc.Modal(dmc.Stack(parts), id=f"{what}-editor", title=title, opened=False)


def tag_list(value: Any) -> list[str]:
    """Return the tags from the browser: split at commas, without values that are not text."""
    texts = [tag for tag in value if isinstance(tag, str)] if isinstance(value, list) else []
    return [tag for text in texts for tag in text.split(",")]


_LOOK_MS = 400
_W = TypeVar("_W", bound=Work)


def progress_parts(name: str, label: str) -> list[Any]:
    """Return the progress bar for the work *name*, hidden while none is in progress.

    *label* is for screen readers.
    """
    bar = dmc.Progress(id=f"{name}-bar", value=0, size="sm", **{"aria-label": label})
    text = dmc.Text(id=f"{name}-text", size="sm", **{"aria-live": "polite"})
    cancel = dmc.Button("Cancel", id=f"{name}-cancel", variant="default", size="compact-sm")
    moving = [bar, dmc.Group([text, cancel], justify="space-between", mt="xs")]
    return [
        # Identifies this page among those of all browsers, so that Cancel ends only its own work.
        dcc.Store(id=f"{name}-page", data=uuid.uuid4().hex),
        dcc.Interval(id=f"{name}-clock", interval=_LOOK_MS, disabled=True),
        html.Div(html.Div(moving, id=f"{name}-moving", hidden=True), id=f"{name}-working", hidden=True),
    ]


def while_working(name: str) -> list[tuple[Output, Any, Any]]:
    """Return the argument ``running`` of the callback that does the work *name*.

    Meanwhile, its button shows a spinner, and the page polls the progress and shows the bar.
    """
    return [
        (Output(f"{name}-go", "loading"), True, False),
        (Output(f"{name}-clock", "disabled"), False, True),
        (Output(f"{name}-working", "hidden"), False, True),
    ]


class Works(Generic[_W]):
    """Work in progress, stored by the name of the page that waits for it."""

    def __init__(self) -> None:
        self._by_page: dict[str, _W] = {}
        self._lock = threading.Lock()

    @contextmanager
    def of(self, page: str, work: _W) -> Iterator[_W]:
        """Register *work* for *page* during the block, cancelling earlier work for it."""
        with self._lock:
            if page in self._by_page:
                self._by_page[page].is_cancelled = True
            self._by_page[page] = work
        try:
            yield work
        finally:
            with self._lock:
                if self._by_page.get(page) is work:
                    del self._by_page[page]

    def get(self, page: str) -> _W | None:
        """Return the work in progress for *page*, or None."""
        with self._lock:
            return self._by_page.get(page)

    def register(self, app: Dash, name: str) -> None:
        """Register the bar and the button Cancel of `progress_parts` for the work *name*."""

        @app.callback(
            Output(f"{name}-bar", "value"), Output(f"{name}-text", "children"),
            Output(f"{name}-moving", "hidden"),
            Input(f"{name}-clock", "n_intervals"), State(f"{name}-page", "data"), prevent_initial_call=True,
        )  # fmt: skip
        def look(_ticks: int | None, page: Any) -> tuple[Any, Any, Any]:
            work = self.get(str(page))
            return (no_update,) * 3 if work is None else (100 * work.share, work.text, False)

        @app.callback(
            Output(f"{name}-cancel", "data-asked"), Input(f"{name}-cancel", "n_clicks"),
            State(f"{name}-page", "data"), prevent_initial_call=True,
        )  # fmt: skip
        def cancel(clicks: int | None, page: Any) -> Any:
            work = self.get(str(page))
            if clicks and work is not None:
                work.is_cancelled = True
            return clicks
