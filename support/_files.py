"""Files and folders that are written atomically: whole or not at all.

Content is written next to the target under a temporary name, ``.NAME.PLACE-PID-RANDOM.tmp``, which is then
renamed. PLACE identifies the machine (or container), as several may share a disk: only on the same machine
does PID show whether the writing process is alive and its leftovers may be removed.
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

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<place>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}\.tmp", re.DOTALL)
_NAME_BYTES = 200  # of the name; with the suffix it stays below the 255 bytes that file systems allow
_SYNCED_AT_ONCE = 16  # file systems write concurrent requests together: 2,000 files take 0.4 s instead of 8 s
_UNSYNCABLE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}  # some network and user-space file systems


def write_file(target: str | Path, content: str | bytes, *, sync: bool = True) -> None:
    """Replace the file *target* atomically with *content*; text is written as UTF-8.

    With *sync*, the new content also survives a crash of the machine once this returns. Raises `OSError`.
    """
    with new_file(target, sync=sync) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextlib.contextmanager
def new_file(target: str | Path, *, sync: bool = True) -> Iterator[Path]:
    """Yield a path to write to; it replaces the file *target* if the block ends without an error.

    With *sync*, the file is on the disk before it gets its name, and leftovers of dead processes are removed.
    Without, the caller does both, for many files together. Raises `OSError`.
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
            error.filename = os.fspath(target)  # for a full disk, the system names no file
        raise


@contextlib.contextmanager
def new_folder(
    target: str | Path,
    *,
    existing: Literal["refuse", "keep", "replace"] = "refuse",
    choose: Callable[[Path], Path] | None = None,
    sync: bool = True,
) -> Iterator[Path]:
    """Yield an empty folder to fill; it becomes *target* if the block ends without an error.

    If a folder of that name exists, this is an error, or the old one is kept, or it is replaced. *choose*,
    called once the folder is filled, returns another name in the same parent folder. Leftovers of dead
    processes next to the target are removed. With *sync* all content is on the disk before the folder gets
    its name. Raises `OSError`.
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
    """Remove *folder* atomically; raises `OSError` if it is still there."""
    doomed = _temporary(folder)
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def is_temporary(name: str) -> bool:
    """Return whether *name* is the temporary name of a file or folder that is being written or removed."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_leftovers(folder: str | Path) -> None:
    """Remove the unfinished files that dead processes of this machine left in *folder*."""
    _remove_dead(folder)


def _remove_dead(folder: str | Path, name: str | None = None) -> None:
    """Remove temporary files of this machine's dead processes from *folder*, only of *name* if given."""
    for entry, match in _temporaries(folder):
        ours = match["place"] == _place() and name in (None, match["name"])
        if ours and not _is_alive(int(match["pid"])):
            _remove(entry)


def remove_leftover_of(target: Path, pid: int) -> None:
    """Remove the leftovers of *target* by the process *pid*, on any machine, which is known to be dead."""
    for entry, match in _temporaries(target.parent):
        if match["name"] == _shortened(target.name) and int(match["pid"]) == pid:
            _remove(entry)


def sync_files(paths: Iterable[Path]) -> None:
    """Flush *paths* to the disk together: thousands take hardly longer than tens. Raises `OSError`."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - seldom needed

    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as threads:
        list(threads.map(_sync, paths))


def link_or_copy(file: Path, copy: Path) -> None:
    """Make *copy* a hard link to *file* where the file system can, else a copy. Raises `OSError`."""
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
    """Turn an `OSError` in the block, which writes *what*, into *error* with *advice* at its end."""
    try:
        yield
    except OSError as refused:
        # Libraries raise errors with their own number and text.
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
    """Return an id of this machine, or of this container with its own process ids."""
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
    """Rename *temporary* to the folder *target*; the old folder is restored if that fails."""
    old = _temporary(target)
    target.rename(old)
    try:
        temporary.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _tree(folder: Path) -> Iterator[Path]:
    """Yield *folder* and every file and folder in it."""
    for place, _, files in os.walk(folder):
        paths = (Path(place, name) for name in files)
        yield from (path for path in paths if not path.is_symlink())
        yield Path(place)


def _sync_folder(folder: Path) -> None:
    """Flush the names in *folder* to the disk, unless the folder is writable but not readable."""
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
