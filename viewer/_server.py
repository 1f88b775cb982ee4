"""Serve one study, or a workspace: the list at ``/``, each study below ``/study/NAME/``."""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from dash import Dash, html
from flask import Flask, Response, abort
from werkzeug.serving import WSGIRequestHandler, make_server

from ..errors import ChakrascopeError, UsageError
from ..runner import Study, Workspace
from ._access import is_loopback, require_token, serve_only
from ._app import create_app
from ._exports import table_file
from ._shell import frame, new_dash
from ._state import Surroundings
from .pages import STUDIES

_LAST_PORT = 65535


class _Requests(WSGIRequestHandler):
    """Answers 400 to requests whose address cannot be parsed."""

    def run_wsgi(self) -> None:
        """Answer one request, with status 400 if its address cannot be parsed."""
        try:
            urlsplit(self.path)
        except ValueError:
            self.path = "/"  # the request log would parse the invalid path again
            self.send_error(400)
        else:
            super().run_wsgi()


def serve(
    what: Study | Workspace,
    host: str = "127.0.0.1",
    port: int = 8050,
    *,
    import_from: Path | None = None,
    with_token: bool = True,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve a study, or all studies of a workspace, until interrupted.

    Calls *ready* with the address once connections are accepted. Users may import traces from the folder
    *import_from*. Port 0 means any free port. Because a machine may have other users, only requests with the
    secret token in the address are answered. On a loopback address, *with_token* may be False. Raises
    `UsageError` if *with_token* is False on another address, and `ChakrascopeError` if the port cannot be
    opened.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    if not with_token and not is_loopback(host):
        raise UsageError(
            f"Other machines can reach {host}, so the viewer requires its token at this address. Next: leave "
            "out --no-token or --host."
        )
    token = secrets.token_urlsafe(24) if with_token else ""
    application = _application(what, import_from, lambda server: _guard(server, host, token))
    secret = f"?token={token}" if token else ""
    with _listen(host, port) as listener:
        server = make_server(
            host, port, application, threaded=True, request_handler=_Requests, fd=listener.fileno()
        )
        if ready is not None:
            ready(f"http://{_reachable(host)}:{listener.getsockname()[1]}/{secret}")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
        server.server_close()


def _application(
    what: Study | Workspace, import_from: Path | None, guard: Callable[[Flask], None]
) -> Flask | Site:
    if isinstance(what, Workspace):
        return Site(what, import_from, guard)
    flask: Flask = create_app(what, warm=True, near=Surroundings(import_from=import_from)).server
    guard(flask)
    return flask


def _guard(server: Flask, host: str, token: str) -> None:
    """Make *server* refuse browsers without *token* and, on a loopback *host*, other host names."""
    if is_loopback(host):
        serve_only(server, (host, "localhost", "127.0.0.1", "::1"))
    if token:
        require_token(server, token)


def _reachable(host: str) -> str:
    """Return an address of *host* for browsers: this machine's own for 0.0.0.0 and ::."""
    if host in {"0.0.0.0", "::"}:
        host = _own_address(socket.AF_INET6 if ":" in host else socket.AF_INET)
    return f"[{host}]" if ":" in host else host


def _own_address(family: socket.AddressFamily) -> str:
    """Return the address at which other machines reach this machine; sends no packet."""
    documentation = "2001:db8::1" if family == socket.AF_INET6 else "192.0.2.1"
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((documentation, 9))
        return str(probe.getsockname()[0])
    return socket.gethostname()


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises `ChakrascopeError` if it cannot be opened.

    The web server would end the process instead.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        other = port + 1 if 0 < port < _LAST_PORT else 8050
        raise ChakrascopeError(
            f"The viewer cannot listen on {host}:{port} ({error}). Next: stop the program that uses the "
            f"port, or choose another port: --port {other}, or --port 0 for any free port."
        ) from error
    return listener


_BELOW = "/study/"
_MAX_OPEN = 16


class Site:
    """WSGI application for all studies of *workspace*.

    Each study is a separate application, so that selections do not affect each other, and is
    created by its first request. *guard* is called with each new Flask application before it
    answers.
    """

    def __init__(
        self, workspace: Workspace, import_from: Path | None = None, guard: Callable[[Flask], object] = bool
    ) -> None:
        self._workspace = workspace
        self._shared = Surroundings(workspace=workspace, import_from=import_from)
        self._guard = guard
        self._front = _front(workspace)
        guard(self._front.server)
        self._open: OrderedDict[tuple[str, Path], Flask] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Pass a WSGI request to the application of its study."""
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
        name, slash, rest = path.removeprefix(_BELOW).partition("/")
        study = self._study(name) if slash and path.startswith(_BELOW) else None
        if study is not None:
            environ["SCRIPT_NAME"] = environ.get("SCRIPT_NAME", "") + f"{_BELOW}{quote(name, safe='')}"
            environ["PATH_INFO"] = f"/{rest}".encode().decode("latin-1")
        return (study or self._front.server)(environ, start_response)

    def _study(self, name: str) -> Flask | None:
        """Return the viewer of the study *name*, or ``None`` if there is none."""
        study = self._workspace.studies().get(name)
        if study is None:
            return None
        key = (name, study.path)
        with self._lock:
            if key not in self._open:
                self._open[key] = self._viewer(name)
            self._open.move_to_end(key)
            while len(self._open) > _MAX_OPEN:
                self._open.popitem(last=False)
            return self._open[key]

    def _viewer(self, name: str) -> Flask:
        near = replace(self._shared, name=name)
        prefix = f"{_BELOW}{quote(name, safe='')}/"
        server: Flask = create_app(self._workspace.study(name), near=near, prefix=prefix).server
        self._guard(server)
        return server


def _front(workspace: Workspace) -> Dash:
    app = new_dash()
    app.layout = lambda: frame([], [], [html.Div(id="nav")])
    STUDIES.register(app, workspace)

    @app.server.get("/export/studies.<extension>")
    def export(extension: str) -> Response:
        return table_file(workspace.table, "studies", extension, is_small=True)

    @app.server.get(f"{_BELOW}<name>/export/<path:file>")
    def unknown(name: str, file: str) -> Response:
        abort(404, f"The study '{name[:80]}' does not exist here, so {file[:80]} does not exist either.")

    return app
