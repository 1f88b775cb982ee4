"""Read trace files: plain or gzip JSON into typed structures, with errors that name the file."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TypeVar

import msgspec

from ..errors import TraceError, TraceFormatError

__all__ = ["read_json"]

_T = TypeVar("_T")
_GZIP_MAGIC = b"\x1f\x8b"


def read_json(path: Path, shape: type[_T]) -> _T:
    """Read *path*, gzip or plain, as *shape*.

    Raises `TraceError` when it cannot be opened, `TraceFormatError` when it is truncated or something else.
    """
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP_MAGIC):
            data = gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceFormatError(
            f"{path} is truncated or damaged ({error}): its process died while writing. Capture again."
        ) from error
    except OSError as error:
        raise TraceError(
            f"{path} cannot be read: {error.strerror}. Check that the trace set is complete."
        ) from error
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceFormatError(
            f"{path} is not the trace it should be ({error}). If it was cut off, capture again; if it is "
            "another kind of file, give host and device traces in the right order."
        ) from error
