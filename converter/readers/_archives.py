"""Unpack archives of traces safely into a temporary folder."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from ...errors import ChakrascopeError, TraceFormatError, UsageError
from .._files import most_unpacked_bytes
from ._file_kinds import kind_of

_MOST_BYTES = 2**34
_MOST_MEMBERS = 20_000
_MOST_DEPTH = 16
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
_OPENERS: dict[bytes, Callable[[Path], IO[bytes]]] = {
    b"\x1f\x8b": gzip.open,  # type: ignore[dict-item]
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}


class _TooMuch(Exception):
    """The error for an archive that exceeds the limit on the unpacked size."""


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack the archive *path* into a temporary folder, which the context yields.

    The files get the archive's modification time, so that caches recognise the files if the archive is
    unpacked again. Errors in the context name files by their names in the archive. Raises `TraceFormatError`
    for an archive that is damaged, has links or names that point outside, or unpacks to far more bytes than
    traces do. Raises `UsageError` for an archive of an unsupported kind.
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
    """Return whether the archive *path* (if large, its start) contains files with names of traces."""
    try:
        with ExitStack() as stack:
            for index, (name, _, _) in enumerate(_members(path, stack, _LOOKED_AT_BYTES)):
                if name.endswith(_TRACE_NAMES):
                    return True
                if index > _MOST_MEMBERS:
                    break
    except (*_DAMAGES, OSError, ChakrascopeError, _TooMuch):
        return False
    return False


def _unpack(path: Path, folder: Path) -> None:
    """Extract the plain files of the archive *path* into *folder*."""
    status = path.stat()
    most = min(_MOST_BYTES, most_unpacked_bytes(status.st_size))
    try:
        with ExitStack() as stack:
            left = most
            for count, (name, is_file, opened) in enumerate(_members(path, stack, most)):
                if count >= _MOST_MEMBERS:
                    raise TraceFormatError(
                        f"{path} has more than {_MOST_MEMBERS:,} files. Unpack it yourself."
                    )
                if is_file:
                    target = _target(path, folder, name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    left -= _copy(opened(), target, left)
                    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    except _TooMuch:
        raise TraceFormatError(
            f"{path} unpacks to more than {most >> 20:,} MiB, far more than traces. If it is correct, "
            f"unpack it yourself and give the folder."
        ) from None
    except _DAMAGES as error:
        raise TraceFormatError(
            f"{path} cannot be unpacked ({error}): it is damaged, cut off or encrypted. Copy it again, or "
            "unpack it yourself and give the folder."
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
            f"{path} holds {name[:80]!r}, a path outside of it. No capture writes such paths: do not unpack "
            "it."
        )
    if len(parts) > _MOST_DEPTH:
        raise TraceFormatError(f"{path} holds {name[:80]!r}, too many folders deep. Unpack it yourself.")
    return folder.joinpath(*parts)


def _members(path: Path, stack: ExitStack, most: int) -> Iterator[tuple[str, bool, Callable[[], IO[bytes]]]]:
    """Yield each member's name, whether it is a file, and a function to open it; raise an error for links."""
    with path.open("rb") as file:
        head = file.read(6)
    if head.startswith(b"PK"):
        yield from _zip_members(path, stack.enter_context(zipfile.ZipFile(path)))
        return
    opener = next((opener for magic, opener in _OPENERS.items() if head.startswith(magic)), None)
    if opener is None and kind_of(path) == "archive" and path.name.endswith(".zst"):
        raise UsageError(
            f"{path} is compressed with zstd. Unpack it with 'tar xf {path}' and give the folder."
        )
    source = stack.enter_context(opener(path) if opener else path.open("rb"))
    # A tar header may announce gigabytes of names, which tarfile would read into memory.
    archive = stack.enter_context(tarfile.TarFile(fileobj=_Limited(source, most)))  # type: ignore[arg-type]
    for member in archive:
        if not (member.isreg() or member.isdir()) or member.issparse():
            raise TraceFormatError(
                f"{path} holds {member.name[:80]!r}, a link or another thing that is not a plain file. Pack "
                "the files themselves (tar --dereference)."
            )
        yield member.name, member.isreg(), _opener(archive, member)


def _opener(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Callable[[], IO[bytes]]:
    def opened() -> IO[bytes]:
        file = archive.extractfile(member)
        assert file is not None  # the member is a plain file
        return file

    return opened


def _zip_members(path: Path, archive: zipfile.ZipFile) -> Iterator[tuple[str, bool, Callable[[], IO[bytes]]]]:
    for entry in archive.infolist():
        if entry.external_attr >> 16 & _FILE_KIND_BITS == _SYMBOLIC_LINK:
            raise TraceFormatError(
                f"{path} holds {entry.filename[:80]!r}, a link. Pack the file itself (zip without -y)."
            )
        yield entry.filename, not entry.is_dir(), lambda entry=entry: archive.open(entry)  # type: ignore[misc]


class _Limited:
    """A forward-only stream that limits the number of bytes read."""

    def __init__(self, source: IO[bytes], most: int) -> None:
        self._source = source
        # The bytes read include headers and padding.
        self._most = most + _MOST_MEMBERS * 2 * tarfile.BLOCKSIZE
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
