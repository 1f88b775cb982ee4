"""Keep beside a large run what takes a while to find: its critical path, and what its layers take."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...converter import Workload
from ...support import new_file, write_file
from ...support.table import Columns
from .._result import Result
from ._advice import Advised
from ._critical_path import CriticalPath, critical_path

__all__ = ["advised_beside", "path_beside", "table_beside"]

_VERSION = 3
# What reading raises of a file that is none, cut off, or of another version.
_DAMAGES = (OSError, ValueError, KeyError, EOFError, IndexError, TypeError, zipfile.BadZipFile)


def table_beside(file: Path, made_of: list[Path], make: Callable[[], Columns]) -> Columns:
    """Return the columns that *make* makes, as *file* keeps them if *made_of* are still the same."""
    stamp = _stamp(made_of)
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["stamp"] == stamp:
            return {name: np.array(values, kind) for name, (kind, values) in kept["columns"].items()}
    except _DAMAGES:
        pass
    columns = make()
    listed = {name: (column.dtype.str, column.tolist()) for name, column in columns.items()}
    with suppress(OSError):
        write_file(file, json.dumps({"stamp": stamp, "columns": listed}) + "\n")
    return columns


def advised_beside(file: Path, made_of: list[Path], make: Callable[[], Advised]) -> Advised:
    """Return what *make* makes, as *file* keeps it if *made_of* are still the same."""
    stamp = _stamp(made_of)
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["stamp"] == stamp:
            return Advised.from_json(kept["advised"])
    except _DAMAGES:
        pass
    advised = make()
    with suppress(OSError):
        write_file(file, json.dumps({"stamp": stamp, "advised": advised.to_json()}) + "\n")
    return advised


def path_beside(file: Path, made_of: list[Path], result: Result, workload: Workload) -> CriticalPath:
    """Return the critical path of *result*, as *file* keeps it if the files *made_of* are still the same.

    Else it is walked, and kept; where that cannot be written it is walked again the next time.
    """
    stamp = _stamp(made_of)
    try:
        return _read(file, stamp, result, workload)
    except _DAMAGES:
        path = critical_path(result, workload)
    with suppress(OSError):
        _write(file, stamp, path)
    return path


def _stamp(files: list[Path]) -> list[Any]:
    return [_VERSION, *([file.name, *_state(file)] for file in files)]


def _state(path: Path) -> list[int]:
    try:
        status = path.stat()
    except OSError:
        return [-1, -1]
    return [status.st_size, status.st_mtime_ns]


def _write(file: Path, stamp: list[Any], path: CriticalPath) -> None:
    columns: dict[str, npt.NDArray[Any]] = {f"step_{name}": values for name, values in path.steps.items()}
    texts: dict[str, list[str]] = {}
    for name, said in path.said.items():
        known: dict[str, int] = {}
        columns[name] = np.array([known.setdefault(text, len(known)) for text in said], np.int32)
        texts[name] = [*known]
    head = json.dumps({"stamp": stamp, "steps": [*path.steps], "texts": texts})
    with new_file(file, sync=False) as temporary, temporary.open("wb") as out:
        np.savez(out, head=np.frombuffer(head.encode(), np.uint8), **columns)  # type: ignore[arg-type]


def _read(file: Path, stamp: list[Any], result: Result, workload: Workload) -> CriticalPath:
    """Return the path that *file* keeps; raises one of `_DAMAGES` if it keeps none of these files."""
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as archive:
        head = json.loads(archive["head"].tobytes())
        if head["stamp"] != stamp:
            raise ValueError("it is of other files")
        steps = {name: archive[f"step_{name}"] for name in head["steps"]}
        said = {name: np.array([*texts, ""], object)[archive[name]] for name, texts in head["texts"].items()}
    if {len(column) for column in (*steps.values(), *said.values())} != {len(steps["rank"])}:
        raise ValueError("its columns are not equally long")
    return CriticalPath.of_steps(steps, result.makespan_ns, workload, said)
