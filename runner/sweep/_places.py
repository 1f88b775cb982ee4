"""Where work is done: in this process, in several of this machine, or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ._on_cluster import answer_on_cluster
from ._point import Work
from ._pool import Answers, answer_here, answer_in_processes

__all__ = ["Places"]


@dataclass(frozen=True)
class Places:
    """Where to simulate: a Dask *cluster*, or so many *workers* here, but not more than *points*.

    *workers* is the number of processes, 0 for none but this one, None for one for each processor; of a
    batch system's YAML, the number of jobs.
    """

    cluster: str | None
    workers: int | None
    points: int

    def answers(self, study: Path, tasks: Iterator[Work], log: Path) -> Answers:
        """Yield the *tasks* with their answers as they come, and None about once a second in between.

        Workers open the folder *study* if a task asks for it; what they print goes to *log*.
        """
        if self.cluster is not None:
            return answer_on_cluster(study, tasks, self.cluster, self.workers or 1)
        if self.workers == 0:
            return answer_here(study, tasks)
        workers = self.workers or len(os.sched_getaffinity(0))
        return answer_in_processes(study, tasks, min(workers, self.points), log)
