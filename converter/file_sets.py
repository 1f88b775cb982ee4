"""Find the trace files that others captured: patterns with ``{rank}``, or lists of files."""

from __future__ import annotations

import glob
import re
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from .rank import RankTraces

__all__ = ["find_rank_traces"]

_RANK = "{rank}"
_MAX_RANKS = 1_000_000
_ARCHIVE_NAMES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip")

Files = str | Sequence[str | Path]


def find_rank_traces(host_trace: Files | None, device_trace: Files) -> list[RankTraces]:
    """Return the traces of ranks 0, 1, ...; both arguments are patterns or lists, as in `convert_files`.

    Raises `UsageError` when a pattern matches nothing, ranks are missing or differ between host and device
    traces, or a file is an archive.
    """
    devices = _by_rank(device_trace, "device")
    hosts = _by_rank(host_trace, "host") if host_trace is not None else {}
    lonely = sorted(set(hosts) ^ set(devices)) if host_trace is not None else []
    if lonely:
        side = "host" if lonely[0] in hosts else "device"
        raise UsageError(
            f"Rank {lonely[0]} has only a {side} trace ({(hosts | devices)[lonely[0]]}); every rank needs "
            "both. Give the missing file or narrow the patterns."
        )
    absent = sorted(set(range(max(devices) + 1)) - set(devices)) if max(devices) < _MAX_RANKS else [0]
    if absent:
        raise UsageError(
            f"There are traces of rank {max(devices)} but none of rank {absent[0]}. Ranks count from 0 "
            "without gaps; add the missing files."
        )
    return [RankTraces(rank, hosts.get(rank), devices[rank]) for rank in sorted(devices)]


def _by_rank(files: Files, side: str) -> dict[int, Path]:
    """Return the files of one side by rank."""
    if isinstance(files, str) and _RANK in files:
        found = _matching(files, side)
    else:
        listed = [files] if isinstance(files, str) else list(files)
        found = {rank: Path(path) for rank, path in enumerate(listed)}
    if not found:
        raise UsageError(f"No {side} trace was given. Give a pattern such as 'et_{{rank}}.json.gz'.")
    for path in found.values():
        _refuse(path, side)
    return found


def _matching(pattern: str, side: str) -> dict[int, Path]:
    """Return the files that *pattern* matches, by the number that stands for ``{rank}``."""
    if pattern.count(_RANK) > 1:
        raise UsageError(f"The pattern '{pattern}' has {_RANK} more than once. Use it once, and * elsewhere.")
    before, after = pattern.split(_RANK)
    expression = re.compile(glob_expression(before) + r"(\d{1,9})" + glob_expression(after))
    found: dict[int, Path] = {}
    for name in sorted(glob.glob(f"{before}[0-9]*{after}")):
        match = expression.fullmatch(name)
        if match is None:
            continue
        rank = int(match[1])
        if rank in found:
            raise UsageError(
                f"The pattern '{pattern}' matches two {side} traces of rank {rank}: {found[rank]} and "
                f"{name}. Narrow it."
            )
        found[rank] = Path(name)
    if not found:
        raise UsageError(
            f"No file matches '{pattern}'. {_RANK} stands for the rank's number and * for anything; check "
            "the folder and quote the pattern."
        )
    return found


def glob_expression(pattern: str) -> str:
    """Return a regular expression for the wildcards ``*`` and ``?`` of *pattern*, within one folder."""
    parts = {"*": "[^/]*", "?": "[^/]"}
    return "".join(parts.get(character, re.escape(character)) for character in pattern)


def _refuse(path: Path, side: str) -> None:
    """Raise for a file that is absent or an archive."""
    if not path.is_file():
        raise UsageError(f"The {side} trace {path} does not exist. Check the name.")
    if path.name.endswith(_ARCHIVE_NAMES) or _holds_tar(path):
        command = "unzip" if path.name.endswith(".zip") else "tar xf"
        raise UsageError(
            f"{path} is an archive, not a trace. Unpack it with '{command} {path}' and give the files inside."
        )


def _holds_tar(path: Path) -> bool:
    """Return whether *path* is a tar archive, compressed or not, whatever its name."""
    try:
        return tarfile.is_tarfile(path)
    except (OSError, EOFError, zlib.error):
        return False
