"""Estimate time and memory of all plans of some degrees in closed form, without simulation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..backends import Progress
from ..prediction import Batch, Links, Setting, StepWork, coefficients, work_of
from ..prediction.models import Plan, fullest_memory, least_recomputation
from ..sweep import Answer, Solver
from ._degrees import Degrees, PlanRow, possible_plans
from ._request import CHOICES, Request

__all__ = ["Candidate", "EstimateWork"]


class Candidate(NamedTuple):
    """A possible plan: its *choices* (see `CHOICES`), the estimated step, and the memory of a rank."""

    cluster: int
    choices: tuple[Any, ...]
    software: str
    estimate_ns: float
    memory_bytes: int


@dataclass(frozen=True)
class EstimateWork:
    """Estimate all plans of some *degrees*; the answer has ``candidates`` and why others are ``refused``."""

    number: int
    request: Request
    degrees: Degrees

    def answer(self, solver: Solver, progress: Progress | None) -> Answer:
        """Return the candidates, as lists that JSON can hold, and the counts."""
        del solver, progress
        refused: Counter[str] = Counter()
        fitting: list[tuple[Plan, str, int]] = []
        for row in possible_plans(self.request, self.degrees):
            if row.uneven:
                refused["interleaving needs a multiple of --pp micro-batches"] += row.uneven
            layers = max(row.plan.recomputation[1:])
            if layers > row.plan.longest_part(self.request.model.layers):
                refused["a stage has fewer layers than --recompute"] += len(row.micro_batches)
                continue
            plans = list(self._fitting(row))
            if len(plans) < len(row.micro_batches):
                refused["more memory than a rank has"] += len(row.micro_batches) - len(plans)
            fitting += [(plan, row.software, memory) for plan, memory in plans]
        candidates = [list(candidate) for candidate in self._estimated(fitting)]
        return {"state": "done", "candidates": candidates, "refused": dict(refused)}

    def _fitting(self, row: PlanRow) -> Iterator[tuple[Plan, int]]:
        """Yield the plans of *row* that fit, with their memory; larger micro-batches need more.

        What does not fit without recomputation is recomputed in as few layers as it takes, if that is open.
        """
        request, model = self.request, self.request.model
        limit = request.memory_bytes(request.clusters[self.degrees.cluster])
        may_recompute = row.plan.recompute == "none" and "recompute" not in request.only
        for size in row.micro_batches:
            plan = replace(row.plan, micro_batch=size)
            memory = fullest_memory(model, plan).total
            if memory > limit:
                least = least_recomputation(model, plan, limit) if may_recompute else None
                if least is None:
                    return
                plan, memory = least, fullest_memory(model, least).total
            yield plan, memory

    def _estimated(self, plans: Sequence[tuple[Plan, str, int]]) -> Iterator[Candidate]:
        """Yield a candidate for each of *plans*; those of one software are computed at once."""
        request, cluster = self.request, self.request.clusters[self.degrees.cluster]
        works = _Works(request, Links.of(cluster.network))
        parts: dict[str, list[tuple[Plan, str, int]]] = defaultdict(list)
        for each in plans:
            parts[each[1]].append(each)
        for software, part in parts.items():
            setting = Setting(request.model, part[0][0], cluster.chip, cluster.network, software)
            costs = setting.costs
            price = coefficients(cluster.chip, costs, part[0][0].precision)
            batch = Batch([works.work(plan) for plan, _, _ in part])
            steps = batch.step_ns(price, costs.host_ns, costs.step_ns, costs.exposed)
            for (plan, _, memory), step in zip(part, steps.tolist(), strict=True):
                choices = tuple(getattr(plan, key) for key in CHOICES)
                yield Candidate(self.degrees.cluster, choices, software, step, memory)


class _Works:
    """Computes the work of plans that differ in schedule and micro-batch only from two of them."""

    def __init__(self, request: Request, links: Links) -> None:
        self._request, self._links = request, links
        self._known: dict[tuple[Any, ...], tuple[StepWork, StepWork]] = {}

    def work(self, plan: Plan) -> StepWork:
        """Return the amounts of *plan*."""
        # Which layers a stage has depends on its parts only where layers differ.
        alike = not self._request.model.experts and not plan.recomputation.layers
        chunks = 1 if alike else plan.chunks
        key = plan.zero, plan.recompute, chunks
        if key not in self._known:
            self._known[key] = self._sized(plan, chunks, 1), self._sized(plan, chunks, 2)
        one, two = self._known[key]
        more = plan.micro_batch - 1
        grown = {
            name: getattr(one, name) + (getattr(two, name) - getattr(one, name)) * more
            for name in ("stages", "overlapped", "offloaded", "data", "end", "message")
        }
        return replace(
            one,
            **grown,
            micro_batches=plan.micro_batches,
            chunks=plan.chunks,
            zero_bubble=plan.schedule == "zero-bubble",
        )

    def _sized(self, plan: Plan, chunks: int, micro_batch: int) -> StepWork:
        plain = replace(
            plan,
            chunks=chunks,
            schedule="1f1b",
            micro_batch=micro_batch,
            global_batch=plan.dp * micro_batch,
        )
        return work_of(self._request.model, plain, self._links)
