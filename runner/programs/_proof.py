"""Prove a collective program: right on every rank, in every order that it allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ._execute import Access, Blocked, Run, Value, contribution, execute
from ._model import Buffer, Program
from ._unroll import Cell, Step, Token, Unrolled, unroll

__all__ = ["Problem", "Proof", "prove"]

_MOST_PROBLEMS = 20
_MOST_STEPS = 24
_MOST_PASSES = 4
_DEPTHS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Problem:
    """What is wrong, where, and the steps of the shortest run that shows it, in order.

    *kind* is deadlock, race, unwritten, result, leftover or order.
    """

    kind: str
    rank: int
    block: int
    op: str
    message: str
    interleaving: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proof:
    """The verdict on a program; it *holds* if there are no *problems*.

    *iterations* is how often pipelines were followed (0: there are none), *depth* how many messages a
    connection of an XML must take without a receiver (None: more than any interpreter's eight).
    """

    program: str
    problems: tuple[Problem, ...]
    steps: int
    iterations: int
    depth: int | None
    cautions: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the program is right."""
        return not self.problems


def prove(program: Program) -> Proof:
    """Run *program* symbolically for all orders it allows and say whether it is right.

    Raises `ConfigError` for a program that cannot be followed.
    """
    unrolled = unroll(program)
    run = _settled(unrolled)
    problems: list[Problem] = []
    for found in (
        _deadlocks(unrolled, run),
        _disorder(run),
        _races(run),
        _strangers(run),
        _unwritten(run),
        _leftovers(unrolled, run),
        _wrong_results(unrolled, run),
    ):
        problems += _first_of_each(found, _MOST_PROBLEMS - len(problems))
    depth = _depth(unrolled) if program.language == "msccl" and not problems else 0
    return Proof(
        program=program.name,
        problems=tuple(problems),
        steps=len(run.done),
        iterations=unrolled.iterations,
        depth=depth,
        cautions=tuple(_cautions(program, unrolled, depth)),
    )


def _settled(unrolled: Unrolled) -> Run:
    """Run until the clocks say no more than before; most programs need one run."""
    run = execute(unrolled)
    several = any(len({(s.rank, s.block) for s, _ in gives}) > 1 for gives in run.gives.values())
    if not several and all(len(writers) < 2 for writers in run.writers.values()):
        return run
    for _ in range(_MOST_PASSES):
        before = sum(int(clock.sum()) for clock in run.clocks.values())
        run = execute(unrolled, earlier=run)
        if sum(int(clock.sum()) for clock in run.clocks.values()) == before:
            break
    return run


def _first_of_each(problems: Iterator[Problem], most: int) -> list[Problem]:
    """Return the first problem of each op, and no more than *most*."""
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


def _problem(kind: str, step: Step, message: str, interleaving: tuple[str, ...] = ()) -> Problem:
    return Problem(kind, step.rank, step.block, step.op.place, f"{step.words} {message}", interleaving)


# Deadlock.


def _deadlocks(unrolled: Unrolled, run: Run) -> Iterator[Problem]:
    """Yield the steps that are never done: first those for which nothing is left to come."""
    hopeless = [found for found in run.blocked if not _hopes(unrolled, run, found)]
    cycle = not hopeless
    for found in hopeless or run.blocked:
        reason = (
            "and those who should bring it wait themselves, in a dependency cycle"
            if cycle
            else "and no op that is left brings it"
        )
        others = tuple(
            f"{other.step.words} waits for {_awaited(other.awaits)}"
            for other in run.blocked
            if other is not found
        )
        yield _problem(
            "deadlock",
            found.step,
            f"waits for {_awaited(found.awaits)}, {reason}: a deadlock.",
            (*_past(run, found.step), f"{found.step.words} waits for ever", *others[:_MOST_STEPS]),
        )


def _hopes(unrolled: Unrolled, run: Run, found: Blocked) -> bool:
    """Return whether an op that was never reached would bring what a step waits for."""
    done = {id(step) for step in run.done}
    kind = found.awaits[0]
    for steps in unrolled.steps.values():
        for step in steps:
            if id(step) in done or step is found.step:
                continue
            if kind in {"semaphore", "channel"} and found.awaits in step.gives:
                return True
            if kind == "packet" and any(
                found.awaits[1] == cell and packet
                for move in step.moves
                for cell, packet in zip(move.targets, move.packets_out, strict=True)
            ):
                return True
            if kind == "barrier" and step.op.name == "barrier":
                same = (step.rank, step.op.barrier) == found.awaits[1:3]
                if same and all(step is not other.step for other in run.blocked):
                    return True
            if kind in {"step", "slot"}:
                return True
    return False


def _awaited(token: Token) -> str:
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
    return f"packets in {_cell_words(cell)}"


def _cell_words(cell: Cell) -> str:
    return f"chunk {cell[2]} of the {Buffer(cell[1]).words} buffer of rank {cell[0]}"


# Order.


def _disorder(run: Run) -> Iterator[Problem]:
    for token, first, second in run.unordered:
        yield _problem(
            "order",
            second,
            f"and {first.words} both wait for {_awaited(token)}, in no fixed order: which of them goes on "
            "first is left to chance.",
        )


def _races(run: Run) -> Iterator[Problem]:
    for cell, accesses in run.accesses.items():
        for place, later in enumerate(accesses):
            for earlier in accesses[:place]:
                if _conflict(earlier, later) and later.clock[earlier.strand] < earlier.time:
                    yield _race(run, cell, earlier, later)


def _strangers(run: Run) -> Iterator[Problem]:
    """Yield who uses a buffer of another rank before that rank has begun, or after it may have ended.

    Packets for the scratch buffer may be early: their flags are of this call.
    """
    for cell, accesses in run.accesses.items():
        owner = cell[0]
        assert isinstance(owner, int)
        for access in accesses:
            if access.step.rank == owner:
                continue
            verb = "writes" if access.writes else "reads"
            early = not (access.packet and cell[1] == Buffer.SCRATCH.value)
            if early and access.clock[owner] == 0:
                message = f"{verb} {_cell_words(cell)} before that rank has begun: nothing makes it wait."
                yield _problem("race", access.step, message, _before(run, access))
            elif not run.blocked and run.ends[owner][access.strand] < access.time:
                message = (
                    f"{verb} {_cell_words(cell)} when that rank may have ended: nothing there waits for it."
                )
                yield _problem("race", access.step, message, _before(run, access))


def _conflict(first: Access, second: Access) -> bool:
    if not first.writes and not second.writes:
        return False
    if first.packet and second.packet and first.writes:
        # A flag tells the reader; and who writes the same twice spoils nothing.
        return second.writes and first.value != second.value
    return True


def _race(run: Run, cell: Cell, first: Access, second: Access) -> Problem:
    words = _cell_words(cell)
    if first.writes and second.writes:
        message = f"writes {words}, and so does {first.step.words}: nothing says which of them is last."
        return _problem("race", second.step, message, _witness(run, second, first))
    read, written = (second, first) if first.writes else (first, second)
    if first.writes or read.value is None:
        message = f"reads {words} before {written.step.words} has written it: nothing makes it wait."
        return _problem("race", read.step, message, _witness(run, read, written))
    message = f"overwrites {words} before {read.step.words} has read it: nothing makes it wait."
    return _problem("race", written.step, message, _witness(run, written, read))


def _witness(run: Run, early: Access, late: Access) -> tuple[str, ...]:
    """Return the steps that must come before *early*, then it, then *late*: no run shows it in fewer."""
    steps = [
        step
        for step in run.done
        if step is not early.step and step is not late.step and _known(run, step, early.clock)
    ]
    return (*_listed(steps), early.step.words, f"{late.step.words} comes too late")


def _known(run: Run, step: Step, clock: object) -> bool:
    began = run.began.get(id(step))
    if began is None or (not step.moves and not step.gives and not step.takes):
        return False
    return bool(clock[began[0]] >= began[1])  # type: ignore[index]


def _past(run: Run, step: Step) -> tuple[str, ...]:
    """Return the steps of the thread block before *step*."""
    own = [
        other
        for other in run.done
        if (other.rank, other.block) == (step.rank, step.block) and other.op.name != "nop"
    ]
    return _listed(own)


def _listed(steps: list[Step]) -> tuple[str, ...]:
    if len(steps) <= _MOST_STEPS:
        return tuple(step.words for step in steps)
    return (f"... {len(steps) - _MOST_STEPS} steps before", *(step.words for step in steps[-_MOST_STEPS:]))


def _unwritten(run: Run) -> Iterator[Problem]:
    for cell, accesses in run.accesses.items():
        for access in accesses:
            if not access.writes and access.value is None:
                message = f"reads {_cell_words(cell)}, into which nothing has been written."
                yield _problem("unwritten", access.step, message, _before(run, access))
            elif access.writes and access.value is not None and access.value.part < 0:
                message = f"sums different parts of chunks into {_cell_words(cell)}."
                yield _problem("result", access.step, message, _before(run, access))


def _before(run: Run, access: Access) -> tuple[str, ...]:
    steps = [step for step in run.done if step is not access.step and _known(run, step, access.clock)]
    return (*_listed(steps), access.step.words)


# What is left at the end.


def _leftovers(unrolled: Unrolled, run: Run) -> Iterator[Problem]:
    if run.blocked:
        return
    for token, value in run.tokens.items():
        begun = unrolled.semaphores.get(token, 0)
        if value == begun:
            continue
        gives = run.gives[token]
        step = gives[-1][0] if gives else run.takes[token][-1][0]
        yield _problem(
            "leftover",
            step,
            f"leaves {_awaited(token)} at {value} where it began with {begun}: the next call of the program "
            "would not wait where it must.",
        )


def _wrong_results(unrolled: Unrolled, run: Run) -> Iterator[Problem]:
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
                if value != Value(expected, 0, part):
                    yield _wrong_result(program, run, cell, value, expected)
                    break


def _shift(unrolled: Unrolled, run: Run) -> int:
    """Return from how many ranks before it rank 0 received its first chunk."""
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
    where = _cell_words(cell)
    wanted = f"it must hold {_set_words(program, expected)}"
    if not writes:
        blocks = program.ranks[int(str(cell[0]))].thread_blocks
        message = f"rank {cell[0]}: no op writes {where}; {wanted}."
        return Problem("result", int(str(cell[0])), blocks[0].id if blocks else -1, "-", message)
    last = writes[-1]
    held = "nothing that was ever written" if value is None else _set_words(program, value.mask)
    if value is not None and value.twice:
        held += f", of which {_set_words(program, value.twice)} more than once"
    message = f"is the last to write {where}, which then holds {held}; {wanted}."
    return _problem("result", last.step, message, _before(run, last))


def _set_words(program: Program, mask: int) -> str:
    """Return the words for a set of contributions: by chunk, of which ranks."""
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


def _depth(unrolled: Unrolled) -> int | None:
    """Return how many messages a connection must take for the program to end, of those worth a try."""
    for depth in _DEPTHS:
        if not execute(unrolled, depth).blocked:
            return depth
    return None


def _cautions(program: Program, unrolled: Unrolled, depth: int | None) -> Iterator[str]:
    if unrolled.iterations:
        yield f"Pipelines were followed for {unrolled.iterations} iterations; all further ones are alike."
        if unrolled.slots:
            yield f"Scratch was taken to have room for {unrolled.slots} units of each of its chunks."
        elif program.reuses_scratch:
            yield (
                "Nothing keeps its pipelines from running ahead, although they share the scratch buffer: it "
                "must have room for all of the data."
            )
    if depth is None:
        yield (
            f"A connection must take more than {_DEPTHS[-1]} messages that nobody has received: an "
            "interpreter with fewer slots stops."
        )
    if program.collective == "custom":
        yield "The collective is 'custom': what each rank must end with is not known and was not checked."
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
