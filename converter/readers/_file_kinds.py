"""What a file is, by its first megabyte: whatever its name, and however it was compressed."""

from __future__ import annotations

import bz2
import lzma
import re
import tarfile
import zlib
from pathlib import Path
from typing import Literal

__all__ = ["FileKind", "kind_of", "stated_rank"]

FileKind = Literal["device", "host", "linked", "archive", "other"]

_GZIP_MAGIC = b"\x1f\x8b"
_BZIP2_MAGIC, _XZ_MAGIC = b"BZh", b"\xfd7zXZ\0"
_GZIP_WBITS = 16  # says zlib to expect a gzip header
_HEAD_BYTES = 1 << 20
_XZ_MEMORY_BYTES = 1 << 28  # a file may ask for gigabytes
_ARCHIVE_NAMES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip")
_EVENTS, _NODES = re.compile(rb'"traceEvents"\s*:'), re.compile(rb'"nodes"\s*:\s*\[')
# What only a linker adds to a node.
_LINKED = re.compile(rb'"(?:inclusive_dur|exclusive_dur|inter_thread_dep)"\s*:')
_SCHEMA = re.compile(rb'"schema"\s*:\s*"')
_DISTRIBUTED_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*?"rank"\s*:\s*(\d{1,9})\b')
_RANK_IN_NAME = re.compile(r"(?i)(?:rank|worker)[-_]?(\d{1,9})(?!\d)")
_LAST_NUMBER = re.compile(r"(?<!\d)(\d{1,18})\D*$")


def kind_of(path: Path) -> FileKind:
    """Return what the file at *path* is; anything but a trace or an archive of traces is ``other``."""
    head = _head(path)
    if path.name.endswith(_ARCHIVE_NAMES) or _holds_tar(head):
        return "archive"
    if _EVENTS.search(head):
        return "device"
    if _NODES.search(head) and _SCHEMA.search(head):
        return "linked" if _LINKED.search(head) else "host"
    return "other"


def stated_rank(path: Path) -> int | None:
    """Return the rank that the trace at *path* says it is of, else the number in its name, None without."""
    found = _DISTRIBUTED_RANK.search(_head(path))
    named = _RANK_IN_NAME.search(path.name) or _LAST_NUMBER.search(path.name)
    return int(found[1]) if found else int(named[1]) if named else None


def _head(path: Path) -> bytes:
    """Return the first megabyte of *path*, decompressed; of a damaged file what can be read of it."""
    try:
        with path.open("rb") as file:
            data = file.read(_HEAD_BYTES)
        if data.startswith(_GZIP_MAGIC):
            return zlib.decompressobj(zlib.MAX_WBITS | _GZIP_WBITS).decompress(data, _HEAD_BYTES)
    except (OSError, zlib.error):
        return b""
    return data


def _holds_tar(head: bytes) -> bool:
    """Return whether what begins with *head* is a tar archive, compressed or not.

    The first header decides: `tarfile` also takes zeros for an empty archive, and reads whatever length a
    header states.
    """
    block = head[: tarfile.BLOCKSIZE]
    try:
        if head.startswith(_BZIP2_MAGIC):
            block = bz2.BZ2Decompressor().decompress(head, tarfile.BLOCKSIZE)
        elif head.startswith(_XZ_MAGIC):
            block = lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES).decompress(head, tarfile.BLOCKSIZE)
        tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "surrogateescape")
    except (OSError, lzma.LZMAError, tarfile.TarError):
        return False
    return True
