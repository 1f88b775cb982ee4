"""Prove that a collective program is correct in every order that it allows.

Correct means: no deadlock, no signal or message left over, and the right result on each rank.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace

from ._execute import Blocked, Run, Value, contribution, execute
from ._model import MAX_COUNT, Buffer, ChannelType, Program
from ._races import (
    MAX_STEPS,
    Problem,
    awaited_words,
    between_calls,
    cell_words,
    disorder,
    doubtful_cells,
    listed,
    overlaps,
    problem_of,
    races,
    run_to,
    unwritten,
)
from ._unroll import Cell, Step, Unrolled, unroll


def deadlocks(unrolled: Unrolled, run: Run) -> Iterator[Problem]:
    """Yield the steps that never complete, first those that no remaining op could unblock."""
    hopeless = [found for found in run.blocked if not _hopes(unrolled, run, found)]
    cycle = not hopeless
    for found in hopeless or run.blocked:
        reason = (
            "and the ops that provide it wait themselves, in a dependency cycle"
            if cycle
            else "and no remaining op provides it"
        )
        others = tuple(
            f"{other.step.words} waits for {awaited_words(other.awaits)}"
            for other in run.blocked
            if other is not found
        )
        yield problem_of(
            "deadlock",
            found.step,
            f"waits for {awaited_words(found.awaits)}, {reason}: a deadlock.",
            (*_past(run, found.step), f"{found.step.words} waits for ever", *others[:MAX_STEPS]),
        )


def _hopes(unrolled: Unrolled, run: Run, found: Blocked) -> bool:
    """Return whether an op that did not run would release a blocked step."""
    done = {id(step) for step in run.done}
    kind = found.awaits[0]
    for steps in unrolled.steps.values():
        for step in steps:
            if id(step) in done or step is found.step:
                continue
            if kind in {"semaphore", "channel"} and found.awaits in step.gives:
                return True
            if kind == "packet" and any(found.awaits[1] in move.targets for move in step.moves):
                return True
            if kind == "barrier" and step.op.name == "barrier":
                same = (step.rank, step.op.barrier) == found.awaits[1:3]
                if same and all(step is not other.step for other in run.blocked):
                    return True
            if kind in {"step", "slot"}:
                return True
    return False


def _past(run: Run, step: Step) -> tuple[str, ...]:
    """Return the earlier steps of the same thread block."""
    own = [
        other
        for other in run.done
        if (other.rank, other.block) == (step.rank, step.block) and other.op.name != "nop"
    ]
    return listed(own)


def leftovers(unrolled: Unrolled, run: Run) -> Iterator[Problem]:
    """Yield the leftovers of a call of the program: signals, changed semaphores, unreceived messages."""
    if run.blocked:
        return
    yield from _unreceived(unrolled)
    for token, value in run.tokens.items():
        begun = unrolled.semaphores.get(token, 0)
        if value == begun:
            continue
        gives = run.gives[token]
        step = gives[-1].step if gives else run.takes[token][-1].step
        yield problem_of(
            "leftover",
            step,
            f"leaves {awaited_words(token)} at {value} where it began with {begun}: the next call of the "
            "program would not wait where it must.",
        )


def _unreceived(unrolled: Unrolled) -> Iterator[Problem]:
    """Yield the messages of an XML that are received only in part or not at all."""
    steps = [step for own in unrolled.steps.values() for step in own]
    received = {cell for step in steps for move in step.moves for cell in move.awaited if cell[0] == "m"}
    for step in steps:
        sent = [cell for move in step.moves for cell in move.targets if cell[0] == "m"]
        lost = [cell for cell in sent if cell not in received]
        if lost:
            _, _, receiver, channel, number, _ = lost[0]
            part = "" if len(lost) == len(sent) else f"{len(lost)} of the {len(sent)} chunks of "
            yield problem_of(
                "leftover",
                step,
                f"sends {part}message {number} to rank {receiver} on channel {channel}, which that rank does "
                "not receive: its next receive takes it for another message.",
            )


def wrong_results(unrolled: Unrolled, run: Run, doubtful: Set[Cell] = frozenset()) -> Iterator[Problem]:
    """Yield the chunks whose final contributions are *doubtful* or wrong for the collective."""
    program = unrolled.program
    if run.blocked or program.collective == "custom":
        return
    shift = _shift(unrolled, run) if program.collective == "send-receive" else 0
    for rank in range(program.num_ranks):
        for chunk in range(program.chunks_of(rank, Buffer.OUTPUT)):
            expected = _expected(program, rank, chunk, shift)
            if expected is None:
                continue
            buffer, index = program.home(rank, Buffer.OUTPUT, chunk)
            for part in range(unrolled.parts):
                cell = (rank, buffer.value, index, part)
                value = run.values.get(cell)
                if value != Value(expected, 0, part) or cell in doubtful:
                    yield _wrong_result(program, run, cell, value, expected)
                    break


def _shift(unrolled: Unrolled, run: Run) -> int:
    """Return the distance to rank 0 from the rank that sent its first chunk, modulo the number of ranks."""
    program = unrolled.program
    buffer, index = program.home(0, Buffer.OUTPUT, 0)
    value = run.values.get((0, buffer.value, index, 0))
    if value is None:
        return program.num_ranks - 1
    return -(value.mask.bit_length() - 1) // program.chunks % program.num_ranks


def _expected(program: Program, rank: int, chunk: int, shift: int) -> int | None:
    count = program.num_ranks
    if program.collective == "all-reduce":
        return sum(contribution(program, other, chunk) for other in range(count))
    if program.collective == "reduce-scatter":
        mine = rank * program.chunks_of(rank, Buffer.OUTPUT) + chunk
        return sum(contribution(program, other, mine) for other in range(count))
    if program.collective == "all-gather":
        each = program.chunks // count
        return contribution(program, chunk // each, chunk % each)
    if program.collective == "all-to-all":
        each = program.chunks // count
        return contribution(program, chunk // each, rank * each + chunk % each)
    if program.collective == "broadcast":
        return contribution(program, 0, chunk)
    return contribution(program, (rank - shift) % count, chunk)


def _wrong_result(program: Program, run: Run, cell: Cell, value: Value | None, expected: int) -> Problem:
    writes = [access for access in run.accesses.get(cell, ()) if access.writes]
    where = cell_words(cell)
    wanted = f"it must hold {_set_words(program, expected)}"
    if not writes:
        blocks = program.ranks[int(str(cell[0]))].thread_blocks
        message = f"rank {cell[0]}: no op writes {where}; {wanted}."
        return Problem("result", int(str(cell[0])), blocks[0].id if blocks else -1, "-", message)
    last = writes[-1]
    held = "data that was never written" if value is None else _set_words(program, value.mask)
    if value is not None and value.twice:
        held += f", of which {_set_words(program, value.twice)} more than once"
    message = f"is the last to write {where}, which then holds {held}; {wanted}."
    return problem_of("result", last.step, message, run_to(run, last))


def _set_words(program: Program, mask: int) -> str:
    """Describe a set of contributions: the ranks that contributed to each chunk."""
    ranks_of: dict[int, list[int]] = {}
    while mask:
        bit = mask & -mask
        rank, chunk = divmod(bit.bit_length() - 1, program.chunks)
        ranks_of.setdefault(chunk, []).append(rank)
        mask ^= bit
    words = [
        f"chunk {chunk} of rank{'s' * (len(ranks) > 1)} {_numbers(ranks)}"
        for chunk, ranks in ranks_of.items()
    ]
    return " and ".join(words[:4]) + (" and more" if len(words) > 4 else "") if words else "nothing"


def _numbers(ranks: list[int]) -> str:
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}-{ranks[-1]}"
    return ", ".join(map(str, ranks))


_ONLY_IN_PLACE = "The program is correct in place, but its 'outofplace' is 1, and out of place it is wrong."
# Limits of the executors (execution_common.hpp; msccl_struct.h and makefiles/common.mk).
_MAX_STEPS, _MAX_CHANNELS, _MAX_BUFFERS, _MAX_BARRIERS = 64, 8, 10, 16
_MAX_PROBLEMS = 20
_MAX_PASSES = 4
_DEPTHS = (1, 2, 4, 8)
# Messages in flight per connection: NCCL has 8 steps, and a Simple message takes 4 (MSCCL_CHUNKSTEPS).
_SLOTS = {"Simple": 2, "LL": 8, "LL128": 8}


@dataclass(frozen=True)
class Proof:
    """The verdict on a program, which is correct if there are no *problems*.

    *iterations* is the number of executed pipeline iterations (0: no pipelines). *depth* is the number of
    messages that each connection of an MSCCL XML must be able to buffer.
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
    """Run *program* symbolically for all orders that it allows, and return the verdict.

    An XML that may run in place and out of place must be correct in both cases. Raises `ConfigError`
    for a program that cannot be run symbolically.
    """
    proof = _proof(program)
    if not (program.either_place and proof.holds):
        return proof
    out_of_place = _proof(replace(program, in_place=False))
    if out_of_place.holds:
        return proof
    return replace(out_of_place, cautions=(*out_of_place.cautions, _ONLY_IN_PLACE))


