"""Choose the candidates to simulate: those that may be the best, or on the front, by their estimates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..backends import Progress
from ..prediction import Setting, with_habits
from ..prediction.models import AXES, Plan
from ..sweep import Answer, Solver
from ._estimate import Candidate
from ._request import CHOICES, Request
from ._rounds import simulated_step

__all__ = ["Chooser", "SimulateWork", "front", "setting_of"]

_PART = 4096  # rows of the front compared at a time


@dataclass(frozen=True)
class SimulateWork:
    """Simulate the step of a *setting* (see `simulated_step`)."""

    number: int
    setting: Setting

    def answer(self, solver: Solver, progress: Progress | None) -> Answer:
        """Return the figures of the step."""
        del solver
        return simulated_step(self.setting, progress)


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
    chosen = np.zeros(len(figures), dtype=bool)
    best = figures[:0]
    for part in np.array_split(order, len(order) // _PART + 1):
        for row in part[~_beaten(figures[part], best)]:
            if not _beaten(figures[[row]], best)[0]:
                best = np.vstack([best, figures[row]])
                chosen[row] = True
    return chosen


def _beaten(figures: np.ndarray, best: np.ndarray) -> np.ndarray:
    is_less: np.ndarray = best[None] <= figures[:, None]
    beaten: np.ndarray = np.logical_or.reduce(np.logical_and.reduce(is_less, axis=2), axis=1)
    return beaten


@dataclass
class Chooser:
    """Chooses of *candidates*, best first, which to simulate next.

    First the *top* of the estimate, then those that the front is estimated to have, except *long* steps;
    after these, others that could still be the best if the estimate is as wrong about them as about any that
    was simulated, at most *most* in all. *figures* are estimated time, memory and cost; *known* has simulated
    times by number.
    """

    candidates: Sequence[Candidate]
    figures: np.ndarray
    long: np.ndarray
    top: int
    most: int
    known: dict[int, float] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)

    def choose(self) -> Iterator[int]:
        """Yield each candidate's number once; results of earlier ones may be known by then."""
        on_front = np.flatnonzero(front(self.figures) & ~self.long).tolist()
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
