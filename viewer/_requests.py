"""Refuse requests to callbacks that no page of the viewer could send, before Dash trips over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dash import Dash
from flask import abort, request

__all__ = ["refuse_malformed"]

_ROUTE = "/_dash-update-component"
_REFUSAL = "This is not a request of the viewer's pages. Reload the page; it may be of another version."


def refuse_malformed(app: Dash) -> None:
    """Answer 400 to requests to the callbacks of *app* that lack inputs or outputs."""

    @app.server.before_request
    def check() -> None:
        if request.method != "POST" or not request.path.endswith(_ROUTE):
            return
        body = request.get_json()
        if not isinstance(body, dict) or not isinstance(body.get("output"), str):
            abort(400, _REFUSAL)
        wanted = app.callback_map.get(body["output"])
        if wanted is None or not _fits(body, wanted):
            abort(400, _REFUSAL)


def _fits(body: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether *body* has the form of the inputs of the callback *wanted*."""
    changed = body.get("changedPropIds", [])
    return (
        _all_given(body.get("inputs", []), wanted["inputs"])
        and _all_given(body.get("state", []), wanted["state"])
        and (bool(wanted.get("no_output")) or _are_properties(body.get("outputs")))
        and isinstance(changed, list)
        and all(isinstance(name, str) for name in changed)
    )


def _all_given(given: Any, wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether *given* has the properties *wanted*, in order; of a pattern all that match it."""
    if not isinstance(given, list) or len(given) != len(wanted):
        return False
    for item, specified in zip(given, wanted, strict=True):
        items = item if isinstance(item, list) and specified["id"].startswith("{") else [item]
        if not all(_is_property(each) and each["property"] == specified["property"] for each in items):
            return False
    return True


def _are_properties(given: Any) -> bool:
    if isinstance(given, list):
        return all(_are_properties(item) for item in given)
    return _is_property(given)


def _is_property(item: Any) -> bool:
    if not isinstance(item, dict) or not isinstance(item.get("property"), str):
        return False
    name = item.get("id")
    plain = (str, int, float, bool)
    return isinstance(name, str) or (
        isinstance(name, dict) and all(isinstance(value, plain) for value in name.values())
    )
