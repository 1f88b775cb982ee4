"""Points simulated by the workers of a Dask cluster, on as many machines as it has."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ...errors import BackendError
from ...support.cluster import connected
from ._point import Answer, Solver, Work, failure
from ._pool import Answers

__all__ = ["answer_on_cluster"]


def answer_on_cluster(study: Path, tasks: Iterator[Work], cluster: str, jobs: int = 1) -> Answers:
    """Simulate the *tasks* on the *cluster*, of so many *jobs* if it is one of a batch system.

    The workers need the study's folder at the same path. A worker that dies is Dask's to make good: its tasks
    go to another. Raises what `connected` does.
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
