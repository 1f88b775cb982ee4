"""Find races in a program, doubtful values, and waits for signals in no fixed order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ._execute import Access, Clock, Moved, Run, Value
from ._model import Buffer, Program
from ._unroll import PACKETS, Cell, Step, Token, Unrolled, overlapping

MAX_STEPS = 24


@dataclass(frozen=True)
class Problem:
    """A bug of a collective program, its place, and the steps of the shortest run that exposes it.

    *kind* is deadlock, race, unwritten, result, leftover or order.
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
    """Name a cell in a message to the user."""
    packets = str(cell[1]).startswith(PACKETS)
    buffer = Buffer(str(cell[1]).removeprefix(PACKETS)).words
    return f"{'packets of ' if packets else ''}chunk {cell[2]} of the {buffer} buffer of rank {cell[0]}"


def witness(run: Run, early: Access, late: Access) -> tuple[str, ...]:
    """Return the shortest run that exposes a problem: what precedes *early*, then *early* and *late*."""
    steps = [
        step
        for step in run.done
        if step is not early.step and step is not late.step and _is_ordered_before(run, step, early.clock)
    ]
    return (*listed(steps), early.step.words, f"{late.step.words} comes too late")


def _is_ordered_before(run: Run, step: Step, clock: Clock) -> bool:
    began = run.began.get(id(step))
    if began is None or (not step.moves and not step.gives and not step.takes):
        return False
    return bool(clock[began[0]] >= began[1])


def listed(steps: list[Step]) -> tuple[str, ...]:
    if len(steps) <= MAX_STEPS:
        return tuple(step.words for step in steps)
    return (f"... {len(steps) - MAX_STEPS} steps before", *(step.words for step in steps[-MAX_STEPS:]))


def run_to(run: Run, access: Access) -> tuple[str, ...]:
    steps = [
        step for step in run.done if step is not access.step and _is_ordered_before(run, step, access.clock)
    ]
    return (*listed(steps), access.step.words)


def disorder(unrolled: Unrolled, run: Run) -> Iterator[Problem]:
    """Yield the steps that wait for the same token in no fixed order."""
    for token, first, second in run.unordered:
        yield problem_of(
            "order",
            second,
            f"and {first.words} both wait for {awaited_words(token)}, in no fixed order: either may "
            f"continue first.",
        )
    yield from _barriers(unrolled)


def _barriers(unrolled: Unrolled) -> Iterator[Problem]:
    """Yield barriers used by too many thread blocks, or with different expected counts.

    A barrier counts arrivals and waits for exactly the expected number.
    """
    users: dict[tuple[int, int], dict[tuple[int, int], Step]] = defaultdict(dict)
    for steps in unrolled.steps.values():
        for step in steps:
            op = step.op
            if op.name == "barrier" and op.barrier_blocks > 1:
                users[step.rank, op.barrier].setdefault((step.block, op.barrier_blocks), step)
    for (_, barrier), uses in users.items():
        first, *others = uses.values()
        for step in others:
            if step.op.barrier_blocks != first.op.barrier_blocks:
                yield problem_of(
                    "order",
                    step,
                    f"waits for {step.op.barrier_blocks} thread blocks at barrier {barrier}, but "
                    f"{first.words} for {first.op.barrier_blocks}: one of them may wait for ever.",
                )
        if len({block for block, _ in uses}) > first.op.barrier_blocks:
            yield problem_of(
                "order",
                others[-1],
                f"is one of {len(uses)} thread blocks at barrier {barrier}, which waits for "
                f"{first.op.barrier_blocks} of them: which of them meet is undefined.",
            )


def unordered_pairs(run: Run) -> Iterator[tuple[Cell, Access, Access]]:
    """Yield unordered pairs of accesses to one cell, at least one of them a write, in the run's order."""
    for cell, accesses in run.accesses.items():
        for place, later in enumerate(accesses):
            for earlier in accesses[:place]:
                if (earlier.writes or later.writes) and not earlier.precedes(later.clock):
                    yield cell, earlier, later


def is_race(run: Run, cell: Cell, earlier: Access, later: Access) -> bool:
    """Return whether swapping two unordered accesses changes a value that is read or written."""
    accesses = run.accesses[cell]
    return _conflict(accesses, earlier, later) and not _harmless(
        accesses, earlier, later, run.inputs.get(cell)
    )


