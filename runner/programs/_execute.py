"""Run a program symbolically, with vector clocks that hold for every order its steps may take.

Each cell holds a set of contributions. The run takes the steps in one allowed order, and the clock
of a step records which steps precede it in *all* orders. If steps that wait for the same token have
a fixed order, a program terminates in all orders or in none, and without races all orders give the
same result.

The threads of a thread block synchronise only at a ``nop`` or a barrier. Between these points, a thread block
has several strands, each of which is ordered only by itself: each leading thread, which signals and waits on
the channels and semaphores with its number; each lane of data; and the work of a proxy for each requesting
thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ._model import Buffer, Program
from ._unroll import Cell, Move, Step, Token, Unrolled, holds_packets, overlapping, proxy_of

Clock = npt.NDArray[np.int32]


class Value(NamedTuple):
    """The content of a cell: its input chunks, the chunks added twice, and the part of a chunk."""

    mask: int
    twice: int
    part: int


def contribution(program: Program, rank: int, chunk: int) -> int:
    """Return the set that contains a single input chunk of a rank."""
    return 1 << (rank * program.chunks + chunk)


class Access(NamedTuple):
    """An access to a cell: its step, its position on its strand, and the clock of the preceding accesses."""

    step: Step
    strand: int
    time: int
    clock: Clock
    writes: bool
    packet: bool
    value: Value | None
    order: int  # position in the executed order
    proxied: bool

    def precedes(self, clock: Clock) -> bool:
        """Return whether this access precedes an event with *clock* in all orders, element by element."""
        return bool(clock[self.strand] >= self.time)

    def precedes_whole(self, later: Access) -> bool:
        """Return whether every element of this access precedes every element of *later* in all orders."""
        half = 0 if self.proxied and later.proxied else len(later.clock) // 2
        return bool(later.clock[half + self.strand] >= self.time)


class Event(NamedTuple):
    """The release or acquisition of a token: its step, position on the strand, and clock."""

    step: Step
    strand: int
    time: int
    clock: Clock

    def precedes(self, clock: Clock) -> bool:
        """Return whether this event precedes an event with *clock* in all orders."""
        return bool(clock[self.strand] >= self.time)


class Moved(NamedTuple):
    """A completed move of a cell, with its step and position on the strand."""

    step: Step
    move: Move
    strand: int
    time: int


class Blocked(NamedTuple):
    """A blocked step, and the token or message that it waits for."""

    step: Step
    awaits: Token


@dataclass
class Run:
    """The record of a run: accesses by cell, final values, and the tokens and messages left over.

    *inputs* are the initial values of cells. *overlaps* are accesses to packets, keyed by the raw
    cells in the same memory. *parts* is the number of parts of each chunk.
    """

    parts: int
    accesses: dict[Cell, list[Access]] = field(default_factory=lambda: defaultdict(list))
    moves: list[Moved] = field(default_factory=list)
    overlaps: dict[Cell, list[Access]] = field(default_factory=lambda: defaultdict(list))
    inputs: dict[Cell, Value] = field(default_factory=dict)
    values: dict[Cell, Value] = field(default_factory=dict)
    packets: set[Cell] = field(default_factory=set)  # memory cells that hold packets
    tokens: dict[Token, int] = field(default_factory=dict)
    done: list[Step] = field(default_factory=list)
    began: dict[int, tuple[int, int]] = field(default_factory=dict)  # (strand, position on it) by id(step)
    blocked: list[Blocked] = field(default_factory=list)
    gives: dict[Token, list[Event]] = field(default_factory=lambda: defaultdict(list))
    takes: dict[Token, list[Event]] = field(default_factory=lambda: defaultdict(list))
    taken: dict[tuple[int, int], Clock] = field(default_factory=dict)  # by id(step) and number of the take
    writers: dict[Cell, list[Clock]] = field(default_factory=lambda: defaultdict(list))  # of packets
    unordered: list[tuple[Token, Step, Step]] = field(default_factory=list)
    strands: dict[tuple[object, ...], int] = field(default_factory=dict)
    ends: dict[int, Clock] = field(default_factory=dict)  # keyed by rank; strand r starts rank r
    knowledge: int = 0  # sum of the clocks of takes and packet reads; grows until a fixed point


@dataclass
class _Block:
    """The progress of a thread block."""

    key: tuple[int, int]
    steps: list[Step]
    at: int = 0
    move: int = 0
    taken: int = 0
    arrived: int = -1  # generation of the barrier where the block waits
    base: Clock | None = None
    strands: dict[tuple[object, ...], Clock] = field(default_factory=dict)


def execute(unrolled: Unrolled, depth: int = 0, earlier: Run | None = None) -> Run:
    """Run *unrolled* once, with at most *depth* messages in flight per connection of an XML (0: no limit).

    The clocks of an *earlier* run of the same program determine the signals that a wait needs.
    """
    return _Machine(unrolled, depth, earlier).run()


class _Machine:
    def __init__(self, unrolled: Unrolled, depth: int, earlier: Run | None) -> None:
        self.unrolled = unrolled
        self.depth = depth
        self.earlier = earlier
        self.result = Run(unrolled.parts)
        self.result.tokens = dict(unrolled.semaphores)
        self.blocks = {key: _Block(key, steps) for key, steps in unrolled.steps.items()}
        self.strand_of = self.result.strands
        self._number_strands()
        self.ended: dict[tuple[int, int], dict[int, Clock]] = defaultdict(dict)
        self.waiting: dict[object, list[_Block]] = defaultdict(list)
        self.ready = deque(self.blocks.values())
        self.asked: dict[Token, dict[int, tuple[list[int], list[Clock]]]] = defaultdict(dict)
        self.barriers: dict[tuple[int, int], list[tuple[_Block, Clock]]] = defaultdict(list)
        self.opened: dict[tuple[int, int], list[Clock]] = defaultdict(list)
        self.unread: dict[Cell, int] = defaultdict(int)
        self.order = 0
        self.givers: dict[Token, set[tuple[int, int]]] = defaultdict(set)
        self.packet_writers: Counter[Cell] = Counter()
        for key, steps in unrolled.steps.items():
            for step in steps:
                for token in step.gives:
                    self.givers[token].add(key)
                for move in step.moves:
                    self.packet_writers.update(cell for cell in move.targets if holds_packets(cell))
        self.mixed = any(cell[0] != "m" for cell in self.packet_writers)
        # The second half of a clock covers steps before the last point where all threads of a block
        # synchronised.
        self.half = len(self.strand_of)
        self.width = 2 * self.half if self.mixed else self.half
        self._begin()
        self._fill()

    def _number_strands(self) -> None:
        for rank in range(self.unrolled.program.num_ranks):
            self.strand_of["start", rank] = rank
        for key, block in self.blocks.items():
            for step in block.steps:
                for lead in range(max(1, len(step.takes), len(step.gives))):
                    self._number(key, "lead", lead)
                for lead, token in enumerate(step.gives):
                    proxy = proxy_of(token)
                    if proxy is not None:
                        self._number(key, proxy, lead)
                for move in step.moves:
                    if move.proxy is not None:
                        self._number(key, "lead", move.lead)
                    self._number(key, *(move.lane if move.proxy is None else (move.proxy, move.lead)))

    def _number(self, *strand: object) -> None:
        self.strand_of.setdefault(strand, len(self.strand_of))

    def _begin(self) -> None:
        """Start every rank; other ranks may not use the buffers of a rank before its start."""
        for rank in range(self.unrolled.program.num_ranks):
            self.result.ends[rank] = np.zeros(self.width, np.int32)
            self.result.ends[rank][rank] = 1
        for (rank, _), block in self.blocks.items():
            block.base = self.result.ends[rank].copy()

    def _fill(self) -> None:
        program = self.unrolled.program
        for rank in range(program.num_ranks):
            for chunk in range(program.chunks_of(rank, Buffer.INPUT)):
                buffer, index = program.home(rank, Buffer.INPUT, chunk)
                mask = contribution(program, rank, chunk)
                for part in range(self.unrolled.parts):
                    self.result.inputs[rank, buffer.value, index, part] = Value(mask, 0, part)
        self.result.values = dict(self.result.inputs)

    def run(self) -> Run:
        """Run until no step can continue."""
        while self.ready:
            block = self.ready.popleft()
            while block.at < len(block.steps):
                awaited = self._advance(block, block.steps[block.at])
                if awaited is not None:
                    self.waiting[awaited].append(block)
                    break
        for (rank, _), block in self.blocks.items():
            np.maximum(self.result.ends[rank], self._meet(block), out=self.result.ends[rank])
        for awaited, blocks in self.waiting.items():
            for block in blocks:
                token = awaited if isinstance(awaited, tuple) else (awaited,)
                self.result.blocked.append(Blocked(block.steps[block.at], token))
        return self.result

    def _wake(self, what: object) -> None:
        self.ready.extend(self.waiting.pop(what, ()))

    def _clock(self, block: _Block, strand: tuple[object, ...]) -> Clock:
        clock = block.strands.get(strand)
        if clock is None:
            clock = np.zeros(self.width, np.int32) if block.base is None else block.base.copy()
            block.strands[strand] = clock
        return clock

    def _meet(self, block: _Block) -> Clock:
        """Synchronise all threads of the thread block; return their joint clock."""
        clock = np.zeros(self.width, np.int32) if block.base is None else block.base.copy()
        for other in block.strands.values():
            np.maximum(clock, other, out=clock)
        if self.mixed:
            np.maximum(clock[self.half :], clock[: self.half], out=clock[self.half :])
        block.strands.clear()
        block.base = clock
        return clock

    def _learn(self, block: _Block, clock: Clock) -> None:
        """Merge *clock* into the clocks of all threads of the thread block."""
        own = self._meet(block)
        np.maximum(own, clock, out=own)

    def _tick(self, strand: tuple[object, ...], clock: Clock) -> int:
        number = self.strand_of[strand]
        clock[number] += 1
        return number

    def _advance(self, block: _Block, step: Step) -> object | None:
        """Execute as much of a step as possible; return the token or message that it waits for, or None."""
        if step.joins:
            self._meet(block)
        if step.after is not None:
            other = (step.rank, step.after[0])
            if step.after[1] not in self.ended[other]:
                return ("step", *other, step.after[1])
            self._learn(block, self.ended[other][step.after[1]])
        if step.op.name == "barrier":
            awaited = self._barrier(block, step)
            if awaited is not None:
                return awaited
        while block.taken < len(step.takes):
            token = step.takes[block.taken]
            if self.result.tokens.get(token, 0) <= 0:
                return token
            self._take(block, step, token)
            block.taken += 1
        while block.move < len(step.moves):
            awaited = self._move(block, step, step.moves[block.move])
            if awaited is not None:
                return awaited
            block.move += 1
        self._end(block, step)
        return None

    def _end(self, block: _Block, step: Step) -> None:
        for number, token in enumerate(step.gives):
            self._give(block, step, number, token)
        if step.flushes:
            for move in step.moves:
                if move.proxy is not None:
                    own = self._clock(block, (block.key, "lead", move.lead))
                    _, clocks = self.asked[move.proxy][self.strand_of[block.key, "lead", move.lead]]
                    np.maximum(own, clocks[-1], out=own)
        if step.joins:
            self.ended[block.key][block.at] = self._meet(block).copy()
            self._wake(("step", *block.key, block.at))
        self.result.done.append(step)
        if not step.moves:
            strand = self.strand_of[block.key, "lead", 0]
            self.result.began[id(step)] = (strand, int(self._clock(block, (block.key, "lead", 0))[strand]))
        block.at += 1
        block.move = block.taken = 0
        block.arrived = -1

    def _give(self, block: _Block, step: Step, number: int, token: Token) -> None:
        lead = (block.key, "lead", number)
        proxy = proxy_of(token)
        if proxy is None:
            clock = self._clock(block, lead)
            strand = self._tick(lead, clock)
        else:
            clock, strand = self._ask(block, proxy, number)
        self.result.tokens[token] = self.result.tokens.get(token, 0) + 1
        self.result.gives[token].append(Event(step, strand, int(clock[strand]), clock.copy()))
        self._wake(token)

    def _ask(self, block: _Block, proxy: Token, number: int) -> tuple[Clock, int]:
        """Return the clock and strand of the work that thread *number* requests from a *proxy*.

        The work follows every request, by any thread, that precedes this one in all orders.
        """
        lead = (block.key, "lead", number)
        own = self._clock(block, lead)
        asker = self._tick(lead, own)
        clock = own.copy()
        for strand, (times, clocks) in self.asked[proxy].items():
            place = bisect_right(times, int(own[strand]))
            if place:
                np.maximum(clock, clocks[place - 1], out=clock)
        strand = self._tick((block.key, proxy, number), clock)
        times, clocks = self.asked[proxy].setdefault(asker, ([], []))
        times.append(int(own[asker]))
        clocks.append(clock)
        return clock, strand

    def _barrier(self, block: _Block, step: Step) -> object | None:
        key = (step.rank, step.op.barrier)
        if step.op.barrier_blocks == 1:
            return None
        if block.arrived < 0:
            block.arrived = len(self.opened[key])
            self.barriers[key].append((block, self._meet(block).copy()))
            if len(self.barriers[key]) == step.op.barrier_blocks:
                clock = np.maximum.reduce([clock for _, clock in self.barriers.pop(key)])
                self.opened[key].append(clock)
                self._wake(("barrier", *key, block.arrived))
        if block.arrived >= len(self.opened[key]):
            return ("barrier", *key, block.arrived)
        self._learn(block, self.opened[key][block.arrived])
        return None

    def _take(self, block: _Block, step: Step, token: Token) -> None:
        lead = (block.key, "lead", block.taken)
        clock = self._clock(block, lead)
        before = self.result.takes[token]
        if before and not before[-1].precedes(clock):
            self.result.unordered.append((token, before[-1].step, step))
        needed = len(before) + 1 - self.unrolled.semaphores.get(token, 0)
        for known in self._certain(token, needed, (id(step), block.taken)):
            np.maximum(clock, known, out=clock)
        strand = self._tick(lead, clock)
        self.result.tokens[token] -= 1
        self.result.knowledge += int(clock.sum())
        self.result.taken[id(step), block.taken] = clock.copy()
        before.append(Event(step, strand, int(clock[strand]), clock.copy()))

    def _certain(self, token: Token, needed: int, take: tuple[int, int]) -> list[Clock]:
        """Return the clocks of *token*'s releases that must have happened once *needed* have happened."""
        if needed <= 0:
            return []
        if len(self.givers[token]) == 1:
            return [self.result.gives[token][needed - 1].clock]
        if self.earlier is None:
            return []
        everything = self.earlier.gives[token]
        mine = self.earlier.taken.get(take)
        certain = []
        for give in everything:
            without = 0
            for other in everything:
                follows = give.precedes(other.clock)
                later = mine is not None and bool((other.clock >= mine).all()) and other is not give
                without += not follows and not later
            if without < needed:
                certain.append(give.clock)
        return certain

    def _move(self, block: _Block, step: Step, move: Move) -> object | None:
        for cell in move.awaited:
            if cell not in self.result.packets:
                return ("packet", cell)
        if self.depth:
            for cell in move.targets:
                if self._counts(cell) and self.unread[cell[1:4]] >= self.depth:
                    return ("slot", *cell[1:4])
        clock, strand = self._strand_of_move(block, move)
        self.result.began.setdefault(id(step), (strand, int(clock[strand])))
        for cell in move.awaited:
            for known in self._packet_clocks(cell, strand, int(clock[strand])):
                np.maximum(clock, known, out=clock)
            self.result.knowledge += int(clock.sum())
        clock = clock.copy()  # shared by all accesses of the move, and never modified
        proxied = move.proxy is not None
        access = Access(step, strand, int(clock[strand]), clock, False, False, None, 0, proxied)
        self.result.moves.append(Moved(step, move, strand, access.time))
        read = []
        for cell in move.sources:
            value = self.result.values.get(cell)
            read.append(value)
            self._note(cell, access._replace(packet=cell in move.awaited, value=value))
            if self._frees(step, cell):
                self.unread[cell[1:4]] -= 1
                self._wake(("slot", *cell[1:4]))
        if move.targets:
            access = access._replace(writes=True, value=_sum(read))
            for cell in move.targets:
                self._write(cell, access._replace(packet=holds_packets(cell)))
        return None

    def _strand_of_move(self, block: _Block, move: Move) -> tuple[Clock, int]:
        if move.proxy is not None:
            return self._ask(block, move.proxy, move.lead)
        strand = (block.key, *move.lane)
        clock = self._clock(block, strand)
        return clock, self._tick(strand, clock)

    def _packet_clocks(self, cell: Cell, strand: int, time: int) -> list[Clock]:
        """Return the clocks that precede every possible writer of the packets in a cell.

        A writer that always follows the reader (at *time* on *strand*) is not possible.
        """
        if self.packet_writers[cell] == 1:
            return self.result.writers[cell]
        earlier = [] if self.earlier is None else self.earlier.writers[cell]
        clocks = [clock for clock in earlier if clock[strand] < time]
        return [np.minimum.reduce(clocks)] if clocks else []

    def _counts(self, cell: Cell) -> bool:
        """Return whether *cell* is the first chunk of a message, which occupies a slot."""
        if cell[0] != "m":
            return False
        chunk, most = cell[5], self.unrolled.program.message_chunks
        assert isinstance(chunk, int)
        return chunk % most == 0 if most else chunk == 0

    def _frees(self, step: Step, cell: Cell) -> bool:
        """Return whether *step* reads the last chunk of a message with *cell*, which frees the slot."""
        most = self.unrolled.program.message_chunks
        if cell[0] != "m" or not most:
            return self._counts(cell)
        assert isinstance(cell[5], int)
        after = cell[5] + 1
        return after % most == 0 or after == len(step.moves)

    def _write(self, cell: Cell, access: Access) -> None:
        self._note(cell, access)
        if self.mixed and cell[0] != "m":
            for other in overlapping(cell, self.unrolled.parts):
                self.result.values.pop(other, None)
                self.result.packets.discard(other)
        if access.value is None:
            self.result.values.pop(cell, None)
        else:
            self.result.values[cell] = access.value
        if not access.packet:
            return
        self.result.packets.add(cell)
        self.result.writers[cell].append(access.clock)
        if self._counts(cell):
            self.unread[cell[1:4]] += 1
        self._wake(("packet", cell))

    def _note(self, cell: Cell, access: Access) -> None:
        if cell[0] == "m":
            return
        self.order += 1
        access = access._replace(order=self.order)
        self.result.accesses[cell].append(access)
        if self.mixed and holds_packets(cell):
            for other in overlapping(cell, self.unrolled.parts):
                self.result.overlaps[other].append(access)


def _sum(read: list[Value | None]) -> Value | None:
    """Return the sum of the values that a move reads, or None if one is missing."""
    total: Value | None = None
    for value in read:
        if value is None:
            return None
        if total is None:
            total = value
            continue
        part = total.part if total.part == value.part else -1
        twice = total.twice | value.twice | (total.mask & value.mask)
        total = Value(total.mask | value.mask, twice, part)
    return total
