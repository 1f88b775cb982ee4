"""A program as the proof runs it: pipelines unrolled, regions cut into cells, each op into moves of cells.

A cell is a part of a chunk that every op takes whole: a chunk itself, or one part of it where groups of
thread blocks share an op or a pipeline goes over it in units. A message of an XML has cells of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...errors import ConfigError
from ._model import MESSAGE_OPS, PACKET_OPS, Buffer, Op, Program, RankProgram, Region, ThreadBlock

__all__ = ["Move", "Step", "Token", "Unrolled", "unroll"]

Token = tuple[object, ...]
"""What is signalled and waited for: a semaphore of a rank, or one direction of a channel."""
Cell = tuple[object, ...]
"""(rank, buffer, chunk, part), or ("m", sender, receiver, channel, message, chunk) of a message."""

_MOST_CELLS = 1 << 22
_SIGNALS = {"signal", "rlxsignal", "pws", "pwsf"}
_WAITS = {"wait", "rlxwait"}
_SUMS = frozenset(
    {
        "re",
        "res",
        "rre",
        "rres",
        "glre",
        "glres",
        "repkt",
        "respkt",
        "recpkt",
        "recspkt",
        "rrs",
        "rrc",
        "rrcs",
    }
)


@dataclass(frozen=True, slots=True)
class Move:
    """One cell summed from *sources* into each of *targets*; *lane* says which threads do it.

    *packets_in* and *packets_out* tell which of them carry flags: whoever reads those waits for them.
    """

    sources: tuple[Cell, ...]
    targets: tuple[Cell, ...]
    packets_in: tuple[bool, ...]
    packets_out: tuple[bool, ...]
    lane: tuple[int, int]


@dataclass(slots=True)
class Step:
    """One op in one iteration, as its thread block runs it."""

    rank: int
    block: int
    op: Op
    iteration: int = -1
    moves: list[Move] = field(default_factory=list)
    takes: list[Token] = field(default_factory=list)
    gives: list[Token] = field(default_factory=list)
    after: tuple[int, int] | None = None
    joins: bool = False  # all threads of the thread block meet here
    proxy: Token | None = None  # the proxy of a port channel does it, not the thread block

    @property
    def words(self) -> str:
        """The step in a message."""
        turn = f", iteration {self.iteration}" if self.iteration >= 0 else ""
        return f"rank {self.rank}, thread block {self.block}, op {self.op.place} ({self.op.name}){turn}"


@dataclass
class Unrolled:
    """The steps of every thread block, by (rank, thread block), and into how many parts chunks are cut.

    *slots* is how many iterations of a pipeline the scratch buffer has room for at a time (0: all of them).
    """

    program: Program
    parts: int
    iterations: int
    steps: dict[tuple[int, int], list[Step]]
    semaphores: dict[Token, int]
    slots: int = 0


def unroll(program: Program) -> Unrolled:
    """Return *program* as steps; raises `ConfigError` for pipelines that cannot be followed."""
    ops = [op for rank in program.ranks for block in rank.thread_blocks for op in block.walk()]
    pipelines = [op for op in ops if op.name == "pipeline"]
    if len({op.unit_bytes for op in pipelines}) > 1:
        raise ConfigError(
            f"{program.source}: its pipelines go in units of different sizes, which cannot be followed; give "
            "them one size."
        )
    slots = _slots(program) if pipelines else 0
    turns = (slots + 2 if slots else 3) if pipelines else 1
    shares = math.lcm(*(op.share[1] for op in ops)) if ops else 1
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
    """Raise `ConfigError` for a program whose cells and steps would fill the memory."""
    chunks = sum(max(rank.input_chunks, rank.output_chunks) + rank.scratch_chunks for rank in program.ranks)
    moved = sum(
        region.count
        for rank in program.ranks
        for block in rank.thread_blocks
        for op in block.walk()
        for region in (*op.sources, *op.destinations)
    )
    repeats = turns * max(
        (op.pipeline_chunks for r in program.ranks for b in r.thread_blocks for op in b.ops), default=0
    )
    if (chunks + moved) * turns * shares > _MOST_CELLS or program.num_ops * max(1, repeats) > _MOST_CELLS:
        raise ConfigError(
            f"{program.source}: it is too large to be followed: {chunks} chunks in {turns * shares} parts. "
            "Make its buffers, groups of thread blocks or semaphores smaller."
        )


def _slots(program: Program) -> int:
    """Return how many units of scratch a pipeline may be ahead: what semaphores let pass at the beginning."""
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
        """Yield the steps of a thread block in order."""
        if self.program.language == "msccl":
            for op in block.ops:
                yield self._xml_step(rank.rank, block, op)
            return
        for op in block.ops:
            if op.name != "pipeline":
                yield self._plan_step(rank.rank, block, op, -1, 0)
                continue
            for turn in range(self.turns * op.pipeline_chunks):
                for part in op.body:
                    yield self._plan_step(rank.rank, block, part, turn, op.pipeline_chunks)

    def _xml_step(self, rank: int, block: ThreadBlock, op: Op) -> Step:
        step = Step(rank, block.id, op, after=op.after, joins=True)
        parts = MESSAGE_OPS.get(op.name, ())
        came = self._message("in", block.receive, rank, block.channel) if "receive" in parts else None
        goes = self._message("out", rank, block.send, block.channel) if "send" in parts else None
        count = (op.sources or op.destinations)[0].count if op.sources or op.destinations else 0
        for chunk in range(count):
            sources = [self._cell(region, rank, chunk, 0) for region in op.sources]
            targets = [self._cell(region, rank, chunk, 0) for region in op.destinations]
            packets_in, packets_out = [False] * len(sources), [False] * len(targets)
            if came is not None:
                sources.append((*came, chunk))
                packets_in.append(True)
            if goes is not None:
                targets.append((*goes, chunk))
                packets_out.append(True)
            lane = (count, chunk)
            step.moves.append(
                Move(tuple(sources), tuple(targets), tuple(packets_in), tuple(packets_out), lane)
            )
        return step

    def _message(self, side: str, sender: int, receiver: int, channel: int) -> Cell:
        number = self.messages[side, sender, receiver, channel]
        self.messages[side, sender, receiver, channel] += 1
        return ("m", sender, receiver, channel, number)

    def _plan_step(self, rank: int, block: ThreadBlock, op: Op, turn: int, chunks: int) -> Step:
        step = Step(rank, block.id, op, turn, joins=op.name in {"nop", "barrier"})
        if op.name in _SIGNALS:
            step.gives = [
                ("channel", channel.type.value, rank, channel.peer, channel.number) for channel in op.channels
            ]
        elif op.name in _WAITS:
            step.takes = [
                ("channel", channel.type.value, channel.peer, rank, channel.number) for channel in op.channels
            ]
        elif op.name == "sem_acquire":
            step.takes = [("semaphore", rank, number) for number in op.semaphores]
        elif op.name == "sem_release":
            step.gives = [("semaphore", rank, number) for number in op.semaphores]
        if op.by_port and op.name in {
            "put",
            "get",
            "pws",
            "pwsf",
            "ppkt",
            "rppkt",
            "signal",
            "rlxsignal",
            "flush",
        }:
            channel = op.channels[0]
            step.proxy = ("proxy", rank, channel.peer, channel.number)
        step.moves = list(self._moves(rank, op, turn, chunks))
        return step

    def _moves(self, rank: int, op: Op, turn: int, chunks: int) -> Iterator[Move]:
        if not op.sources:
            return
        sums = op.name in _SUMS
        packets_in, packets_out = _packets(op)
        for number in range(1 if sums else len(op.sources)):
            sources = op.sources if sums else (op.sources[number],)
            targets = op.destinations if sums else (op.destinations[number],)
            flags_in = packets_in if sums else (packets_in[number],)
            flags_out = packets_out if sums else (packets_out[number],)
            for chunk, part in self._cells(op, sources[0].count, turn, chunks):
                read = [
                    (cell, flag)
                    for region, flag in zip(sources, flags_in, strict=True)
                    for cell in self._all_cells(region, chunk, part)
                ]
                written = [
                    (cell, flag)
                    for region, flag in zip(targets, flags_out, strict=True)
                    for cell in self._all_cells(region, chunk, part)
                ]
                yield Move(
                    tuple(cell for cell, _ in read),
                    tuple(cell for cell, _ in written),
                    tuple(flag for _, flag in read),
                    tuple(flag for _, flag in written),
                    (sources[0].count, chunk),
                )

    def _cells(self, op: Op, count: int, turn: int, chunks: int) -> Iterator[tuple[int, int]]:
        """Yield the (chunk, part) that one run of an op goes over."""
        number, of = op.share
        mine = range(number * self.shares // of, (number + 1) * self.shares // of)
        if turn < 0:
            for chunk in range(count):
                for unit in range(self.turns):
                    for share in mine:
                        yield chunk, unit * self.shares + share
            return
        chunk, unit = divmod(turn, self.turns)
        for share in mine:
            yield min(chunk, chunks - 1), unit * self.shares + share

    def _all_cells(self, region: Region, chunk: int, part: int) -> list[Cell]:
        return [self._cell(region, rank, chunk, part) for rank in region.ranks]

    def _cell(self, region: Region, rank: int, chunk: int, part: int) -> Cell:
        buffer, index = self.program.home(rank, region.buffer, region.index + chunk)
        if buffer is Buffer.SCRATCH and self.slots:
            part = part % (self.slots * self.shares)
        return (rank, buffer.value, index, part)


def _packets(op: Op) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """Return which sources and which destinations of a plan's op carry flags."""
    into, out = len(op.sources), len(op.destinations)
    if op.name not in PACKET_OPS:
        return (False,) * into, (False,) * out
    if op.name in {"ppkt", "cpkt"}:
        return (False,) * into, (True,) * out
    if op.name == "upkt":
        return (True,) * into, (False,) * out
    if op.name == "rppkt":
        return (True,) * into, (True,) * out
    if op.name == "gstorepkt":
        return tuple(region.buffer is Buffer.SCRATCH for region in op.sources), (True,) * out
    return (False,) + (True,) * (into - 1), (False,) + (True,) * (out - 1)
