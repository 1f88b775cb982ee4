"""Run a sweep: simulate each point once, on any executor, with all results in one table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from ...errors import ChakrascopeError, ConfigError, StudyError, did_you_mean
from ...support import count_text, duration_text
from .._experiment import Experiment
from .._notebook import Bar, Figure, bars, block, html_table
from .._result import Result
from .._simulate import load_memory, load_network
from .._traits import DEFAULT_BACKEND, about_backend
from ..backends import get_backend
from ..config import MemoryConfig, NetworkConfig, SystemConfig
from ..study import Study, check_name
from ._answers import point_label, setting_title, swept_settings, value_text, with_work
from ._goal import Goal, Prices, check_cost
from ._point import Answer, Task, failure, measure
from ._pool import Places
from ._settings import Base, Builder, check_keys
from ._space import Range, Search, Settings, Space, grid, point_key
from ._table import (
    PointTable,
    base_workload,
    finish_start,
    planned_points,
    points_file,
    read_table,
    write_start,
)

SweepProgress = Callable[[int, int, int], None]
"""Callback with the numbers of points that have a row, of all points, and of failed points."""


class SweepInterrupted(KeyboardInterrupt):
    """The exception for Ctrl-C during the sweep *name*: *done* of *points* results are in its table."""

    def __init__(self, name: str, done: int, points: int) -> None:
        super().__init__(f"{done} of {points} points of the sweep '{name}' are done")
        self.name = name
        self.done = done
        self.points = points


@dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep: its *name*, the *path* of its table, and its *points*, sorted from the best.

    The table *points* has a column for each setting, ``id`` (the experiment's hash), ``state`` (done or
    failed), ``error``, ``ranks``, the figures in ns, and the duration of the simulation. *simulated* counts
    the points of this call, and *reused* counts the points of earlier sweeps and runs. *kept* lists the
    points saved as runs of the study. *missing* is the number of points without a result in an interrupted or
    running sweep, which the same call resumes.
    """

    name: str
    path: Path
    points: pd.DataFrame
    simulated: int = 0
    reused: int = 0
    kept: tuple[str, ...] = ()
    missing: int = 0

    @property
    def failed(self) -> int:
        """The number of points with an error instead of figures."""
        return int((self.points["state"] == "failed").sum())

    def figure(self, most: int = 20) -> Figure:
        """Return the makespans of up to *most* of the best points as bars."""
        done = self.points[self.points["state"] == "done"].head(most)
        settings = swept_settings(self.points)
        rows = [
            Bar(
                " · ".join(value_text(row[name]) for name in settings),
                0,
                row["makespan_ns"],
                duration_text(row["makespan_ns"]),
            )
            for row in done.to_dict("records")
        ]
        titles = ", ".join(setting_title(name, unit=True) for name in settings)
        return bars(rows, f"{self.name}: the best points" + (f" by {titles}" if titles else ""))

    def _repr_html_(self) -> str:
        points = count_text(len(self.points) + self.missing, "point")
        so_far = f"{len(self.points):,} of {points} so far" if self.missing else points
        title = f"Sweep {self.name}: {so_far}, {self.failed} failed"
        settings = swept_settings(self.points)
        shown = self.points[[*settings, "state", "makespan_ns"]]
        shown = shown.rename(columns={name: setting_title(name, unit=True) for name in settings})
        return block(title, html_table(shown, "The best first"))


