"""Files and folders that appear whole or not at all.

Everything is made beside its place under a temporary name, ``.NAME.PLACE-PID-RANDOM.tmp``, and renamed. PLACE
stands for the machine and its process ids, as several may share a disk: only there does PID say whether the
process that made it is alive, and whether what it left behind may go.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

__all__ = [
    "is_temporary",
    "new_file",
    "new_folder",
    "remove_folder",
    "remove_leftover_of",
    "remove_leftovers",
    "sync_files",
    "write_file",
    "writing",
]

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<place>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}\.tmp", re.DOTALL)
_NAME_BYTES = 200  # of a name; with the rest it stays below the 255 that file systems allow
_SYNCED_AT_ONCE = 16  # a file system writes what many ask for at once: 2,000 files in 0.4 s instead of 8 s
_UNSYNCABLE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}  # some network and user-space file systems


def write_file(target: str | Path, content: str | bytes, *, sync: bool = True) -> None:
    """Replace the file *target*: a reader sees the old one or the whole new *content*, text as UTF-8.

    With *sync* it also outlives a crash of the machine once this returns. Raises `OSError`.
    """
    with new_file(target, sync=sync) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextlib.contextmanager
def new_file(target: str | Path, *, sync: bool = True) -> Iterator[Path]:
    """Give the path to write a file to that replaces *target* once the block ends, if it ends well.

    With *sync* the file is on the disk before it has its name, and what dead processes left of it is removed;
    without, it is one of many, and who writes these sees to both. Raises `OSError`.
    """
    target = Path(target)
    temporary = _temporary(target)
    if sync:
        _remove_dead(target.parent, _shortened(target.name))
    try:
        yield temporary
        if sync:
            _sync(temporary)
        temporary.replace(target)
        if sync:
            _sync_folder(target.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename in (None, os.fspath(temporary)):
            error.filename = os.fspath(target)  # of a full disk, the system names no file
        raise


@contextlib.contextmanager
def new_folder(
    target: str | Path,
    *,
    existing: Literal["refuse", "keep", "replace"] = "refuse",
    choose: Callable[[Path], Path] | None = None,
    sync: bool = True,
) -> Iterator[Path]:
    """Give an empty folder to fill that becomes *target* once the block ends, if it ends well.

    A folder of that name is an error, or it is kept and the new one dropped, or it is replaced. *choose* is
    asked for another name, in the same folder, when it is filled. What dead processes left beside it is
    removed. With *sync* everything in it is on the disk before it has its name. Raises `OSError`.
    """
    target = Path(target)
    temporary = _temporary(target)
    remove_leftovers(target.parent)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        if sync:
            sync_files(_tree(temporary))
        _settle(temporary, choose(temporary) if choose else target, existing)
        if sync:
            _sync_folder(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Remove *folder*, which is gone at once or still whole; raises `OSError` if it is still there."""
    doomed = _temporary(folder)
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def is_temporary(name: str) -> bool:
    """Return whether *name* is that of a file or folder in the making, or being removed."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_leftovers(folder: str | Path) -> None:
    """Remove what processes of this machine that are dead left half-made in *folder*."""
    _remove_dead(folder)


def _remove_dead(folder: str | Path, name: str | None = None) -> None:
    """Remove what dead processes of this machine left in *folder*, all of it or that of *name*."""
    for entry, match in _temporaries(folder):
        ours = match["place"] == _place() and name in (None, match["name"])
        if ours and not _is_alive(int(match["pid"])):
            _remove(entry)


def remove_leftover_of(target: Path, pid: int) -> None:
    """Remove what the process *pid* of any machine, known to be dead, had made of *target*."""
    for entry, match in _temporaries(target.parent):
        if match["name"] == _shortened(target.name) and int(match["pid"]) == pid:
            _remove(entry)


def sync_files(paths: Iterable[Path]) -> None:
    """Put *paths* on the disk, together: thousands take hardly longer than tens. Raises `OSError`."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - few who import this need it

    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as threads:
        list(threads.map(_sync, paths))


@contextlib.contextmanager
def writing(
    what: str | Path,
    error: type[Exception],
    advice: str = "free some disk space, or see who may write there",
) -> Iterator[None]:
    """Turn an `OSError` of the block, which writes *what*, into an *error* that ends with the *advice*."""
    try:
        yield
    except OSError as refused:
        # Libraries raise errors with a number and a text of their own.
        reason = os.strerror(refused.errno) if refused.errno else str(refused)
        raise error(f"{what} cannot be written ({reason}); {advice}.") from refused


def _temporary(target: Path) -> Path:
    if not target.name:  # "/" or ".": a folder that cannot be replaced
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    ending = f"{_place()}-{os.getpid()}-{os.urandom(4).hex()}.tmp"
    return target.with_name(f".{_shortened(target.name)}.{ending}")


def _shortened(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:_NAME_BYTES])


def _temporaries(folder: str | Path) -> Iterator[tuple[os.DirEntry[str], re.Match[str]]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _TEMPORARY.fullmatch(entry.name)
            if match is not None:
                yield entry, match


@functools.cache
def _place() -> str:
    """Return what tells this machine, or container, from others with process ids of their own."""
    identity = os.uname().nodename
    with contextlib.suppress(OSError):
        identity += f" {os.stat('/proc/self/ns/pid').st_ino}"
    return f"{zlib.crc32(identity.encode()):08x}"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _remove(entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(entry.path)


def _settle(temporary: Path, target: Path, existing: Literal["refuse", "keep", "replace"]) -> None:
    try:
        temporary.rename(target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or existing == "refuse":
            raise
        if existing == "replace":
            _swap(temporary, target)


def _swap(temporary: Path, target: Path) -> None:
    """Put *temporary* in the place of the folder *target*, which comes back if that fails."""
    old = _temporary(target)
    target.rename(old)
    try:
        temporary.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _tree(folder: Path) -> Iterator[Path]:
    """Yield every file and folder in *folder*, and itself."""
    for place, _, files in os.walk(folder):
        paths = (Path(place, name) for name in files)
        yield from (path for path in paths if not path.is_symlink())
        yield Path(place)


def _sync_folder(folder: Path) -> None:
    """Put the names in *folder* on the disk, unless it may be written but not read."""
    with contextlib.suppress(PermissionError):
        _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSYNCABLE:
            raise
    finally:
        os.close(descriptor)
