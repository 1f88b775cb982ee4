"""Read the bytes of a program's file, decompressed and limited in size."""

from __future__ import annotations

import gzip
import zlib
from io import BufferedReader
from pathlib import Path

from ....errors import ConfigError
from ....support import bytes_text

__all__ = ["read_bytes"]

_MOST_BYTES = 256 << 20
_PIECE = 1 << 20
_GZIP = b"\x1f\x8b"


def read_bytes(path: Path) -> bytes:
    """Return the content of *path*, decompressed; raises `ConfigError` if it is unreadable or too large."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
        with gzip.open(path) if packed else path.open("rb") as stream:
            content = _read(stream)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"The program {path} cannot be read ({reason}); check the file.") from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(
            f"The program {path} is larger than {bytes_text(_MOST_BYTES)}; a program of this size is not "
            "read. Check that it is the right file."
        )
    return content


def _read(stream: gzip.GzipFile | BufferedReader) -> bytes:
    """Return at most one byte more than the limit, read in pieces so that memory grows with the content."""
    content = bytearray()
    while len(content) <= _MOST_BYTES and (piece := stream.read(_PIECE)):
        content += piece
    return bytes(content)