def run_sweep(
    study: Study,
    over: Space | Sequence[Settings],
    *,
    workload: str | None = None,
    system: SystemConfig | str | Path = "default",
    network: NetworkConfig | str | Path | None = None,
    memory: MemoryConfig | str | Path | None = None,
    backend: str = DEFAULT_BACKEND,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    trials: int | None = None,
    least: str = "makespan_ns",
    at_most: Mapping[str, float] | None = None,
    prices: Prices | None = None,
    keep: int = 0,
    progress: SweepProgress | None = None,
) -> Sweep:
    """Simulate every point of the space *over*, and return the sweep with its points, best first.

    *over* lists the points, or maps keys to values. In this case, every combination of values is a point. A
    key is one of these:

    * ``network``, ``system``, ``memory``, ``workload`` or ``backend``.
    * An option of ASTRA-sim (``num-queues-per-dim``, ``injection-scale``, ``rendezvous``), or ``semantics``.
    * A field of a configuration file, such as ``network.bandwidth``, ``network.bandwidth[1]`` or
      ``system.endpoint-delay``.

    Points with a result in the sweep's table or the study are not simulated again. If a point fails, its row
    contains the error. *workers* is the number of processes (0: only this process). *cluster* is the address
    or file of a Dask scheduler to use instead, or a YAML file of a batch system. For a batch system,
    *workers* is the number of jobs. If *trials* is given, Optuna chooses this number of points of the space,
    and keys may have a `Range`. The best points minimise the figure *least* within the limits *at_most*.
    *prices* determine the ``cost`` of a step. The full results of the *keep* best points are saved as runs of
    the study.

    The function raises `ConfigError` for keys that are not fields, and `SweepInterrupted` on Ctrl-C.
    """
    goal = Goal(least, at_most or {})
    points = _points(over) if trials is None else _search(over, trials)
    chosen = study.workload_prefix(workload).parent.name
    loaded = None if network is None else load_network("", network, DEFAULT_BACKEND)
    base = Base(chosen, system, loaded, load_memory(memory), backend, options or {})
    # The points of a search are not known yet, so its whole space represents them.
    known: Sequence[Settings] = [points.space] if isinstance(points, Search) else points
    _check(known, base)
    cost = _cost(goal, prices or Prices(), known, base)
    named = name or _default_name(known, base)
    check_name(named, "a sweep")
    folder = study.sweep_dir(named)
    run = _Run(study, base, points, goal)
    with PointTable(folder, cost) as table:
        # Several sweeps may share the table.
        rows = points if isinstance(points, Search) else {*table.rows, *map(point_key, points)}
        write_start(folder, base, len(rows))
        places = Places(cluster, workers, len(points))
        try:
            run.run(table, places, progress or (lambda *_: None))
        except KeyboardInterrupt as stopped:
            raise SweepInterrupted(folder.name, run.finished, len(points)) from stopped
        finish_start(folder)
        kept = run.keep_best(table, keep)
        ranked = with_work(study, chosen, table.frame(run.points, goal))
    reused = len(points) - run.fresh
    return Sweep(folder.name, table.path, ranked, run.simulated, reused, kept)


def sweep_names(study: Study) -> list[str]:
    """Return the sorted names of the study's sweeps."""
    return sorted(
        folder.name for folder in study.sweeps_dir.glob("*") if points_file(study, folder.name).is_file()
    )


def read_sweep(study: Study, name: str) -> Sweep:
    """Return the sweep *name* of the study with all points in its table, or raise `StudyError`."""
    names = sweep_names(study)
    if name not in names:
        raise StudyError(f"The study {study.path} has no sweep '{name}'{did_you_mean(name, names)}")
    path = points_file(study, name)
    table = read_table(path)
    planned = planned_points(study.sweep_dir(name))
    # If a search tries a point twice, the table has one row for it. Therefore, an interrupted search counts
    # as lacking at least one point.
    missing = max(1, planned - len(table)) if planned else 0
    return Sweep(
        name, path, with_work(study, base_workload(study, name), table), reused=len(table), missing=missing
    )


