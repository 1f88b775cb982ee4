"""Unroll a program for its proof: pipelines into iterations, regions into cells, ops into moves.

A cell is the largest part of a chunk that no op divides. A part is smaller than a chunk if thread blocks
share an op, or if a pipeline processes the chunk in units. Messages of an XML have separate cells.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...errors import ConfigError
from ._model import (
    MESSAGE_OPS,
    PACKET_OPS,
    SIGNALS,
    SUMS,
    WAITS,
    Buffer,
    Channel,
    ChannelType,
    Op,
    Program,
    RankProgram,
    Region,
    ThreadBlock,
)

Token = tuple[object, ...]
"""The target of a signal or wait: a semaphore of a rank, or one direction of a channel."""
Cell = tuple[object, ...]
"""(rank, buffer, chunk, part), or ("m", sender, receiver, channel, message, chunk) for a message.

Packets have separate buffers, named by `PACKETS` and the buffer. They take twice the memory of
their data: the packets of part n occupy the parts 2n and 2n + 1.
"""
PACKETS = "packets in "

_MAX_CELLS = 1 << 22


@dataclass(frozen=True, slots=True)
class Move:
    """A move: the sum of the cells *sources* is written to each of the cells *targets*.

    *awaited* are the sources whose flags the move waits for. *lane* is the element width and
    offset, which determines the thread that moves an element. If a *proxy* moves the data, thread
    *lead* requested it.
    """

    sources: tuple[Cell, ...]
    targets: tuple[Cell, ...]
    awaited: tuple[Cell, ...]
    lane: tuple[str, int]
    proxy: Token | None = None
    lead: int = 0


@dataclass(slots=True)
class Step:
    """A step of the proof: an op in one iteration, or its part between two thread synchronisations.

    Thread i of the thread block releases and acquires token i.
    """

    rank: int
    block: int
    op: Op
    iteration: int = -1
    moves: list[Move] = field(default_factory=list)
    takes: list[Token] = field(default_factory=list)
    gives: list[Token] = field(default_factory=list)
    after: tuple[int, int] | None = None
    joins: bool = False  # all threads of the block synchronise
    flushes: bool = False  # each thread waits for the proxy requests it made

    @property
    def words(self) -> str:
        """The step's name in messages to the user."""
        turn = f", iteration {self.iteration}" if self.iteration >= 0 else ""
        return f"rank {self.rank}, thread block {self.block}, op {self.op.place} ({self.op.name}){turn}"


@dataclass
class Unrolled:
    """The steps of each (rank, thread block), and the number of parts of a chunk.

    *slots* is the number of pipeline iterations that fit into the scratch buffer (0: all).
    """

    program: Program
    parts: int
    iterations: int
    steps: dict[tuple[int, int], list[Step]]
    semaphores: dict[Token, int]
    slots: int = 0


