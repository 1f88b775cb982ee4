"""Executors of a sweep: this process, several processes of this machine, or a cluster."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ...errors import BackendError
from ...support.cluster import connected
from ._point import Answer, Solver, Work, failure
from ._pool import Answers, answer_here, answer_in_processes

__all__ = ["Places"]


@dataclass(frozen=True)
class Places:
    """Where to simulate: on a Dask *cluster*, or in *workers* processes here, but at most *points*.

    *workers* is the number of processes, 0 for this process only, None for one per processor; for a batch
    system's YAML, the number of jobs.
    """

    cluster: str | None
    workers: int | None
    points: int

    def answers(self, study: Path, tasks: Iterator[Work], log: Path) -> Answers:
        """Yield the *tasks* with their results as they complete, and None about once a second in between.

        Workers open the folder *study* if a task needs it; their output goes to *log*.
        """
        if self.cluster is not None:
            return _answer_on_cluster(study, tasks, self.cluster, self.workers or 1)
        if self.workers == 0:
            return answer_here(study, tasks)
        workers = self.workers or len(os.sched_getaffinity(0))
        return answer_in_processes(study, tasks, min(workers, self.points), log)


def _answer_on_cluster(study: Path, tasks: Iterator[Work], cluster: str, jobs: int = 1) -> Answers:
    """Simulate the *tasks* on the *cluster*, of so many *jobs* if it is one of a batch system.

    The workers need the study's folder at the same path. When a worker dies, Dask moves its tasks to another.
    Raises what `connected` does.
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
    """Answer one task, on a worker."""
    return _solver(study).solve(task)


@functools.lru_cache(maxsize=1)
def _solver(study: str) -> Solver:
    return Solver(study)