def races(run: Run) -> Iterator[Problem]:
    """Yield the races: unordered accesses to one cell, at least one of them a write."""
    for cell, earlier, later in unordered_pairs(run):
        if is_race(run, cell, earlier, later):
            yield _race(run, cell, earlier, later)


def overlaps(run: Run) -> Iterator[Problem]:
    """Yield unordered pairs of a raw access and a packet access to the same memory.

    In the two layouts, a thread processes different parts of the memory. The pair is ordered only
    if all elements of one access precede all elements of the other.
    """
    for cell, packets in run.overlaps.items():
        for packet in packets:
            for raw in run.accesses.get(cell, ()):
                earlier, later = sorted((packet, raw), key=lambda access: access.order)
                if (packet.writes or raw.writes) and not earlier.precedes_whole(later):
                    yield _race(run, cell, earlier, later)


def strangers(program: Program, run: Run) -> Iterator[Problem]:
    """Yield accesses to another rank's buffer before that rank has begun or after it may have ended.

    Packets to the scratch buffer may arrive early, because their flags identify the call. Such packets are
    an error if a rank could end its call and overwrite unread packets with those of the next call.
    """
    for cell, accesses in run.accesses.items():
        owner = cell[0]
        assert isinstance(owner, int)
        reads = [access for access in accesses if access.packet and not access.writes]
        # Late packets from a single writer still arrive before that writer's packets of the next call.
        writers = {access.step.rank for access in accesses if access.writes}
        alone, raw = len(writers) == 1, _is_used_unchecked(run, cell)
        for access in accesses:
            writer = access.step.rank
            if writer == owner:
                continue
            verb = "writes" if access.writes else "reads"
            early = access.clock[owner] == 0
            in_time = alone or _arrives_before_reuse(program, run, owner, access, accesses)
            message = ""
            if early and not (access.packet and cell[1] == PACKETS + Buffer.SCRATCH.value):
                message = "before that rank has begun: nothing makes it wait."
            elif not (
                run.blocked or access.precedes(run.ends[owner]) or (access.packet and not raw and in_time)
            ):
                message = "when that rank may have ended: nothing there waits for it."
            elif early and not run.blocked and not _next_waits(program, run, owner, writer, reads):
                message = "in the next call when that rank may not have read those of this one."
            if message:
                message = f"{verb} {cell_words(cell)} {message}"
                yield problem_of("race", access.step, message, run_to(run, access))


def _is_used_unchecked(run: Run, cell: Cell) -> bool:
    """Return whether an op uses the memory of packets without checking their flags."""
    return any(run.accesses.get(raw) for raw in overlapping(cell, run.parts))


def _arrives_before_reuse(
    program: Program, run: Run, owner: int, write: Access, accesses: list[Access]
) -> bool:
    """Return whether late packets arrive before the packets of the call that reuses their memory.

    With a double scratch buffer, the overwriting call is the call after the next. The writer's stores have
    arrived if neither *owner* nor another writer in *accesses* can end the next call before the writer has
    begun it. A proxy must also have served its next request.
    """
    begun = write.strand if write.proxied else write.step.rank
    users = {access.step.rank for access in accesses if access.writes and access.strand != write.strand}
    return program.double_scratch and all(run.ends[rank][begun] > 0 for rank in {owner, *users})


def _next_waits(program: Program, run: Run, owner: int, writer: int, reads: list[Access]) -> bool:
    """Return whether *writer* ends a call only after *owner* has read the packets it may overwrite.

    With a double scratch buffer, only packets of the call after the next could overwrite unread packets.
    """
    end = run.ends[writer]
    if program.double_scratch:
        return bool(end[owner] > 0)
    return all(read.precedes(end) for read in reads)


def _conflict(accesses: list[Access], first: Access, second: Access) -> bool:
    if not (first.packet and second.packet and first.writes):
        return True
    if second.writes:
        return first.value != second.value  # writing the same value twice is no conflict
    # A flag shows the reader that a packet has arrived, but not which one.
    return any(
        other.packet and other.writes and other.value != second.value and not second.precedes(other.clock)
        for other in accesses
    )


