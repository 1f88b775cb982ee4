"""Recognise files by their first megabyte, find ranks in file names, and unpack archives of traces."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from ...errors import ChakrascopeError, TraceFormatError, UsageError
from ...support import load_plugin, open_file, plugin_names
from .._files import most_unpacked_bytes

# Words that precede a rank's number in file names. A host may also be called worker3, so the first pattern
# takes precedence.
_RANK_WORDS = (re.compile(r"(?i)rank[-_]?(\d{1,9})(?!\d)"), re.compile(r"(?i)worker[-_]?(\d{1,9})(?!\d)"))
# A separate number at the end of a file name, unlike the 8 in Qwen3-8B, a process id or a time.
_LAST_NUMBER = re.compile(r"(?:^|(?<=[-_.]))(\d{1,5})(?:\.[A-Za-z]\w*)*$")
# Indices of a rank in its groups: TP-1-PP-0 (SGLang), dp0_pp0_tp1_dcp0_ep1 (vLLM).
_INDEX = re.compile(r"(?i)(?<![a-z0-9])(tp|dp|pp|ep|dcp)[-_]?(\d{1,9})(?!\d)")
# In a name with only tensor-parallel and expert-parallel indices, the tensor-parallel index is the rank,
# because expert-parallel groups lie within tensor-parallel groups.
_WITHIN_TENSOR = {"tp", "ep"}
# Default names of torch.profiler: WORKER.TIME.pt.trace.json. The default WORKER is HOST_PID.
_PYTORCH_NAME = re.compile(r"(?P<worker>.+)\.(?P<time>\d+)\.pt\.trace\.json(?P<gzip>\.gz)?")
_OF_HOST, _STEP = re.compile(r".*?_\d+"), "_step_"
# Random names that ENABLE_PYTORCH_EXECUTION_TRACE gives to host traces.
_CHANCE_NAME = re.compile(r"tmp[a-z0-9_]{8}\.et\.json")
# Traces of vLLM's front end, and SGLang's merged traces of all ranks.
_NOT_ONE_RANK = re.compile(r".*\.async_llm\..*|merged-.*")
_ENDING = re.compile(r"(\.\d+\.pt)?(\.trace|\.et)?\.json(\.gz)?$")
_HOST_PREFIX = "execution_trace_"
RANK = "{rank}"  # a placeholder for the rank in patterns of file names
LOG_READERS = "log_readers"
"""The group of plug-ins that read production logs, each a `LogReader`."""

FileKind = Literal["device", "host", "linked", "archive", "log", "other"]

PARQUET_MAGIC = b"PAR1"
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
_JOB_SIZE = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*?"world_size"\s*:\s*(\d{1,9})\b')
_HOST_PROCESS = re.compile(rb'"pid"\s*:\s*(\d{1,19})\b')
_DEVICE_PROCESS = re.compile(rb'"cat"\s*:\s*"cpu_op"[^{}]*?"pid"\s*:\s*(\d{1,19})\b')


def kind_of(path: Path) -> FileKind:
    """Return the kind of the file at *path*: trace, log, archive of traces or logs, or ``other``."""
    return kind_and_tool(path)[0]


def kind_and_tool(path: Path) -> tuple[FileKind, str]:
    """Return the kind of a file (see `kind_of`), and the plug-in for a log (``""`` for others)."""
    # Files of size 0 are empty, or the system generates their content on reading, possibly endlessly.
    if not path.is_file() or not path.stat().st_size:
        return "other", ""
    if _is_archive(path):
        return "archive", ""
    head = head_of(path)
    if _EVENTS.search(head):
        return "device", ""
    if _NODES.search(head) and _SCHEMA.search(head):
        return ("linked" if _LINKED.search(head) else "host"), ""
    for name in plugin_names(LOG_READERS):
        if load_plugin(LOG_READERS, name).recognises(head):
            return "log", name
    return "other", ""


def stated_rank(path: Path) -> int | None:
    """Return the rank in the trace at *path* or, if it has none, in the file name; None without either."""
    found = _DISTRIBUTED_RANK.search(head_of(path)) or _DISTRIBUTED_RANK.search(_tail(path))
    return int(found[1]) if found else rank_in_name(path)


def missing_rank(traces: Mapping[int, Path]) -> int | None:
    """Return the lowest rank without one of the *traces*, or None if their job is complete or of stated size.

    If the traces state the size of the job, ranks may be missing, because results then name the missing
    ranks.
    """
    absent = next((rank for rank in range(max(traces)) if rank not in traces), None)
    first = traces[min(traces)]
    found = _JOB_SIZE.search(head_of(first)) or _JOB_SIZE.search(_tail(first))
    return None if found and int(found[1]) > max(traces) else absent


def damaged_file(traces: Iterable[Path], others: Iterable[Path]) -> Path | None:
    """Return the first of *others* named like the *traces* or logs of other ranks but neither, or None."""
    own = set(traces)
    patterns = {pattern for pattern in (common_name(path.name) for path in own) if RANK in pattern}
    for path in sorted(set(others) - own):
        if common_name(path.name) in patterns and kind_of(path) == "other":
            return path
    return None


def stated_process(path: Path) -> int | None:
    """Return the process number that the host or device trace at *path* states, or None if unknown."""
    head = head_of(path)
    found = (_DEVICE_PROCESS if _EVENTS.search(head) else _HOST_PROCESS).search(head)
    return int(found[1]) if found else None


def head_of(path: Path) -> bytes:
    """Return the first megabyte of *path* after decompression, or b"" if *path* cannot be read."""
    try:
        with open_file(path) as file:
            data = file.read(_HEAD_BYTES)
        if data.startswith(_GZIP_MAGIC):
            return zlib.decompressobj(zlib.MAX_WBITS | _GZIP_WBITS).decompress(data, _HEAD_BYTES)
    except (OSError, zlib.error):
        return b""
    return data


def is_operation_table(path: str | Path) -> bool:
    """Return whether the file at *path* is a Parquet file, or a CSV file with a column ``optype``."""
    if not Path(path).is_file():  # reading a pipe would wait for its writer
        return False
    head = head_of(Path(path))
    first_line = head.split(b"\n", 1)[0].strip(b"\xef\xbb\xbf\r")
    names = {name.strip(b'" ') for name in first_line.split(b",")} if b"optype" in first_line else set()
    return head.startswith(PARQUET_MAGIC) or {b"optype", b"step"} <= names


def _tail(path: Path) -> bytes:
    """Return the end of an uncompressed file, where tools that rewrite traces may put the rank."""
    try:
        with open_file(path) as file:
            if file.read(2) == _GZIP_MAGIC:
                return b""
            file.seek(max(_HEAD_BYTES, path.stat().st_size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES)
    except OSError:
        return b""


def _is_archive(path: Path) -> bool:
    """Return whether *path* is a zip or tar archive, compressed or not, regardless of its name.

    Only the first header counts: `tarfile` accepts zeros as an empty archive, and trusts lengths in
    headers.
    """
    try:
        with open_file(path) as file:
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
    """Return the rank in the name of the file *path* or of its folder, or None.

    Numbers in PyTorch's default names are a process and a time. An index within a group is not a
    rank, except a tensor-parallel index without one of data or pipeline parallelism.
    """
    found = _rank_place(path.name)
    found = found or next(filter(None, (word.search(path.parent.name) for word in _RANK_WORDS)), None)
    return int(found[found.lastindex or 0]) if found else None


def worded_rank(path: Path) -> int | None:
    """Return the rank after a word such as ``rank`` in the name of *path* or of its folder, or None."""
    found = _rank_word(path.name) or _RANK_WORDS[0].search(path.parent.name)
    return int(found[1]) if found else None


def common_name(name: str) -> str:
    """Return the pattern of a job's file names, with ``{rank}`` in place of the rank.

    ``*`` replaces indices within groups and, in PyTorch's default names, the time, and also the host and the
    process unless the rank comes from them.
    """
    if _CHANCE_NAME.fullmatch(name):
        return "tmp*.et.json"
    pytorch = _PYTORCH_NAME.fullmatch(name)
    if pytorch is not None and _OF_HOST.fullmatch(pytorch["worker"]) and _rank_place(name) is None:
        return f"*.pt.trace.json{pytorch['gzip'] or ''}"
    marks = [(match.start(2), match.end(2), "*") for match in _INDEX.finditer(name)]
    if (rank := _rank_place(name)) is not None:
        start, end = rank.span(rank.lastindex or 0)
        marks = [*(mark for mark in marks if mark[0] != start), (start, end, RANK)]
    if pytorch is not None:
        marks = [*(mark for mark in marks if mark[0] != pytorch.start("time")), (*pytorch.span("time"), "*")]
    for start, end, mark in sorted(marks, reverse=True):
        name = f"{name[:start]}{mark}{name[end:]}"
    return name


def indices_in_name(name: str) -> str:
    """Return a rank's indices within its groups in *name*, such as ``TP-0, PP-1``, or ""."""
    return ", ".join(match[0] for match in _INDEX.finditer(name))


