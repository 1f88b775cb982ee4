"""Choose the candidates to simulate, and extrapolate steps of many micro-batches from shorter steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .._experiment import Detail
from .._traits import DEFAULT_BACKEND
from ..backends import get_backend
from ..prediction import Setting, experiment_of, with_habits
from ..prediction.models import Plan, Transformer
from ..sweep import Answer, Solver, measure
from ._estimate import Candidate
from ._request import CHOICES, Request

_LONG = 8192  # a step with more passes (micro-batches times layers) is not simulated in full
_SHARDED = 2  # the lowest ZeRO stage that shards gradients
_ROUND = 8  # the minimum number of micro-batches of a round


def is_long(model: Transformer, micro_batches: int, long: int = _LONG) -> bool:
    """Return whether a step of *model* has more than *long* passes of micro-batches over layers."""
    return micro_batches * model.layers > long


def simulated_step(setting: Setting, *, long: int = _LONG) -> Answer:
    """Return the figures of a step, with the ``id`` of the run if the step was simulated in full.

    A step that `is_long` is extrapolated from three shorter steps, one round of micro-batches apart. The
    second round must add exactly as much time as the first round. The step time is the maximum over several
    paths, each of which grows linearly with the rounds, so the extrapolation is a lower bound. Collectives
    end at rounded times, so sums over collectives are exact to 1 ns per round.
    """
    plan = setting.plan
    # Collectives of sharded gradients and weights overlap the passes, so the time per round may become
    # constant only after many rounds.
    if plan.zero < _SHARDED and is_long(setting.model, plan.micro_batches, long):
        for first, size in _rounds(plan.micro_batches, plan.pp):
            answers = [_answer(setting, first + number * size) for number in range(3)]
            steps = [answer["makespan_ns"] for answer in answers]
            if steps[2] - steps[1] == steps[1] - steps[0]:
                more = (plan.micro_batches - first) // size - 2
                last, before = answers[2], answers[1]
                figures = {
                    name: last[name] + (last[name] - before[name]) * more
                    for name in last
                    if name.endswith("_ns")
                }
                return {"state": "done", **figures}
    return _answer(setting, plan.micro_batches)


def _rounds(micro_batches: int, stages: int) -> Iterator[tuple[int, int]]:
    """Yield pairs (micro-batches of the first step, of a round) for which whole rounds complete the step."""
    size = -(-_ROUND // stages) * stages
    first = size + micro_batches % size
    while first + 3 * size < micro_batches:
        yield first, size
        first += 2 * size


def _answer(setting: Setting, micro_batches: int) -> Answer:
    plan = setting.plan
    shorter = replace(plan, global_batch=micro_batches * plan.micro_batch * plan.dp)
    experiment = experiment_of(replace(setting, plan=shorter), backend=DEFAULT_BACKEND, every_rank=False)
    result = get_backend(DEFAULT_BACKEND).run(replace(experiment, detail=Detail.TOTALS))
    return {**measure(result), "id": experiment.content_hash}


_PART = 4096  # number of rows of the Pareto front that are compared at once


@dataclass(frozen=True)
class SimulateWork:
    """A task that simulates the step of a *setting* (see `simulated_step`)."""

    number: int
    setting: Setting

    def answer(self, solver: Solver) -> Answer:
        """Return the figures of the step."""
        del solver
        return simulated_step(self.setting)


def setting_of(request: Request, candidate: Candidate) -> Setting:
    """Return the input of a prediction (`Setting`) for *candidate*."""
    cluster = request.clusters[candidate.cluster]
    plan = Plan(
        **dict(zip(CHOICES, candidate.choices, strict=True)),
        global_batch=request.global_batch,
        sequence=request.sequence,
        precision=request.precision or cluster.chip.precision,
    )
    habitual = with_habits(plan, cluster.chip.costs_of(candidate.software), {})
    return Setting(request.model, habitual, cluster.chip, cluster.network, candidate.software)


def front(figures: np.ndarray) -> np.ndarray:
    """Return a mask of the Pareto-optimal rows of *figures*, which are to be minimised."""
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
    """Chooses the next plan to simulate from *candidates*, which are sorted by estimate.

    The *top* candidates by estimate are chosen first. The candidates on the estimated Pareto front follow,
    except for *long* steps. Other candidates follow if they could be the best plan, given the largest error
    so far. At most *most* candidates are chosen. *figures* are the estimated time, memory and cost of
    candidates. *known* contains simulated times in ns by candidate number.
    """

    candidates: Sequence[Candidate]
    figures: np.ndarray
    long: np.ndarray
    top: int
    most: int
    known: dict[int, float] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)

    def choose(self) -> Iterator[int]:
        """Yield each candidate's number once, using results of earlier candidates if they are available."""
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
        """Return whether a candidate that was not simulated may be the best plan."""
        if not self.known:
            return True
        return self.candidates[number].estimate_ns * (1 - self.error) < min(self.known.values())

    @property
    def error(self) -> float:
        """The largest error of the estimates, relative to the estimate."""
        return max(
            (abs(step / self.candidates[number].estimate_ns - 1) for number, step in self.known.items()),
            default=0.0,
        )
