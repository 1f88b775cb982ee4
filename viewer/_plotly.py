"""Serve the third of plotly.js that the charts need: all of it would hold up the first page by a second."""

from __future__ import annotations

import gzip
from pathlib import Path

from flask import Flask, Response, request

__all__ = ["register"]

# Of viewer/vendor; the address that assets/09_charts.js tells Dash has it, too, so that browsers may keep it.
_VERSION = "4.1.1"
_SCRIPT = Path(__file__).parent / "vendor" / "plotly" / "plotly-cartesian.min.js.gz"
_YEAR_S = 365 * 86400


def register(server: Flask) -> None:
    """Add the route of the script to *server*."""

    @server.get(f"/charts/plotly-cartesian-{_VERSION}.min.js")
    def script() -> Response:
        packed = _SCRIPT.read_bytes()
        if request.accept_encodings["gzip"]:
            reply = Response(packed, mimetype="text/javascript")
            reply.content_encoding = "gzip"
        else:
            reply = Response(gzip.decompress(packed), mimetype="text/javascript")
        reply.vary.add("Accept-Encoding")
        reply.cache_control.max_age = _YEAR_S
        reply.cache_control.immutable = True
        return reply