def is_of_one_rank(name: str) -> bool:
    """Return whether *name* is a trace of one rank, not of a front end or of merged ranks."""
    return _NOT_ONE_RANK.fullmatch(name) is None


def name_of_capture(name: str) -> str:
    """Return the part of *name* that the host trace and the device trace of a rank share."""
    return _ENDING.sub("", name).removeprefix(_HOST_PREFIX)


def _rank_place(name: str) -> re.Match[str] | None:
    """Match the rank in *name*; the last group of the match is the number."""
    if found := _rank_word(name):
        return found
    if _PYTORCH_NAME.fullmatch(name) or _CHANCE_NAME.fullmatch(name):
        return None
    indices = {match[1].lower(): match for match in _INDEX.finditer(name)}
    if indices:
        return indices.get("tp") if indices.keys() <= _WITHIN_TENSOR else None
    return _LAST_NUMBER.search(name)


def _rank_word(name: str) -> re.Match[str] | None:
    """Match a word followed by a rank in *name*, but not a host such as worker3."""
    pytorch = _PYTORCH_NAME.fullmatch(name)
    of_host = pytorch is not None and _OF_HOST.fullmatch(pytorch["worker"]) and _STEP not in name
    words = _RANK_WORDS[:1] if of_host else _RANK_WORDS
    return next(filter(None, (word.search(name) for word in words)), None)


