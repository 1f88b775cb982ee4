"""Distribute calls to the workers of a Dask cluster, possibly on a batch system.

Dask is optional, and imported only when a cluster is connected.
"""

from __future__ import annotations

import queue
import uuid
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ...errors import BackendError, BackendUnavailable, ConfigError
from .. import load_plugin, plugin_names
from ..documents import read_json, read_yaml

_CONNECT_S = 15
_TICK_S = 1.0
_TASKS_PER_THREAD = 4
_BATCH_FILES = (".yml", ".yaml")
_FAILED_STATES = ("error", "cancelled")
_CLUSTERS = "clusters"

# A plug-in that starts a cluster. The plug-in takes the YAML file, the number of jobs and their purpose,
# and yields Dask's cluster and a list that fills with the batch system's reasons for refusing jobs.
BatchCluster = Callable[[Path, int, str], AbstractContextManager[tuple[Any, list[str]]]]

T = TypeVar("T")
A = TypeVar("A")


@contextmanager
def connected(cluster: str, jobs: int, what: str) -> Iterator[Cluster]:
    """Connect to the Dask cluster at an address such as ``tcp://host:8786``, or in a scheduler file.

    A YAML file *cluster* describes a batch system, on which *jobs* jobs form a cluster for the
    duration of the block; a key in the file selects the plug-in of ``chakrascope.clusters`` that
    starts it. *what* names the cluster's purpose in errors, such as ``sweep``. Raises
    `BackendUnavailable` without Dask, `BackendError` if no cluster answers, and `ConfigError` for
    an invalid YAML file.
    """
    distributed = _distributed(what)
    if Path(cluster).suffix in _BATCH_FILES and "://" not in cluster:
        with _batch_cluster(Path(cluster))(Path(cluster), jobs, what) as (started, refusals):
            yield from _closing(distributed.Client(started, set_as_default=False), what, refusals)
    else:
        yield from _closing(_client(distributed, cluster), what, [])


def _batch_cluster(file: Path) -> BatchCluster:
    """Return the plug-in that starts the cluster in *file*; raises `ConfigError` if there is none."""
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
    """A connection to a Dask cluster; *refusals* are the batch system's reasons for refusing jobs."""

    def __init__(self, client: Any, what: str, refusals: list[str]) -> None:
        self._client = client
        self._what = what
        self._refusals = refusals

    def answers(
        self, work: Callable[[T], A], tasks: Iterator[T]
    ) -> Iterator[tuple[T, A | BackendError] | None]:
        """Yield each task with the result of *work*, in order of completion.

        *work* is pickled and runs on the workers; it should return errors rather than raise them. If Dask
        gives up on a call, its result is a `BackendError`. If a worker dies, Dask moves its tasks to another.
        While nothing completes, None is yielded about once a second. *tasks* is consumed as tasks complete,
        with a few in flight per thread of the cluster. Closing the iterator cancels tasks that have not
        started, and drops the results of running tasks. Raises `BackendError` if the batch system provides no
        worker.
        """
        numbered, prefix = enumerate(tasks), f"chakrascope-{uuid.uuid4().hex[:12]}"
        in_flight: dict[str, tuple[Any, T]] = {}
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def submit() -> bool:
            """Submit a few tasks per thread of the cluster; return whether any task is in flight."""
            threads = sum(self._client.nthreads().values())
            while len(in_flight) < _TASKS_PER_THREAD * max(threads, 1):
                number, task = next(numbered, (0, None))
                if task is None:
                    break
                key = f"{prefix}-{number}"
                future = self._client.submit(work, task, key=key, pure=False)
                in_flight[key] = future, task
                future.add_done_callback(done.put)
            return bool(in_flight)

        try:
            while submit():
                try:
                    future = done.get(timeout=_TICK_S)
                except queue.Empty:
                    self._check()
                    yield None
                    continue
                while not (answer := self._answer(future)):
                    self._check()
                    yield None
                _, task = in_flight.pop(future.key)
                yield task, answer[0]
                future.release()
        finally:
            self._client.cancel([future for future, _ in in_flight.values()], force=True)

    def _check(self) -> None:
        """Raise `BackendError` if there is no worker because the batch system refused jobs."""
        if self._refusals and not self._client.nthreads():
            raise BackendError(
                f"The batch system refused the jobs of the {self._what} ({self._refusals[0]}); correct the "
                f"cluster file, and run the {self._what} again."
            )

    def _answer(self, future: Any) -> tuple[Any] | tuple[()]:
        """Return a completed task's result as a tuple; empty while Dask recomputes a lost result."""
        if future.status not in _FAILED_STATES:
            # If a worker dies after its task, but before the result is fetched, Dask repeats the
            # task and `result` would wait for it.
            try:
                return (future.result(timeout=_TICK_S),)
            except (Exception, CancelledError):
                if future.status not in _FAILED_STATES:
                    return ()
        error = future.exception() if future.status == "error" else None
        why = f"{type(error).__name__ if error else future.status}: {error}"
        failure = BackendError(
            f"The Dask cluster gave up a part of the {self._what} ({why}); the workers' logs say more. Run "
            f"the {self._what} again."
        )
        return (failure,)


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
            f"The Dask scheduler at {cluster} does not answer ({error}); check its address, and that it "
            "is running."
        ) from error


def _address(cluster: str) -> str:
    """Return the scheduler's address, from the scheduler file *cluster* if it is one."""
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
