"""Write files and folders atomically.

Content goes to a temporary ``.NAME.PLACE-PID-RANDOM.tmp`` next to the target, which is then renamed. PLACE
identifies the machine or container, because several may share a disk. PID identifies the writing process:
after its end, other processes on the same machine remove its temporary files.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
import shutil
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, TypeVar

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<place>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}\.tmp", re.DOTALL)
_NAME_BYTES = 200  # maximum bytes of NAME, so that temporary names stay below 255 bytes
_SYNCED_AT_ONCE = 16  # in parallel, syncing 2,000 files takes 0.4 s instead of 8 s
_T = TypeVar("_T")
_A = TypeVar("_A")
NO_ROOM = {errno.EDQUOT, errno.ENOSPC}
"""The numbers of the errors of a full disk."""
_UNSYNCABLE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}  # errors of file systems without fsync


def write_file(target: str | Path, content: str | bytes, *, sync: bool = True, parents: bool = False) -> None:
    """Replace the file *target* atomically; text is written as UTF-8.

    With *sync*, the new content survives a crash of the machine after this function returns. With
    *parents*, missing folders are created. Raises `OSError`.
    """
    with new_file(target, sync=sync, parents=parents) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def cache_folder(part: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder *part* of the user's cache, in XDG_CACHE_HOME or ``~/.cache``."""
    base = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME", "~"), ".cache")
    return Path(base).expanduser() / "chakrascope" / part


def open_file(path: str | Path) -> BufferedReader:
    """Open the file *path* for reading bytes.

    Raises `OSError`, also for devices and named pipes, which may have no end. `FileNotFoundError` means that
    nothing has the name, not even a broken link.
    """
    return open(path, "rb", opener=_opened)


def _opened(path: str, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK)  # a named pipe would wait for a writer
    except FileNotFoundError:
        if os.path.islink(path):
            raise OSError(errno.ENOLINK, "it is a link to a missing file", path) from None
        raise
    if _is_endless(descriptor):
        os.close(descriptor)
        raise OSError(errno.ENOTSUP, "it is a device or a named pipe, not a file", path)
    os.set_blocking(descriptor, True)
    return descriptor


