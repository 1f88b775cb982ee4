"""The dependencies between steps of an MSCCL XML, resolved like MSCCL's executor.

The executor's parser (msccl-executor-nccl, msccl_parser.cc) drops every nop, moves the dependencies of nops
to the next step, and joins reductions into the same place. The executor's kernel waits until the flag of the
other thread block has at least the number of the awaited step. Only steps with hasdep=1 raise a flag. A nop
without a dependency has no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....errors import ConfigError
from .._model import Buffer, Op
from ._checks import require

_MOST_JOINED = 16


@dataclass(frozen=True)
class _Flag:
    """The value of a thread block's flag after the step at *place* has completed."""

    number: int
    place: int


def resolve_dependencies(
    blocks: Sequence[Sequence[Op]], raising: Sequence[Sequence[bool]], where: str
) -> list[tuple[Op, ...]]:
    """Return the ops of a rank's *blocks*, each with the op that the executor awaits before it.

    *raising* are the steps with hasdep=1. Raises `ConfigError` for programs that the executor rejects, and
    for a flag that is never raised.
    """
    flags = [
        _flags(ops, raises, f"{where}, thread block {number}")
        for number, (ops, raises) in enumerate(zip(blocks, raising, strict=True))
    ]
    return [
        tuple(_resolved(op, number, blocks, flags, f"{where}, thread block {number}") for op in ops)
        for number, ops in enumerate(blocks)
    ]


def _flags(ops: Sequence[Op], raises: Sequence[bool], where: str) -> list[_Flag]:
    flags: list[_Flag] = []
    following, waits, reductions = 0, 0, 0
    chain: Op | None = None
    for op, raised in zip(ops, raises, strict=True):
        waits += op.after is not None
        if op.name == "nop":
            continue
        if chain is not None and _joins(chain, op):
            _check_joined(chain, op, waits, f"{where}, op {op.place} ({op.name})")
            number = following
        else:
            require(
                waits == 0 or op.after is not None,
                f"{where}, op {op.place} ({op.name}): the nop before it waits, but the step itself does not; "
                "MSCCL's executor refuses that. Give the step its own 'depid'.",
            )
            number = following + max(0, waits - 1)
            waits = 0
        following = number + 1
        if raised:
            flags.append(_Flag(number, op.path[0]))
        chain = None
        if op.name == "re":
            reductions += 1
            chain = op if not raised and reductions != _MOST_JOINED else None
    return flags


def _joins(first: Op, second: Op) -> bool:
    """Return whether the executor joins two reductions, which must have one target and one source buffer."""
    if second.name != "re" or second.after is not None:
        return False
    (target, source), (goal, other) = first.sources, second.sources
    return (target.buffer, target.index, source.buffer) == (goal.buffer, goal.index, other.buffer)


def _check_joined(first: Op, second: Op, waits: int, where: str) -> None:
    target, source = second.sources
    overlap = (
        {target.buffer, source.buffer} in ({Buffer.INPUT, Buffer.OUTPUT}, {source.buffer})
        and source.index < target.index + target.count
        and target.index < source.index + source.count
    )
    if waits or overlap or first.sources[0].count != target.count:
        reason = (
            "the nop between them is lost"
            if waits
            else "it then reads what the first of them has not written"
            if overlap
            else "both then move as many chunks as the last"
        )
        raise ConfigError(
            f"{where}: MSCCL's executor joins it with the reduction before it, so that {reason}. Give it "
            f"its own 'depid'."
        )


def _resolved(
    op: Op, number: int, blocks: Sequence[Sequence[Op]], flags: Sequence[Sequence[_Flag]], where: str
) -> Op:
    if op.after is None:
        return op
    where = f"{where}, op {op.place} ({op.name})"
    other, step = op.after
    require(
        other < len(blocks) and step < len(blocks[other]),
        f"{where}: it waits for step {step} of thread block {other}, which the rank does not have; correct "
        "'depid' and 'deps'.",
    )
    place = next((flag.place for flag in flags[other] if flag.number >= step), None)
    require(
        place is not None,
        f"{where}: it waits for step {step} of thread block {other}, but no step from there on says that "
        "anything waits for it, and a nop counts for nothing; set the step's 'hasdep' to 1.",
    )
    assert place is not None
    if other != number:
        return replace(op, after=(other, place))
    require(
        place < op.path[0],
        f"{where}: it waits for step {step} of its own thread block, which comes after it; correct 'depid' "
        "and 'deps'.",
    )
    return replace(op, after=None)
