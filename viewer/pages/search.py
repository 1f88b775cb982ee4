"""A box that finds a node by its name, operator, module or id, and selects it."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, no_update

from ..queries.neighbourhood import search_nodes
from ..state import StudyView
from .parts import node_address

__all__ = ["node_search", "register_search"]


def node_search(identity: str) -> dmc.Select:
    """Return the box; :func:`register_search` makes it work."""
    return dmc.Select(
        id=identity,
        placeholder="find: name, operator, module, id",
        searchable=True,
        clearable=True,
        data=[],
        w=340,
        nothingFoundMessage="type to search",
        **{"aria-label": "Find a node"},
    )


def register_search(app: Dash, view: StudyView, identity: str) -> None:
    """Wire the box *identity*: typing lists nodes, choosing one selects it."""

    @app.callback(
        Output(identity, "data"), Input(identity, "searchValue"), State("run", "data"),
        State(identity, "data"), prevent_initial_call=True,
    )  # fmt: skip
    def find(text: str | None, run: str | None, listed: list[dict[str, str]] | None) -> Any:
        # A choice writes its own label into the box; searching for that would take the choice away again.
        if not run or not text or any(option["label"] == text for option in listed or []):
            return no_update
        found = search_nodes(view.open(run).nodes, text[:200])
        return [
            {
                "value": f"{row.rank}:{row.node_id}",
                "label": f"{str(row.name)[:80]} · rank {row.rank} · node {row.node_id}",
            }
            for row in found[["rank", "node_id", "name"]].itertuples(index=False)
        ]

    @app.callback(
        Output("url", "search", allow_duplicate=True), Input(identity, "value"), State("run", "data"),
        State("url", "search"), prevent_initial_call=True,
    )  # fmt: skip
    def go_to(value: str | None, run: str, search: str | None) -> Any:
        rank, _, node = (value or "").partition(":")
        return node_address(search, run, rank, node) if rank.isdigit() and node.isdigit() else no_update
