"""Recognise the kind of a file by its first megabyte, regardless of name and compression."""

from __future__ import annotations

import bz2
import lzma
import re
import tarfile
import zlib
from pathlib import Path
from typing import Literal

from ...support import load_plugin, plugin_names
from ._file_names import rank_in_name

__all__ = ["LOG_READERS", "FileKind", "kind_and_tool", "kind_of", "stated_process", "stated_rank"]

LOG_READERS = "log_readers"
"""The group of plug-ins that read production logs, each a `LogReader`."""

FileKind = Literal["device", "host", "linked", "archive", "log", "other"]

_GZIP_MAGIC = b"\x1f\x8b"
_BZIP2_MAGIC, _XZ_MAGIC = b"BZh", b"\xfd7zXZ\0"
_GZIP_WBITS = 16  # says zlib to expect a gzip header
_HEAD_BYTES = 1 << 20
_TAIL_BYTES = 1 << 16
_XZ_MEMORY_BYTES = 1 << 28  # a file may ask for gigabytes
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_ZSTD_MAGIC, _ZSTD_NAMES = b"\x28\xb5\x2f\xfd", (".tar.zst", ".tzst")
_EVENTS, _NODES = re.compile(rb'"traceEvents"\s*:'), re.compile(rb'"nodes"\s*:\s*\[')
# What only a linker adds to a node.
_LINKED = re.compile(rb'"(?:inclusive_dur|exclusive_dur|inter_thread_dep)"\s*:')
_SCHEMA = re.compile(rb'"schema"\s*:\s*"')
_DISTRIBUTED_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*?"rank"\s*:\s*(\d{1,9})\b')
_HOST_PROCESS = re.compile(rb'"pid"\s*:\s*(\d{1,19})\b')
_DEVICE_PROCESS = re.compile(rb'"cat"\s*:\s*"cpu_op"[^{}]*?"pid"\s*:\s*(\d{1,19})\b')


def kind_of(path: Path) -> FileKind:
    """Return the kind of the file at *path*; ``other`` unless it is a trace, a log or an archive of these."""
    return kind_and_tool(path)[0]


def kind_and_tool(path: Path) -> tuple[FileKind, str]:
    """Return the kind as `kind_of` does, and for a log the name of the plug-in that reads it, else ``""``."""
    if _is_archive(path):
        return "archive", ""
    head = _head(path)
    if _EVENTS.search(head):
        return "device", ""
    if _NODES.search(head) and _SCHEMA.search(head):
        return ("linked" if _LINKED.search(head) else "host"), ""
    for name in plugin_names(LOG_READERS):
        if load_plugin(LOG_READERS, name).recognises(head):
            return "log", name
    return "other", ""


def stated_rank(path: Path) -> int | None:
    """Return the rank that the trace at *path* states, or else `rank_in_name` of it.

    None if there is none.
    """
    found = _DISTRIBUTED_RANK.search(_head(path)) or _DISTRIBUTED_RANK.search(_tail(path))
    return int(found[1]) if found else rank_in_name(path)


def stated_process(path: Path) -> int | None:
    """Return the process number that the host or device trace at *path* states; None if unknown."""
    head = _head(path)
    found = (_DEVICE_PROCESS if _EVENTS.search(head) else _HOST_PROCESS).search(head)
    return int(found[1]) if found else None


def _head(path: Path) -> bytes:
    """Return the first megabyte of *path*, decompressed; for a damaged file, its readable part."""
    try:
        with path.open("rb") as file:
            data = file.read(_HEAD_BYTES)
        if data.startswith(_GZIP_MAGIC):
            return zlib.decompressobj(zlib.MAX_WBITS | _GZIP_WBITS).decompress(data, _HEAD_BYTES)
    except (OSError, zlib.error):
        return b""
    return data


def _tail(path: Path) -> bytes:
    """Return the end of a plain file, where tools that rewrite traces may put the rank."""
    try:
        with path.open("rb") as file:
            if file.read(2) == _GZIP_MAGIC:
                return b""
            file.seek(max(_HEAD_BYTES, path.stat().st_size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES)
    except OSError:
        return b""


def _is_archive(path: Path) -> bool:
    """Return whether *path* is a zip or tar archive, compressed or not, whatever its name.

    The first header decides: `tarfile` also takes zeros for an empty archive, and reads whatever length a
    header states.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_HEAD_BYTES)
        if data.startswith(_ZIP_MAGICS):
            return True
        if data.startswith(_ZSTD_MAGIC):
            return path.name.endswith(_ZSTD_NAMES)
        if data.startswith(_GZIP_MAGIC):
            data = zlib.decompressobj(zlib.MAX_WBITS | _GZIP_WBITS).decompress(data, _TAIL_BYTES)
        elif data.startswith(_BZIP2_MAGIC):
            data = bz2.BZ2Decompressor().decompress(data, _TAIL_BYTES)
        elif data.startswith(_XZ_MAGIC):
            data = lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES).decompress(data, _TAIL_BYTES)
        tarfile.TarInfo.frombuf(data[: tarfile.BLOCKSIZE], tarfile.ENCODING, "surrogateescape")
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, tarfile.TarError):
        return False
    return True
