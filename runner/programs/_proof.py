"""Prove that a collective program is correct on every rank in every order that the program allows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ._execute import Run, execute
from ._model import Program
from ._outcomes import deadlocks, leftovers, wrong_results
from ._problems import Problem
from ._races import disorder, doubtful_cells, overlaps, races, strangers, unwritten
from ._unroll import Unrolled, unroll

_MOST_PROBLEMS = 20
_MOST_PASSES = 4
_DEPTHS = (1, 2, 4, 8)
# The messages in flight per connection. NCCL has 8 steps, and a message with the protocol Simple takes 4
# steps (MSCCL_CHUNKSTEPS).
_SLOTS = {"Simple": 2, "LL": 8, "LL128": 8}


@dataclass(frozen=True)
class Proof:
    """The verdict on a program; the proof *holds* if there are no *problems*.

    *iterations* is the number of iterations of pipelines that were run (0: no pipelines). *depth* is the
    number of messages that a connection of an XML must buffer.
    """

    program: str
    problems: tuple[Problem, ...]
    steps: int
    iterations: int
    depth: int
    cautions: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the program is proved correct."""
        return not self.problems


def prove(program: Program) -> Proof:
    """Run *program* symbolically for all orders that the program allows, and return the verdict.

    Raises `ConfigError` for a program that cannot be run symbolically.
    """
    unrolled = unroll(program)
    run = _settled(unrolled)
    mistakes = itertools.chain(
        deadlocks(unrolled, run),
        disorder(unrolled, run),
        overlaps(run),
        races(run),
        strangers(program, run),
        unwritten(run),
        leftovers(unrolled, run),
        wrong_results(unrolled, run),
    )
    problems = _first_of_each(mistakes, _MOST_PROBLEMS)
    unused = len(problems) if problems and _is_unused(unrolled, run) else 0
    if unused:
        problems = []
    depth = 0
    if program.language == "msccl" and not problems:
        depth, problems = _depth(unrolled)
    return Proof(
        program=program.name,
        problems=tuple(problems),
        steps=len(run.done),
        iterations=unrolled.iterations,
        depth=depth,
        cautions=tuple(_cautions(program, unrolled, unused)),
    )


def _is_unused(unrolled: Unrolled, run: Run) -> bool:
    """Return whether all bugs are races or reads of unwritten cells that do not affect any result."""
    program = unrolled.program
    serious = itertools.chain(
        deadlocks(unrolled, run),
        disorder(unrolled, run),
        overlaps(run),
        strangers(program, run),
        leftovers(unrolled, run),
    )
    if program.collective == "custom" or any(serious):
        return False
    return not any(wrong_results(unrolled, run, doubtful_cells(run)))


def _settled(unrolled: Unrolled) -> Run:
    """Run the program repeatedly until the clocks no longer change; most programs need one run."""
    run = execute(unrolled)
    several = any(
        len({(give.step.rank, give.step.block) for give in gives}) > 1 for gives in run.gives.values()
    )
    if not several and all(len(writers) < 2 for writers in run.writers.values()):
        return run
    for _ in range(_MOST_PASSES):
        before = run.knowledge
        run = execute(unrolled, earlier=run)
        if run.knowledge == before:
            break
    return run


def _depth(unrolled: Unrolled) -> tuple[int, list[Problem]]:
    """Return the number of messages that connections must buffer to avoid deadlocks, and any deadlocks."""
    program = unrolled.program
    slots = _SLOTS[program.protocol] if program.chunkwise else _DEPTHS[-1]
    for depth in _DEPTHS:
        run = execute(unrolled, depth)
        if not run.blocked:
            return depth, []
        if depth >= slots:
            break
    return 0, _first_of_each(deadlocks(unrolled, run), _MOST_PROBLEMS)


def _first_of_each(problems: Iterator[Problem], most: int) -> list[Problem]:
    """Return the first problem of each op, at most *most* problems."""
    seen = set()
    chosen: list[Problem] = []
    for problem in problems:
        key = (problem.kind, problem.rank, problem.block, problem.op)
        if len(chosen) >= most:
            break
        if key not in seen:
            seen.add(key)
            chosen.append(problem)
    return chosen


def _cautions(program: Program, unrolled: Unrolled, unused: int) -> Iterator[str]:
    if unused:
        yield (
            f"{unused} or more accesses are in no fixed order, but their data is overwritten before any "
            f"rank's result depends on it."
        )
    if unrolled.iterations:
        yield f"Pipelines were followed for {unrolled.iterations} iterations; all further ones are equal."
        if unrolled.slots:
            yield f"Scratch was taken to have room for {unrolled.slots} units of each of its chunks."
        elif program.reuses_scratch:
            yield (
                "Nothing keeps its pipelines from running ahead, although they share the scratch buffer: it "
                "must have room for all of the data."
            )
    if program.collective == "custom":
        yield "The collective is 'custom': the result of each rank is unspecified and was not checked."
    if _relaxed_after_data(program):
        yield (
            "Relaxed signals (rlxsignal) come after writes; they were taken to order them, as plain ones do."
        )


def _relaxed_after_data(program: Program) -> bool:
    for rank in program.ranks:
        for block in rank.thread_blocks:
            wrote = False
            for op in block.walk():
                wrote |= bool(op.destinations)
                if wrote and op.name == "rlxsignal":
                    return True
    return False
