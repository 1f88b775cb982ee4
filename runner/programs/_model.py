"""What a collective program says: who does what, in which order, on which part of which buffer.

One model for MSCCL XML and MSCCL++ plans. Everything is resolved: a region names its rank and buffer, a
channel its peers, so that running, proving and lowering a program needs no lookup.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

__all__ = [
    "CONTROL_OPS",
    "MESSAGE_OPS",
    "PACKET_OPS",
    "Buffer",
    "Channel",
    "ChannelType",
    "Op",
    "Program",
    "RankProgram",
    "Region",
    "ThreadBlock",
]

# Steps of MSCCL XML that take part in a message, and what they do with it.
MESSAGE_OPS = {
    "s": ("send",),
    "r": ("receive",),
    "rcs": ("receive", "send"),
    "rrs": ("receive", "reduce", "send"),
    "rrc": ("receive", "reduce"),
    "rrcs": ("receive", "reduce", "send"),
}
# Ops of plans that write or read data with flags in it, which need no signal.
PACKET_OPS = frozenset({"ppkt", "rppkt", "cpkt", "upkt", "repkt", "respkt", "recpkt", "recspkt", "gstorepkt"})
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
    """A buffer of a rank; of a program in place the input and the output share memory."""

    INPUT = "i"
    OUTPUT = "o"
    SCRATCH = "s"

    @property
    def words(self) -> str:
        """The buffer's name in a sentence."""
        return {"i": "input", "o": "output", "s": "scratch"}[self.value]


class ChannelType(str, Enum):
    """What carries a plan's data: loads and stores, a proxy with a NIC, or the switch."""

    MEMORY = "memory"
    PORT = "port"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Region:
    """*count* chunks from *index* on in a buffer of each of *ranks*: one rank, or all those of a switch."""

    ranks: tuple[int, ...]
    buffer: Buffer
    index: int
    count: int


@dataclass(frozen=True, slots=True)
class Channel:
    """One end of a channel: the *number*-th of its *type* between *rank* and *peer*.

    The other end is the channel of *peer* with the same type and number and this rank as its peer. A switch
    channel has no peer (-1); its number counts those of its rank, and *ranks* are all it reaches.
    """

    type: ChannelType
    rank: int
    peer: int
    number: int
    buffer: Buffer | None = None
    ranks: tuple[int, ...] = ()

    @property
    def other_end(self) -> Channel:
        """The same channel seen from its peer."""
        return Channel(self.type, self.peer, self.rank, self.number)


@dataclass(frozen=True, slots=True)
class Op:
    """One op of a plan or one step of an XML.

    *path* is its place: (3,), or (3, 2) for the third op inside the pipeline that is the fourth op.
    Reductions sum all *sources* into each of *destinations*; a put copies source k to destination k. *after*
    is the (thread block, op) of the same rank that must have finished. *share* (k, n) says that the op is
    the k-th of n equal parts. A pipeline repeats *body* over *unit_bytes* of each of its *pipeline_chunks*.
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
        """The op's number as messages show it."""
        return ".".join(map(str, self.path))

    @property
    def by_port(self) -> bool:
        """Whether a proxy moves the data, not the threads."""
        return any(channel.type is ChannelType.PORT for channel in self.channels)


@dataclass(frozen=True, slots=True)
class ThreadBlock:
    """Ops in order; one of an XML has at most one peer to *send* to, one to *receive* from (-1: none)."""

    id: int
    ops: tuple[Op, ...]
    send: int = -1
    receive: int = -1
    channel: int = 0

    def walk(self) -> Iterator[Op]:
        """Yield every op once, those inside a pipeline after it."""
        for op in self.ops:
            yield op
            yield from op.body


@dataclass(frozen=True, slots=True)
class RankProgram:
    """What one rank runs; *semaphores* are the values its semaphores begin with."""

    rank: int
    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    thread_blocks: tuple[ThreadBlock, ...]
    channels: tuple[Channel, ...] = ()
    semaphores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """A collective as a program of all its ranks.

    *collective* is all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, send-receive or custom;
    *language* msccl or mscclpp. *chunks* is what the larger buffer of a rank is cut into: the output of an
    all-gather, else the input. Sizes are of that buffer; *most_bytes* is None without a bound. Chunks differ
    by *alignment_bytes* at most; with *uneven*, those of an XML may too. With *chunkwise*, each
    chunk of an XML's message can be a message of its own, as MSCCL's executor sends it in large buffers. With
    *reuses_scratch*, pipelines take turns in the scratch buffer.
    """

    name: str
    source: str
    language: str
    collective: str
    protocol: str
    in_place: bool
    chunks: int
    ranks: tuple[RankProgram, ...]
    least_bytes: int = 0
    most_bytes: int | None = None
    alignment_bytes: int = 1
    threads_per_block: int = 0
    reuses_scratch: bool = False
    double_scratch: bool = False
    uneven: bool = False
    chunkwise: bool = False

    @property
    def num_ranks(self) -> int:
        """How many ranks run it."""
        return len(self.ranks)

    @property
    def num_ops(self) -> int:
        """How many ops all ranks have together."""
        return sum(len(tuple(block.walk())) for rank in self.ranks for block in rank.thread_blocks)

    def awaited(self) -> set[tuple[int, int, int]]:
        """Return rank, thread block and place of the ops that others of their rank wait for."""
        return {
            (rank.rank, *op.after)
            for rank in self.ranks
            for block in rank.thread_blocks
            for op in block.ops
            if op.after is not None
        }

    def chunk_bytes(self, size_bytes: int) -> list[int]:
        """Return how large each chunk of a buffer of *size_bytes* is; the first ones are a unit larger.

        Where ranks have a slice of the buffer each and chunks are uneven, it is those of each slice.
        """
        slices = self.num_ranks if self.uneven and self.collective in {"all-gather", "reduce-scatter"} else 1
        return _cut(size_bytes // slices, self.chunks // slices, self.alignment_bytes) * slices

    def chunks_of(self, rank: int, buffer: Buffer) -> int:
        """Return how many chunks a buffer of *rank* has; in place, the smaller one is part of the larger."""
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
        """Return where a chunk really lies: in place, input and output are one buffer, here the output.

        The input of an all-gather and the output of a reduce-scatter are the rank's slice of it.
        """
        if not self.in_place or buffer is Buffer.SCRATCH:
            return buffer, index
        sliced = {"all-gather": Buffer.INPUT, "reduce-scatter": Buffer.OUTPUT}.get(self.collective)
        return Buffer.OUTPUT, index + (rank * self.chunks_of(rank, buffer) if buffer is sliced else 0)

    def where(self, rank: int, block: int | None = None, op: Op | None = None) -> str:
        """Return the words for a place in the program."""
        words = f"{self.source}: rank {rank}"
        if block is not None:
            words += f", thread block {block}"
        return words if op is None else f"{words}, op {op.place} ({op.name})"


def _cut(size_bytes: int, chunks: int, alignment_bytes: int) -> list[int]:
    """Return the sizes of *chunks* of a buffer, in whole units but the last one."""
    units = -(-size_bytes // alignment_bytes)
    each, more = divmod(units, chunks)
    sizes = [(each + (chunk < more)) * alignment_bytes for chunk in range(chunks)]
    over = units * alignment_bytes - size_bytes
    for chunk in reversed(range(chunks)):
        cut = min(over, sizes[chunk])
        sizes[chunk] -= cut
        over -= cut
    return sizes
