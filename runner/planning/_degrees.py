"""Enumerate the possible degrees of parallelism, and their plans."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ..prediction import software_of, with_habits
from ..prediction.models import RECOMPUTATIONS, Plan
from ._request import Request

__all__ = ["Degrees", "PlanRow", "possible_degrees", "possible_plans"]


class Degrees(NamedTuple):
    """The degrees of parallelism on the *cluster* with that number; *expert_tp* as in `Plan`."""

    cluster: int
    tp: int
    pp: int
    dp: int
    cp: int
    ep: int
    expert_tp: int


def possible_degrees(request: Request) -> tuple[list[Degrees], Counter[str]]:
    """Return all degrees that model and batch allow, and the reasons against others with their numbers."""
    found: list[Degrees] = []
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
                found += [
                    Degrees(number, tp, pp, dp, cp, ep, split) for ep in counts if request.allows("ep", ep)
                ]
    return found, refused


def _expert_splits(request: Request, tp: int, node_size: int) -> list[int]:
    """Return how many ranks may share an expert: all of tensor parallelism (0), or within nodes one."""
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
        return "convolutions are predicted with data parallelism alone"
    if model.heads % tp:
        return f"--tp does not divide {model.heads} attention heads"
    if model.ffn % tp:
        return f"--tp does not divide {model.ffn} columns of a feed-forward part"
    if pp > model.layers:
        return f"--pp is more than {model.layers} layers"
    if sequence % cp or cp > sequence:
        return f"--cp does not divide sequences of {sequence} tokens"
    if request.global_batch % dp:
        return f"--dp does not divide a global batch of {request.global_batch}"
    return ""


class PlanRow(NamedTuple):
    """Plans that differ in the micro-batch alone, of which there are *micro_batches*, the smallest first.

    *plan* has the smallest; *uneven* others are impossible, as interleaving needs a multiple of ``pp``.
    """

    plan: Plan
    software: str
    micro_batches: tuple[int, ...]
    uneven: int


def possible_plans(request: Request, degrees: Degrees) -> Iterator[PlanRow]:
    """Yield the plans of *degrees*."""
    cluster = request.clusters[degrees.cluster]
    share = request.global_batch // degrees.dp
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
                        placement=request.placement,
                    )  # fmt: skip
                    software = request.software or software_of(cluster.chip, plan)
                    habitual = with_habits(plan, cluster.chip.costs_of(software), request.habits)
                    if plan.expert_tp and not habitual.sequence_parallel:
                        continue
                    yield PlanRow(habitual, software, even, len(sizes) - len(even))


def _recomputations(request: Request) -> tuple[str, ...]:
    modes = ("none",) if request.model.convolutions else RECOMPUTATIONS
    return request.only.get("recompute", modes)


def _schedules(request: Request, pp: int) -> Iterator[tuple[str, int]]:
    """Yield the schedules for a number of stages, with the chunks per stage; zero-bubble only on request."""
    layers = request.model.layers
    names = [("1f1b", 1)]
    if pp > 1:
        if "schedule" in request.only:
            names.append(("zero-bubble", 1))
        counts = layers if layers % pp == 0 else layers + 2  # the embedding and the loss as layers
        if counts % pp == 0:
            names += [("interleaved", chunks) for chunks in _divisors(counts // pp) if chunks > 1]
    for schedule, chunks in names:
        if request.allows("schedule", schedule) and request.allows("chunks", chunks):
            yield schedule, chunks


def _splits(ranks: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield every way to write *ranks* as a product of four numbers."""
    for tp in _divisors(ranks):
        for pp in _divisors(ranks // tp):
            for cp in _divisors(ranks // tp // pp):
                yield tp, pp, cp, ranks // tp // pp // cp


def _divisors(number: int) -> list[int]:
    small = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    return small + [number // each for each in reversed(small) if each * each != number]