class _Run:
    """A run of a sweep, which reuses existing results and simulates equal experiments only once."""

    def __init__(self, study: Study, base: Base, points: list[dict[str, Any]] | Search, goal: Goal) -> None:
        self.study = study
        self.points: list[dict[str, Any]] = []
        self._all = points
        self._goal = goal
        self.simulated = 0
        self.fresh = 0
        self._builder = Builder(study, base)
        self._waiting: dict[str, list[int]] = {}
        self._failures: dict[str, Answer] = {}
        self.finished = 0
        self._failed = 0

    def run(self, table: PointTable, places: Places, progress: SweepProgress) -> None:
        """Compute a result for every point; after an interruption, finished results stay in the table."""
        tasks = self._tasks(table)
        with closing(
            places.answers(self.study.path.resolve(), tasks, table.path.with_name("log.txt"))
        ) as got:  # type: ignore[type-var]
            for answered in got:
                if answered is not None:
                    self._accept(table, *answered)
                table.save()
                progress(self.finished, len(self._all), self._failed)
        progress(self.finished, len(self._all), self._failed)

    def _tasks(self, table: PointTable) -> Iterator[Task]:
        """Yield each experiment to simulate once, and write existing results directly to the table."""
        for number, settings in enumerate(self._all):
            self.points.append(settings)
            try:
                task = Task.of(number, self._builder.workload_name(settings), self._experiment(settings))
            except ChakrascopeError as error:
                self._note(table, number, "", None, failure(error.message), fresh=True)
                continue
            answer = self._stored_answer(table, task)
            if answer is not None:
                self._note(table, number, task.id, task.experiment.workload.num_ranks, answer, fresh=False)
            elif task.id in self._waiting:
                self._waiting[task.id].append(number)
            else:
                self._waiting[task.id] = [number]
                yield task

    def _experiment(self, settings: Settings) -> Experiment:
        experiment = self._builder.experiment(settings)
        # In an experiment, paths of custom algorithms are relative to the working directory of this process.
        system = replace(experiment.system, folder=experiment.system.folder.resolve())
        return replace(experiment, system=system)

    def _stored_answer(self, table: PointTable, task: Task) -> Answer | None:
        """Return the figures of an experiment that the sweep or the study has already simulated."""
        answer = table.answer_of(task.id) or self._failures.get(task.id)
        if answer is not None or not self.study.has_run_id(task.id):
            return answer
        return measure(Result.load(self.study.run_dir(task.id)))

    def _accept(self, table: PointTable, task: Task, answer: Answer) -> None:
        self.simulated += 1
        if answer["state"] == "failed":
            self._failures[task.id] = answer
        for number in self._waiting.pop(task.id):
            ranks = task.experiment.workload.num_ranks
            self._note(table, number, task.id, ranks, answer, fresh=number == task.number)

    def _note(
        self,
        table: PointTable,
        number: int,
        identity: str,
        ranks: int | None,
        answer: Answer,
        *,
        fresh: bool,
    ) -> None:
        if not table.done(self.points[number], identity):
            table.put(self.points[number], identity, ranks, answer)
        self.finished += 1
        self._failed += answer["state"] == "failed"
        self.fresh += fresh
        if isinstance(self._all, Search):
            row = table.frame([self.points[number]])
            self._all.tell(number, None if answer["state"] == "failed" else float(self._goal.score(row)[0]))

    def keep_best(self, table: PointTable, count: int) -> tuple[str, ...]:
        """Simulate the best *count* points again in full, and save them as runs of the study."""
        rows = table.frame(self.points, self._goal)
        done = rows[rows["state"] == "done"].drop_duplicates("id")["settings"].head(count)
        by_key = {point_key(settings): settings for settings in self.points}
        return tuple(self._keep(by_key[key]) for key in done)

    def _keep(self, settings: Settings) -> str:
        experiment = self._experiment(settings)
        if self.study.has_run(experiment):
            return experiment.content_hash
        result = get_backend(experiment.backend).run(experiment)
        label = point_label(settings)
        return self.study.add_run(
            experiment, result, label=label, workload=self._builder.workload_name(settings)
        )


def _points(over: Space | Sequence[Settings]) -> list[dict[str, Any]]:
    """Return the distinct points of the space."""
    points = grid(over) if isinstance(over, Mapping) else [dict(point) for point in over]
    return list({point_key(point): point for point in points}.values())


def _search(over: Space | Sequence[Settings], trials: int) -> Search:
    if not isinstance(over, Mapping):
        raise ConfigError("A search chooses from axes, not from a list of points; leave out one of them.")
    if trials < 1 or not all(isinstance(values, Range) or len(values) for values in over.values()):
        raise ConfigError("A search needs at least one trial, and at least one value per axis.")
    return Search(over, trials)


def _check(points: Sequence[Settings], base: Base) -> None:
    """Check for errors that would affect every point, before the first point is simulated."""
    for keys in {tuple(point) for point in points}:
        check_keys(dict.fromkeys(keys))
    get_backend(base.backend)
    for point in points:
        backend = point.get("backend", base.backend)
        named = backend if isinstance(backend, (list, tuple)) else [backend]
        replayed = bool(named) and all(about_backend(str(name)).replays for name in named)
        if base.network is None and "network" not in point and not replayed:
            raise ConfigError(
                "The sweep has no network to start from; name one (--network PRESET_OR_FILE), or sweep over "
                "several (network=A,B)."
            )


def _cost(
    goal: Goal, prices: Prices, points: Sequence[Settings], base: Base
) -> Callable[[Settings, int, int], float] | None:
    """Return a function for the price of a step, or raise `ConfigError` if a required price is missing."""
    named = base.network.name if isinstance(base.network, NetworkConfig) else "measured"
    swept: list[str | Path] = []
    for point in points:
        networks: Any = point.get("network", named)
        swept += [networks] if isinstance(networks, (str, Path)) else networks
    check_cost(goal, prices, dict.fromkeys(swept))
    if not prices:
        return None
    return lambda settings, ranks, makespan_ns: prices.step(
        str(settings.get("network", named)), ranks, makespan_ns
    )


def _default_name(points: Sequence[Settings], base: Base) -> str:
    """Return a name that is the same for equal sweeps, so that a repeated call resumes the sweep."""
    text = "\n".join([*sorted(map(point_key, points)), repr(base)])
    return f"sweep-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
