"""The table of a sweep: one row per point, in a Parquet file that is replaced atomically."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd

from ...errors import ChakrascopeError, StudyError
from ...support import new_file, writing
from ...support.table import ParquetFile, frame_bytes
from .._checksums import CHECKSUMS_FILE, refuse_damaged, write_checksums
from ..study import Study
from ._goal import Goal
from ._point import MEASURES, Answer
from ._space import Settings, point_key

_POINTS = "points.parquet"

_FIXED = ("id", "state", "error", "ranks", *MEASURES, "memory_bytes", "cost", "simulation_s", "settings")
_FRACTIONS = ("cost", "simulation_s")
_INTEGERS = ("ranks", *MEASURES, "memory_bytes")
_PAUSE_S = 1.0


def points_file(study: Study, name: str) -> Path:
    """Return the path of the table of the study's sweep *name*; the file may not exist yet."""
    return study.sweep_dir(name) / _POINTS


class PointTable:
    """The table of the sweep in *folder*, as a context manager that locks the folder.

    The function *cost*, if given, computes the price of a step from a point's settings, ranks and makespan.
    Rows are in memory, and `save` writes them to disk at most about once a second. At the end, the rows are
    written with checksums of the folder's files. The context manager raises `StudyError` for a damaged file,
    and if another process runs the same sweep.
    """

    def __init__(self, folder: Path, cost: Callable[[Settings, int, int], float] | None = None) -> None:
        self._cost = cost
        self.path = folder / _POINTS
        self.rows: dict[str, dict[str, Any]] = {}
        self._answers: dict[str, Answer] = {}
        self._saved_at = 0.0
        self._pause_s = _PAUSE_S
        self._changed = False

    def __enter__(self) -> PointTable:
        with writing(f"The sweep {self.path.parent}", StudyError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path.parent / "lock").open("ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise StudyError(
                f"Another process works on the sweep '{self.path.parent.name}'; wait for it, or choose "
                "another name."
            ) from error
        try:
            self._load()
        except ChakrascopeError:
            self._lock.close()
            raise
        (self.path.parent / CHECKSUMS_FILE).unlink(missing_ok=True)  # until the files no longer change
        return self

    def _load(self) -> None:
        rows = _stored_rows(self.path) if self.path.is_file() else []
        self.rows = {row["settings"]: row for row in rows}
        for row in rows:
            self._remember(row)
            self._price(row)
        self._changed = self._cost is not None and bool(rows)

    def _price(self, row: dict[str, Any]) -> None:
        if self._cost is not None and row["state"] == "done":
            row["cost"] = self._cost(json.loads(row["settings"]), row["ranks"], row["makespan_ns"])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.save(now=True)
            write_checksums(self.path.parent)
        finally:
            self._lock.close()

    def put(self, settings: Settings, identity: str, ranks: int | None, answer: Answer) -> None:
        """Set the row of the point with the given *settings*."""
        key = point_key(settings)
        self.rows[key] = {"id": identity, "ranks": ranks, "settings": key, **answer}
        self._remember(self.rows[key])
        self._price(self.rows[key])
        self._changed = True

    def done(self, settings: Settings, identity: str) -> bool:
        """Return whether the point has a result of the experiment *identity*."""
        row = self.rows.get(point_key(settings))
        return row is not None and row["state"] == "done" and row["id"] == identity

    def row(self, settings: Settings) -> Mapping[str, Any] | None:
        """Return the row of the point with the given *settings*, or None if there is no such row."""
        return self.rows.get(point_key(settings))

    def answer_of(self, identity: str) -> Answer | None:
        """Return the figures of any point with the experiment *identity*."""
        return self._answers.get(identity)

    def _remember(self, row: dict[str, Any]) -> None:
        if row["state"] == "done":
            self._answers[row["id"]] = {name: row.get(name) for name in ("state", *MEASURES, "simulation_s")}

    def save(self, *, now: bool = False) -> None:
        """Write the file if there are new rows, at a limited rate unless *now* is set."""
        started = time.monotonic()
        if not self._changed or (not now and started - self._saved_at < self._pause_s):
            return
        # A crash may lose the latest rows of a running sweep, which are simulated again.
        with new_file(self.path, sync=now) as temporary:
            temporary.write_bytes(frame_bytes(self.frame()))
        self._changed = False
        self._saved_at = time.monotonic()
        # The pause between writes grows with the duration of a write.
        self._pause_s = max(_PAUSE_S, 20 * (self._saved_at - started))

    def frame(self, points: Iterable[Settings] | None = None, goal: Goal = Goal()) -> pd.DataFrame:  # noqa: B008
        """Return the rows of all points or of *points*, with a column for each setting, best first."""
        keys = self.rows if points is None else dict.fromkeys(map(point_key, points))
        return goal.best_first(_frame([self.rows[key] for key in keys if key in self.rows]))


def read_table(path: Path) -> pd.DataFrame:
    """Return the table of a sweep, or raise `StudyError` if it cannot be read."""
    return Goal().best_first(_frame(_stored_rows(path)))


def _stored_rows(path: Path) -> list[dict[str, Any]]:
    refuse_damaged(path.parent, {path.name}.__contains__)
    try:
        # Tables of earlier versions have no prices, and only tables of plans have memory.
        absent = {"cost": None, "memory_bytes": None}
        return [{name: (absent | row)[name] for name in _FIXED} for row in ParquetFile(path).records()]
    except (OSError, ValueError, KeyError) as error:
        raise StudyError(
            f"The sweep's table {path} is damaged ({error}); delete it and run the sweep again."
        ) from error


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    settings = [json.loads(row["settings"]) for row in rows]
    names = dict.fromkeys(name for setting in settings for name in setting)
    columns: dict[str, Any] = {name: _setting_column(settings, name) for name in names}
    for name in _FIXED:
        values = [row.get(name) for row in rows]
        if name in _INTEGERS:
            columns[name] = pd.Series(values, dtype="Int64")
        elif name in _FRACTIONS:
            columns[name] = pd.Series(values, dtype="Float64")
        else:
            columns[name] = pd.Series([value or "" for value in values], dtype="str")
        if name == MEASURES[-1]:
            columns["rank_time_ns"] = columns["makespan_ns"] * columns["ranks"]
    table: pd.DataFrame = pd.DataFrame(columns)
    return table.drop(columns="memory_bytes") if table["memory_bytes"].isna().all() else table


def _setting_column(settings: list[Mapping[str, Any]], name: str) -> Any:
    """Return a numeric column if all values are numbers, otherwise a text column with lists as JSON."""
    values = [setting.get(name) for setting in settings]
    if all(value is None or type(value) in (int, float) for value in values):
        kind = "Float64" if any(type(value) is float for value in values) else "Int64"
        return pd.Series(values, dtype=kind)
    return pd.Series(
        [value if isinstance(value, str) else "" if value is None else json.dumps(value) for value in values],
        dtype="str",
    )
