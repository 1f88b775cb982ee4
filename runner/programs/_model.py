"""The model of collective programs: for each rank, ordered operations on parts of its buffers.

`StepWriter` writes a program step by step, with the thread blocks and dependencies that follow.

MSCCL XML files and MSCCL++ plans share this model. All references are resolved: a region names its
rank and buffer, and a channel its peers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import overload

# The steps of MSCCL XML that exchange messages, and their effects.
MESSAGE_OPS = {
    "s": ("send",),
    "r": ("receive",),
    "rcs": ("receive", "send"),
    "rrs": ("receive", "reduce", "send"),
    "rrc": ("receive", "reduce"),
    "rrcs": ("receive", "reduce", "send"),
}
PROTOCOLS = ("Simple", "LL", "LL128")  # of MSCCL and NCCL
MAX_COUNT = 71
"""The most chunks that a step of an XML may move (MSCCL_MAX_COUNT in MSCCL's msccl_struct.h)."""
# Ops of plans whose data carries flags, so that no signal is needed.
PACKET_OPS = frozenset({"ppkt", "rppkt", "cpkt", "upkt", "repkt", "respkt", "recpkt", "recspkt", "gstorepkt"})
# Ops of plans that sum all sources into every destination; the others copy source k to destination k.
SUMS = frozenset({"re", "res", "rre", "rres", "glres", "repkt", "respkt", "recpkt", "recspkt"})
# Ops of plans that signal on their channels, or wait on them.
SIGNALS = frozenset({"signal", "rlxsignal", "pws", "pwsf"})
WAITS = frozenset({"wait", "rlxwait"})
# Ops of plans that move no data.
CONTROL_OPS = frozenset(
    {
        "signal",
        "wait",
        "rlxsignal",
        "rlxwait",
        "flush",
        "sem_acquire",
        "sem_release",
        "barrier",
        "nop",
    }
)


class Buffer(str, Enum):
    """A buffer of a rank; in-place programs have input and output in the same memory."""

    INPUT = "i"
    OUTPUT = "o"
    SCRATCH = "s"

    @property
    def words(self) -> str:
        """The buffer's name in a sentence."""
        return {"i": "input", "o": "output", "s": "scratch"}[self.value]


class ChannelType(str, Enum):
    """The transport of a plan's channel: loads and stores, a proxy with a NIC, or the switch."""

    MEMORY = "memory"
    PORT = "port"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Region:
    """*count* chunks from *index* in a buffer of *ranks*; only a switch's region has several ranks."""

    ranks: tuple[int, ...]
    buffer: Buffer
    index: int
    count: int


@dataclass(frozen=True, slots=True)
class Channel:
    """One end of a channel: number *number* among those of its *type* between *rank* and *peer*.

    The other end has the same type and number, with rank and peer exchanged. Switch channels have
    no peer (-1), are numbered per rank, and have *ranks* as members.
    """

    type: ChannelType
    rank: int
    peer: int
    number: int
    buffer: Buffer | None = None
    ranks: tuple[int, ...] = ()

    @property
    def outgoing(self) -> tuple[object, ...]:
        """The target of signals that this end sends."""
        return ("channel", self.type.value, self.rank, self.peer, self.number)

    @property
    def incoming(self) -> tuple[object, ...]:
        """The target of signals that the other end sends."""
        return self.other_end.outgoing

    @property
    def other_end(self) -> Channel:
        """The end of the channel at the peer."""
        return Channel(self.type, self.peer, self.rank, self.number)


@dataclass(frozen=True, slots=True)
class Op:
    """An op of a plan or a step of an XML.

    *path* locates the op: (3,) is the fourth op, and (3, 2) the third op inside a pipeline that is
    the fourth op. A reduction sums all *sources* into each of *destinations*; a put copies source k
    to destination k. *after* is the (thread block, op) of the same rank that must finish first. A
    *share* (k, n) makes the op the k-th of n equal parts. A pipeline repeats *body* for every
    *unit_bytes* of each of its *pipeline_chunks*. A wait that also has a switch channel reads its
    counters through the switch.
    """

    name: str
    path: tuple[int, ...]
    sources: tuple[Region, ...] = ()
    destinations: tuple[Region, ...] = ()
    channels: tuple[Channel, ...] = ()
    semaphores: tuple[int, ...] = ()
    barrier: int = -1
    barrier_blocks: int = 0
    after: tuple[int, int] | None = None
    share: tuple[int, int] = (0, 1)
    body: tuple[Op, ...] = ()
    unit_bytes: int = 0
    pipeline_chunks: int = 0

    @property
    def place(self) -> str:
        """The op's position as shown in messages."""
        return ".".join(map(str, self.path))

    @property
    def by_port(self) -> bool:
        """Whether a proxy moves the data instead of the block's own threads."""
        return any(channel.type is ChannelType.PORT for channel in self.channels)

    @property
    def awaited(self) -> tuple[Channel, ...]:
        """The channels for whose signals a wait waits."""
        return tuple(channel for channel in self.channels if channel.type is not ChannelType.SWITCH)

    @property
    def packet_flags(self) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
        """Whether each source, and each destination, of a plan's op holds packets."""
        into, out = len(self.sources), len(self.destinations)
        if self.name not in PACKET_OPS:
            return (False,) * into, (False,) * out
        if self.name in {"ppkt", "cpkt"}:
            return (self.by_port,) * into, (True,) * out
        if self.name == "upkt":
            return (True,) * into, (False,) * out
        if self.name in {"rppkt", "gstorepkt"}:
            return (True,) * into, (True,) * out
        return (False,) + (True,) * (into - 1), (False,) + (True,) * (out - 1)

    @property
    def packet_sources(self) -> list[Region]:
        """The sources for whose packets the op waits; a proxy copies packets without waiting."""
        flags, _ = self.packet_flags
        return [r for r, flag in zip(self.sources, flags, strict=True) if flag and self.name != "ppkt"]

    @staticmethod
    def placed(ops: Iterable[Op], *before: int) -> tuple[Op, ...]:
        """Return *ops* with their positions, in the pipeline at *before* if given."""
        return tuple(replace(op, path=(*before, place)) for place, op in enumerate(ops))


@dataclass(frozen=True, slots=True)
class ThreadBlock:
    """A thread block and its ops in order; in an XML, it has one *send* and one *receive* peer (-1: none).

    *threads* is the number of threads (0: the program's ``threads_per_block``).
    """

    id: int
    ops: tuple[Op, ...]
    send: int = -1
    receive: int = -1
    channel: int = 0
    threads: int = 0

    def walk(self) -> Iterator[Op]:
        """Yield every op once, a pipeline before the ops in its body."""
        for op in self.ops:
            yield op
            yield from op.body


@dataclass(frozen=True, slots=True)
class RankProgram:
    """The thread blocks of one rank, and the initial values of its *semaphores*."""

    rank: int
    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    thread_blocks: tuple[ThreadBlock, ...]
    channels: tuple[Channel, ...] = ()
    semaphores: tuple[int, ...] = ()


class AlikeRanks(Sequence[RankProgram]):
    """The programs of *count* ranks that do the same, shifted by their rank; *make* is called on demand.

    The ops of rank r and of rank 0 move as many chunks in the same order, and where rank 0 sends to or
    receives from rank k, rank r does so from rank r + k (modulo *count*).
    """

    def __init__(self, make: Callable[[int], RankProgram], count: int) -> None:
        self._make = make
        self._made: dict[int, RankProgram] = {}
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AlikeRanks) and len(self) == len(other) and self[0] == other[0]

    def __hash__(self) -> int:
        return hash((self._count, self[0]))

    @overload
    def __getitem__(self, index: int) -> RankProgram: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[RankProgram, ...]: ...
    def __getitem__(self, index: int | slice) -> RankProgram | tuple[RankProgram, ...]:
        if isinstance(index, slice):
            return tuple(self[rank] for rank in range(self._count)[index])
        rank = range(self._count)[index]
        if rank not in self._made:
            self._made[rank] = self._make(rank)
        return self._made[rank]


