"""Read plain and gzip files, and JSON into typed structures, with errors that name the file.

Gzip can expand a thousandfold, so files are unpacked only up to `most_unpacked_bytes`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

import msgspec

from ..errors import TraceError, TraceFormatError
from ..support import open_file
from ._native import DeviceReader, FormatError, HostReader

_T = TypeVar("_T")
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31
# First bytes of files that other compression tools wrote.
_OTHER_TOOLS = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_PIECE_BYTES = 2**20
_COMPRESSED_PIECE_BYTES = 2**16
_UNPACKED_FREELY, _MAX_TIMES = 2**26, 200  # traces and graphs expand to 5 to 40 times their size


class UnpacksTooFar(Exception):
    """The error for a gzip file that expands too far to be a trace or a graph."""


def most_unpacked_bytes(packed_bytes: int) -> int:
    """Return the limit on the unpacked size of a file of *packed_bytes*."""
    return max(_UNPACKED_FREELY, packed_bytes * _MAX_TIMES)


def stream(path: Path, reader: DeviceReader | HostReader) -> None:
    """Feed the gzip or plain file *path* to *reader*, with one piece in memory at a time.

    The function raises the same errors as `read_json`.
    """
    try:
        with _reading(path):
            with open_file(path) as file:
                for piece in _pieces(file):
                    reader.feed(piece)
            reader.finish()
    except FormatError as error:
        raise _not_the_trace(path, error) from error


def unpacked(path: Path) -> bytes:
    """Return the content of the file *path*; gzip files are decompressed.

    Raises `OSError`, `UnpacksTooFar`, and for truncated or damaged files `EOFError` or `zlib.error`.
    """
    with open_file(path) as file:
        return b"".join(map(bytes, _pieces(file)))


def _pieces(file: BufferedReader) -> Iterator[memoryview | bytes]:
    """Yield the decompressed content of *file* in pieces; a piece is valid until the next piece."""
    buffer = memoryview(bytearray(_PIECE_BYTES))
    length = file.readinto(buffer[:_COMPRESSED_PIECE_BYTES])
    if bytes(buffer[:2]) == _GZIP_MAGIC:
        yield from _uncompressed(file, bytes(buffer[:length]))
        return
    while length:
        yield buffer[:length]
        length = file.readinto(buffer)


def _uncompressed(file: BufferedReader, data: bytes) -> Iterator[bytes]:
    """Yield the decompressed content of all members of a gzip *file* that begins with *data*."""
    member = zlib.decompressobj(_GZIP_WINDOW)
    taken, given = len(data), 0
    while data:
        piece = member.decompress(data)
        given += len(piece)
        if given > most_unpacked_bytes(taken):
            raise UnpacksTooFar(
                f"unpacks to more than {_MAX_TIMES} times its size, which no trace or graph does. Next: "
                "unpack the file yourself if you trust it."
            )
        yield piece
        data = member.unused_data.lstrip(b"\0")
        if member.eof and data:
            member = zlib.decompressobj(_GZIP_WINDOW)
        else:
            data = file.read(_COMPRESSED_PIECE_BYTES) or b""
            taken += len(data)
            if member.eof and data.strip(b"\0"):
                member = zlib.decompressobj(_GZIP_WINDOW)
    if not member.eof:
        raise EOFError("Compressed file ended before the end-of-stream marker was reached")


def read_json(path: Path, shape: type[_T]) -> _T:
    """Read the gzip or plain JSON file *path* as the type *shape*.

    Raises `TraceError` if the file cannot be opened. Raises `TraceFormatError` if the file is truncated or of
    another kind.
    """
    with _reading(path):
        data = unpacked(path)
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _not_the_trace(path, error) from error


def unpacked_file(path: Path) -> bytes:
    """Return the decompressed content of the file *path*; raises the errors of `read_json`."""
    with _reading(path):
        return unpacked(path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Convert exceptions while reading *path* to errors that name the file."""
    try:
        yield
    except UnpacksTooFar as error:
        raise TraceFormatError(f"{path} {error}") from error
    except (EOFError, zlib.error) as error:
        raise TraceFormatError(
            f"{path} is truncated or damaged ({error}), probably because its process died while writing. "
            "Next: capture again."
        ) from error
    except OSError as error:
        raise TraceError(
            f"{path} cannot be read: {error.strerror}. Check that the trace set is complete."
        ) from error


def _not_the_trace(path: Path, error: Exception) -> TraceFormatError:
    with open_file(path) as file:
        head = file.read(8)
    for magic, tool in _OTHER_TOOLS.items():
        if head.startswith(magic):
            return TraceFormatError(
                f"{path} is compressed with {tool}; only gzip can be read. Unpack it and give the .json file."
            )
    return TraceFormatError(
        f"{path} is not a trace of the expected kind ({error}). Next: capture again if the file is "
        "truncated; otherwise check which files are host traces and which are device traces."
    )