def unroll(program: Program) -> Unrolled:
    """Unroll *program*; raises `ConfigError` for pipelines that cannot be unrolled."""
    ops = [op for *_, op in program.walk()]
    pipelines = [op for op in ops if op.name == "pipeline"]
    if len({op.unit_bytes for op in pipelines}) > 1:
        raise ConfigError(
            f"{program.source}: its pipelines have units of different sizes, which is not supported; "
            "give them one size."
        )
    slots = _slots(program) if pipelines else 0
    turns = (slots + 2 if slots else 3) if pipelines else 1
    shares = math.lcm(
        *(op.share[1] // math.gcd(op.share[1], op.sources[0].count) for op in ops if op.sources)
    )
    if slots and any(op.name in PACKET_OPS for op in ops):
        raise ConfigError(
            f"{program.source}: packets and a pipeline that reuses scratch share that buffer, which is "
            "not supported; remove one of them from the plan."
        )
    _check_size(program, turns, shares)
    cutter = _Cutter(program, turns, shares, slots)
    steps = {
        (rank.rank, block.id): list(cutter.block(rank, block))
        for rank in program.ranks
        for block in rank.thread_blocks
    }
    semaphores: dict[Token, int] = {
        ("semaphore", rank.rank, number): value
        for rank in program.ranks
        for number, value in enumerate(rank.semaphores)
    }
    return Unrolled(program, turns * shares, turns if pipelines else 0, steps, semaphores, slots)


def _check_size(program: Program, turns: int, shares: int) -> None:
    """Raise `ConfigError` for a program whose cells and steps would exhaust memory."""
    chunks = sum(max(rank.input_chunks, rank.output_chunks) + rank.scratch_chunks for rank in program.ranks)
    moved = sum(region.count for *_, op in program.walk() for region in (*op.sources, *op.destinations))
    repeats = turns * max((op.pipeline_chunks for *_, op in program.walk()), default=0)
    if (chunks + moved) * turns * shares > _MAX_CELLS or program.num_ops * max(1, repeats) > _MAX_CELLS:
        raise ConfigError(
            f"{program.source}: it is too large to check: {chunks} chunks in {turns * shares} parts. "
            "Make its buffers, groups of thread blocks or semaphores smaller."
        )


def _slots(program: Program) -> int:
    """Return how many scratch units a pipeline may run ahead, by the semaphores' initial values."""
    if not program.reuses_scratch:
        return 0
    return max((value for rank in program.ranks for value in rank.semaphores), default=0)


class _Cutter:
    def __init__(self, program: Program, turns: int, shares: int, slots: int) -> None:
        self.program = program
        self.turns = turns
        self.shares = shares
        self.slots = slots
        self.messages: Counter[tuple[str, int, int, int]] = Counter()

    def block(self, rank: RankProgram, block: ThreadBlock) -> Iterator[Step]:
        """Yield the unrolled steps of *block*, a thread block of *rank*, in order."""
        if self.program.language == "msccl":
            for op in block.ops:
                yield self._xml_step(rank.rank, block, op)
            return
        for op in block.ops:
            if op.name != "pipeline":
                yield from self._plan_steps(rank.rank, block, op, -1)
                continue
            for turn in range(self.turns * op.pipeline_chunks):
                for part in op.body:
                    yield from self._plan_steps(rank.rank, block, part, turn)

    def _xml_step(self, rank: int, block: ThreadBlock, op: Op) -> Step:
        step = Step(rank, block.id, op, after=op.after, joins=True)
        parts = MESSAGE_OPS.get(op.name, ())
        came = self._message("in", block.receive, rank, block.channel) if "receive" in parts else None
        goes = self._message("out", rank, block.send, block.channel) if "send" in parts else None
        count = (op.sources or op.destinations)[0].count if op.sources or op.destinations else 0
        for chunk in range(count):
            sources = [self._cell(region, rank, chunk, 0) for region in op.sources]
            targets = [self._cell(region, rank, chunk, 0) for region in op.destinations]
            awaited: list[Cell] = []
            if came is not None:
                most = self.program.message_chunks or 1
                first = chunk // most * most
                awaited = [(*came, each) for each in range(first, min(first + most, count))]
                sources.append((*came, chunk))
            if goes is not None:
                targets.append((*goes, chunk))
            step.moves.append(Move(tuple(sources), tuple(targets), tuple(awaited), ("chunk", chunk)))
        return step

    def _message(self, side: str, sender: int, receiver: int, channel: int) -> Cell:
        number = self.messages[side, sender, receiver, channel]
        self.messages[side, sender, receiver, channel] += 1
        return ("m", sender, receiver, channel, number)

    def _plan_steps(self, rank: int, block: ThreadBlock, op: Op, turn: int) -> Iterator[Step]:
        if op.name == "rppkt" and op.by_port:  # the threads synchronise once all packets have arrived
            ready = Step(rank, block.id, op, turn)
            ready.moves = [
                Move(move.sources, (), move.sources, move.lane) for move in self._moves(rank, op, turn)
            ]
            yield ready
            yield Step(rank, block.id, op, turn, joins=True)
        step = Step(rank, block.id, op, turn, joins=op.name in {"nop", "barrier"})
        if op.name in SIGNALS:
            step.gives = [channel.outgoing for channel in op.channels]
        elif op.name in WAITS:
            step.takes = [channel.incoming for channel in op.awaited]
        elif op.name == "sem_acquire":
            step.takes = [("semaphore", rank, number) for number in op.semaphores]
        elif op.name == "sem_release":
            step.gives = [("semaphore", rank, number) for number in op.semaphores]
        step.flushes = op.name == "pwsf"
        step.moves = list(self._moves(rank, op, turn))
        yield step

    def _moves(self, rank: int, op: Op, turn: int) -> Iterator[Move]:
        if not op.sources:
            return
        sums = op.name in SUMS
        flags_in, flags_out = op.packet_flags
        for number in range(1 if sums else len(op.sources)):
            own = slice(None) if sums else slice(number, number + 1)
            proxy = _proxy(rank, op.channels[min(number, len(op.channels) - 1)]) if op.by_port else None
            for lane, (chunk, part) in enumerate(self._cells(op, turn)):
                read = self._all_cells(op.sources[own], flags_in[own], chunk, part)
                written = self._all_cells(op.destinations[own], flags_out[own], chunk, part)
                # A proxy copies the memory of packets without waiting for their flags.
                awaited = () if proxy else tuple(cell for cell in read if holds_packets(cell))
                yield Move(tuple(read), tuple(written), awaited, (_width(op), lane), proxy, number)

    def _cells(self, op: Op, turn: int) -> Iterator[tuple[int, int]]:
        """Yield the (chunk, part) pairs that an op processes at a time."""
        if turn < 0:
            parts = self.turns * self.shares
            number, of = op.share
            every = op.sources[0].count * parts
            for place in range(number * every // of, (number + 1) * every // of):
                yield divmod(place, parts)
            return
        chunk, unit = divmod(turn, self.turns)
        for share in range(self.shares):
            yield chunk, unit * self.shares + share

    def _all_cells(
        self, regions: Sequence[Region], flags: Sequence[bool], chunk: int, part: int
    ) -> list[Cell]:
        return [
            self._cell(region, rank, chunk, part, flag)
            for region, flag in zip(regions, flags, strict=True)
            for rank in region.ranks
        ]

    def _cell(self, region: Region, rank: int, chunk: int, part: int, packets: bool = False) -> Cell:
        buffer, index = self.program.home(rank, region.buffer, region.index + chunk)
        if buffer is Buffer.SCRATCH and self.slots:
            part = part % (self.slots * self.shares)
        return (rank, PACKETS + buffer.value if packets else buffer.value, index, part)


def holds_packets(cell: Cell) -> bool:
    """Return whether a cell holds packets or a message, which a reader can wait for."""
    return cell[0] == "m" or str(cell[1]).startswith(PACKETS)


def overlapping(cell: Cell, parts: int) -> list[Cell]:
    """Return the packet cells in the memory of a raw cell, or the raw cells in that of a packet cell."""
    rank, buffer, chunk, part = cell
    assert isinstance(buffer, str)
    assert isinstance(chunk, int)
    assert isinstance(part, int)
    place = chunk * parts + part
    if holds_packets(cell):
        raw = buffer.removeprefix(PACKETS)
        return [(rank, raw, *divmod(each, parts)) for each in (2 * place, 2 * place + 1)]
    return [(rank, PACKETS + buffer, *divmod(place // 2, parts))]


def proxy_of(token: Token) -> Token | None:
    """Return the proxy of the port channel that releases *token*, or None for other tokens."""
    if token[0] == "channel" and token[1] == ChannelType.PORT.value:
        return ("proxy", *token[2:])
    return None


def _proxy(rank: int, channel: Channel) -> Token:
    return ("proxy", rank, channel.peer, channel.number)


def _width(op: Op) -> str:
    """Return the width (bytes) of the elements that the threads of a plan's op process in turn."""
    if op.name in PACKET_OPS:
        return "packet"
    return "switch" if op.name == "glres" else "vector"
