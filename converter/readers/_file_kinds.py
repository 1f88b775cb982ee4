"""What a file is, by its first megabyte: whatever its name, and however it was compressed."""

from __future__ import annotations

import bz2
import lzma
import re
import tarfile
import zlib
from pathlib import Path
from typing import Literal

__all__ = ["FileKind", "common_name", "kind_of", "stated_rank"]

FileKind = Literal["device", "host", "linked", "archive", "flight", "inspector", "clog", "other"]

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
# Production logs. A flight record that is pickled, as PyTorch does by itself, has its keys in plain sight.
_CLOG = re.compile(rb"V\|\d+\|base_timestamp=")
_INSPECTOR = re.compile(rb'"(?:coll_perf|p2p_perf|dump_stats)"\s*:\s*\{')
_FLIGHT = re.compile(rb'"(?:pg_config|profiling_name)"\s*:')
_PICKLE, _PICKLED_FLIGHT = re.compile(rb"\x80[\x02-\x05]"), (b"pg_config", b"profiling_name")
_SCHEMA = re.compile(rb'"schema"\s*:\s*"')
_DISTRIBUTED_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*?"rank"\s*:\s*(\d{1,9})\b')
# What stands before a rank's number; a host may be called worker3, too, so the first counts more.
_RANK_WORDS = (re.compile(r"(?i)rank[-_]?(\d{1,9})(?!\d)"), re.compile(r"(?i)worker[-_]?(\d{1,9})(?!\d)"))
_LAST_NUMBER = re.compile(r"(?<!\d)(\d{1,9})\D*$")
# torch.profiler's own names: WORKER.TIME.pt.trace.json, where WORKER is HOST_PID unless the script says more.
_PYTORCH_NAME = re.compile(r"(?P<worker>.+)\.(?P<time>\d+)\.pt\.trace\.json(?P<gzip>\.gz)?")
_OF_HOST, _STEP = re.compile(r".*?_\d+"), "_step_"


def kind_of(path: Path) -> FileKind:
    """Return what the file at *path* is; anything but a trace, a log or an archive of those is ``other``."""
    if _is_archive(path):
        return "archive"
    head = _head(path)
    if _EVENTS.search(head):
        return "device"
    if _NODES.search(head) and _SCHEMA.search(head):
        return "linked" if _LINKED.search(head) else "host"
    return _log_kind(head)


def _log_kind(head: bytes) -> FileKind:
    """Return which tool's log begins with *head*; ``other`` if none's."""
    if _CLOG.match(head):
        return "clog"
    if _PICKLE.match(head):
        return "flight" if any(key in head for key in _PICKLED_FLIGHT) else "other"
    if _INSPECTOR.search(head):
        return "inspector"
    return "flight" if _FLIGHT.search(head) else "other"


def stated_rank(path: Path) -> int | None:
    """Return the rank that the trace at *path* says it is of, else that in its name or its folder's.

    None if neither says one: the numbers of names that PyTorch chose are a process and a time.
    """
    found = _DISTRIBUTED_RANK.search(_head(path)) or _DISTRIBUTED_RANK.search(_tail(path))
    return int(found[1]) if found else _rank_in_name(path)


def _rank_in_name(path: Path) -> int | None:
    """Return the rank that the name of *path* tells, else its folder's; None if neither does."""
    found = _rank_word(path.name) or (
        None if _PYTORCH_NAME.fullmatch(path.name) else _LAST_NUMBER.search(path.name)
    )
    found = found or next(filter(None, (word.search(path.parent.name) for word in _RANK_WORDS)), None)
    return int(found[1]) if found else None


def common_name(name: str) -> str:
    """Return what the names of a job's ranks have in common with *name*: the rank is ``{rank}``.

    In names that PyTorch chose, ``*`` stands for the time, and for host and process where they tell no rank.
    """
    pytorch = _PYTORCH_NAME.fullmatch(name)
    found = _rank_word(name) or (None if pytorch else _LAST_NUMBER.search(name))
    if pytorch is None:
        return f"{name[: found.start(1)]}{{rank}}{name[found.end(1) :]}" if found else name
    worker, ending = pytorch["worker"], f"pt.trace.json{pytorch['gzip'] or ''}"
    if found is not None:
        return f"{worker[: found.start(1)]}{{rank}}{worker[found.end(1) :]}.*.{ending}"
    return f"*.{ending}" if _OF_HOST.fullmatch(worker) else f"{worker}.*.{ending}"


def _rank_word(name: str) -> re.Match[str] | None:
    """Return where *name* tells a rank with a word, but for a host's that is called worker3."""
    pytorch = _PYTORCH_NAME.fullmatch(name)
    of_host = pytorch is not None and _OF_HOST.fullmatch(pytorch["worker"]) and _STEP not in name
    words = _RANK_WORDS[:1] if of_host else _RANK_WORDS
    return next(filter(None, (word.search(name) for word in words)), None)


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


def _tail(path: Path) -> bytes:
    """Return the end of a plain file: tools that rewrite traces may put there what they are of."""
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
