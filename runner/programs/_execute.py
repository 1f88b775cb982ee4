"""One symbolic run of a program, and what every other run has in common with it.

Each cell holds a set of contributions. The run takes one order that the program allows; with every step go
clocks that say which steps come before it in *all* orders. Where no two steps wait for the same thing in no
fixed order, the program ends in one order exactly if it ends in all, and without races all orders end alike.

Threads of a thread block run together only from one ``nop`` or barrier to the next. Between two of them they
are strands: one of the leading threads, which signal and wait, and one for each lane of data.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ._model import Buffer, Program
from ._unroll import Cell, Move, Step, Token, Unrolled

__all__ = ["Access", "Blocked", "Run", "Value", "contribution", "execute"]

Clock = npt.NDArray[np.int32]


class Value(NamedTuple):
    """What a cell holds: the contributions in it, those in it more than once, and which part of a chunk."""

    mask: int
    twice: int
    part: int


def contribution(program: Program, rank: int, chunk: int) -> int:
    """Return the set that holds nothing but the input chunk of a rank."""
    return 1 << (rank * program.chunks + chunk)


class Access(NamedTuple):
    """A step that read or wrote a cell, when on its strand, and all that came before it."""

    step: Step
    strand: int
    time: int
    clock: Clock
    writes: bool
    packet: bool
    value: Value | None
    order: int  # in this run


class Blocked(NamedTuple):
    """A step that this run never got past, and what it waits for."""

    step: Step
    awaits: Token


@dataclass
class Run:
    """What happened: accesses by cell, the last values, and what is left."""

    accesses: dict[Cell, list[Access]] = field(default_factory=lambda: defaultdict(list))
    values: dict[Cell, Value] = field(default_factory=dict)
    packets: set[Cell] = field(default_factory=set)  # cells that hold packets
    tokens: dict[Token, int] = field(default_factory=dict)
    done: list[Step] = field(default_factory=list)
    clocks: dict[int, Clock] = field(default_factory=dict)  # of id(step), when it ended
    began: dict[int, tuple[int, int]] = field(default_factory=dict)  # of id(step): its strand and time there
    blocked: list[Blocked] = field(default_factory=list)
    gives: dict[Token, list[tuple[Step, Clock]]] = field(default_factory=lambda: defaultdict(list))
    takes: dict[Token, list[tuple[Step, Clock]]] = field(default_factory=lambda: defaultdict(list))
    writers: dict[Cell, list[tuple[Step, Clock, Value | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    unordered: list[tuple[Token, Step, Step]] = field(default_factory=list)
    strands: dict[tuple[object, ...], int] = field(default_factory=dict)
    ends: dict[int, Clock] = field(default_factory=dict)  # of ranks, whose start has strand number rank


@dataclass
class _Block:
    """A thread block at work."""

    key: tuple[int, int]
    steps: list[Step]
    at: int = 0
    move: int = 0
    taken: int = 0
    arrived: int = -1  # generation of the barrier it waits at
    base: Clock | None = None
    strands: dict[tuple[object, ...], Clock] = field(default_factory=dict)


def execute(unrolled: Unrolled, depth: int = 0, earlier: Run | None = None) -> Run:
    """Run *unrolled* once. At most *depth* messages of an XML are under way per connection (0: no bound).

    With an *earlier* run of the same, its clocks tell which of several signals a wait cannot do without.
    """
    return _Machine(unrolled, depth, earlier).run()


class _Machine:
    def __init__(self, unrolled: Unrolled, depth: int, earlier: Run | None) -> None:
        self.unrolled = unrolled
        self.depth = depth
        self.earlier = earlier
        self.result = Run()
        self.result.tokens = dict(unrolled.semaphores)
        self.blocks = {key: _Block(key, steps) for key, steps in unrolled.steps.items()}
        self.strand_of = self.result.strands
        self._number_strands()
        self.width = len(self.strand_of)
        self.ended: dict[tuple[int, int], dict[int, Clock]] = defaultdict(dict)
        self.waiting: dict[object, list[_Block]] = defaultdict(list)
        self.ready = deque(self.blocks.values())
        self.proxies: dict[Token, Clock] = {}
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
                    self.packet_writers.update(
                        cell for cell, packet in zip(move.targets, move.packets_out, strict=True) if packet
                    )
        self._begin()
        self._fill()

    def _number_strands(self) -> None:
        for rank in range(self.unrolled.program.num_ranks):
            self.strand_of["start", rank] = rank
        for key, block in self.blocks.items():
            self.strand_of.setdefault((key, "lead"), len(self.strand_of))
            for step in block.steps:
                if step.proxy is not None:
                    self.strand_of.setdefault(step.proxy, len(self.strand_of))
                for move in step.moves if step.proxy is None else ():
                    self.strand_of.setdefault((key, move.lane), len(self.strand_of))

    def _begin(self) -> None:
        """Let every rank begin: before that, nothing of its buffers is there for others."""
        for (rank, _), block in self.blocks.items():
            block.base = np.zeros(self.width, np.int32)
            block.base[rank] = 1
            self.result.ends.setdefault(rank, block.base.copy())

    def _fill(self) -> None:
        program = self.unrolled.program
        for rank in range(program.num_ranks):
            for chunk in range(program.chunks_of(rank, Buffer.INPUT)):
                buffer, index = program.home(rank, Buffer.INPUT, chunk)
                mask = contribution(program, rank, chunk)
                for part in range(self.unrolled.parts):
                    self.result.values[rank, buffer.value, index, part] = Value(mask, 0, part)

    def run(self) -> Run:
        """Run until nothing can go on."""
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

    # Clocks of strands.

    def _clock(self, block: _Block, strand: tuple[object, ...]) -> Clock:
        clock = block.strands.get(strand)
        if clock is None:
            clock = np.zeros(self.width, np.int32) if block.base is None else block.base.copy()
            block.strands[strand] = clock
        return clock

    def _meet(self, block: _Block) -> Clock:
        """Let all threads of the block wait for each other."""
        clock = np.zeros(self.width, np.int32) if block.base is None else block.base.copy()
        for other in block.strands.values():
            np.maximum(clock, other, out=clock)
        block.strands.clear()
        block.base = clock
        return clock

    def _tick(self, strand: tuple[object, ...], clock: Clock) -> int:
        number = self.strand_of[strand]
        clock[number] += 1
        return number

    # Steps.

    def _advance(self, block: _Block, step: Step) -> object | None:
        """Do a step as far as it goes; return what it waits for, or None when it is done."""
        if step.joins:
            self._meet(block)
        if step.after is not None:
            other = (step.rank, step.after[0])
            if step.after[1] not in self.ended[other]:
                return ("step", *other, step.after[1])
            lead = self._clock(block, (block.key, "lead"))
            np.maximum(lead, self.ended[other][step.after[1]], out=lead)
            self._meet(block)
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
        lead = (block.key, "lead")
        clock = self._clock(block, lead)
        if step.proxy is not None:
            clock = self._proxy(block, step)
        elif step.takes or step.gives or step.op.name == "flush":
            self._tick(lead, clock)
        elif step.moves:
            lanes = {move.lane for move in step.moves}
            clock = np.maximum.reduce([self._clock(block, (block.key, lane)) for lane in lanes])
        if step.op.name == "flush" and step.proxy is not None:
            own = self._clock(block, lead)
            np.maximum(own, clock, out=own)
        if step.gives:
            given = clock.copy()
            for token in step.gives:
                self.result.tokens[token] = self.result.tokens.get(token, 0) + 1
                self.result.gives[token].append((step, given))
                self._wake(token)
        if step.joins:
            clock = self._meet(block)
        self.result.done.append(step)
        self.result.clocks[id(step)] = self.ended[block.key][block.at] = clock.copy()
        self._wake(("step", *block.key, block.at))
        if not step.moves:
            strand = step.proxy if step.proxy is not None else lead
            self.result.began[id(step)] = (self.strand_of[strand], int(clock[self.strand_of[strand]]))
        block.at += 1
        block.move = block.taken = 0
        block.arrived = -1

    def _proxy(self, block: _Block, step: Step) -> Clock:
        """Return the clock of the proxy that serves a port channel, which has all this step knows."""
        assert step.proxy is not None
        clock = self.proxies.get(step.proxy)
        if clock is None:
            clock = self.proxies[step.proxy] = np.zeros(self.width, np.int32)
        np.maximum(clock, self._clock(block, (block.key, "lead")), out=clock)
        self._tick(step.proxy, clock)
        return clock

    def _barrier(self, block: _Block, step: Step) -> object | None:
        key = (step.rank, step.op.barrier)
        if block.arrived < 0:
            block.arrived = len(self.opened[key])
            self.barriers[key].append((block, self._meet(block).copy()))
            if len(self.barriers[key]) == step.op.barrier_blocks:
                clock = np.maximum.reduce([clock for _, clock in self.barriers.pop(key)])
                self.opened[key].append(clock)
                self._wake(("barrier", *key, block.arrived))
        if block.arrived >= len(self.opened[key]):
            return ("barrier", *key, block.arrived)
        lead = self._clock(block, (block.key, "lead"))
        np.maximum(lead, self.opened[key][block.arrived], out=lead)
        self._meet(block)
        return None

    def _take(self, block: _Block, step: Step, token: Token) -> None:
        lead = (block.key, "lead")
        clock = self._clock(block, lead)
        before = self.result.takes[token]
        if before and not _knows(clock, before[-1][1], before[-1][0], self):
            self.result.unordered.append((token, before[-1][0], step))
        needed = len(before) + 1 - self.unrolled.semaphores.get(token, 0)
        for known in self._certain(token, needed, step):
            np.maximum(clock, known, out=clock)
        self._tick(lead, clock)
        self.result.tokens[token] -= 1
        before.append((step, clock.copy()))

    def _certain(self, token: Token, needed: int, step: Step) -> list[Clock]:
        """Return the clocks of the gives without which *needed* of them cannot have happened."""
        if needed <= 0:
            return []
        if len(self.givers[token]) == 1:
            return [self.result.gives[token][needed - 1][1]]
        if self.earlier is None:
            return []
        everything = self.earlier.gives[token]
        mine = self.earlier.clocks.get(id(step))
        certain = []
        for give, clock in everything:
            time = self._time(give, clock)
            without = 0
            for other, at in everything:
                follows = at[time[0]] >= time[1]
                later = mine is not None and _includes(at, mine) and other is not give
                without += not follows and not later
            if without < needed:
                certain.append(clock)
        return certain

    def _time(self, step: Step, clock: Clock) -> tuple[int, int]:
        strand = step.proxy if step.proxy is not None else ((step.rank, step.block), "lead")
        number = self.strand_of[strand]
        return number, int(clock[number])

    # Data.

    def _move(self, block: _Block, step: Step, move: Move) -> object | None:
        for cell, packet in zip(move.sources, move.packets_in, strict=True):
            if packet and cell not in self.result.packets:
                return ("packet", cell)
        if self.depth:
            for cell in move.targets:
                if cell[0] == "m" and cell[5] == 0 and self.unread[cell[1:4]] >= self.depth:
                    return ("slot", *cell[1:4])
        clock, number = self._strand_of_move(block, step, move)
        self.result.began.setdefault(id(step), (number, int(clock[number])))
        read = []
        for cell, packet in zip(move.sources, move.packets_in, strict=True):
            if packet:
                for known in self._packet_clocks(cell):
                    np.maximum(clock, known, out=clock)
        clock = clock.copy()  # what all accesses of the move have in common; nobody changes it any more
        for cell, packet in zip(move.sources, move.packets_in, strict=True):
            value = self.result.values.get(cell)
            read.append(value if packet or cell not in self.result.packets else None)
            self._note(step, cell, number, clock, False, packet, value)
            if cell[0] == "m" and cell[5] == 0:
                self.unread[cell[1:4]] -= 1
                self._wake(("slot", *cell[1:4]))
        value = _sum(read)
        for cell, packet in zip(move.targets, move.packets_out, strict=True):
            self._write(step, cell, number, clock, packet, value)
        return None

    def _strand_of_move(self, block: _Block, step: Step, move: Move) -> tuple[Clock, int]:
        if step.proxy is not None:
            clock = self._proxy(block, step)
            return clock, self.strand_of[step.proxy]
        strand = (block.key, move.lane)
        clock = self._clock(block, strand)
        return clock, self._tick(strand, clock)

    def _packet_clocks(self, cell: Cell) -> list[Clock]:
        """Return what a reader of packets knows: all that came before whichever of their writers."""
        writers = self.result.writers[cell]
        if self.packet_writers[cell] > 1:
            if self.earlier is None:
                return []
            writers = self.earlier.writers[cell]
        if len(writers) == 1:
            return [writers[0][1]]
        return [np.minimum.reduce([clock for _, clock, _ in writers])]

    def _write(  # noqa: PLR0917 - all of one access
        self, step: Step, cell: Cell, strand: int, clock: Clock, packet: bool, value: Value | None
    ) -> None:
        self._note(step, cell, strand, clock, True, packet, value)
        if value is None:
            self.result.values.pop(cell, None)
        else:
            self.result.values[cell] = value
        if not packet:
            self.result.packets.discard(cell)
            return
        self.result.packets.add(cell)
        self.result.writers[cell].append((step, clock, value))
        if cell[0] == "m" and cell[5] == 0:
            self.unread[cell[1:4]] += 1
        self._wake(("packet", cell))

    def _note(  # noqa: PLR0917 - all of one access
        self,
        step: Step,
        cell: Cell,
        strand: int,
        clock: Clock,
        writes: bool,
        packet: bool,
        value: Value | None,
    ) -> None:
        if cell[0] == "m":
            return
        self.order += 1
        self.result.accesses[cell].append(
            Access(step, strand, int(clock[strand]), clock, writes, packet, value, self.order)
        )


def _knows(clock: Clock, other: Clock, step: Step, machine: _Machine) -> bool:
    number, time = machine._time(step, other)
    return bool(clock[number] >= time)


def _includes(clock: Clock, other: Clock) -> bool:
    return bool(np.all(clock >= other))


def _sum(read: list[Value | None]) -> Value | None:
    """Return the sum of values; None if one of them is not there."""
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
