"""Executors for the points of a sweep: this process, several processes of this machine, or a cluster.

Each executor is a generator of tasks with their results in order of completion. About once a second without a
result, the generator yields ``None``. Closing the generator ends all its processes.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ...errors import BackendError
from ...support.cluster import connected
from ._point import Answer, Solver, Work, failure

Answers = Iterator["tuple[Any, Answer] | None"]
_TICK_S = 1.0
_TRIES = 2
_MAX_EARLY_DEATHS = 6


def run_in_process(study: Path, tasks: Iterator[Work]) -> Answers:
    """Simulate the *tasks* in sequence in this process."""
    solver = Solver(study)
    for task in tasks:
        yield task, solver.solve(task)


def answer_in_processes(study: Path, tasks: Iterator[Work], workers: int, log: Path) -> Answers:
    """Simulate the *tasks* in up to *workers* processes, with their output in the file *log*.

    If a process dies, it is replaced, and its task is retried once.
    """
    pool = _Pool(study, workers, log)
    try:
        yield from pool.answers(tasks)
    finally:
        pool.close()


class _Worker:
    """A worker process, its connection, and its current task."""

    def __init__(self, study: Path, log: Path) -> None:
        ours, theirs = multiprocessing.Pipe()
        self.connection: Connection[object, object] = ours
        self.task: Work | None = None
        with log.open("ab") as output:
            # The worker has a separate process group. Ctrl-C only reaches this process, which ends its
            # workers.
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.worker", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        theirs.close()
        self._send(str(study))

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, task: Work) -> None:
        self.task = task
        self._send(task)

    def _send(self, message: object) -> None:
        # If the process is dead, the caller notices this when it waits for the result.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)

    def close(self) -> str:
        """Kill the process and return the reason of its end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        status = self._process.wait()
        self.connection.close()
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"


class _Pool:
    def __init__(self, study: Path, workers: int, log: Path) -> None:
        self._study = study
        self._most = workers
        self._log = log
        self._workers: list[_Worker] = []
        self._retries: deque[Work] = deque()
        self._deaths: dict[int, int] = {}
        self._answered = False

    def answers(self, tasks: Iterator[Work]) -> Answers:
        while self._occupy(tasks):
            busy = {worker.connection: worker for worker in self._workers if worker.task is not None}
            ready = wait(list(busy), _TICK_S)
            if not ready:
                yield None
            for connection in ready:
                answered = self._collect(busy[connection])  # type: ignore[index]  # only connections wait
                if answered is not None:
                    yield answered

    def _occupy(self, tasks: Iterator[Work]) -> bool:
        """Give every idle process a task, start processes as needed, and return whether any is busy."""
        idle = [worker for worker in self._workers if worker.task is None]
        while idle or len(self._workers) < self._most:
            task = self._retries.popleft() if self._retries else next(tasks, None)
            if task is None:
                break
            if not idle:
                self._workers.append(_Worker(self._study, self._log))
                idle.append(self._workers[-1])
            idle.pop().start(task)
        return any(worker.task is not None for worker in self._workers)

    def _collect(self, worker: _Worker) -> tuple[Work, Answer] | None:
        task = worker.task
        if task is None:
            return None
        try:
            answer = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            return self._replace(worker, task)
        worker.task = None
        self._answered = True
        return task, answer  # type: ignore[return-value]  # our own worker answers with columns

    def _replace(self, worker: _Worker, task: Work) -> tuple[Work, Answer] | None:
        self._workers.remove(worker)
        end = worker.close()
        self._deaths[task.number] = self._deaths.get(task.number, 0) + 1
        if not self._answered and sum(self._deaths.values()) >= _MAX_EARLY_DEATHS:
            raise BackendError(
                f"{_MAX_EARLY_DEATHS} processes of the sweep died ({end}) before any of them returned a "
                f"result; their output is in {self._log}. Next: if memory was short, try --workers 1."
            )
        if self._deaths[task.number] < _TRIES:
            self._retries.append(task)
            return None
        return task, failure(
            f"The process that simulated it died {_TRIES} times ({end}); is there enough memory? Its "
            f"output is in {self._log.name}."
        )

    def close(self) -> None:
        while self._workers:
            self._workers.pop().close()


@dataclass(frozen=True)
class Places:
    """The executor of a sweep: a Dask *cluster*, or up to *workers* local processes for *points* tasks.

    *workers* is the number of processes (0: only this process; None: one process per processor). If *cluster*
    is a YAML file for a batch system, *workers* is the number of jobs.
    """

    cluster: str | None
    workers: int | None
    points: int

    def answers(self, study: Path, tasks: Iterator[Work], log: Path) -> Answers:
        """Yield the *tasks* with their results as they complete, and None after each second without a result.

        Workers open the folder *study* if a task needs it. The output of the workers goes to *log*.
        """
        if self.cluster is not None:
            return _answer_on_cluster(study, tasks, self.cluster, self.workers or 1)
        if self.workers == 0:
            return run_in_process(study, tasks)
        workers = self.workers or len(os.sched_getaffinity(0))
        return answer_in_processes(study, tasks, min(workers, self.points), log)


def _answer_on_cluster(study: Path, tasks: Iterator[Work], cluster: str, jobs: int) -> Answers:
    """Simulate the *tasks* on the *cluster*, with *jobs* as the number of jobs of a batch system.

    The workers need the study's folder at the same path. If a worker dies, Dask moves its tasks to another
    worker. The function also raises the errors of `connected`.
    """
    with (
        connected(cluster, jobs, "sweep") as place,
        closing(place.answers(functools.partial(_solve, str(study)), tasks)) as answers,  # type: ignore[type-var]
    ):
        for answered in answers:
            if answered is None:
                yield None
            else:
                task, answer = answered
                yield task, failure(answer.message) if isinstance(answer, BackendError) else answer


def _solve(study: str, task: Work) -> Answer:
    """Answer one task on a worker of the cluster."""
    return _solver(study).solve(task)


@functools.lru_cache(maxsize=1)
def _solver(study: str) -> Solver:
    return Solver(study)
