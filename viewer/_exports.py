"""Stream whole tables as downloads, two at a time, until the client disconnects or stops reading."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from flask import Response, abort, request

from ..support.table import frame_bytes, frame_pieces

if TYPE_CHECKING:
    import pandas as pd

_AT_ONCE = 2
_BYTES = 1 << 18
_LOOK_S = 1.0
_STALL_S = 120.0  # a client that takes longer for one piece would keep others waiting
_MIME = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
_places = threading.BoundedSemaphore(_AT_ONCE)


def table_file(
    make: Callable[[], pd.DataFrame], name: str, extension: str, *, is_small: bool = False
) -> Response:
    """Return the table from *make* as a download; *extension* is that of CSV or Parquet.

    A table that *is_small* is sent at once, others may have to wait (see `export`). Status 404 for
    an unknown extension.
    """
    if extension not in _MIME:
        abort(404)
    pieces = frame_pieces if extension == "csv" else _parquet
    if is_small:
        return _file(pieces(make()), f"{name}.{extension}", _MIME[extension])
    return export(lambda: pieces(make()), f"{name}.{extension}", _MIME[extension])


def export(make: Callable[[], Iterable[str | bytes]], file: str, mimetype: str) -> Response:
    """Return a download called *file* with the pieces that *make* yields.

    A download waits if `_AT_ONCE` others are in progress, and ends if its client disconnects or accepts
    nothing for `_STALL_S`. Raises the errors of *make*.
    """
    client: socket.socket | None = request.environ.get("werkzeug.socket")
    while not _places.acquire(timeout=_LOOK_S):
        if _is_gone(client):
            abort(408)
    if client is not None:
        client.settimeout(_STALL_S)
    place = ExitStack()
    place.callback(_places.release)  # once, however often the place is closed
    try:
        pieces = _while_read(make(), client, place)
    except BaseException:
        place.close()
        raise
    response = _file(pieces, file, mimetype)
    response.call_on_close(place.close)  # without a first piece, the iterator never runs
    return response


def _file(pieces: Iterable[str] | Iterable[bytes], file: str, mimetype: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{file}"'}
    return Response(pieces, mimetype=mimetype, headers=headers)


def _while_read(
    pieces: Iterable[str | bytes], client: socket.socket | None, place: ExitStack
) -> Iterator[bytes]:
    with place:
        for piece in pieces:
            if _is_gone(client):
                return
            yield piece.encode() if isinstance(piece, str) else piece


def _parquet(table: pd.DataFrame) -> Iterator[bytes]:
    content = frame_bytes(table)
    for start in range(0, len(content), _BYTES):
        yield content[start : start + _BYTES]


def _is_gone(client: socket.socket | None) -> bool:
    """Return whether *client* has disconnected."""
    if client is None:
        return False
    poll = select.poll()
    try:
        poll.register(client, select.POLLIN)
        return bool(poll.poll(0)) and not client.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):  # it was reset, or is closed
        return True
