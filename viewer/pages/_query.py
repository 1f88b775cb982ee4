"""Query page: SQL over the current run, with examples."""

from __future__ import annotations

import subprocess
import threading
import uuid
from functools import partial
from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from flask import Response, abort, request

from ...errors import BackendTimeout, Cancelled, ChakrascopeError
from ...runner.analysis import SQL_EXAMPLES, SQL_TABLES, query_run, sql_columns
from ...support import count_text
from .._address import set_option
from .._exports import table_file
from .._state import OpenRun, Selection, StudyView
from ._parts import BY_CTRL_ENTER, card, column, empty, export_links, page_title, table, text_column

PATH, TITLE = "/query", "Query"
_MAX_ROWS = 1_000
_MAX_EXPORTED = 100_000
_TIMEOUT_S = 30.0
_ABOUT = "SQL queries over the tables of the run in the header. Choose an example, then press Run."
_AT_ONCE = 2
# Columns of instants; other times are durations.
_INSTANTS = ("start_ns", "end_ns")
_NOTE = (
    "One SELECT over the tables below (DuckDB's SQL). A query writes nothing, and cannot access files or the "
    "network. It is stopped after 30 s or at 1 GiB. At most 1,000 rows are shown; the export contains more."
)


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the Query page; the address has the query."""
    asked = selection.option("sql")
    examples = [{"value": title, "label": title} for title in SQL_EXAMPLES]
    return dmc.Stack(
        [
            page_title(TITLE, _ABOUT),
            card(
                "Ask in SQL",
                dmc.Select(id="query-example", label="Examples", data=examples, placeholder="choose one",
                           searchable=True, w=460, mb="xs"),
                dmc.Textarea(id="query-sql", label="Query", autosize=True, minRows=4, maxRows=16,
                             value=asked or next(iter(SQL_EXAMPLES.values())), className="query-sql",
                             styles={"input": {"fontFamily": "monospace"}}),
                dmc.Group([
                    dmc.Button("Run", id="query-go", **BY_CTRL_ENTER),
                    dmc.Button("Cancel", id="query-cancel", variant="default", disabled=True),
                ], mt="sm"),
                note=_NOTE,
            ),
            # Identifies this page among those of all browsers, so that Cancel ends only its own query.
            dcc.Store(id="query-page", data=uuid.uuid4().hex),
            dcc.Store(id="query-answered"),
            html.Div(id="query-answer", **{"aria-live": "polite"}),
            _tables(run, scheme),
        ],
        gap="md",
    )  # fmt: skip


def _tables(run: OpenRun, scheme: str) -> dmc.Paper:
    known = sql_columns(run)
    # A table is described in the first of its rows only.
    known = known.assign(holds=known["holds"].mask(known["table"].duplicated(), ""))
    columns = [text_column("table", "Table", maxWidth=130), text_column("column", "Column", maxWidth=200),
               text_column("type", "Type", minWidth=90, maxWidth=110),
               text_column("unit", "Unit", minWidth=70, maxWidth=120),
               text_column("holds", "The table holds", flex=5, minWidth=150, wrapText=True,
                           autoHeight=True)]  # fmt: skip
    title = f"{count_text(len(SQL_TABLES), 'table')} of this run"
    return card(title, table("query-tables", known, columns, scheme, height="360px"))


class _Queries:
    """Running queries by page, two at a time so as not to overload the machine."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(_AT_ONCE)

    def ask(self, run: OpenRun, page: str, sql: str, rows: int) -> tuple[pd.DataFrame, bool]:
        """Return the first *rows* rows of the answer, and whether there are more.

        Raises `BackendTimeout` while two other queries run, and the errors of `query_run`.
        """
        if not self._places.acquire(blocking=False):
            raise BackendTimeout(f"{_AT_ONCE} queries are already running; cancel one of them, or wait.")
        try:
            answer = query_run(run, sql, rows=rows, timeout_s=_TIMEOUT_S, watch=partial(self._note, page))
            return answer.table, answer.more
        finally:
            self._places.release()
            with self._lock:
                self._running.pop(page, None)

    def _note(self, page: str, worker: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running[page] = worker

    def cancel(self, page: str) -> None:
        """Kill the process of *page*'s query, if there is one."""
        with self._lock:
            worker = self._running.get(page)
            if worker is not None and worker.poll() is None:
                worker.kill()


def _answer(found: pd.DataFrame, more: bool, query: dict[str, str], scheme: str) -> Any:
    rows = count_text(len(found), "row")
    text = f"The first {rows}; there are more." if more else rows
    shown = table("query-table", found, [_column(str(name), found) for name in found], scheme, height="420px")
    return card(
        "Answer",
        dmc.Text(text, size="sm", c="dimmed", id="query-count", mb=4),
        shown if len(found) else empty("No rows."),
        exports=export_links("query", **query),
    )


def _column(name: str, found: pd.DataFrame) -> dict[str, Any]:
    """Return a table column whose unit follows from its *name*."""
    if found[name].dtype.kind not in "iuf":
        return text_column(name, name)
    if name.endswith("_ns"):
        shown = "instant" if name in _INSTANTS else "time"
        return column(name, name.removesuffix("_ns"), shown, minWidth=110)
    units = {"bytes": "bytes", "size_bytes": "bytes", "share": "%", "relative": "±%"}
    return column(name, name, units.get(name, ""))


def register(app: Dash, view: StudyView) -> None:
    """Register the callbacks that choose an example, run or cancel a query, and export the answer."""
    queries = _Queries()

    @app.callback(Output("query-sql", "value"), Input("query-example", "value"), prevent_initial_call=True)
    def choose(example: str | None) -> Any:
        return SQL_EXAMPLES.get(example or "", no_update)

    @app.callback(
        Output("query-answer", "children"), Output("query-answered", "data"), Input("query-go", "n_clicks"),
        State("query-sql", "value"), State("query-page", "data"), State("run", "data"),
        State("dark", "checked"), State("url", "search"), prevent_initial_call=True,
        running=[
            (Output("query-go", "loading"), True, False), (Output("query-cancel", "disabled"), False, True),
        ],
    )  # fmt: skip
    def ask(clicks: int | None, *states: Any) -> tuple[Any, Any]:
        sql, page, run, dark, search = states
        if not clicks or not str(sql or "").strip():
            return no_update, no_update
        try:
            found, more = queries.ask(view.open(run), str(page), str(sql), _MAX_ROWS)
        except Cancelled as stopped:
            return empty(stopped.message), sql
        except ChakrascopeError as error:
            # DuckDB marks the place of an error below the query's line.
            text = dmc.Text(error.message, style={"whiteSpace": "pre-wrap"}, size="sm", ff="monospace")
            return dmc.Alert(text, id="query-error", color="red", variant="light"), sql
        set_option(PATH, search, run, "sql", str(sql))
        return _answer(found, more, {"run": run, "sql": str(sql)}, "dark" if dark else "light"), sql

    app.clientside_callback(
        ClientsideFunction("chakrascope", "staleAnswer"),
        Output("query-answer", "className"),
        Input("query-sql", "value"),
        Input("query-answered", "data"),
    )

    @app.callback(
        Output("query-cancel", "data-asked"), Input("query-cancel", "n_clicks"), State("query-page", "data"),
        prevent_initial_call=True,
    )  # fmt: skip
    def cancel(clicks: int | None, page: Any) -> Any:
        if clicks:
            queries.cancel(str(page))
        return no_update

    @app.server.get("/export/query.<extension>")
    def export_query(extension: str) -> Response:
        selection = Selection.parse(request.query_string.decode())

        def answer() -> pd.DataFrame:
            run = view.open(view.resolve(selection.run))
            return queries.ask(run, uuid.uuid4().hex, selection.option("sql"), _MAX_EXPORTED)[0]

        try:
            return table_file(answer, "query", extension)
        except ChakrascopeError:
            abort(404)
