"""Which degrees of parallelism are possible, and which plans they leave."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ...converter.generate.models import RECOMPUTATIONS, Plan
from ..prediction import software_of, with_habits
from ._request import Cluster, Request

__all__ = ["Degrees", "possible_degrees", "possible_plans"]


class Degrees(NamedTuple):
    """How the ranks of the *cluster* of that number are split."""

    cluster: int
    tp: int
    pp: int
    dp: int
    cp: int
    ep: int


def possible_degrees(request: Request) -> tuple[list[Degrees], Counter[str]]:
    """Return all degrees that the model and the batch allow, and why others are not, with how many."""
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
            experts = _divisors(math.gcd(request.model.experts, cp * dp)) if request.model.experts else [1]
            found += [Degrees(number, tp, pp, dp, cp, ep) for ep in experts if request.allows("ep", ep)]
    return found, refused


def _refusal(request: Request, tp: int, pp: int, cp: int, dp: int) -> str:
    model = request.model
    sequence = request.sequence or model.sequence
    if model.convolutions and tp * pp * cp > 1:
        return "convolutions are predicted with data parallelism alone"
    if model.heads % tp:
        return f"--tp does not divide {model.heads} attention heads"
    if pp > model.layers:
        return f"--pp is more than {model.layers} layers"
    if sequence % cp or cp > sequence:
        return f"--cp does not divide sequences of {sequence} tokens"
    if request.global_batch % dp:
        return f"--dp does not divide a global batch of {request.global_batch}"
    return ""


def possible_plans(request: Request, degrees: Degrees) -> Iterator[tuple[Plan | None, str, str]]:
    """Yield the plans of *degrees*: the plan, its software and ``""``, or None, ``""`` and why not."""
    cluster = request.clusters[degrees.cluster]
    share = request.global_batch // degrees.dp
    for schedule, chunks in _schedules(request, degrees.pp):
        for micro_batch in _divisors(share):
            if not request.allows("micro_batch", micro_batch):
                continue
            if schedule == "interleaved" and (share // micro_batch) % degrees.pp:
                yield None, "", "interleaving needs a multiple of --pp micro-batches"
                continue
            for zero in (0, 1, 2, 3) if degrees.dp * degrees.cp > 1 else (0,):
                if not request.allows("zero", zero):
                    continue
                for recompute in ("none",) if request.model.convolutions else RECOMPUTATIONS:
                    if request.allows("recompute", recompute):
                        plan = _plan(
                            request, cluster, degrees, schedule, chunks, micro_batch, zero, recompute
                        )
                        yield *plan, ""


def _plan(  # noqa: PLR0917 - what a plan chooses
    request: Request,
    cluster: Cluster,
    degrees: Degrees,
    schedule: str,
    chunks: int,
    micro_batch: int,
    zero: int,
    recompute: str,
) -> tuple[Plan, str]:
    plan = Plan(
        tp=degrees.tp,
        pp=degrees.pp,
        dp=degrees.dp,
        cp=degrees.cp,
        ep=degrees.ep,
        micro_batch=micro_batch,
        global_batch=request.global_batch,
        sequence=request.sequence,
        chunks=chunks,
        zero=zero,
        recompute=recompute,
        schedule=schedule,
        precision=request.precision or cluster.chip.precision,
        placement=request.placement,
    )
    software = request.software or software_of(cluster.chip, plan)
    return with_habits(plan, cluster.chip.costs_of(software), request.habits), software


def _schedules(request: Request, pp: int) -> Iterator[tuple[str, int]]:
    """Yield schedules of so many stages, each with the parts of a stage."""
    layers = request.model.layers
    names = [("1f1b", 1)]
    if pp > 1:
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
