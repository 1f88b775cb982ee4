"""Detect the format of a program's file and read it."""

from __future__ import annotations

from pathlib import Path

from ....errors import ConfigError
from .._model import Program
from ._checks import check_regions
from ._files import read_bytes
from ._msccl import read_msccl
from ._mscclpp import read_mscclpp

__all__ = ["parse_program", "read_program"]


def read_program(path: str | Path) -> Program:
    """Return the program in the file *path*, an MSCCL XML or an MSCCL++ plan.

    Raises `ConfigError` that names the file, rank, thread block and op of the mistake.
    """
    return parse_program(read_bytes(Path(path)), str(path))


def parse_program(content: bytes, source: str) -> Program:
    """Return the program that *content* holds; messages call it *source*. Raises as `read_program`."""
    first = content.lstrip()[:1]
    if first == b"<":
        program = read_msccl(content, source)
    elif first == b"{":
        program = read_mscclpp(content, source)
    else:
        raise ConfigError(
            f"{source}: this is neither an MSCCL program (XML) nor an MSCCL++ plan (JSON); check the file."
        )
    check_regions(program)
    return program
