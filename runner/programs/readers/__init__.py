"""Read collective programs: MSCCL XML and MSCCL++ execution plans, optionally gzipped."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace
from io import BufferedReader
from pathlib import Path

from ....errors import ConfigError
from ....support import bytes_text, open_file
from .._model import Program
from ._checks import COLLECTIVES as COLLECTIVES
from ._checks import check_ops
from ._msccl import read_msccl
from ._mscclpp import read_mscclpp

_MAX_BYTES = 256 << 20
_PIECE = 1 << 20
_GZIP = b"\x1f\x8b"


def read_bytes(path: Path) -> bytes:
    """Return the decompressed content of *path*; raises `ConfigError` if it is unreadable or too large."""
    try:
        with open_file(path) as file:
            packed = file.peek(2)[:2] == _GZIP
            content = _read(gzip.GzipFile(fileobj=file) if packed else file)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"The program {path} cannot be read ({reason}); check the file.") from error
    if len(content) > _MAX_BYTES:
        raise ConfigError(
            f"The program {path} is larger than {bytes_text(_MAX_BYTES)}. Next: check "
            "that it is the right file."
        )
    return content


def _read(stream: gzip.GzipFile | BufferedReader) -> bytes:
    """Read piecewise up to one byte past the size limit, so that memory grows only with the content."""
    content = bytearray()
    while len(content) <= _MAX_BYTES and (piece := stream.read(_PIECE)):
        content += piece
    return bytes(content)


def read_program(path: str | Path) -> Program:
    """Read the program in the file *path*, an MSCCL XML or an MSCCL++ plan.

    Raises `ConfigError` for an invalid program, with the file, rank, thread block and op at fault.
    """
    return parse_program(read_bytes(Path(path)), str(path))


def parse_program(content: bytes, source: str) -> Program:
    """Parse the program *content*; errors name *source*, and are those of `read_program`."""
    first = content.lstrip()[:1]
    if first == b"<":
        program = read_msccl(content, source)
    elif first == b"{":
        program = read_mscclpp(content, source)
    else:
        raise ConfigError(
            f"{source}: this is neither an MSCCL program (XML) nor an MSCCL++ plan (JSON); check the file."
        )
    check_ops(program)
    if program.either_place:
        check_ops(replace(program, in_place=False))
    return program