def _proof(program: Program) -> Proof:
    unrolled = unroll(program)
    run = _fixed_point(unrolled)
    mistakes = itertools.chain(
        deadlocks(unrolled, run),
        disorder(unrolled, run),
        overlaps(run),
        races(run),
        between_calls(program, run),
        unwritten(run),
        leftovers(unrolled, run),
        wrong_results(unrolled, run),
    )
    problems = _first_of_each(mistakes, _MAX_PROBLEMS)
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
        cautions=tuple(_cautions(unrolled, run, unused)),
    )


def _is_unused(unrolled: Unrolled, run: Run) -> bool:
    """Return whether the only bugs are races and unwritten reads that affect no result."""
    program = unrolled.program
    serious = itertools.chain(
        deadlocks(unrolled, run),
        disorder(unrolled, run),
        overlaps(run),
        between_calls(program, run),
        leftovers(unrolled, run),
    )
    if program.collective == "custom" or any(serious):
        return False
    return not any(wrong_results(unrolled, run, doubtful_cells(run)))


def _fixed_point(unrolled: Unrolled) -> Run:
    """Run the program until its clocks no longer change; usually once is enough."""
    run = execute(unrolled)
    several = any(
        len({(give.step.rank, give.step.block) for give in gives}) > 1 for gives in run.gives.values()
    )
    if not several and all(len(writers) < 2 for writers in run.writers.values()):
        return run
    for _ in range(_MAX_PASSES):
        before = run.knowledge
        run = execute(unrolled, earlier=run)
        if run.knowledge == before:
            break
    return run


