"""Start a Dask cluster from jobs of a batch system, such as Slurm, with dask-jobqueue."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ....errors import BackendUnavailable, ConfigError, did_you_mean
from ...documents import read_yaml

_SYSTEMS = {
    "htcondor": "HTCondorCluster",
    "local": "LocalCluster",
    "lsf": "LSFCluster",
    "moab": "MoabCluster",
    "oar": "OARCluster",
    "pbs": "PBSCluster",
    "sge": "SGECluster",
    "slurm": "SLURMCluster",
}
_EXAMPLE = "jobqueue: {slurm: {cores: 8, memory: 16GB, walltime: '01:00:00'}}"


@contextmanager
def batch_cluster(file: Path, jobs: int, what: str) -> Iterator[tuple[Any, list[str]]]:
    """Start a Dask scheduler on this machine, and submit *jobs* workers to the batch system in *file*.

    Yields the cluster, and a list that fills with the batch system's reasons for refusing jobs. All
    jobs are cancelled at the end of the block. *what* names their purpose in errors. Raises
    `ConfigError` for a YAML file that dask-jobqueue cannot use, and `BackendUnavailable` without
    dask-jobqueue or the batch system.
    """
    data = _read(file)
    system = _system(data, file)
    dask, kind = _imported(system, what)
    merged = {key: dask.config.merge(dask.config.get(key, {}), value) for key, value in data.items()}
    # The scheduler's dashboard would by default be open to the whole network.
    options = merged["jobqueue"][system].setdefault("scheduler-options", {})
    options.setdefault("dashboard_address", "127.0.0.1:0")
    with dask.config.set(merged), _Refusals() as refusals:
        try:
            cluster = kind()
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{file}: dask-jobqueue cannot use '{system}' ({error}); correct it."
            ) from error
        try:
            cluster.scale(jobs=jobs)
            yield cluster, refusals.reasons
        finally:
            _close(cluster)


def _close(cluster: Any) -> None:
    loop = cluster.loop
    try:
        cluster.close()
    except AssertionError:
        # The batch system refused a job that Dask thinks has started, so closing stopped before its
        # last steps, which mark the cluster as closed and stop the loop.
        cluster.status = type(cluster.status).closed
        loop.add_callback(loop.stop)


class _Refusals(logging.Filter):
    """A log filter that collects dask-jobqueue's messages about refused jobs."""

    _LOGGERS = ("asyncio", "tornado.application")

    def __enter__(self) -> _Refusals:
        self.reasons: list[str] = []
        for name in self._LOGGERS:
            logging.getLogger(name).addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._LOGGERS:
            logging.getLogger(name).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        refused = isinstance(error, RuntimeError) and str(error).startswith("Command exited")
        if refused:
            self.reasons.append(" ".join(str(error).partition("stderr:")[2].split()))
        return not refused


def _read(file: Path) -> Mapping[str, Any]:
    data = read_yaml(file, "cluster file")
    if not all(isinstance(part, Mapping) for part in data.values()):
        raise ConfigError(f"{file} does not describe a batch system; write for instance {_EXAMPLE}.")
    return data


def _system(data: Mapping[str, Any], file: Path) -> str:
    systems = [str(name) for name in data.get("jobqueue", {})]
    if len(systems) != 1:
        raise ConfigError(
            f"{file} describes {len(systems) or 'no'} batch systems under 'jobqueue'; describe one, for "
            f"instance {_EXAMPLE}."
        )
    if systems[0] not in _SYSTEMS:
        raise ConfigError(
            f"{file}: there is no batch system '{systems[0]}'{did_you_mean(systems[0], _SYSTEMS)}"
        )
    return systems[0]


def _imported(system: str, what: str) -> tuple[Any, Any]:
    """Return the module ``dask`` and dask-jobqueue's cluster class for the batch system *system*."""
    try:
        import dask.config  # noqa: PLC0415 - an optional dependency
        import dask_jobqueue  # noqa: PLC0415
        import dask_jobqueue.local  # noqa: PLC0415
    except ImportError as error:
        raise BackendUnavailable(
            f"A cluster of a batch system needs dask-jobqueue ({error}); install it with "
            "'pip install chakrascope[dask]'."
        ) from error
    module = dask_jobqueue.local if system == "local" else dask_jobqueue
    kind = getattr(module, _SYSTEMS[system])
    command = getattr(kind.job_cls, "submit_command", None)
    if command is not None and shutil.which(str(command).split()[0]) is None:
        raise BackendUnavailable(
            f"The batch system '{system}' has no command '{str(command).split()[0]}' here; start the {what} "
            "on a machine that can submit jobs."
        )
    return dask, kind