def _harmless(accesses: list[Access], first: Access, second: Access, initial: Value | None) -> bool:
    """Return whether two unordered accesses have the same result in both orders.

    The results are equal if the cell already holds the written value, as its *initial* value or from an
    earlier step.
    """
    write, other = (second, first) if second.writes else (first, second)
    different = [access for access in accesses if access.writes and access.value != write.value]
    if write.value is None or any(other is each for each in different):
        return False
    if initial == write.value and all(
        access.precedes(each.clock) for each in different for access in (write, other)
    ):
        return True
    same = (
        [other]
        if other.writes
        else [
            access
            for access in accesses
            # A move's own write follows its read, although both have the same clock.
            if access.writes and access.order < other.order
            if access.value == write.value and access.precedes(other.clock)
        ]
    )
    return any(
        all(
            (each.precedes(earlier.clock) and each.precedes(write.clock))
            or all(access.precedes(each.clock) for access in (earlier, write, other))
            for each in different
        )
        for earlier in same
        if earlier is not write
    )


def _race(run: Run, cell: Cell, first: Access, second: Access) -> Problem:
    words = cell_words(cell)
    if first.writes and second.writes:
        message = f"writes {words}, and so does {first.step.words}: their order is undefined."
        return problem_of("race", second.step, message, witness(run, second, first))
    read, written = (second, first) if first.writes else (first, second)
    if first.writes or read.value is None:
        message = f"reads {words} before {written.step.words} has written it: nothing makes it wait."
        return problem_of("race", read.step, message, witness(run, read, written))
    message = f"overwrites {words} before {read.step.words} has read it: nothing makes it wait."
    return problem_of("race", written.step, message, witness(run, written, read))


def unwritten(run: Run) -> Iterator[Problem]:
    """Yield reads of unwritten cells, and sums of different parts of chunks."""
    for cell, accesses in run.accesses.items():
        for access in accesses:
            if not access.writes and access.value is None:
                message = f"reads {cell_words(cell)}, into which nothing has been written."
                yield problem_of("unwritten", access.step, message, run_to(run, access))
            elif access.writes and access.value is not None and access.value.part < 0:
                message = f"sums different parts of chunks into {cell_words(cell)}."
                yield problem_of("result", access.step, message, run_to(run, access))


_ALWAYS = -1
_Doubts = frozenset[int]
_Key = tuple[int, Cell, bool]
"""An access: id of its step, its cell, and whether it writes."""
_NONE: _Doubts = frozenset()


def doubtful_cells(run: Run) -> set[Cell]:
    """Return the cells whose final values may differ in another order of the steps.

    A read that races with a later write is correct in the orders where it comes first, so values
    computed from it are correct in steps that precede the write in every order. All other races
    make values doubtful until they are overwritten in every order.
    """
    marks: dict[_Key, _Doubts] = defaultdict(frozenset)
    spoilers: list[Clock] = []
    alike: list[tuple[_Key, _Key]] = []
    for cell, earlier, later in unordered_pairs(run):
        if not is_race(run, cell, earlier, later):
            alike.append((_key(cell, earlier), _key(cell, later)))
        elif not earlier.writes:
            marks[_key(cell, earlier)] |= {len(spoilers)}
            spoilers.append(later.clock)
        else:
            for access in (earlier, later):
                if access.writes == later.writes:
                    marks[_key(cell, access)] |= {_ALWAYS}
    while True:
        doubts, left = _spread(run, marks, spoilers)
        spread = False
        for pair in alike:
            both = doubts.get(pair[0], _NONE) | doubts.get(pair[1], _NONE)
            for key in pair:
                spread |= not both <= doubts.get(key, _NONE) | marks[key]
                marks[key] |= both
        if not spread:
            return {cell for cell, doubt in left.items() if doubt}


def _key(cell: Cell, access: Access) -> _Key:
    return id(access.step), cell, access.writes


def _spread(
    run: Run, marks: dict[_Key, _Doubts], spoilers: list[Clock]
) -> tuple[dict[_Key, _Doubts], dict[Cell, _Doubts]]:
    """Return the doubts about each access, and about the final value of each cell."""
    doubts: dict[_Key, _Doubts] = {}
    cells: dict[Cell, _Doubts] = {}
    for moved in run.moves:
        step, move = id(moved.step), moved.move
        read = _NONE
        for cell in move.sources:
            key = step, cell, False
            doubts[key] = _open(cells.get(cell, _NONE) | marks.get(key, _NONE), moved, spoilers)
            read |= doubts[key]
        for cell in move.targets:
            key = step, cell, True
            doubts[key] = cells[cell] = read | marks.get(key, _NONE)
    return doubts, cells


def _open(doubts: _Doubts, moved: Moved, spoilers: list[Clock]) -> _Doubts:
    """Return the *doubts* whose write may precede a move."""
    return frozenset(
        doubt for doubt in doubts if doubt == _ALWAYS or spoilers[doubt][moved.strand] < moved.time
    )
