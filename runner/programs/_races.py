"""Find races in a program, doubtful values, and waits for signals in no fixed order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

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


def _is_ordered_before(run: Run, step: Step, clock: Clock) -> bool:
    began = run.began.get(id(step))
    if began is None or (not step.moves and not step.gives and not step.takes):
        return False
    return bool(clock[began[0]] >= began[1])


def listed(steps: list[Step]) -> tuple[str, ...]:
    if len(steps) <= MAX_STEPS:
        return tuple(step.words for step in steps)
    return (f"... {len(steps) - MAX_STEPS} steps before", *(step.words for step in steps[-MAX_STEPS:]))


def run_to(run: Run, access: Access, *late: Access) -> tuple[str, ...]:
    """Return the shortest run that exposes a problem: the steps up to *access*, then the *late* steps."""
    last = [id(each.step) for each in (access, *late)]
    steps = [
        step for step in run.done if id(step) not in last and _is_ordered_before(run, step, access.clock)
    ]
    too_late = (f"{each.step.words} comes too late" for each in late)
    return (*listed(steps), access.step.words, *too_late)


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


def between_calls(program: Program, run: Run) -> Iterator[Problem]:
    """Yield accesses that may come before a rank has begun its call, or after the rank has ended its call.

    Between calls, the caller uses the input and output of a rank. In the scratch buffer, an access may
    come early or late unless an access of another call conflicts with it.
    """
    calls = _Calls(program, run)
    for cell, accesses in run.accesses.items():
        owner, in_scratch = cell[0], str(cell[1]).endswith(Buffer.SCRATCH.value)
        assert isinstance(owner, int)
        for access in accesses:
            if access.step.rank == owner and not (in_scratch and access.proxied):
                continue
            early = bool(access.clock[owner] == 0)
            late = not run.blocked and not access.precedes(run.ends[owner])
            if in_scratch and (early or late):
                shared = calls.sharing(cell)
                early &= not run.blocked and any(calls.conflict(other, access) for other in shared)
                late &= any(calls.conflict(access, other) for other in shared)
            if early and in_scratch and access.packet:
                message = "in the next call when that rank may not have read those of this one."
            elif early:
                message = "before that rank has begun: nothing makes it wait."
            elif late:
                message = "when that rank may have ended: nothing there waits for it."
            else:
                continue
            verb = "writes" if access.writes else "reads"
            message = f"{verb} {cell_words(cell)} {message}"
            yield problem_of("race", access.step, message, run_to(run, access))


class _Calls:
    """The order of accesses in one call and in the next call that uses the same memory.

    A double scratch buffer is used again in the call after the next.
    """

    def __init__(self, program: Program, run: Run) -> None:
        self.run = run
        self.double = program.double_scratch
        self.ends = np.stack([run.ends[rank] for rank in range(program.num_ranks)])
        self.copies = {
            (moved.strand, moved.time): moved.move.targets for moved in run.moves if moved.move.proxy
        }

    def sharing(self, cell: Cell) -> list[Access]:
        """Return the accesses to the memory of *cell*, in both layouts."""
        cells = (cell, *overlapping(cell, self.run.parts))
        return [access for each in cells for access in self.run.accesses.get(each, ())]

    def conflict(self, first: Access, later: Access) -> bool:
        """Return whether *later*, in the next call, may precede *first* and change what it reads.

        A flag shows the reader of a packet to which call the packet belongs.
        """
        flagged = first.packet and first.writes and later.packet and not later.writes
        if flagged or not (first.writes or later.writes) or not self._may_precede(first, later):
            return False
        return first.writes or not first.proxied or not self._may_copy(first, later)

    def _may_precede(self, first: Access, later: Access) -> bool:
        begins = slice(len(self.ends))
        # The ranks that end a call only after the first access; work on the same strand follows it.
        after = self.ends[:, first.strand] >= first.time
        if self.double:
            after = (self.ends[:, begins][:, after] > 0).any(axis=1) | (self.ends[:, first.strand] > 0)
        return not (later.clock[first.strand] > 0 or bool((after & (later.clock[begins] > 0)).any()))

    def _may_copy(self, copy: Access, later: Access) -> bool:
        """Return whether a proxy may copy a *later* packet, because no rank needs the packet of this call."""
        readers = [
            access
            for target in self.copies[copy.strand, copy.time]
            for access in self.sharing(target)
            if not (access.writes and access.packet)
        ]
        return later.packet and all(
            reader.packet and not copy.precedes(reader.clock) and not self._may_precede(reader, later)
            for reader in readers
        )


def _conflict(accesses: list[Access], first: Access, second: Access) -> bool:
    if not (first.packet and second.packet):
        return True
    if first.writes and second.writes:
        return first.value != second.value  # writing the same value twice is no conflict
    read = second if first.writes else first
    # A flag shows the reader that a packet has arrived, but does not identify the packet.
    return any(
        other.packet and other.writes and other.value != read.value and not read.precedes(other.clock)
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
        return problem_of("race", second.step, message, run_to(run, second, first))
    read, written = (second, first) if first.writes else (first, second)
    if first.writes or read.value is None:
        message = f"reads {words} before {written.step.words} has written it: nothing makes it wait."
        return problem_of("race", read.step, message, run_to(run, read, written))
    message = f"overwrites {words} before {read.step.words} has read it: nothing makes it wait."
    return problem_of("race", written.step, message, run_to(run, written, read))


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
