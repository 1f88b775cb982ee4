"""Refuse requests that other sites send to the viewer, and content from other hosts."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlencode, urlsplit

from dash import Dash, Output
from dash.exceptions import DependencyException
from flask import Flask, Response, abort, jsonify, redirect, render_template_string, request
from werkzeug.wrappers import Response as AnyResponse

_MAX_REQUEST_BYTES = 1 << 20
_ROUTE = "/_dash-update-component"
_REFUSAL = "This request does not come from the viewer's pages. Reload the page; it may be outdated."
# Types of the Dash properties that have the same type on every page; None means unset.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "checked": (bool,),
    "contents": (str,),
    "filename": (str,),
    "n_clicks": (int,),
    "n_intervals": (int,),
    "pathname": (str,),
    "search": (str,),
    "selectedRows": (list, dict),
}
_STORES: Mapping[str, tuple[type, ...]] = {
    "job-asked": (dict,),
    "run": (str,),
    "selection": (dict,),
    "timeline-stacks-asked": (dict,),
}
# Controls whose value is a list of texts or a number, by id or by option; other values are texts.
_LISTS = ("against", "edges", "new-backends", "runs-tags", "study-tags")
_NUMBERS = ("hops",)
_WHOLE = re.compile(r"-?\d{1,18}")
_TOKEN_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Token needed · Chakrascope</title>
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 12vh auto; padding: 0 1rem; }
input { font: inherit; width: 100%; box-sizing: border-box; margin: 4px 0 12px; padding: 6px 8px; }
button { font: inherit; padding: 6px 16px; }
</style></head>
<body>
<h1>This viewer requires its token</h1>
<p>{% if wrong %}<strong>This is not the viewer's token: each start creates a new token.</strong>
{% endif %}It only answers browsers that have opened its full address, which ends in <code>?token=...</code>.
A link copied from the address bar of a browser contains no token.</p>
<p>Next: ask the sender of the link to press <em>Link</em> at the top of the page and send you the copied
link, or ask the person who started the viewer for the address that it printed.
If you have the token, enter it:</p>
<form method="get" action="{{ action }}">
{% for key, value in kept %}<input type="hidden" name="{{ key }}" value="{{ value }}">
{% endfor %}<label for="token">Token, or the full address that the viewer printed</label>
<input id="token" name="token" type="password" autocomplete="off" required autofocus>
<button>Open</button>
</form>
</body></html>
"""


def is_loopback(host: str) -> bool:
    """Return whether an address bound to *host* can only be reached from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def protect(app: Dash) -> None:
    """Limit the size of requests to *app*, and let browsers load nothing from other hosts."""
    app.server.config["MAX_CONTENT_LENGTH"] = _MAX_REQUEST_BYTES

    @app.server.errorhandler(RecursionError)
    def refuse_endless_nesting(_: RecursionError) -> tuple[str, int]:
        return "This request is nested more deeply than any request of the viewer's pages.", 400

    @app.server.errorhandler(UnicodeError)
    def refuse_other_encodings(_: UnicodeError) -> tuple[str, int]:
        return "This address is not UTF-8.", 400

    @app.server.errorhandler(DependencyException)
    def refuse_unknown_files(_: DependencyException) -> tuple[str, int]:
        return "There is no such file.", 404

    @app.server.before_request
    def refuse_odd_paths() -> None:
        """Refuse paths with ".." or unprintable characters, which parsers read differently."""
        if not request.path.isprintable() or ".." in request.path.split("/"):
            abort(404)

    @app.server.before_request
    def refuse_other_sites() -> None:
        origin = request.headers.get("Origin")
        if origin and _split(origin).netloc != request.host:
            abort(403, "This address only answers requests from the viewer's own pages.")

    @app.server.after_request
    def add_headers(response: Response) -> Response:
        scripts = " ".join(f"'{digest.strip(chr(39))}'" for digest in app.csp_hashes())
        # Perfetto's files have a separate policy.
        response.headers.setdefault(
            "Content-Security-Policy",
            f"default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; object-src 'none'; "
            "base-uri 'self'; form-action 'self'; frame-ancestors 'none'",
        )
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response


def serve_only(server: Flask, hosts: tuple[str, ...]) -> None:
    """Answer only requests addressed to one of *hosts*, which prevents DNS rebinding."""

    @server.before_request
    def refuse_other_names() -> None:
        if _split(f"//{request.host}").hostname not in hosts:
            abort(403, "This viewer only answers at the address that it printed when it started.")


def require_token(server: Flask, token: str) -> None:
    """Answer only browsers that opened the address with *token*, which a cookie then stores."""
    # A machine's ports share cookies, and each may serve another viewer, so the name depends on the token.
    cookie = f"chakrascope_{hashlib.sha256(token.encode()).hexdigest()[:12]}"

    @server.get("/api/token")
    def own_token() -> Response:
        """Return the token for a link to share; only pages of this server can read the response."""
        return jsonify({"token": token})

    def check() -> AnyResponse | None:
        given = _token_in(request.args.get("token", ""))
        if secrets.compare_digest(given.encode(), token.encode()):
            rest = urlencode(
                [(key, value) for key, value in request.args.items(multi=True) if key != "token"]
            )
            reply = redirect(request.script_root + request.path + (f"?{rest}" if rest else ""))
            reply.set_cookie(cookie, token, httponly=True, samesite="Strict")
            return reply
        if not secrets.compare_digest(request.cookies.get(cookie, "").encode(), token.encode()):
            return _ask_for_token(wrong=bool(given))
        return None

    # The token is checked first, so that nothing else of an unauthorised request is read.
    server.before_request_funcs.setdefault(None, []).insert(0, check)


def _token_in(given: str) -> str:
    """Return the token in *given*, which is a token or a whole address with one."""
    return parse_qs(_split(given).query).get("token", [given])[0] if "token=" in given else given


def _split(address: str) -> SplitResult:
    """Split the URL *address*; the parts of an invalid one are empty."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _ask_for_token(*, wrong: bool) -> Response:
    """Return the page that explains why a request without the token was refused; it has no script."""
    kept = [(key, value) for key, value in request.args.items(multi=True) if key != "token"]
    page = render_template_string(
        _TOKEN_PAGE, wrong=wrong, kept=kept, action=request.script_root + request.path
    )
    return Response(page, 403, mimetype="text/html")


