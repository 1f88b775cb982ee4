"""Distribute calls to the workers of a Dask cluster, which may run on a batch system.

Dask is an optional dependency, which is imported when a cluster is connected.
"""

from __future__ import annotations

import queue
import uuid
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...errors import BackendError, BackendUnavailable, ConfigError
from .. import load_plugin, plugin_names
from ..documents import read_json, read_yaml

_CONNECT_S = 15
_TICK_S = 1.0
_AHEAD = 4
_BATCH_FILES = (".yml", ".yaml")
_GIVEN_UP = ("error", "cancelled")
_CLUSTERS = "clusters"

# A plug-in that starts a cluster takes the YAML file, the number of jobs and the purpose of the jobs. The
# plug-in yields Dask's cluster, and a list that receives the batch system's reasons for refused jobs.
BatchCluster = Callable[[Path, int, str], AbstractContextManager[tuple[Any, list[str]]]]

T = TypeVar("T")
A = TypeVar("A")


@contextmanager
def connected(cluster: str, jobs: int, what: str) -> Iterator[Cluster]:
    """Connect to the Dask cluster at an address such as ``tcp://host:8786``, or in a scheduler file.

    A YAML file *cluster* describes a batch system, on which *jobs* jobs form a cluster that ends with the
    block. A key of the file names the plug-in of ``chakrascope.clusters`` that starts the cluster. *what*
    names the purpose of the cluster in errors, such as ``sweep``. Raises
    `BackendUnavailable` without Dask, `BackendError` if no cluster answers, and `ConfigError` for an invalid
    YAML file.
    """
    distributed = _distributed(what)
    if Path(cluster).suffix in _BATCH_FILES and "://" not in cluster:
        with _batch_cluster(Path(cluster))(Path(cluster), jobs, what) as (started, refusals):
            yield from _closing(distributed.Client(started, set_as_default=False), what, refusals)
    else:
        yield from _closing(_client(distributed, cluster), what, [])


def _batch_cluster(file: Path) -> BatchCluster:
    """Return the plug-in that starts the cluster described in *file*; raises `ConfigError` without one."""
    keys = read_yaml(file, "cluster file")
    names = plugin_names(_CLUSTERS)
    name = next((name for name in names if name in keys), None)
    if name is None:
        names_text = ", ".join(f"'{each}'" for each in names) or "none, as no plug-in is installed"
        raise ConfigError(f"{file} does not describe a batch system; its key must be one of: {names_text}.")
    start: BatchCluster = load_plugin(_CLUSTERS, name)
    return start


def _closing(client: Any, what: str, refusals: list[str]) -> Iterator[Cluster]:
    try:
        yield Cluster(client, what, refusals)
    finally:
        client.close()


class Cluster:
    """A connection to a Dask cluster; *refusals* receives the batch system's reasons for refused jobs."""

    def __init__(self, client: Any, what: str, refusals: list[str]) -> None:
        self._client = client
        self._what = what
        self._refusals = refusals

    def answers(
        self, work: Callable[[T], A], tasks: Iterator[T]
    ) -> Iterator[tuple[T, A | BackendError] | None]:
        """Yield each task with the result of *work* for the task, in order of completion.

        Workers run the pickled *work*, which should return errors instead of raising them. If Dask gives up
        on a call, the result is a `BackendError`. If a worker dies, Dask moves its tasks to another worker.
        While no task completes, the iterator yields None about once a second. Tasks are taken from *tasks* as
        other tasks complete; a few tasks per thread of the cluster are in flight. Closing this iterator
        cancels tasks that have not started. Running tasks still end, and their results are dropped. Raises
        `BackendError` if the batch system provides no worker.
        """
        under_way = _Tasks(self, self._client, work, tasks)
        try:
            yield from under_way.answers()
        finally:
            under_way.cancel()

    def check(self) -> None:
        """Raise `BackendError` if the cluster has no worker and the batch system has refused jobs."""
        if self._refusals and not self._client.nthreads():
            raise BackendError(
                f"The batch system refused the jobs of the {self._what} ({self._refusals[0]}); correct the "
                f"cluster file, and run the {self._what} again."
            )

    def given_up(self, future: Any) -> BackendError:
        """Return the error for a call that Dask has cancelled or no longer retries."""
        error = future.exception() if future.status == "error" else None
        why = f"{type(error).__name__ if error else future.status}: {error}"
        return BackendError(
            f"The Dask cluster gave up a part of the {self._what} ({why}); the workers' logs say more. Run "
            f"the {self._what} again."
        )


class _Tasks(Generic[T, A]):
    """The tasks in flight: a few tasks per thread of the cluster, submitted as earlier tasks complete."""

    def __init__(self, cluster: Cluster, client: Any, work: Callable[[T], A], tasks: Iterator[T]) -> None:
        self._cluster = cluster
        self._client = client
        self._work = work
        self._tasks = enumerate(tasks)
        self._prefix = f"chakrascope-{uuid.uuid4().hex[:12]}"
        self._open: dict[str, tuple[Any, T]] = {}
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def answers(self) -> Iterator[tuple[T, A | BackendError] | None]:
        while self._submit():
            try:
                future = self._done.get(timeout=_TICK_S)
            except queue.Empty:
                self._cluster.check()
                yield None
                continue
            while not (answer := self._answer(future)):
                self._cluster.check()
                yield None
            _, task = self._open.pop(future.key)
            yield task, answer[0]
            future.release()

    def _submit(self) -> bool:
        threads = sum(self._client.nthreads().values())
        while len(self._open) < _AHEAD * max(threads, 1):
            number, task = next(self._tasks, (0, None))
            if task is None:
                break
            key = f"{self._prefix}-{number}"
            future = self._client.submit(self._work, task, key=key, pure=False)
            self._open[key] = future, task
            future.add_done_callback(self._done.put)
        return bool(self._open)

    def cancel(self) -> None:
        self._client.cancel([future for future, _ in self._open.values()], force=True)

    def _answer(self, future: Any) -> tuple[A | BackendError] | tuple[()]:
        """Return the result of a completed task as a tuple; empty while Dask recomputes a lost result."""
        if future.status not in _GIVEN_UP:
            # A worker may die after its task completes, but before the result is fetched. Dask then repeats
            # the task, and `result` waits for the repetition.
            try:
                return (future.result(timeout=_TICK_S),)
            except (Exception, CancelledError):
                if future.status not in _GIVEN_UP:
                    return ()
        return (self._cluster.given_up(future),)


def _distributed(what: str) -> Any:
    try:
        import distributed  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise BackendUnavailable(
            f"A {what} on a cluster needs Dask ({error}); install it with 'pip install chakrascope[dask]'."
        ) from error
    return distributed


def _client(distributed: Any, cluster: str) -> Any:
    try:
        return distributed.Client(_address(cluster), timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise BackendError(
            f"The Dask scheduler at {cluster} does not answer ({error}); check that it runs and its address."
        ) from error


def _address(cluster: str) -> str:
    """Return the scheduler's address: *cluster*, or the address in the scheduler file *cluster*."""
    if "://" in cluster:
        return cluster
    file = Path(cluster)
    if not file.is_file():
        raise BackendError(
            f"There is no Dask scheduler file {cluster}; give the file, or an address such as "
            "tcp://host:8786."
        )
    address = read_json(file, "Dask scheduler file").get("address")
    if not isinstance(address, str):
        raise ConfigError(
            f"{cluster} is not a Dask scheduler file: it has no address. Next: give another file."
        )
    return address
