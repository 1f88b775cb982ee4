"""The files of a sweep: its table, replaced atomically, and its base, to repeat any point."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd

from ...errors import ChakrascopeError, ConfigError, StudyError
from ...support import load_json, new_file, write_file, writing
from ...support.table import ParquetFile, frame_bytes
from .._checksums import CHECKSUMS_FILE, refuse_damaged, write_checksums
from .._experiment import Experiment
from .._simulate import load_memory
from ..config import MemoryConfig, NetworkConfig, SystemConfig, list_presets
from ..study import Study
from ._goal import Goal
from ._point import MEASURES, Answer
from ._settings import Base, Builder
from ._space import Settings, point_key

_POINTS = "points.parquet"
_LOCK = "lock"

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
    written with checksums of the folder's files. If the block fails before the first row, a folder that the
    table created is removed, unless workers have written to a log in it. The context manager raises
    `StudyError` for a damaged file, and if another process runs the same sweep.
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
            self._is_new = not self.path.parent.exists()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path.parent / _LOCK).open("ab")
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
        (self.path.parent / CHECKSUMS_FILE).unlink(missing_ok=True)  # no checksums while the files change
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
        folder = self.path.parent
        is_unused = False
        try:
            is_unused = error is not None and self._is_new and not self.rows and _is_unused(folder)
            if is_unused:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                self.save(now=True)
                write_checksums(folder)
        finally:
            self._lock.close()
        if is_unused:
            with contextlib.suppress(OSError):
                folder.rmdir()  # on NFS, the folder of an open file cannot be removed

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


def _is_unused(folder: Path) -> bool:
    """Return whether *folder* has only the files of a new sweep, and an empty log."""
    try:
        return all(file.name in {_LOCK, _NAME} or not file.stat().st_size for file in folder.iterdir())
    except OSError:  # a worker still writes to it
        return False


def read_table(path: Path) -> pd.DataFrame:
    """Return the table of a sweep, or raise `StudyError` if it cannot be read."""
    return Goal().best_first(_frame(_stored_rows(path)))


def _stored_rows(path: Path) -> list[dict[str, Any]]:
    refuse_damaged(path.parent, path.name.__eq__, needed=[path.name])
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


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and -(1 << 63) <= value < 1 << 63)


def _setting_column(settings: list[Mapping[str, Any]], name: str) -> Any:
    """Return a numeric column if all values are numbers, otherwise a text column with lists as JSON."""
    values = [setting.get(name) for setting in settings]
    if all(value is None or _is_number(value) for value in values):
        kind = "Float64" if any(type(value) is float for value in values) else "Int64"
        return pd.Series(values, dtype=kind)
    return pd.Series(
        [value if isinstance(value, str) else "" if value is None else json.dumps(value) for value in values],
        dtype="str",
    )


_NAME = "start.json"
_UNFINISHED = "unfinished"


def write_start(folder: Path, base: Base, points: int) -> None:
    """Write the base of the sweep to *folder*: presets by name, and other files with their content.

    Until :func:`finish_start`, the file records the expected number of *points*. If the folder has points of
    another base, which would share the table, the function raises `StudyError`.
    """
    system, network = base.system, base.network
    if not isinstance(system, SystemConfig) and system not in list_presets("system"):
        system = SystemConfig.load(system)
    start = {
        "workload": base.workload,
        "system": system.to_dict() if isinstance(system, SystemConfig) else system,
        "network": network.to_dict() if isinstance(network, NetworkConfig) else None,
        "network_name": network.name if isinstance(network, NetworkConfig) else "",
        "memory": load_memory(base.memory).to_dict(),
        "backend": base.backend,
        "options": dict(base.options),
        _UNFINISHED: points,
    }
    if (folder / _POINTS).is_file():
        _refuse_other_base(folder, json.loads(json.dumps(start)))
    with writing(f"The sweep {folder}", StudyError):
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / _NAME, json.dumps(start, indent=2) + "\n")


def _refuse_other_base(folder: Path, start: dict[str, Any]) -> None:
    """Raise `StudyError` if the sweep in *folder* started from another base than *start*."""
    try:
        before = load_json(folder / _NAME)
        differing = [key for key in start if key != _UNFINISHED and before[key] != start[key]]
    except (OSError, ValueError, KeyError, TypeError):  # the damage is reported later
        return
    if differing:
        raise StudyError(
            f"The sweep '{folder.name}' has points of another {differing[0].replace('_', ' ')}, and a table "
            f"holds points of one base. Next: choose another --name, or delete the folder {folder}."
        )


def finish_start(folder: Path) -> None:
    """Record that all points of the sweep in *folder* have a result."""
    with writing(f"The sweep {folder}", StudyError):
        start = load_json(folder / _NAME)
        start.pop(_UNFINISHED, None)
        write_file(folder / _NAME, json.dumps(start, indent=2) + "\n")


def planned_points(folder: Path) -> int:
    """Return the expected number of points of an interrupted sweep, or 0 if the sweep is complete.

    A sweep that is still running also counts as interrupted.
    """
    planned = _stored(folder, _UNFINISHED)
    return planned if isinstance(planned, int) else 0


def base_workload(study: Study, name: str) -> str | None:
    """Return the workload of the sweep *name*, or None for a search for plans and for a damaged sweep."""
    workload = _stored(study.sweep_dir(name), "workload")
    return workload if isinstance(workload, str) else None


def _stored(folder: Path, key: str) -> Any:
    """Return the value of *key* in the base of the sweep in *folder*, or None."""
    try:
        return load_json(folder / _NAME).get(key)
    except (OSError, ValueError, AttributeError):  # damage is reported when a point is repeated
        return None


def sweep_experiment(study: Study, name: str, identity: str) -> Experiment:
    """Return the experiment of the point *identity* of a sweep, so that it can be repeated.

    The function raises `StudyError` for a missing point, and for a sweep with another base.
    """
    if study.has_run_id(identity):
        return study.experiment(identity)
    settings = _settings_of(study, name, identity)
    experiment = Builder(study, read_start(study.sweep_dir(name))).experiment(settings)
    if experiment.content_hash != identity:
        raise StudyError(
            f"The sweep '{name}' or its workload has changed since the point {identity} was simulated; "
            "run the sweep again."
        )
    return experiment


def sweep_workload(study: Study, name: str, identity: str) -> str:
    """Return the name of the workload of a sweep's point, or raise the errors of `sweep_experiment`."""
    if study.has_run_id(identity):
        return study.run_info(identity).workload
    settings = _settings_of(study, name, identity)
    return Builder(study, read_start(study.sweep_dir(name))).workload_name(settings)