def _depth(unrolled: Unrolled) -> tuple[int, list[Problem]]:
    """Return how many messages connections must buffer to avoid a deadlock, and remaining deadlocks."""
    program = unrolled.program
    slots = _SLOTS[program.protocol] if program.message_chunks else _DEPTHS[-1]
    for depth in _DEPTHS:
        run = execute(unrolled, depth)
        if not run.blocked:
            return depth, []
        if depth >= slots:
            break
    return 0, _first_of_each(deadlocks(unrolled, run), _MAX_PROBLEMS)


def _first_of_each(problems: Iterator[Problem], most: int) -> list[Problem]:
    """Return the first problem of each op, at most *most* of them."""
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


def _cautions(unrolled: Unrolled, run: Run, unused: int) -> Iterator[str]:
    program = unrolled.program
    if unused:
        yield (
            f"{unused} or more accesses are in no fixed order, but their data is overwritten before any "
            f"rank's result depends on it."
        )
    if unrolled.iterations:
        yield f"Pipelines were checked for {unrolled.iterations} iterations; all further ones are equal."
        if unrolled.slots:
            yield f"The scratch buffer was assumed to have {unrolled.slots} units for each of its chunks."
        elif program.reuses_scratch:
            yield (
                "Nothing keeps its pipelines from running ahead, although they share the scratch buffer: it "
                "must have room for all of the data."
            )
    if program.collective == "custom":
        yield "The collective is 'custom': the result of each rank is unspecified and was not checked."
    yield from _limits(program)
    if _relaxed_after_data(run):
        yield (
            "Relaxed signals or waits (rlxsignal, rlxwait) follow writes; they were assumed to order these "
            "writes, as plain ones do."
        )


def _limits(program: Program) -> Iterator[str]:
    """Yield the limits of the published executor that a program from a file exceeds."""
    if program.source == program.name:
        return
    ops = [op for *_, op in program.walk()]
    steps = Counter((rank, block.id) for rank, block, _ in program.walk())
    found = [(list(steps.values()), _MAX_STEPS, "steps in a thread block")]
    if program.language == "msccl":
        counts = [region.count for op in ops for region in (*op.sources, *op.destinations)]
        found.append((counts, MAX_COUNT, "chunks in a step"))
    else:
        found += [
            (
                [len(op.channels) for op in ops if op.by_port or not op.sources],
                _MAX_CHANNELS,
                "channels in an op",
            ),
            ([len(op.sources) for op in ops], _MAX_BUFFERS, "sources in an op"),
            ([len(op.destinations) for op in ops], _MAX_BUFFERS, "destinations in an op"),
            ([op.barrier + 1 for op in ops], _MAX_BARRIERS, "barriers"),
        ]
    for counts, most, words in found:
        if max(counts, default=0) > most:
            yield f"The executor, as published, takes at most {most} {words}; the program has {max(counts)}."


def _relaxed_after_data(run: Run) -> bool:
    """Return whether writes precede a signal over memory if the signal, or the wait for it, is relaxed."""
    first: dict[int, int] = {}  # the first write of each strand
    for moved in run.moves:
        if moved.move.targets:
            first.setdefault(moved.strand, moved.time)
    return any(
        token[1] == ChannelType.MEMORY.value
        and "rlx" in give.step.op.name + take.step.op.name
        and any(give.clock[strand] >= time for strand, time in first.items())
        for token, gives in run.gives.items()
        for give, take in zip(gives, run.takes.get(token, ()), strict=False)
    )
