"""A study's stragglers, and the numbers of the Stragglers page."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...converter.readers import OPERATION_TYPES
from ...runner import Study
from ...runner.analysis import Matrix, Stragglers, find_stragglers, operations_of

_MAX_ROWS, _MAX_COLUMNS = 100, 250
_MAX_WORKERS = 24


def stragglers_of(study: Study) -> Stragglers | None:
    """Find the stragglers in the recorded steps of *study*; None without recorded steps."""
    sources = [study.operations_file, *(study.trace_dir(name) for name in study.trace_sets()[-1:])]
    times = tuple(path.stat().st_mtime_ns for path in sources if path.exists())
    return _stragglers(study.path, times)


@lru_cache(maxsize=2)
def _stragglers(folder: Path, _times: tuple[int, ...]) -> Stragglers | None:
    table = operations_of(folder)
    return None if table is None else find_stragglers(table)


def slowdown_matrix(stragglers: Stragglers) -> Matrix:
    """Return slowdowns minus one, to 0.01: a row per rank, a column per step.

    A cell of several ranks or steps has their largest slowdown.
    """
    values, ranks = _by_rank(stragglers)
    rows, columns = _bounds(len(values), _MAX_ROWS), _bounds(len(stragglers.layout.steps), _MAX_COLUMNS)
    largest = np.maximum.reduceat(np.maximum.reduceat(values, rows, axis=0), columns, axis=1)
    shown = np.round(largest - 1, 2)  # equal figures have equal colours
    return Matrix(_labels("rank", ranks, rows), _labels("step", stragglers.layout.steps, columns), shown)


def worst_step(stragglers: Stragglers, row: str, column: str) -> int:
    """Return the step with the largest slowdown in a cell of `slowdown_matrix`; -1 if unknown."""
    matrix = slowdown_matrix(stragglers)
    if row not in matrix.rows or column not in matrix.columns:
        return -1
    values, _ = _by_rank(stragglers)
    rows = _part(len(values), _MAX_ROWS, matrix.rows.index(row))
    columns = _part(len(stragglers.layout.steps), _MAX_COLUMNS, matrix.columns.index(column))
    return int(stragglers.layout.steps[columns][values[rows, columns].max(axis=0).argmax()])


def step_operations(stragglers: Stragglers, step: int) -> pd.DataFrame:
    """Return the operations of a step on its slowest workers, the slowest last.

    The columns are rank, type, start_ns (since the step began) and duration_ns. An unknown step has
    no rows.
    """
    layout = stragglers.layout
    place = int(np.searchsorted(layout.steps, step))
    if place == len(layout.steps) or layout.steps[place] != step:
        nothing: pd.DataFrame = pd.DataFrame()
        return nothing
    stages = np.array([operation.stage for operation in layout.operations])
    types = np.array([OPERATION_TYPES.index(operation.type) for operation in layout.operations])
    slowdown = np.where(layout.ranks >= 0, stragglers.slowdowns.by_worker[:, :, place], 0)
    slowest = np.argsort(-slowdown, axis=None, kind="stable")[: min(_MAX_WORKERS, (layout.ranks >= 0).sum())]
    begin = layout.start_ns[:, place].min()
    parts = []
    for replica, stage in zip(*np.unravel_index(slowest[::-1], slowdown.shape), strict=True):
        own = np.flatnonzero(stages == stage)
        part = {
            "rank": layout.ranks[replica, stage],
            "type": [OPERATION_TYPES[code] for code in types[own]],
            "start_ns": layout.start_ns[own, place, replica] - begin,
            "duration_ns": layout.duration_ns[own, place, replica],
        }
        parts.append(pd.DataFrame(part))
    both: pd.DataFrame = pd.concat(parts, ignore_index=True)
    return both


def _by_rank(stragglers: Stragglers) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return slowdowns by rank and step, and the ranks of the rows, sorted."""
    replicas, stages = np.nonzero(stragglers.layout.ranks >= 0)
    ranks = stragglers.layout.ranks[replicas, stages]
    order = np.argsort(ranks)
    return stragglers.slowdowns.by_worker[replicas[order], stages[order]], ranks[order]


def _bounds(count: int, most: int) -> npt.NDArray[np.int64]:
    """Return the start index of each of at most *most* equal parts of *count* items."""
    parts = min(count, most)
    return np.arange(parts) * count // parts


def _part(count: int, most: int, place: int) -> slice:
    bounds = [*_bounds(count, most).tolist(), count]
    return slice(bounds[place], bounds[place + 1])


def _labels(name: str, numbers: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64]) -> list[str]:
    """Label each part of *numbers*, for example ``rank 3`` or ``steps 20 to 29``."""
    last = [*(bounds[1:] - 1).tolist(), len(numbers) - 1]
    return [
        f"{name} {numbers[low]}" if low == high else f"{name}s {numbers[low]} to {numbers[high]}"
        for low, high in zip(bounds.tolist(), last, strict=True)
    ]