def _settings_of(study: Study, name: str, identity: str) -> dict[str, Any]:
    points = read_table(points_file(study, name))
    matches = points.loc[points["id"] == identity, "settings"]
    if not len(matches):
        raise StudyError(f"The sweep '{name}' has no point '{identity}'; choose one of its table.")
    settings: dict[str, Any] = json.loads(matches.iloc[0])
    return settings


def read_start(folder: Path) -> Base:
    """Return the base of the sweep in *folder*, or raise `StudyError` for damage and searches for plans."""
    refuse_damaged(folder, _NAME.__eq__, needed=[_NAME])
    try:
        start: dict[str, Any] = load_json(folder / _NAME)
        if "model" in start:
            raise StudyError(
                f"The points of '{folder.name}' are plans that `predict search` simulated, without a "
                "workload in the study. Next: run the search again with a larger --keep, "
                "or the point's own command."
            )
        system, network, name = start["system"], start["network"], str(start["network_name"])
        return Base(
            start["workload"],
            system if isinstance(system, str) else SystemConfig.from_mapping(system, "The system"),
            None if network is None else NetworkConfig.from_mapping(network, "The network", name),
            MemoryConfig.from_mapping(start["memory"], "The memory configuration"),
            start["backend"],
            start["options"],
        )
    except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
        raise StudyError(
            f"The settings of the sweep '{folder.name}' cannot be read ({error}); run the sweep again."
        ) from error
