"""Serve the viewer on this machine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from werkzeug.serving import make_server

from ..errors import ChakrascopeError
from .app import create_app

__all__ = ["serve"]


def serve(
    study: Any, host: str = "127.0.0.1", port: int = 8050, *, ready: Callable[[str], None] | None = None
) -> None:
    """Serve *study* until interrupted; *ready* is called with the address once connections are accepted.

    Port 0 takes any free port. Raises ChakrascopeError if the port cannot be opened.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = create_app(study)
    try:
        server = make_server(host, port, app.server, threaded=True)
    except (OSError, SystemExit, OverflowError) as error:
        raise ChakrascopeError(
            f"Port {port} on {host} cannot be opened: another program uses it or it is not allowed. "
            f"Choose another one, for example --port {port + 1 if 0 < port < 65535 else 8050}."
        ) from error
    if ready is not None:
        ready(f"http://{host}:{server.server_port}/")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