@dataclass(frozen=True, slots=True)
class Program:
    """A collective program: the programs of all ranks.

    *collective* is all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, send-receive or
    custom. *language* is msccl or mscclpp. *chunks* divide a rank's larger buffer: the output of an
    all-gather, otherwise the input. Sizes refer to that buffer; *most_bytes* is the largest
    supported size (None: no limit). Chunks of a plan, and those of an XML with *uneven*, may differ
    in size by up to *alignment_bytes*. A message of an XML may be split into messages of
    *message_chunks* chunks (0: never), as MSCCL's executor splits messages that are larger than a
    slot. With *either_place*, an in-place XML also runs out of place. With *reuses_scratch*, the
    iterations of a pipeline share the scratch buffer.
    """

    name: str
    source: str
    language: str
    collective: str
    protocol: str
    in_place: bool
    chunks: int
    ranks: Sequence[RankProgram]
    least_bytes: int = 0
    most_bytes: int | None = None
    alignment_bytes: int = 1
    threads_per_block: int = 0
    reuses_scratch: bool = False
    double_scratch: bool = False
    uneven: bool = False
    message_chunks: int = 0
    either_place: bool = False

    @property
    def num_ranks(self) -> int:
        """The number of ranks."""
        return len(self.ranks)

    @property
    def num_ops(self) -> int:
        """The number of ops of all ranks together."""
        return sum(1 for _ in self.walk())

    def walk(self) -> Iterator[tuple[int, ThreadBlock, Op]]:
        """Yield every op once, with its rank and thread block; a pipeline before the ops in its body."""
        for rank in self.ranks:
            for block in rank.thread_blocks:
                for op in block.walk():
                    yield rank.rank, block, op

    def awaited(self) -> set[tuple[int, int, int]]:
        """Return the (rank, thread block, op) of every op that another op of its rank waits for."""
        return {(rank, *op.after) for rank, _, op in self.walk() if op.after is not None}

    def chunk_bytes(self, size_bytes: int) -> list[int]:
        """Return the size of each chunk of a buffer of *size_bytes*; the first ones may be a unit larger.

        If every rank has a slice of the buffer and chunks are uneven, each slice is divided by
        itself.
        """
        slices = self.num_ranks if self.uneven and self.collective in {"all-gather", "reduce-scatter"} else 1
        return _cut(size_bytes // slices, self.chunks // slices, self.alignment_bytes) * slices

    def chunks_of(self, rank: int, buffer: Buffer) -> int:
        """Return the number of chunks of a buffer; in place, the larger buffer contains the smaller."""
        own = self.ranks[rank]
        if buffer is Buffer.SCRATCH:
            return own.scratch_chunks
        if not self.in_place:
            return own.input_chunks if buffer is Buffer.INPUT else own.output_chunks
        whole = max(own.input_chunks, own.output_chunks)
        part = Buffer.INPUT if self.collective == "all-gather" else Buffer.OUTPUT
        sliced = self.collective in {"all-gather", "reduce-scatter"}
        return whole // self.num_ranks if sliced and buffer is part else whole

    def home(self, rank: int, buffer: Buffer, index: int) -> tuple[Buffer, int]:
        """Return the location of a chunk in memory: in place, input and output share memory.

        The input of an all-gather and the output of a reduce-scatter are the rank's slice of the
        larger buffer.
        """
        if not self.in_place or buffer is Buffer.SCRATCH:
            return buffer, index
        sliced = {"all-gather": Buffer.INPUT, "reduce-scatter": Buffer.OUTPUT}.get(self.collective)
        return Buffer.OUTPUT, index + (rank * self.chunks_of(rank, buffer) if buffer is sliced else 0)

    def where(self, rank: int, block: int | None = None, op: Op | None = None) -> str:
        """Describe a place in the program: its rank, thread block and op."""
        words = f"{self.source}: rank {rank}"
        if block is not None:
            words += f", thread block {block}"
        return words if op is None else f"{words}, op {op.place} ({op.name})"


def _cut(size_bytes: int, chunks: int, alignment_bytes: int) -> list[int]:
    """Divide a buffer into *chunks* sizes of whole units; only the last may have a partial unit."""
    units = -(-size_bytes // alignment_bytes)
    each, more = divmod(units, chunks)
    sizes = [(each + (chunk < more)) * alignment_bytes for chunk in range(chunks)]
    over = units * alignment_bytes - size_bytes
    for chunk in reversed(range(chunks)):
        cut = min(over, sizes[chunk])
        sizes[chunk] -= cut
        over -= cut
    return sizes


class StepWriter:
    """Collects the steps of each rank in a thread block per pair of peers, and derives dependencies."""

    def __init__(self, ranks: int, in_place: bool, collective: str) -> None:
        self.ranks = ranks
        self.in_place = in_place
        self.collective = collective
        self.buffer = Buffer.OUTPUT if collective == "all-gather" else Buffer.INPUT
        # The steps of each rank by peer to send to, peer to receive from, and channel.
        self.blocks: list[dict[tuple[int, int, int], list[Op]]] = [{} for _ in range(ranks)]
        self.wrote: dict[tuple[int, Buffer, int], tuple[int, int]] = {}
        self.read: dict[tuple[int, Buffer, int], list[tuple[int, int]]] = {}

    def step(  # noqa: PLR0917 - the columns of a step
        self,
        rank: int,
        name: str,
        chunk: int,
        peers: tuple[int, int] = (-1, -1),
        count: int = 1,
        channel: int = 0,
        target: tuple[Buffer, int] | None = None,
    ) -> None:
        """Add a step on *chunk* to the thread block that sends to and receives from *peers*.

        *target* is the chunk that the step writes (default: *chunk*).
        """
        blocks, key = self.blocks[rank], (*peers, channel)
        ops = blocks.setdefault(key, [])
        number = list(blocks).index(key)
        region = Region((rank,), self.buffer, chunk, count)
        written = region if target is None else Region((rank,), target[0], target[1], count)
        sources = (region,) if name not in {"r", "rcs"} else ()
        targets = (written,) if name not in {"s", "rrs"} else ()
        waits = self._waits(rank, number, sources, targets)
        for wait in waits[:-1]:
            ops.append(Op("nop", (len(ops),), after=wait))
        place = len(ops)
        ops.append(Op(name, (place,), sources, targets, after=waits[-1] if waits else None))
        for cell in _cells(rank, sources):
            self.read.setdefault(cell, []).append((number, place))
        for cell in _cells(rank, targets):
            self.wrote[cell] = (number, place)
            self.read[cell] = []

    def _waits(
        self, rank: int, number: int, sources: tuple[Region, ...], targets: tuple[Region, ...]
    ) -> list[tuple[int, int]]:
        """Return the last step in each other thread block that the step *number* must wait for."""
        latest: dict[int, int] = {}
        before = [self.wrote.get(cell) for cell in _cells(rank, (*sources, *targets))]
        before += [read for cell in _cells(rank, targets) for read in self.read.get(cell, ())]
        for found in before:
            if found is not None and found[0] != number:
                latest[found[0]] = max(latest.get(found[0], -1), found[1])
        return sorted(latest.items())

    def rank_program(self, rank: int, chunks: int) -> RankProgram:
        """Return the program made of the steps of *rank*."""
        gathers = self.collective == "all-gather"
        own = enumerate(self.blocks[rank].items())
        blocks = tuple(ThreadBlock(number, tuple(ops), *key) for number, (key, ops) in own)
        outputs = chunks if gathers or not self.in_place else 0
        return RankProgram(rank, 0 if gathers else chunks, outputs, 0, blocks)

    def program(
        self,
        name: str,
        chunks: int,
        protocol: str = "Simple",
        alignment_bytes: int = 1,
        uneven: bool = False,
    ) -> Program:
        """Return the program made of all added steps."""
        ranks = tuple(self.rank_program(rank, chunks) for rank in range(self.ranks))
        return Program(
            name,
            name,
            "msccl",
            self.collective,
            protocol,
            self.in_place,
            chunks,
            ranks,
            alignment_bytes=alignment_bytes,
            uneven=uneven,
        )


def _cells(rank: int, regions: tuple[Region, ...]) -> list[tuple[int, Buffer, int]]:
    return [
        (rank, region.buffer, region.index + chunk) for region in regions for chunk in range(region.count)
    ]
