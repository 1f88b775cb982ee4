"""Enumerate the possible plans for all degrees of parallelism, and estimate plans without simulation."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..prediction import Batch, Links, Setting, StepWork, coefficients, software_of, with_habits, work_of
from ..prediction.models import RECOMPUTATIONS, Plan, fullest_memory, least_recomputation, shares_heads
from ..sweep import Answer, Solver
from ._request import CHOICES, Request


class Degrees(NamedTuple):
    """The degrees of parallelism on the cluster with number *cluster*, with *expert_tp* as in `Plan`."""

    cluster: int
    tp: int
    pp: int
    dp: int
    cp: int
    ep: int
    expert_tp: int


def possible_degrees(request: Request) -> tuple[list[Degrees], Counter[str]]:
    """Return all degrees of parallelism that model and batch allow, and counts of refusals by reason."""
    result: list[Degrees] = []
    refused: Counter[str] = Counter()
    for number, cluster in enumerate(request.clusters):
        for tp, pp, cp, dp in _splits(cluster.network.num_ranks):
            if not all(
                request.allows(key, value) for key, value in (("tp", tp), ("pp", pp), ("cp", cp), ("dp", dp))
            ):
                continue
            reason = _refusal(request, tp, pp, cp, dp)
            if reason:
                refused[reason] += 1
                continue
            splits = _expert_splits(request, tp, cluster.network.npus_count[0])
            if not splits:
                refused["--expert-tp divides neither --tp nor the columns of an expert"] += 1
            for split in splits:
                ranks = cp * dp * tp // (split or tp)
                counts = _divisors(math.gcd(request.model.experts, ranks)) if request.model.experts else [1]
                result += [
                    Degrees(number, tp, pp, dp, cp, ep, split) for ep in counts if request.allows("ep", ep)
                ]
    return result, refused


def _expert_splits(request: Request, tp: int, node_size: int) -> list[int]:
    """Return the numbers of ranks that may share an expert: *tp* (as 0), and 1 if *tp* fits in a node."""
    model = request.model
    if not model.experts:
        return [0]
    sizes = {
        size
        for size in request.only.get("expert_tp", (tp, 1) if tp <= node_size else (tp,))
        if size and tp % size == 0 and model.expert_ffn % size == 0
    }
    return sorted(0 if size == tp else size for size in sizes)


def _refusal(request: Request, tp: int, pp: int, cp: int, dp: int) -> str:
    model = request.model
    sequence = request.sequence or model.sequence
    if model.convolutions and tp * pp * cp > 1:
        return "convolutions support data parallelism only"
    if model.heads % tp:
        return f"--tp does not divide {model.heads} attention heads"
    if model.ffn % tp:
        return f"--tp does not divide {model.ffn} columns of a feed-forward part"
    if not model.kv_rank and not shares_heads(model.kv_heads, tp):
        return f"--tp neither divides {model.kv_heads} heads of keys and values nor is a multiple of them"
    if pp > model.layers:
        return f"--pp is more than {model.layers} layers"
    if sequence % cp or cp > sequence or (cp > 1 and sequence % (2 * cp)):
        return f"--cp does not divide sequences of {sequence} tokens into two parts a rank"
    if request.global_batch % dp:
        return f"--dp does not divide a global batch of {request.global_batch}"
    return ""


class PlanRow(NamedTuple):
    """Plans that differ only in the micro-batch size; *micro_batches* are the sizes in ascending order.

    *plan* is the plan with the smallest micro-batch size. *uneven* is the number of sizes that are impossible
    because interleaving needs a multiple of ``pp`` micro-batches.
    """

    plan: Plan
    software: str
    micro_batches: tuple[int, ...]
    uneven: int


def possible_plans(request: Request, degrees: Degrees) -> Iterator[PlanRow]:
    """Yield the possible plans with the given *degrees* of parallelism."""
    cluster = request.clusters[degrees.cluster]
    share = request.global_batch // degrees.dp
    tokens = (request.sequence or request.model.sequence) // degrees.cp
    sizes = [size for size in _divisors(share) if request.allows("micro_batch", size)]
    for schedule, chunks in _schedules(request, degrees.pp):
        even = tuple(size for size in sizes if schedule != "interleaved" or share // size % degrees.pp == 0)
        for zero in (0, 1, 2, 3) if degrees.dp * degrees.cp > 1 else (0,):
            for recompute in _recomputations(request):
                if request.allows("zero", zero):
                    plan = Plan(
                        **{key: getattr(degrees, key) for key in ("tp", "pp", "dp", "cp", "ep", "expert_tp")},
                        micro_batch=min(even, default=1), global_batch=request.global_batch,
                        sequence=request.sequence, chunks=chunks, zero=zero, recompute=recompute,
                        schedule=schedule, precision=request.precision or cluster.chip.precision,
                    )  # fmt: skip
                    software = request.software or software_of(cluster.chip, plan)
                    habitual = with_habits(plan, cluster.chip.costs_of(software), {})
                    if (plan.expert_tp or plan.ep > 1) and plan.tp > 1 and not habitual.sequence_parallel:
                        continue
                    if habitual.sequence_parallel and tokens % degrees.tp:
                        continue
                    yield PlanRow(habitual, software, even, len(sizes) - len(even))


def _recomputations(request: Request) -> tuple[str, ...]:
    modes = ("none",) if request.model.convolutions else RECOMPUTATIONS
    return request.only.get("recompute", modes)


def _schedules(request: Request, pp: int) -> Iterator[tuple[str, int]]:
    """Yield the schedules for *pp* stages with the chunks per stage, with zero-bubble only on request."""
    layers = request.model.layers
    names = [("1f1b", 1)]
    if pp > 1:
        if "schedule" in request.only:
            names.append(("zero-bubble", 1))
        counts = layers if layers % pp == 0 else layers + 2  # embedding and loss count as a layer each
        if counts % pp == 0:
            names += [("interleaved", chunks) for chunks in _divisors(counts // pp) if chunks > 1]
    for schedule, chunks in names:
        if request.allows("schedule", schedule) and request.allows("chunks", chunks):
            yield schedule, chunks


def _splits(ranks: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield every factorisation of *ranks* into four degrees of parallelism."""
    for tp in _divisors(ranks):
        for pp in _divisors(ranks // tp):
            for cp in _divisors(ranks // tp // pp):
                yield tp, pp, cp, ranks // tp // pp // cp


def _divisors(number: int) -> list[int]:
    small = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    return small + [number // each for each in reversed(small) if each * each != number]


class Candidate(NamedTuple):
    """A possible plan: its *choices* (see `CHOICES`), the estimated step, and the memory of a rank."""

    cluster: int
    choices: tuple[Any, ...]
    software: str
    estimate_ns: float
    memory_bytes: int


@dataclass(frozen=True)
class EstimateWork:
    """A task that estimates all plans of some *degrees*, and counts the ``refused`` plans by reason."""

    number: int
    request: Request
    degrees: Degrees

    def answer(self, solver: Solver) -> Answer:
        """Return the candidates as lists for JSON, and the counts of refused plans by reason."""
        del solver
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
        """Yield the plans of *row* that fit in memory, with the memory of the rank that needs most.

        Larger micro-batches need more memory. If a plan does not fit and recomputation is allowed, the plan
        recomputes the smallest number of layers with which it fits.
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
        """Yield a candidate for each of *plans*; plans with the same software are estimated together."""
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
            steps = batch.step_ns(price, costs)
            for (plan, _, memory), step in zip(part, steps.tolist(), strict=True):
                choices = tuple(getattr(plan, key) for key in CHOICES)
                yield Candidate(self.degrees.cluster, choices, software, step, memory)


class _Works:
    """Derives, from the work of two plans, the work of plans with other schedules and micro-batch sizes."""

    def __init__(self, request: Request, links: Links) -> None:
        self._request, self._links = request, links
        self._known: dict[tuple[Any, ...], tuple[StepWork, StepWork]] = {}

    def work(self, plan: Plan) -> StepWork:
        """Return the amounts of work of *plan*."""
        # The number of chunks affects the layers of a stage only if layers differ.
        alike = not self._request.model.experts and not plan.recomputation.layers
        chunks = 1 if alike else plan.chunks
        key = plan.zero, plan.recompute, chunks
        if key not in self._known:
            self._known[key] = self._sized(plan, chunks, 1), self._sized(plan, chunks, 2)
        one, two = self._known[key]
        return replace(
            one.grown(two, plan.micro_batch - 1),
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
