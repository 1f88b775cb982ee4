"""Points simulated by the workers of a Dask cluster, on as many machines as it has."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import BackendError, BackendUnavailable
from ._point import Answer, Solver, Task, failure
from ._pool import Answers

__all__ = ["answer_on_dask"]

_CONNECT_S = 15
_TICK_S = 1.0
_AHEAD = 4


def answer_on_dask(study: Path, tasks: Iterator[Task], cluster: str) -> Answers:
    """Simulate the *tasks* on the cluster at an address such as ``tcp://host:8786``, or of a scheduler file.

    The workers need the study's folder at the same path. A worker that dies is Dask's to make good: its
    tasks go to another. Raises `BackendUnavailable` without the package, `BackendError` without a cluster.
    """
    distributed = _distributed()
    client = _client(distributed, cluster)
    prefix = f"chakrascope-{uuid.uuid4().hex[:12]}"
    try:
        yield from _answers(distributed, client, study, tasks, prefix)
    finally:
        client.close()


def _answers(distributed: Any, client: Any, study: Path, tasks: Iterator[Task], prefix: str) -> Answers:
    """Keep some tasks a thread of the cluster submitted, and hand over answers as they come."""
    open_tasks: dict[Any, Task] = {}
    try:
        while _submit(client, study, tasks, prefix, open_tasks):
            try:
                ready = distributed.wait(
                    list(open_tasks), timeout=_TICK_S, return_when="FIRST_COMPLETED"
                ).done
            except distributed.TimeoutError:
                yield None
                continue
            for future in ready:
                yield open_tasks.pop(future), _answer(future)
                future.release()
    finally:
        client.cancel(list(open_tasks), force=True)


def _submit(
    client: Any, study: Path, tasks: Iterator[Task], prefix: str, open_tasks: dict[Any, Task]
) -> bool:
    threads = sum(client.nthreads().values())
    while len(open_tasks) < _AHEAD * max(threads, 1):
        task = next(tasks, None)
        if task is None:
            break
        key = f"{prefix}-{task.number}"
        future = client.submit(_solve, str(study), task, key=key, pure=False, retries=1)
        open_tasks[future] = task
    return bool(open_tasks)


def _answer(future: Any) -> Answer:
    if future.status == "finished":
        answer: Answer = future.result()
        return answer
    error = future.exception() if future.status == "error" else None
    return failure(
        f"The Dask cluster gave its point up ({type(error).__name__ if error else future.status}: {error}); "
        "the workers' logs say more. Run the sweep again."
    )


def _solve(study: str, task: Task) -> Answer:
    """Answer one task, on a worker."""
    return _solver(study).solve(task)


@functools.lru_cache(maxsize=1)
def _solver(study: str) -> Solver:
    return Solver(study)


def _distributed() -> Any:
    try:
        import distributed  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - an extra
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