def refuse_malformed(app: Dash) -> None:
    """Answer 400 to callback requests of *app* whose inputs or outputs do not fit the callback."""

    @app.server.before_request
    def check() -> None:
        if request.method != "POST" or not request.path.endswith(_ROUTE):
            return
        body = request.get_json()
        if not isinstance(body, dict) or not isinstance(body.get("output"), str) or not _is_unicode(body):
            abort(400, _REFUSAL)
        wanted = app.callback_map.get(body["output"])
        # clientside callbacks have no Python function in the callback map
        if wanted is None or "callback" not in wanted or not _fits(body, wanted):
            abort(400, _REFUSAL)


def _fits(body: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether the request *body* has exactly the inputs and outputs of the callback *wanted*."""
    changed = body.get("changedPropIds", [])
    return (
        _all_given(body.get("inputs", []), wanted["inputs"])
        and _all_given(body.get("state", []), wanted["state"])
        and (bool(wanted.get("no_output")) or _fit_outputs(body.get("outputs"), wanted["output"]))
        and isinstance(changed, list)
        and all(isinstance(name, str) for name in changed)
    )


def _all_given(given: Any, wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether *given* holds exactly the properties *wanted*, in order.

    The entry of a pattern id is the list of all properties that match it.
    """
    if not isinstance(given, list) or len(given) != len(wanted):
        return False
    for item, specified in zip(given, wanted, strict=True):
        if isinstance(item, list) is not ('["ALL"]' in specified["id"]):
            return False
        items = item if isinstance(item, list) else [item]
        if not all(_is_given(each, specified["property"]) for each in items):
            return False
    return True


def _is_given(item: Any, wanted: str) -> bool:
    """Return whether the JSON value *item* is the property *wanted* with a value of an allowed type."""
    if not _is_property(item) or item["property"] != wanted:
        return False
    value = item.get("value")
    if value is None:
        return True
    if wanted == "value":
        return _is_value(item["id"], value)
    if wanted == "clickData":
        return _is_click(item["id"], value)
    if wanted == "selectedRows" and isinstance(value, list):
        return all(_is_row(item["id"], row) for row in value)
    types = _TYPES.get(wanted) or (_STORES.get(str(item["id"])) if wanted == "data" else None)
    return types is None or isinstance(value, types)


def _is_value(identity: Any, value: Any) -> bool:
    """Return whether *value* has the type of the values of the control *identity*."""
    name = identity.get("option") if isinstance(identity, dict) else identity
    if name in _LISTS:
        return isinstance(value, list) and all(isinstance(text, str) for text in value)
    return isinstance(value, str) or (name in _NUMBERS and isinstance(value, (int, float)))


def _is_click(identity: Any, value: Any) -> bool:
    """Return whether *value* describes a click on a point of the chart *identity*."""
    points = value.get("points") if isinstance(value, dict) else None
    if not isinstance(points, list) or not points or not isinstance(points[0], dict):
        return False
    point, kind = points[0], identity if isinstance(identity, dict) else {}
    if "chart" in kind:  # the rank and the node of the point
        node = point.get("customdata")
        return isinstance(node, list) and len(node) >= 2 and all(map(_is_whole, node[:2]))
    if "bars" in kind:
        return _is_whole(point.get("x" if kind["bars"] == "rank" else "pointIndex"))
    return identity != "roofline" or _is_whole(point.get("customdata", 0))


def _is_row(identity: Any, row: Any) -> bool:
    """Return whether *row* is a row of the table *identity*."""
    keys = ("rank", "node_id") if isinstance(identity, dict) and identity.get("selects") == "node" else ()
    return isinstance(row, dict) and all(_is_whole(row.get(key)) for key in keys)


def _is_whole(value: Any) -> bool:
    return _WHOLE.fullmatch(str(value)) is not None


def _is_unicode(body: Any) -> bool:
    """Return whether all texts of the JSON value *body* can be encoded: no half of a surrogate pair."""
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _fit_outputs(given: Any, wanted: Any) -> bool:
    """Return whether *given* matches the outputs *wanted*, which are one output or a list of outputs."""
    if not isinstance(wanted, list):
        return _is_output(given, wanted)
    return isinstance(given, list) and len(given) == len(wanted) and all(map(_is_output, given, wanted))


def _is_output(given: Any, wanted: Output) -> bool:
    """Return whether *given* is the output *wanted*, or the list of all properties that match its pattern."""
    if isinstance(given, list) is not ('["ALL"]' in wanted.component_id_str()):
        return False
    items = given if isinstance(given, list) else [given]
    # If several callbacks write an output, Dash appends "@" and a hash to its name.
    return all(
        _is_property(item) and Output(item["id"], item["property"].partition("@")[0]) == wanted
        for item in items
    )


def _is_property(item: Any) -> bool:
    if not isinstance(item, dict) or not isinstance(item.get("property"), str):
        return False
    name = item.get("id")
    plain = (str, int, float, bool)
    return isinstance(name, str) or (
        isinstance(name, dict)
        and all(isinstance(value, plain) for value in name.values())
        and _is_whole(name.get("number", 0))
    )
