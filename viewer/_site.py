"""Several studies in one server: their list at ``/``, and the viewer of each below ``/study/NAME/``."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dash import Dash, html
from flask import Flask, Response, abort

from ..runner import Workspace
from ._app import create_app
from ._exports import table_file
from ._shell import frame, new_dash
from ._state import Surroundings
from .pages import STUDIES

_BELOW = "/study/"
_MOST_OPEN = 16


class Site:
    """The WSGI application of the studies in *workspace*.

    Each study is a separate application, so that a selection cannot apply to another study; it is created
    at its first request. *guard* is called with each Flask application before it answers.
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
        """Answer a WSGI request."""
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
        name, slash, rest = path.removeprefix(_BELOW).partition("/")
        study = self._study(name) if slash and path.startswith(_BELOW) else None
        if study is not None:
            environ["SCRIPT_NAME"] = environ.get("SCRIPT_NAME", "") + f"{_BELOW}{quote(name, safe='')}"
            environ["PATH_INFO"] = f"/{rest}".encode().decode("latin-1")
        answer: Iterable[bytes] = (study or self._front.server)(environ, start_response)
        return answer

    def _study(self, name: str) -> Flask | None:
        """Return the viewer of the study *name*, or ``None`` if there is no such study."""
        study = self._workspace.studies().get(name)
        if study is None:
            return None
        key = (name, study.path)
        with self._lock:
            if key not in self._open:
                self._open[key] = self._viewer(name)
            self._open.move_to_end(key)
            while len(self._open) > _MOST_OPEN:
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
        abort(404, f"There is no study '{name[:80]}' here, so no {file[:80]} of it.")

    return app
