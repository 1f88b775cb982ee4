"""The box in the header: it finds a node by its name, operator, module or id, and selects it everywhere."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, no_update

from ...runner.analysis import search_nodes
from ...support import duration_text
from .._state import StudyView
from ._parts import node_address

__all__ = ["node_search", "register_search"]


def node_search() -> dmc.Select:
    """Return the box; :func:`register_search` makes it work."""
    return dmc.Select(
        id="node-search",
        placeholder="find: name, operator, module, id",
        searchable=True,
        clearable=True,
        data=[],
        className="node-search",
        nothingFoundMessage="nothing has that name",
        **{"aria-label": "Find a node"},
    )


def register_search(app: Dash, view: StudyView) -> None:
    """Wire the box: typing lists nodes, the longest first; choosing one selects it."""

    @app.callback(
        Output("node-search", "data"), Input("node-search", "searchValue"), State("run", "data"),
        State("node-search", "data"), prevent_initial_call=True,
    )  # fmt: skip
    def find(text: str | None, run: str | None, listed: list[dict[str, str]] | None) -> Any:
        # A choice writes its own label into the box; searching for that would take the choice away again.
        if not run or not text or any(option["label"] == text for option in listed or []):
            return no_update
        shown = view.open(run)
        return [
            {
                "value": f"{row['rank']}:{row['node_id']}",
                "label": f"{str(row['name'])[:80]} · rank {row['rank']} · node {row['node_id']} · "
                f"{duration_text(row['end_ns'] - row['start_ns'])}",
            }
            for row in search_nodes(shown.nodes, shown.words, text[:200]).to_dict("records")
        ]

    @app.callback(
        Output("url", "search", allow_duplicate=True), Input("node-search", "value"), State("run", "data"),
        State("url", "search"), prevent_initial_call=True,
    )  # fmt: skip
    def go_to(value: str | None, run: str, search: str | None) -> Any:
        rank, _, node = (value or "").partition(":")
        return node_address(search, run, rank, node) if rank.isdigit() and node.isdigit() else no_update
