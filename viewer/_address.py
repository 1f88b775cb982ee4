"""Keep a page's state in its address, with one callback that reads all controls."""

from __future__ import annotations

from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, ctx, no_update, set_props

from ._state import Selection, StudyView
from ._theme import run_options


def option_id(name: str, default: str = "") -> dict[str, str]:
    """Return the id of the control for the setting *name* of the address, one of `_state.OPTIONS`.

    Without the setting, the control shows *default*.
    """
    return {"option": name, "default": default}


def table_id(name: str, selects: str = "node") -> dict[str, str]:
    """Return the id of a table in which clicking a row selects a node or sets the setting *selects*.

    The setting becomes the row's value in the column ``id``.
    """
    return {"table": name, "selects": selects}


def chart_id(name: str) -> dict[str, str]:
    """Return the id of a chart in which clicking a bar selects its rank and node."""
    return {"chart": name}


def bars_id(name: str) -> dict[str, str]:
    """Return the id of a chart whose page opens another page for a clicked bar."""
    return {"bars": name}


def later_id(name: str) -> dict[str, str]:
    """Return the id of a part that the function LATER[*name*] of its page makes once the page is shown."""
    return {"later": name}


def go(path: str, search: str) -> None:
    """Navigate to the page *path* with the query string *search* once the callback responds."""
    set_props("url", {"pathname": path, "search": search})


def rewrite(path: str, search: str) -> None:
    """Put the query string *search* into the address of the page *path* once the callback responds.

    If the browser shows another page by then, the address stays as it is.
    """
    set_props("rewritten", {"data": {"path": path, "search": search}})


def set_option(path: str, search: str | None, run: str | None, name: str, value: str) -> None:
    """Set *name* to *value* in the address of the page *path*, unless *search* has that value."""
    shown = Selection.parse(search)
    if shown.option(name) != value:
        rewrite(path, shown.with_run(run or "").with_option(name, value).search)


def register_address(app: Dash, view: StudyView) -> None:
    """Register the callbacks that keep selection and address in sync."""

    @app.callback(
        Output("selection", "data"), Output("run", "data"), Output("run-select", "value"),
        Input("url", "search"), State("run", "data"), State("selection", "data"),
    )  # fmt: skip
    def read_address(search: str | None, shown: str | None, selected: Any) -> tuple[Any, Any, Any]:
        """Read the selection from the address; components whose value is unchanged trigger no callback."""
        selection = Selection.parse(search)
        run = view.resolve(selection.run)
        data = {"run": run, "rank": selection.rank, "node": selection.node}
        same = run == shown
        if run and not selection.run and not same:
            # The viewer may have replayed a capture after the page was drawn, so list the runs again.
            set_props("run-select", {"data": run_options(view.runs())})
        return no_update if data == selected else data, no_update if same else run, no_update if same else run

    app.clientside_callback(
        ClientsideFunction("chakrascope", "rewrite"),
        Output("url", "search", allow_duplicate=True),
        Input("rewritten", "data"),
        prevent_initial_call=True,
    )

    # Dash only allows an output that triggers its own input if it is a duplicate.
    @app.callback(
        Output("url", "search", allow_duplicate=True), Input("run-select", "value"),
        Input({"clear": ALL}, "n_clicks"), Input({"option": ALL, "default": ALL}, "value"),
        Input({"table": ALL, "selects": ALL}, "selectedRows"), Input({"chart": ALL}, "clickData"),
        State("url", "search"), State("run", "data"), prevent_initial_call=True,
    )  # fmt: skip
    def write_address(*states: Any) -> Any:
        """Write the selection into the address; this callback also runs when the browser draws a page."""
        *_, search, run = states
        before = Selection.parse(search)
        after = before
        for one in ctx.triggered:
            after = _chosen(after, ctx.triggered_prop_ids.get(one["prop_id"]), one["value"], str(run or ""))
        return no_update if after == before else after.search


def _chosen(shown: Selection, control: Any, value: Any, run: str) -> Selection:
    """Return the selection *shown* after *control* changed to *value* on a page of *run*."""
    if control == "run-select":
        return shown.with_run(value) if value and value != run else shown
    if not isinstance(control, dict):
        return shown
    if "option" in control:
        text = _text(value)
        same = shown.option(control["option"], control["default"]) == text
        return shown if same else shown.with_run(run).with_option(control["option"], text)
    if "clear" in control:
        return shown.with_node(-1, -1) if value else shown
    if "chart" in control:
        return _at_node(shown, run, *value["points"][0]["customdata"][:2]) if value else shown
    # If the page itself selects the row named in the address, the value is a mapping.
    row = value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else None
    if row is None:
        return shown
    if control["selects"] == "node":
        return _at_node(shown, run, row["rank"], row["node_id"])
    return shown.with_run(run).with_option(control["selects"], str(row.get("id", "")))


def _at_node(shown: Selection, run: str, rank: Any, node: Any) -> Selection:
    return shown.with_run(run).with_node(int(rank), int(node)) if int(node) >= 0 else shown


def _text(value: Any) -> str:
    """Return the *value* of a control as text for the address."""
    return ",".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
