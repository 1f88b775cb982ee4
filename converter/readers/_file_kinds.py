"""Recognise files by their first megabyte, and ranks in the names that profilers and frameworks write."""

from __future__ import annotations

import bz2
import lzma
import re
import tarfile
import zlib
from pathlib import Path
from typing import Literal

from ...support import load_plugin, plugin_names

# Words before a rank's number. A host may also be called worker3, so the first pattern has precedence.
_RANK_WORDS = (re.compile(r"(?i)rank[-_]?(\d{1,9})(?!\d)"), re.compile(r"(?i)worker[-_]?(\d{1,9})(?!\d)"))
# A separate number at the end of a file name. The 8 in Qwen3-8B, a process id and a time do not match this
# pattern.
_LAST_NUMBER = re.compile(r"(?:^|(?<=[-_.]))(\d{1,5})(?:\.[A-Za-z]\w*)*$")
# Indices of a rank in its groups: TP-1-PP-0 (SGLang), dp0_pp0_tp1_dcp0_ep1 (vLLM).
_INDEX = re.compile(r"(?i)(?<![a-z0-9])(tp|dp|pp|ep|dcp)[-_]?(\d{1,9})(?!\d)")
# If a name has only these indices, the tensor-parallel index is the rank, because expert-parallel groups lie
# within tensor-parallel groups.
_WITHIN_TENSOR = {"tp", "ep"}
# Default names of torch.profiler: WORKER.TIME.pt.trace.json. The default WORKER is HOST_PID.
_PYTORCH_NAME = re.compile(r"(?P<worker>.+)\.(?P<time>\d+)\.pt\.trace\.json(?P<gzip>\.gz)?")
_OF_HOST, _STEP = re.compile(r".*?_\d+"), "_step_"
# Random names of the host traces that ENABLE_PYTORCH_EXECUTION_TRACE requests.
_CHANCE_NAME = re.compile(r"tmp[a-z0-9_]{8}\.et\.json")
# Traces of vLLM's front end, and traces of all ranks that SGLang merged.
_NOT_ONE_RANK = re.compile(r".*\.async_llm\..*|merged-.*")
_ENDING = re.compile(r"(\.\d+\.pt)?(\.trace|\.et)?\.json(\.gz)?$")
_HOST_PREFIX = "execution_trace_"
LOG_READERS = "log_readers"
"""The group of plug-ins that read production logs, each a `LogReader`."""

FileKind = Literal["device", "host", "linked", "archive", "log", "other"]

_GZIP_MAGIC = b"\x1f\x8b"
_BZIP2_MAGIC, _XZ_MAGIC = b"BZh", b"\xfd7zXZ\0"
_GZIP_WBITS = 16  # makes zlib expect a gzip header
_HEAD_BYTES = 1 << 20
_TAIL_BYTES = 1 << 16
_XZ_MEMORY_BYTES = 1 << 28  # an xz file may require gigabytes of memory
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_ZSTD_MAGIC, _ZSTD_NAMES = b"\x28\xb5\x2f\xfd", (".tar.zst", ".tzst")
_EVENTS, _NODES = re.compile(rb'"traceEvents"\s*:'), re.compile(rb'"nodes"\s*:\s*\[')
# Fields that only a linker adds to a node.
_LINKED = re.compile(rb'"(?:inclusive_dur|exclusive_dur|inter_thread_dep)"\s*:')
_SCHEMA = re.compile(rb'"schema"\s*:\s*"')
_DISTRIBUTED_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*?"rank"\s*:\s*(\d{1,9})\b')
_HOST_PROCESS = re.compile(rb'"pid"\s*:\s*(\d{1,19})\b')
_DEVICE_PROCESS = re.compile(rb'"cat"\s*:\s*"cpu_op"[^{}]*?"pid"\s*:\s*(\d{1,19})\b')


def kind_of(path: Path) -> FileKind:
    """Return the kind of the file at *path*: trace, log, archive of traces or logs, or ``other``."""
    return kind_and_tool(path)[0]