def _is_endless(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    # The pipe between two processes, such as /dev/stdin, has no name.
    is_pipe = stat.S_ISFIFO(mode) and not os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe:")
    return is_pipe or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def load_json(file: Path) -> Any:
    """Return the JSON value in *file*; raises `OSError`, or `ValueError` for a damaged file."""
    try:
        with open_file(file) as content:
            return json.loads(content.read())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def size_and_time(path: str | Path) -> tuple[int, int]:
    """Return size and modification time of a file, to detect changes; -1 for both if it is missing."""
    try:
        status = os.stat(path)
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def new_file(target: str | Path, *, sync: bool = True, parents: bool = False) -> Iterator[Path]:
    """Yield the path of a new file that replaces *target* if the block ends without an error.

    With *sync*, the file is flushed to disk before the rename, and temporary files of dead
    processes are removed; otherwise, the caller does both for many files together. With *parents*,
    missing folders are created. Raises `OSError`.
    """
    target = Path(target)
    if target.is_dir():  # a link to a folder would be replaced by the file
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if target.exists() and not target.is_file():  # a device or a pipe, which must not be replaced
        yield target
        return
    if parents:
        target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(target)
    if sync:
        remove_leftovers(target.parent, _shortened(target.name))
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
            error.filename = os.fspath(target)  # "No space left" errors lack the file
        _name_full_disk(error, temporary, target)
        raise


@contextlib.contextmanager
def new_folder(
    target: str | Path,
    *,
    existing: Literal["refuse", "keep", "replace"] = "refuse",
    choose: Callable[[Path], Path] | None = None,
) -> Iterator[Path]:
    """Yield an empty folder that becomes *target* if the block ends without an error.

    *existing* states whether an existing *target* is an error ("refuse"), kept, or replaced. *choose* is
    called with the filled folder and may return another target in the same parent folder. Temporary files of
    dead processes next to the target are removed. All content is flushed to disk before the rename. Raises
    `OSError`.
    """
    target = Path(target)
    temporary = _temporary(target)
    remove_leftovers(target.parent)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        sync_files(_tree(temporary))
        _publish(temporary, choose(temporary) if choose else target, existing)
        _sync_folder(target.parent)
    except OSError as error:
        _name_full_disk(error, temporary, target)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _name_full_disk(error: BaseException, temporary: Path, target: Path) -> None:
    """Set the file of the *error* of a full disk to *target* if *temporary* did not fit.

    Writing raises errors without a name, and `shutil` errors with the file that it reads and the copy.
    """
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        names = [name for name in (error.filename, error.filename2) if isinstance(name, (str, bytes))]
        if not names or any(Path(os.fsdecode(name)).is_relative_to(temporary) for name in names):
            error.filename = os.fspath(target)


def remove_folder(folder: Path) -> None:
    """Remove *folder* atomically; raises `OSError` if that fails."""
    renamed = _temporary(folder)
    folder.rename(renamed)
    shutil.rmtree(renamed, ignore_errors=True)


def is_temporary(name: str) -> bool:
    """Return whether *name* is the name of a file or folder that is being written or removed."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_leftovers(folder: str | Path, name: str | None = None) -> None:
    """Remove temporary files (of *name* only, if given) that dead processes of this machine left."""
    for entry, match in _temporaries(folder):
        ours = match["place"] == _place() and name in (None, match["name"])
        if ours and not _is_alive(int(match["pid"])):
            _remove(entry)


def remove_leftover_of(target: Path, pid: int) -> None:
    """Remove the temporary files of *target* that the dead process *pid*, of any machine, left."""
    for entry, match in _temporaries(target.parent):
        if match["name"] == _shortened(target.name) and int(match["pid"]) == pid:
            _remove(entry)


def sync_files(paths: Iterable[Path]) -> None:
    """Flush *paths* to disk concurrently, which is fast even for thousands of files.

    Raises `OSError`.
    """
    mapped_in_threads(_sync, paths, _SYNCED_AT_ONCE)


def mapped_in_threads(function: Callable[[_T], _A], items: Iterable[_T], threads: int) -> list[_A]:
    """Return the results of *function*, which reads or writes files, for *items*; uses several *threads*."""
    if threads < 2:
        return [*map(function, items)]
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - slow to import, and seldom needed

    with ThreadPoolExecutor(threads) as pool:
        return [*pool.map(function, items)]


def link_or_copy(file: Path, copy: Path) -> None:
    """Make *copy* a hard link to *file*, or a copy where links are not supported. Raises `OSError`."""
    with contextlib.suppress(OSError):
        os.link(file, copy)
        return
    shutil.copyfile(file, copy)


@contextlib.contextmanager
def writing(
    what: str | Path,
    error: type[Exception],
    advice: str = "free some disk space, or check its permissions",
) -> Iterator[None]:
    """Raise an `OSError` of the block, which writes *what*, as *error* with *advice*."""
    try:
        yield
    except OSError as refused:
        # Libraries raise `OSError` with their own texts, or without an error number.
        reason = os.strerror(refused.errno) if refused.errno else str(refused)
        if refused.errno == errno.EISDIR:
            advice = "add the name of a file"
        elif refused.errno in (errno.EEXIST, errno.ENOTDIR):
            advice = "a file has the name of this folder: choose another folder"
        raise error(f"{what} cannot be written ({reason}); {advice}.") from refused


def _temporary(target: Path) -> Path:
    if not target.name:  # "/" or "." cannot be replaced
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
    """Return an id of this machine, or of this container if it has its own process ids."""
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


def _publish(temporary: Path, target: Path, existing: Literal["refuse", "keep", "replace"]) -> None:
    try:
        temporary.rename(target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or existing == "refuse":
            raise
        if existing == "replace":
            _swap(temporary, target)


def _swap(temporary: Path, target: Path) -> None:
    """Replace the folder *target* by *temporary*; restores the old folder if the rename fails."""
    old = _temporary(target)
    target.rename(old)
    try:
        temporary.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _tree(folder: Path) -> Iterator[Path]:
    """Yield *folder* and everything in it except symbolic links."""
    for place, _, files in os.walk(folder):
        paths = (Path(place, name) for name in files)
        yield from (path for path in paths if not path.is_symlink())
        yield Path(place)


def _sync_folder(folder: Path) -> None:
    """Flush the directory entries of *folder* to disk, if it is readable."""
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
