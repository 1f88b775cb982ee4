"""Checksums of the files of a result, a workload or a sweep, in the format of ``sha256sum``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath

from ..errors import StudyError
from ..support import new_file, open_file

CHECKSUMS_FILE = "SHA256SUMS"
_BLOCK = 1 << 20
_HEX_DIGITS = 64


def write_checksums(folder: Path) -> None:
    """Write the checksums of all files in *folder* to a file that `sha256sum -c` can check."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != CHECKSUMS_FILE)
    lines = [f"{_digest(file)}  {file.relative_to(folder).as_posix()}\n" for file in files]
    with new_file(folder / CHECKSUMS_FILE) as temporary:
        temporary.write_bytes("".join(lines).encode("utf-8", "surrogateescape"))


def refuse_damaged(
    folder: Path, wanted: Callable[[str], bool] = lambda _: True, *, needed: Collection[str] = ()
) -> None:
    """Raise `StudyError` if a file of *folder* was changed; *wanted* limits the check to some files.

    The files *needed*, if they exist, must have checksums, because a truncated list lacks some files. Results
    of version 0.2 and earlier have no checksums, and pass the check.
    """
    problem = _problem(folder, wanted, needed)
    if problem:
        raise StudyError(
            f"{folder / problem[0]} {problem[1]}. Next: restore the file, or delete the folder and make it "
            "again."
        )


def _problem(folder: Path, wanted: Callable[[str], bool], needed: Collection[str]) -> tuple[str, str] | None:
    """Return the first damaged file with its damage, or None if no file is damaged."""
    try:
        with open_file(folder / CHECKSUMS_FILE) as content:
            text = content.read().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        return CHECKSUMS_FILE, f"cannot be read ({error.strerror})"
    if not text:
        return CHECKSUMS_FILE, "is damaged (it is empty)"
    listed = set()
    digests: dict[tuple[int, int], str] = {}  # by device and inode: equal ranks share one file
    for number, line in enumerate(text.splitlines(), 1):
        digest, _, name = line.partition("  ")
        if len(digest) != _HEX_DIGITS or not _is_inside(name):
            return CHECKSUMS_FILE, f"is damaged (line {number})"
        listed.add(name)
        if wanted(name):
            try:
                facts = (folder / name).stat()
                same = facts.st_dev, facts.st_ino
                found = (digests.get(same) if facts.st_nlink > 1 else None) or _digest(folder / name)
                digests[same] = found
                differs = found != digest
            except FileNotFoundError:
                return name, "is missing"
            except OSError as error:
                return name, f"cannot be read ({error.strerror})"
            if differs:
                return name, f"is damaged: it differs from its checksum in {CHECKSUMS_FILE}"
    absent = next((name for name in needed if name not in listed and (folder / name).exists()), None)
    return None if absent is None else (CHECKSUMS_FILE, f"is damaged (it lacks {absent})")


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and "\0" not in name and not path.is_absolute() and ".." not in path.parts


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with open_file(file) as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
