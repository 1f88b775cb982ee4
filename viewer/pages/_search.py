"""The box in the header: it finds modules, operators and nodes, and selects one on every page."""

from __future__ import annotations

import dash_mantine_components as dmc
from dash import html

__all__ = ["node_search"]


def node_search() -> html.Div:
    """Return the box; assets/04_search.js makes it work, so that typing never waits for an answer."""
    field = dmc.TextInput(
        id="node-search",
        placeholder="find a node or module",
        autoComplete="off",
        **{"aria-label": "Find a module, an operator or a node"},
    )
    hits = html.Div(id="search-hits", role="listbox", hidden=True, **{"aria-label": "Found"})
    status = html.Div(id="search-told", role="status", className="for-readers")
    return html.Div([field, hits, status], className="node-search")
