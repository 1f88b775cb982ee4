"""One point of a sweep as a task for a process: its input, its execution, and its result."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import Cancelled, ChakrascopeError
from .._experiment import Detail, Experiment
from .._result import Result
from ..backends import get_backend
from ..study import Study
from ._settings import Base, Builder

MEASURES = ("makespan_ns", "exposed_comm_ns", "compute_ns", "comm_ns", "overlap_ns")
"""The figures of a result in the table, in ns.

The figures are the makespan, the largest exposed communication of a rank, and the means of the other figures
over ranks.
"""

Answer = Mapping[str, Any]
"""The columns of a point's row: its state, and its figures or its error."""


class Work(Protocol):
    """A numbered and self-contained task for a process."""

    @property
    def number(self) -> int:
        """The unique number of the task within the sweep."""

    def answer(self, solver: Solver) -> Answer:
        """Run the task, with the study from *solver* if needed, and return the columns of the result."""


@dataclass(frozen=True)
class Task:
    """A point of a sweep to simulate; the *experiment* has no programs, which each process reads once."""

    number: int
    id: str
    workload: str
    experiment: Experiment

    @classmethod
    def of(cls, number: int, workload: str, experiment: Experiment) -> Task:
        """Return the task of the point *number*, which simulates the study's *workload*."""
        bare = replace(experiment.workload, programs=(), prefix=None, loaded=None, metadata={})
        return cls(number, experiment.content_hash, workload, replace(experiment, workload=bare))

    def answer(self, solver: Solver) -> Answer:
        """Simulate the point and return its figures."""
        return solver.simulate(self)


class Solver:
    """Simulates points of sweeps in one study, and caches the study's workloads."""

    def __init__(self, study: str | Path) -> None:
        self._study = study

    @cached_property
    def _builder(self) -> Builder:
        return Builder(Study.open(self._study), Base())

    def solve(self, work: Work) -> Answer:
        """Return the columns of the result of *work*; an error is also a result.

        The method raises no exception except `Cancelled`.
        """
        try:
            return work.answer(self)
        except Cancelled:
            raise
        except ChakrascopeError as error:
            return failure(error.message)
        except Exception as error:
            traceback.print_exc()
            return failure(
                f"An error in chakrascope itself ({type(error).__name__}: {error}); "
                "the log of the sweep, or of its Dask worker, has the details."
            )

    def simulate(self, task: Task) -> Answer:
        """Return the figures of a point of the study."""
        bare = task.experiment
        source = self._builder.source(task.workload, bare.workload.num_ranks)
        # A table of points does not need tables of nodes, which often take longer than the simulation.
        experiment = replace(bare, workload=source, detail=Detail.TOTALS)
        if experiment.content_hash != task.id:
            return failure(
                f"The workload '{task.workload}' has changed since the sweep began. Next: run the sweep "
                "again."
            )
        started = time.perf_counter()
        result = get_backend(experiment.backend).run(experiment)
        return {**measure(result), "simulation_s": time.perf_counter() - started}


def measure(result: Result) -> Answer:
    """Return the figures of *result* for a sweep's table."""
    ranks = result.ranks
    means = {name: int(np.mean(ranks[name])) for name in MEASURES[2:]}
    exposed = int(ranks["exposed_comm_ns"].max())
    return {"state": "done", "makespan_ns": result.makespan_ns, "exposed_comm_ns": exposed, **means}


def failure(message: str) -> Answer:
    """Return the columns of a failed point."""
    return {"state": "failed", "error": message}
