"""Cache slow analyses, such as the critical path and the times of layers, in files of the run.

A file is computed again if the run, its workload or the code of Chakrascope has changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...converter import Workload
from ...support import new_file
from ...support.table import CodedColumns, ParquetFile, ParquetWriter, TextColumn
from .._result import Result
from ._advised import Advised
from ._critical_path import CriticalPath, critical_path
from ._json_cache import DAMAGES, cached_json, stamp_of


def cached_table(file: Path, inputs: list[Path], make: Callable[[], CodedColumns]) -> CodedColumns:
    """Return the columns from *make*, cached in *file* until one of *inputs* changes."""
    stamp = stamp_of(inputs)
    try:
        return _read(file, stamp)
    except DAMAGES:
        columns = make()
    with suppress(OSError):
        _write(file, [*stamp, _columns_digest(columns)], columns)
    return columns


def cached_advice(file: Path, inputs: list[Path], make: Callable[[], Advised]) -> Advised:
    """Return the advice from *make*, cached in *file* until one of *inputs* changes."""
    return Advised.from_json(cached_json(file, inputs, lambda: make().to_json()))


def cached_path(file: Path, inputs: list[Path], result: Result, workload: Workload) -> CriticalPath:
    """Return the critical path of *result*, cached in *file* until one of *inputs* changes.

    If the file cannot be written, the path is computed again each time.
    """

    def make() -> CodedColumns:
        path = critical_path(result, workload)
        steps = {f"step_{name}": column for name, column in path.steps.items()}
        return steps | {f"said_{name}": column for name, column in path.texts.items()}

    columns = cached_table(file, inputs, make)
    steps, texts = (
        {name.removeprefix(of): column for name, column in columns.items() if name.startswith(of)}
        for of in ("step_", "said_")
    )
    return CriticalPath.of_steps(steps, workload, texts)


def _columns_digest(columns: CodedColumns) -> str:
    digest = hashlib.sha256()
    for name, column in columns.items():
        values, texts = column, None
        if _is_text(column):
            coded = (column if isinstance(column, TextColumn) else TextColumn.of(column)).compact()
            values, texts = coded.numbers, coded.texts
        digest.update(json.dumps([name, str(values.dtype), len(values), texts]).encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def _is_text(column: Any) -> bool:
    return isinstance(column, TextColumn) or column.dtype == object


def _write(file: Path, stamp: list[Any], columns: CodedColumns) -> None:
    kinds = {name: "text" if _is_text(column) else column.dtype.name for name, column in columns.items()}
    with (
        new_file(file, sync=False) as temporary,
        ParquetWriter(temporary, kinds, json.dumps(stamp)) as writer,
    ):
        writer.write(columns)


def _read(file: Path, stamp: list[Any]) -> CodedColumns:
    """Read the columns in *file*; raises one of `DAMAGES`, also if *stamp* does not match."""
    cache = ParquetFile(file)
    *made_of, digest = json.loads(cache.note)
    if made_of != stamp:
        raise ValueError("it was made from other files")
    columns = {name: cache.read_encoded(name, range(len(cache.rows))) for name in cache.kinds}
    if digest != _columns_digest(columns):
        raise ValueError("its values were changed")
    return columns