_MAX_BYTES = 2**34
_MAX_MEMBERS = 20_000
_MAX_DEPTH = 16
_PIECE_BYTES = 2**20
# Maximum number of bytes of an archive to search for traces.
_LOOKED_AT_BYTES = 2**26
_TRACE_NAMES = (".json", ".json.gz", "manifest.json")
_DAMAGES = (
    EOFError,
    NotImplementedError,  # Python lacks the compression method
    RuntimeError,  # the archive is encrypted
    ValueError,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
_SYMBOLIC_LINK = 0o120000
_FILE_KIND_BITS = 0o170000
_OPENERS: dict[bytes, Callable[[IO[bytes]], IO[bytes]]] = {
    b"\x1f\x8b": gzip.open,  # type: ignore[dict-item]
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}


class _TooMuch(Exception):
    """Raised for an archive whose content exceeds the size limit."""


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack the archive *path* into a temporary folder for the duration of the block.

    The files get the archive's modification time, so that caches recognise the files if the archive is
    unpacked again. Errors in the block name files as in the archive. Raises `TraceFormatError` for an archive
    that is damaged, has links or names that point outside, or unpacks to far more than traces would, and
    `UsageError` for an unsupported kind of archive.
    """
    with tempfile.TemporaryDirectory(prefix="chakrascope-") as name:
        folder = Path(name) / (path.name.split(".")[0] or "archive")
        folder.mkdir()
        try:
            _unpack(path, folder)
            yield folder
        except ChakrascopeError as error:
            message = str(error.args[0]).replace(f"{folder}", f"{path}")
            error.args = (message, *error.args[1:])
            raise


def holds_traces(path: Path) -> bool:
    """Return whether the archive *path*, or the start of a large one, has files named like traces."""
    try:
        with ExitStack() as stack:
            for index, (name, _, _) in enumerate(_members(path, stack, _LOOKED_AT_BYTES)):
                if name.endswith(_TRACE_NAMES):
                    return True
                if index > _MAX_MEMBERS:
                    break
    except (*_DAMAGES, OSError, ChakrascopeError, _TooMuch):
        return False
    return False


def _unpack(path: Path, folder: Path) -> None:
    """Extract the plain files of the archive *path* into *folder*."""
    status = path.stat()
    most = min(_MAX_BYTES, most_unpacked_bytes(status.st_size))
    try:
        with ExitStack() as stack:
            left = most
            for count, (name, is_file, opened) in enumerate(_members(path, stack, most)):
                if count >= _MAX_MEMBERS:
                    raise TraceFormatError(
                        f"{path} has more than {_MAX_MEMBERS:,} files. Next: unpack it yourself and give "
                        "the folder."
                    )
                if is_file:
                    target = _target(path, folder, name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    left -= _copy(opened(), target, left)
                    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    except _TooMuch:
        raise TraceFormatError(
            f"{path} unpacks to more than {most >> 20:,} MiB, which is far more than usual for traces. Next: "
            "if the archive is correct, unpack it yourself and give the folder."
        ) from None
    except _DAMAGES as error:
        raise TraceFormatError(
            f"{path} cannot be unpacked ({error}): it is damaged, cut off or encrypted. Next: copy it again, "
            "or unpack it yourself and give the folder."
        ) from None
    except OSError as error:
        raise TraceFormatError(
            f"{path} cannot be unpacked into {folder.parent.parent} ({error.strerror or error}). Unpack it "
            "where there is space and give the folder."
        ) from None


def _copy(source: IO[bytes], target: Path, most: int) -> int:
    """Copy *source* to the new file *target*; return its size. Raises `_TooMuch` beyond *most* bytes."""
    size = 0
    with source, target.open("xb") as file:
        while piece := source.read(_PIECE_BYTES):
            size += len(piece)
            if size > most:
                raise _TooMuch
            file.write(piece)
    return size


def _target(path: Path, folder: Path, name: str) -> Path:
    """Return the path for the member *name*; raises `TraceFormatError` for a path outside *folder*."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name or "\\" in name or ":" in parts[0]:
        raise TraceFormatError(
            f"{path} holds {name[:80]!r}, which is a path outside of the archive. No capture writes such "
            "paths. Next: do not unpack the archive."
        )
    if len(parts) > _MAX_DEPTH:
        raise TraceFormatError(
            f"{path} holds {name[:80]!r}, which has too many folder levels. Next: unpack it yourself and "
            "give the folder."
        )
    return folder.joinpath(*parts)


def _members(path: Path, stack: ExitStack, most: int) -> Iterator[tuple[str, bool, Callable[[], IO[bytes]]]]:
    """Yield each member's name, whether it is a file, and a function to open it; raise an error for links."""
    file = stack.enter_context(open_file(path))
    head = file.read(6)
    file.seek(0)
    if head.startswith(b"PK"):
        yield from _zip_members(path, stack.enter_context(zipfile.ZipFile(file)))
        return
    opener = next((opener for magic, opener in _OPENERS.items() if head.startswith(magic)), None)
    if opener is None and kind_of(path) == "archive" and path.name.endswith(".zst"):
        raise UsageError(
            f"{path} is compressed with zstd. Unpack it with 'tar xf {path}' and give the folder."
        )
    source = stack.enter_context(opener(file)) if opener else file
    # A header can announce gigabytes of names, which tarfile would read into memory.
    archive = stack.enter_context(tarfile.TarFile(fileobj=_Limited(source, most)))  # type: ignore[arg-type]
    for member in archive:
        if not (member.isreg() or member.isdir()) or member.issparse():
            raise TraceFormatError(
                f"{path} holds {member.name[:80]!r}, which is a link or another special file. Next: pack the "
                "files themselves (tar --dereference)."
            )
        yield member.name, member.isreg(), _opener(archive, member)


def _opener(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Callable[[], IO[bytes]]:
    def opened() -> IO[bytes]:
        file = archive.extractfile(member)
        assert file is not None  # only plain files are opened
        return file

    return opened


def _zip_members(path: Path, archive: zipfile.ZipFile) -> Iterator[tuple[str, bool, Callable[[], IO[bytes]]]]:
    for entry in archive.infolist():
        if entry.external_attr >> 16 & _FILE_KIND_BITS == _SYMBOLIC_LINK:
            raise TraceFormatError(
                f"{path} holds {entry.filename[:80]!r}, which is a link. Next: pack the file itself (zip "
                "without -y)."
            )
        yield entry.filename, not entry.is_dir(), lambda entry=entry: archive.open(entry)  # type: ignore[misc]


class _Limited:
    """A forward-only stream that reads at most a given number of bytes."""

    def __init__(self, source: IO[bytes], most: int) -> None:
        self._source = source
        # Headers and padding also count towards the limit.
        self._most = most + _MAX_MEMBERS * 2 * tarfile.BLOCKSIZE
        self._place = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next *size* bytes of the stream; raises `_TooMuch` beyond the limit."""
        if not 0 <= size <= _PIECE_BYTES or self._place + size > self._most:
            raise _TooMuch
        data = self._source.read(size)
        self._place += len(data)
        return data

    def seek(self, place: int) -> int:
        """Skip forward to the position *place*."""
        if place < self._place:
            raise tarfile.ReadError("it goes back")
        while self._place < place:
            if not self.read(min(_PIECE_BYTES, place - self._place)):
                break
        return self._place

    def tell(self) -> int:
        """Return the number of bytes read from the stream."""
        return self._place
