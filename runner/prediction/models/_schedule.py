"""The order in which a pipeline stage processes its micro-batches."""

from __future__ import annotations

from typing import NamedTuple

from ._plan import Plan

__all__ = ["Turn", "schedule"]


class Turn(NamedTuple):
    """One pass of a stage: *kind* is ``F`` (forward), ``B`` (backward), ``I`` or ``W`` (its two halves)."""

    kind: str
    chunk: int
    micro_batch: int


def schedule(plan: Plan, stage: int) -> list[Turn]:
    """Return the turns of *stage*, in order."""
    if plan.schedule == "zero-bubble" and plan.pp > 1:
        return _zero_bubble(plan.pp, stage, plan.micro_batches)
    if plan.schedule == "interleaved" and plan.pp > 1:
        return _interleaved(plan, stage)
    first = min(plan.pp - stage - 1, plan.micro_batches)
    forward = [Turn("F", 0, number) for number in range(plan.micro_batches)]
    backward = [Turn("B", 0, number) for number in range(plan.micro_batches)]
    return _merged(forward, backward, first)


def _merged(forward: list[Turn], backward: list[Turn], first: int) -> list[Turn]:
    """Return *first* forward passes, then alternating forward and backward passes, then the rest."""
    turns = forward[:first]
    for place, turn in enumerate(forward[first:]):
        turns += [turn, backward[place]]
    return turns + backward[len(forward) - first :]


def _interleaved(plan: Plan, stage: int) -> list[Turn]:
    """Return Megatron-LM's order: rounds of *pp* micro-batches through each of the chunks."""
    turns = plan.micro_batches * plan.chunks
    forward, backward = [], []
    for number in range(turns):
        round_, place = divmod(number, plan.pp * plan.chunks)
        chunk, within = divmod(place, plan.pp)
        micro_batch = round_ * plan.pp + within
        forward.append(Turn("F", chunk, micro_batch))
        backward.append(Turn("B", plan.chunks - 1 - chunk, micro_batch))
    first = min(turns, (plan.pp - stage - 1) * 2 + (plan.chunks - 1) * plan.pp)
    return _merged(forward, backward, first)


def _zero_bubble(stages: int, stage: int, micro_batches: int) -> list[Turn]:
    """Return ZB-H1: as 1F1B, with the gradients of weights put off until the stage would wait."""
    behind = stages - stage - 1
    first = min(behind, micro_batches)
    turns = [Turn("F", 0, number) for number in range(first)]
    for number in range(micro_batches):
        if first + number < micro_batches:
            turns.append(Turn("F", 0, first + number))
        turns.append(Turn("I", 0, number))
        if number >= stage:
            turns.append(Turn("W", 0, number - stage))
    return turns + [Turn("W", 0, number) for number in range(max(0, micro_batches - stage), micro_batches)]
