"""Points simulated by the workers of a Dask cluster, on as many machines as it has."""

from __future__ import annotations

import functools
import queue
import uuid
from asyncio import CancelledError
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import BackendError, BackendUnavailable
from ._batch import batch_cluster
from ._point import Answer, Solver, Work, failure
from ._pool import Answers

__all__ = ["answer_on_dask"]

_CONNECT_S = 15
_TICK_S = 1.0
_AHEAD = 4
_BATCH_FILES = (".yml", ".yaml")
_GIVEN_UP = ("error", "cancelled")


def answer_on_dask(study: Path, tasks: Iterator[Work], cluster: str, jobs: int = 1) -> Answers:
    """Simulate the *tasks* on the cluster at an address such as ``tcp://host:8786``, or of a scheduler file.

    Of a YAML file as dask-jobqueue reads it, so many *jobs* of the batch system become a cluster. The
    workers need the study's folder at the same path. A worker that dies is Dask's to make good: its tasks go
    to another. Raises `BackendUnavailable` without the package, `BackendError` without a cluster.
    """
    distributed = _distributed()
    if Path(cluster).suffix in _BATCH_FILES and "://" not in cluster:
        with batch_cluster(Path(cluster), jobs) as (started, refusals):
            yield from _answers_of(distributed.Client(started, set_as_default=False), study, tasks, refusals)
    else:
        yield from _answers_of(_client(distributed, cluster), study, tasks, [])


def _answers_of(client: Any, study: Path, tasks: Iterator[Work], refusals: list[str]) -> Answers:
    under_way = _Tasks(client, study, tasks, refusals)
    try:
        yield from under_way.answers()
    finally:
        under_way.cancel()
        client.close()


class _Tasks:
    """Tasks on their way: some a thread of the cluster, submitted as others are answered."""

    def __init__(self, client: Any, study: Path, tasks: Iterator[Work], refusals: list[str]) -> None:
        self._client = client
        self._refusals = refusals
        self._study = str(study)
        self._tasks = tasks
        self._prefix = f"chakrascope-{uuid.uuid4().hex[:12]}"
        self._open: dict[str, tuple[Any, Work]] = {}
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def answers(self) -> Answers:
        while self._submit():
            try:
                future = self._done.get(timeout=_TICK_S)
            except queue.Empty:
                self._check()
                yield None
                continue
            while (answer := _answer(future)) is None:
                self._check()
                yield None
            _, task = self._open.pop(future.key)
            yield task, answer
            future.release()

    def _check(self) -> None:
        """Raise `BackendError` if there is no worker and the batch system would give none."""
        if self._refusals and not self._client.nthreads():
            raise BackendError(
                f"The batch system refused the jobs of the sweep ({self._refusals[0]}); correct the cluster "
                "file, and run the sweep again."
            )

    def _submit(self) -> bool:
        threads = sum(self._client.nthreads().values())
        while len(self._open) < _AHEAD * max(threads, 1):
            task = next(self._tasks, None)
            if task is None:
                break
            key = f"{self._prefix}-{task.number}"
            future = self._client.submit(_solve, self._study, task, key=key, pure=False)
            self._open[key] = future, task
            future.add_done_callback(self._done.put)
        return bool(self._open)

    def cancel(self) -> None:
        """Take back what has no answer yet; what a worker has begun it still ends, for nobody."""
        self._client.cancel([future for future, _ in self._open.values()], force=True)


def _answer(future: Any) -> Answer | None:
    """Return the answer of a task that ended, None while another worker computes what one took with it."""
    if future.status not in _GIVEN_UP:
        # Its worker may die after the task, but before its answer is fetched: Dask computes it again then,
        # as `result` waits for.
        try:
            answer: Answer = future.result(timeout=_TICK_S)
        except (Exception, CancelledError):
            if future.status not in _GIVEN_UP:
                return None
        else:
            return answer
    error = future.exception() if future.status == "error" else None
    return failure(
        f"The Dask cluster gave its point up ({type(error).__name__ if error else future.status}: {error}); "
        "the workers' logs say more. Run the sweep again."
    )


def _solve(study: str, task: Work) -> Answer:
    """Answer one task, on a worker."""
    return _solver(study).solve(task)


@functools.lru_cache(maxsize=1)
def _solver(study: str) -> Solver:
    return Solver(study)


def _distributed() -> Any:
    try:
        import distributed  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BackendUnavailable(
            f"A sweep on a cluster needs Dask ({error}); install it with 'pip install chakrascope[dask]'."
        ) from error
    return distributed


def _client(distributed: Any, cluster: str) -> Any:
    where = {"address": cluster} if "://" in cluster else {"scheduler_file": cluster}
    if "scheduler_file" in where and not Path(cluster).is_file():
        raise BackendError(
            f"There is no Dask scheduler file {cluster}; give the file, or an address such as tcp://host:8786."
        )
    try:
        return distributed.Client(**where, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise BackendError(
            f"The Dask scheduler at {cluster} does not answer ({error}); check that it runs and its address."
        ) from error