def kind_and_tool(path: Path) -> tuple[FileKind, str]:
    """Return the kind of a file (see `kind_of`), and the plug-in that reads a log (``""`` without one)."""
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
    """Return the rank that the trace at *path* states, or the rank in the file's name.

    The result is None if neither states a rank.
    """
    found = _DISTRIBUTED_RANK.search(_head(path)) or _DISTRIBUTED_RANK.search(_tail(path))
    return int(found[1]) if found else rank_in_name(path)


def stated_process(path: Path) -> int | None:
    """Return the process number that the host or device trace at *path* states, or None if unknown."""
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
    """Return the end of an uncompressed file, in which tools that rewrite traces may put the rank."""
    try:
        with path.open("rb") as file:
            if file.read(2) == _GZIP_MAGIC:
                return b""
            file.seek(max(_HEAD_BYTES, path.stat().st_size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES)
    except OSError:
        return b""


def _is_archive(path: Path) -> bool:
    """Return whether the file at *path* is a zip or tar archive, compressed or not, with any name.

    The decision depends on the first header, because `tarfile` accepts zeros as an empty archive and trusts
    the length in a header.
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


def rank_in_name(path: Path) -> int | None:
    """Return the rank in the name of the file *path* or of its folder, or None without a rank.

    Numbers in PyTorch's default names are a process and a time. An index in a group is not a rank. Only a
    tensor-parallel index without an index of data or pipeline parallelism is a rank.
    """
    found = _rank_place(path.name)
    found = found or next(filter(None, (word.search(path.parent.name) for word in _RANK_WORDS)), None)
    return int(found[found.lastindex or 0]) if found else None


def common_name(name: str) -> str:
    """Return the pattern of the names of a job's ranks, in which ``{rank}`` is the rank.

    ``*`` replaces indices in groups. In PyTorch's default names, ``*`` also replaces the time, and host and
    process if they do not state the rank.
    """
    if _CHANCE_NAME.fullmatch(name):
        return "tmp*.et.json"
    pytorch = _PYTORCH_NAME.fullmatch(name)
    if pytorch is not None and _OF_HOST.fullmatch(pytorch["worker"]) and _rank_place(name) is None:
        return f"*.pt.trace.json{pytorch['gzip'] or ''}"
    marks = [(match.start(2), match.end(2), "*") for match in _INDEX.finditer(name)]
    if (rank := _rank_place(name)) is not None:
        start, end = rank.span(rank.lastindex or 0)
        marks = [*(mark for mark in marks if mark[0] != start), (start, end, "{rank}")]
    if pytorch is not None:
        marks = [*(mark for mark in marks if mark[0] != pytorch.start("time")), (*pytorch.span("time"), "*")]
    for start, end, mark in sorted(marks, reverse=True):
        name = f"{name[:start]}{mark}{name[end:]}"
    return name


def indices_in_name(name: str) -> str:
    """Return the indices of a rank in its groups in *name*, such as ``TP-0, PP-1``, or "" without indices."""
    return ", ".join(match[0] for match in _INDEX.finditer(name))


def is_of_one_rank(name: str) -> bool:
    """Return whether *name* is the name of a single rank's trace (not of a front end or merged ranks)."""
    return _NOT_ONE_RANK.fullmatch(name) is None


def name_of_capture(name: str) -> str:
    """Return the part of *name* that the host and device trace of one rank have in common."""
    return _ENDING.sub("", name).removeprefix(_HOST_PREFIX)


def _rank_place(name: str) -> re.Match[str] | None:
    """Return the match of the rank in *name*; the last group of the match is the number."""
    if found := _rank_word(name):
        return found
    if _PYTORCH_NAME.fullmatch(name) or _CHANCE_NAME.fullmatch(name):
        return None
    indices = {match[1].lower(): match for match in _INDEX.finditer(name)}
    if indices:
        return indices.get("tp") if indices.keys() <= _WITHIN_TENSOR else None
    return _LAST_NUMBER.search(name)


def _rank_word(name: str) -> re.Match[str] | None:
    """Return the match of a word and a rank in *name*, but not of a host such as worker3."""
    pytorch = _PYTORCH_NAME.fullmatch(name)
    of_host = pytorch is not None and _OF_HOST.fullmatch(pytorch["worker"]) and _STEP not in name
    words = _RANK_WORDS[:1] if of_host else _RANK_WORDS
    return next(filter(None, (word.search(name) for word in words)), None)
