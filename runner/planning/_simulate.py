"""Choose the candidates to simulate: those that may be the best, or on the front, by their estimates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .._experiment import Detail
from .._traits import DEFAULT_BACKEND
from ..backends import Progress, get_backend
from ..prediction import Setting, experiment_of, with_habits
from ..prediction.models import AXES, Plan
from ..sweep import Answer, Solver, measure
from ._estimate import Candidate
from ._request import CHOICES, Request

__all__ = ["Chooser", "SimulateWork", "front", "setting_of"]


@dataclass(frozen=True)
class SimulateWork:
    """Simulate the step of a *setting*."""

    number: int
    setting: Setting

    def answer(self, solver: Solver, progress: Progress | None) -> Answer:
        """Return the figures of the step, and the ``id`` that a run of it has."""
        del solver
        experiment = experiment_of(self.setting, backend=DEFAULT_BACKEND, every_rank=False)
        result = get_backend(DEFAULT_BACKEND).run(replace(experiment, detail=Detail.TOTALS), progress)
        return {**measure(result), "id": experiment.content_hash}


def setting_of(request: Request, candidate: Candidate) -> Setting:
    """Return the setting of *candidate* for a prediction."""
    cluster = request.clusters[candidate.cluster]
    plan = Plan(
        **dict(zip(CHOICES, candidate.choices, strict=True)),
        global_batch=request.global_batch,
        sequence=request.sequence,
        precision=request.precision or cluster.chip.precision,
        placement=request.placement or AXES,
    )
    habitual = with_habits(plan, cluster.chip.costs_of(candidate.software), request.habits)
    return Setting(request.model, habitual, cluster.chip, cluster.network, candidate.software)


def front(figures: np.ndarray) -> np.ndarray:
    """Return a mask of the Pareto-optimal rows of *figures*."""
    order = np.lexsort(figures.T[::-1])
    kept: list[int] = []
    chosen = np.zeros(len(figures), dtype=bool)
    for row in order:
        better = figures[kept]
        if not (better <= figures[row]).all(axis=1).any():
            kept.append(int(row))
            chosen[row] = True
    return chosen


@dataclass
class Chooser:
    """Chooses of *candidates*, best first, which to simulate next.

    First the *top* of the estimate, then those that the front is estimated to have; after these, others that
    could still be the best if the estimate is as wrong about them as about any that was simulated, at most
    *most* in all. *figures* are estimated time, memory and cost; *known* has simulated times by number.
    """

    candidates: Sequence[Candidate]
    figures: np.ndarray
    top: int
    most: int
    known: dict[int, float] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)

    def choose(self) -> Iterator[int]:
        """Yield each candidate's number once; results of earlier ones may be known by then."""
        on_front = np.flatnonzero(front(self.figures)).tolist() if len(self.figures) else []
        for number in (*range(min(self.top, len(self.candidates))), *on_front):
            if len(self.asked) >= self.most:
                return
            if number not in self.asked:
                self.asked.add(number)
                yield number
        for number in range(len(self.candidates)):
            if len(self.asked) >= self.most or not self.may_win(number):
                return
            if number not in self.asked:
                self.asked.add(number)
                yield number

    def may_win(self, number: int) -> bool:
        """Return whether a candidate that was not simulated may be the best one."""
        if not self.known:
            return True
        return self.candidates[number].estimate_ns * (1 - self.error) < min(self.known.values())

    @property
    def error(self) -> float:
        """The largest error of the estimate, relative to the estimate."""
        return max(
            (abs(step / self.candidates[number].estimate_ns - 1) for number, step in self.known.items()),
            default=0.0,
        )
