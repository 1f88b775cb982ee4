"""The problems that a proof finds, with the place, the description and the steps to reproduce."""

from __future__ import annotations

from dataclasses import dataclass

from ._execute import Access, Clock, Run
from ._model import Buffer
from ._unroll import PACKETS, Cell, Step, Token

MOST_STEPS = 24


@dataclass(frozen=True)
class Problem:
    """A bug of a collective program, with its place and the steps of the shortest run that exposes it.

    *kind* is the kind of bug: deadlock, race, unwritten, result, leftover or order.
    """

    kind: str
    rank: int
    block: int
    op: str
    message: str
    interleaving: tuple[str, ...] = ()


def problem_of(kind: str, step: Step, message: str, interleaving: tuple[str, ...] = ()) -> Problem:
    return Problem(kind, step.rank, step.block, step.op.place, f"{step.words} {message}", interleaving)


def awaited_words(token: Token) -> str:
    kind = token[0]
    if kind == "semaphore":
        return f"semaphore {token[2]} of its rank"
    if kind == "channel":
        return f"a signal of rank {token[2]} on {token[1]} channel {token[4]}"
    if kind == "barrier":
        return f"barrier {token[2]} of its rank"
    if kind == "step":
        return f"step {token[3]} of thread block {token[2]}"
    if kind == "slot":
        return f"room for a message to rank {token[2]} on channel {token[3]}"
    cell = token[1]
    assert isinstance(cell, tuple)
    if cell[0] == "m":
        return f"message {cell[4]} of rank {cell[1]} on channel {cell[3]}"
    return cell_words(cell)


def cell_words(cell: Cell) -> str:
    """Return the name of a buffer's cell for messages to the user."""
    packets = str(cell[1]).startswith(PACKETS)
    buffer = Buffer(str(cell[1]).removeprefix(PACKETS)).words
    return f"{'packets of ' if packets else ''}chunk {cell[2]} of the {buffer} buffer of rank {cell[0]}"


def witness(run: Run, early: Access, late: Access) -> tuple[str, ...]:
    """Return the shortest run with a problem: all steps that precede *early*, then *early* and *late*."""
    steps = [
        step
        for step in run.done
        if step is not early.step and step is not late.step and _known(run, step, early.clock)
    ]
    return (*listed(steps), early.step.words, f"{late.step.words} comes too late")


def _known(run: Run, step: Step, clock: Clock) -> bool:
    began = run.began.get(id(step))
    if began is None or (not step.moves and not step.gives and not step.takes):
        return False
    return bool(clock[began[0]] >= began[1])


def listed(steps: list[Step]) -> tuple[str, ...]:
    if len(steps) <= MOST_STEPS:
        return tuple(step.words for step in steps)
    return (f"... {len(steps) - MOST_STEPS} steps before", *(step.words for step in steps[-MOST_STEPS:]))


def run_to(run: Run, access: Access) -> tuple[str, ...]:
    steps = [step for step in run.done if step is not access.step and _known(run, step, access.clock)]
    return (*listed(steps), access.step.words)
