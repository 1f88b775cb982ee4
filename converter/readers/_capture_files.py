"""Locate the traces of the capture of CUDA and HIP graphs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from ...errors import UsageError
from ._file_kinds import kind_of
from ._file_names import rank_in_name
from ._file_sets import RankTraces

__all__ = ["CAPTURE_FOLDER", "with_capture_traces"]

CAPTURE_FOLDER = "capture_traces"
"""What vLLM's and SGLang's scripts for TraceLens call the folder."""


def with_capture_traces(
    ranks: Sequence[RankTraces], given: str | Path | Sequence[Path] | None
) -> list[RankTraces]:
    """Return *ranks* with the capture traces that *given*, a file or folder, holds for each.

    By default, the folder ``capture_traces`` next to a device trace is searched. A rank takes the files whose
    names state that rank or none; without such files it takes those of the lowest rank, which captured the
    same graphs. Raises `UsageError` if *given* has no trace.
    """
    if isinstance(given, (str, Path)):
        files = _traces_at(Path(given))
        if not files:
            raise UsageError(
                f"{given} holds no trace of a capture (Kineto JSON, plain or gzip). Give the trace that was "
                "taken while the graphs were captured, or the folder of such traces."
            )
        return [replace(rank, capture_paths=_of_rank(rank, files), captures_given=True) for rank in ranks]
    folders = {rank.device_path.parent for rank in ranks}
    beside = {
        folder: _traces_at(folder / CAPTURE_FOLDER) if given is None else list(given) for folder in folders
    }
    return [replace(rank, capture_paths=_of_rank(rank, beside[rank.device_path.parent])) for rank in ranks]


def _traces_at(path: Path) -> list[Path]:
    """Return the device trace at *path*, or those in the folder there, by name."""
    if not path.is_dir():
        return [path] if path.is_file() and kind_of(path) == "device" else []
    return sorted(file for file in path.iterdir() if file.is_file() and kind_of(file) == "device")


def _of_rank(rank: RankTraces, files: Sequence[Path]) -> tuple[Path, ...]:
    """Return those of *files* that belong to *rank*."""
    named = {file: rank_in_name(file) for file in files}
    in_name = rank_in_name(rank.device_path)
    own = rank.rank if in_name is None else in_name
    lowest = min((number for number in named.values() if number is not None), default=None)
    found = [file for file, number in named.items() if number in (None, own)]
    return tuple(found or [file for file, number in named.items() if number == lowest])
