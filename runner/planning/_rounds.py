"""Simulate a step of many micro-batches from shorter ones: rounds of a pipeline come to add the same time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .._experiment import Detail
from .._traits import DEFAULT_BACKEND
from ..backends import Progress, get_backend
from ..prediction import Setting, experiment_of
from ..prediction.models import Transformer
from ..sweep import Answer, measure

__all__ = ["is_long", "simulated_step"]

_LONG = 8192  # passes of a micro-batch over a layer from which a step is too long to simulate whole
_SHARDED = 2  # the least ZeRO stage that shards gradients
_ROUND = 8  # micro-batches that a round has at least


def is_long(model: Transformer, micro_batches: int, long: int = _LONG) -> bool:
    """Return whether a step has more than *long* passes of *micro_batches* over layers."""
    return micro_batches * model.layers > long


def simulated_step(setting: Setting, progress: Progress | None = None, *, long: int = _LONG) -> Answer:
    """Return the figures of a step, and of one simulated whole the ``id`` that a run of it has.

    A step that `is_long` is extrapolated from three shorter ones, one round of micro-batches apart, if the
    second round adds exactly as much time as the first. A step is the longest of paths each of which grows
    evenly with the rounds, so the extrapolation is never too long.
    """
    plan = setting.plan
    # Collectives of sharded gradients and weights overlap the passes, and may take long to settle.
    if plan.zero < _SHARDED and is_long(setting.model, plan.micro_batches, long):
        for first, size in _rounds(plan.micro_batches, plan.pp):
            answers = [_answer(setting, first + number * size, progress) for number in range(3)]
            steps = [answer["makespan_ns"] for answer in answers]
            if steps[2] - steps[1] == steps[1] - steps[0]:
                more = (plan.micro_batches - first) // size - 2
                last, before = answers[2], answers[1]
                figures = {name: last[name] + (last[name] - before[name]) * more for name in _figures(last)}
                return {"state": "done", **figures}
    return _answer(setting, plan.micro_batches, progress)


def _rounds(micro_batches: int, stages: int) -> Iterator[tuple[int, int]]:
    """Yield micro-batches of the first step and of a round, so that whole rounds are missing of the step."""
    size = -(-_ROUND // stages) * stages
    first = size + micro_batches % size
    while first + 3 * size < micro_batches:
        yield first, size
        first += 2 * size


def _figures(answer: Answer) -> list[str]:
    return [name for name in answer if name.endswith("_ns")]


def _answer(setting: Setting, micro_batches: int, progress: Progress | None) -> Answer:
    plan = setting.plan
    shorter = replace(plan, global_batch=micro_batches * plan.micro_batch * plan.dp)
    experiment = experiment_of(replace(setting, plan=shorter), backend=DEFAULT_BACKEND, every_rank=False)
    result = get_backend(DEFAULT_BACKEND).run(replace(experiment, detail=Detail.TOTALS), progress)
    return {**measure(result), "id": experiment.content_hash}
