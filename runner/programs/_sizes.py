"""Compute the bytes that each op moves for a collective of one size, and the number of rounds."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import ConfigError
from ...support import bytes_text
from ._model import Buffer, Op, Program, Region, ThreadBlock

_MAX_OPS = 1 << 20


def program_bytes(collective: str, size_bytes: int, ranks: int) -> int:
    """Return the bytes of the buffer that a program divides into chunks for a collective of *size_bytes*.

    *size_bytes* is counted as in ASTRA-sim: for an all-gather, it is one rank's shard.
    """
    return size_bytes * ranks if collective == "all-gather" else size_bytes


def divisor_of(program: Program) -> int:
    """Return the number that must divide the larger buffer's bytes; chunks of a plan may differ by a unit."""
    if program.language == "msccl" and not program.uneven:
        return program.chunks
    return program.num_ranks if program.collective in {"reduce-scatter", "all-to-all"} else 1


def program_ops(program: Program, size_bytes: int) -> int:
    """Return how many ops *program* executes for *size_bytes*, including pipeline repetitions.

    Raises `ConfigError` for the same sizes as `Sizes`.
    """
    sizes = Sizes(program, size_bytes)
    return sum(
        sizes.turns(op) * len(op.body) if op.name == "pipeline" else 1
        for rank in program.ranks
        for block in rank.thread_blocks
        for op in block.ops
    )


class Sizes:
    """The chunks of *program* and the bytes that its ops move, for a collective of *size_bytes*.

    Raises `ConfigError` for a size that the chunks do not divide.
    """

    def __init__(self, program: Program, size_bytes: int) -> None:
        self.program = program
        self.size_bytes = size_bytes
        total = program_bytes(program.collective, size_bytes, program.num_ranks)
        divisor = divisor_of(program)
        if total <= 0 or total % divisor:
            cut = divisor == program.chunks
            parts = f"{program.chunks} chunks" if cut else f"{program.num_ranks} ranks"
            raise ConfigError(
                f"{program.source}: {size_bytes} bytes cannot be divided among its {parts}; choose a "
                f"multiple of {divisor}, or another program for this size."
            )
        self.chunks = program.chunk_bytes(total)
        self.equal = min(self.chunks) == max(self.chunks)
        is_plan = program.language == "mscclpp"
        self.unit_bytes = max((op.unit_bytes for *_, op in program.walk()), default=0) if is_plan else 0

    def turns(self, op: Op) -> int:
        """Return the number of repetitions of a pipeline op."""
        return -(-max(self.chunks) * op.pipeline_chunks // op.unit_bytes)

    def unrolled(self, rank: int, block: ThreadBlock) -> Iterator[tuple[Op, int]]:
        """Yield the ops of a thread block, each with its pipeline's round (-1 outside pipelines)."""
        for op in block.ops:
            if op.name != "pipeline":
                yield op, -1
                continue
            turns = self.turns(op)
            if turns * len(op.body) > _MAX_OPS:
                raise ConfigError(
                    f"{self.program.where(rank, block.id, op)}: it would repeat {turns} times for "
                    f"{bytes_text(self.size_bytes)}; make its units larger."
                )
            for turn in range(turns):
                for part in op.body:
                    yield part, turn

    def cells(self, region: Region, turn: int) -> list[tuple[int, str, int, int]]:
        """Return the chunks of *region* as (rank, buffer, index, round)."""
        keys = []
        for rank in region.ranks:
            for chunk in range(region.count):
                buffer, index = self.program.home(rank, region.buffer, region.index + chunk)
                keys.append((rank, buffer.value, index, turn))
        return keys

    def of(self, op: Op, region: Region, turn: int, other: Region | None = None) -> int:
        """Return the bytes of *region* that an op moves to or from *other* at a time."""
        if region.buffer is Buffer.SCRATCH and other is not None and other.buffer is not Buffer.SCRATCH:
            region = other
        if self.equal or region.buffer is Buffer.SCRATCH:
            size = region.count * self.chunks[0]
        else:
            _, index = self.program.home(region.ranks[0], region.buffer, region.index)
            count = len(self.chunks)
            size = sum(self.chunks[(index + chunk) % count] for chunk in range(region.count))
        if turn >= 0:
            size = max(0, min(self.unit_bytes, size - turn * self.unit_bytes))
        number, of = op.share
        return size * (number + 1) // of - size * number // of


SLOT_BYTES = {"Simple": 1 << 20, "LL": 1 << 15, "LL128": 576_000}
"""Bytes of data in an NCCL slot, by protocol (2.30: buffers of 8 steps, of which a Simple message
fills two; 512 threads with 8 bytes of LL on 8 lines; 640 threads with 120 words of LL128).
"""


class Rounds:
    """The *count* rounds of a program for one size, with slots of *slot_bytes* of data.

    NCCL and MSCCL's interpreter have a few slots per connection and repeat all steps until the
    buffer is done. Each round processes one slot of every chunk.
    """

    def __init__(self, sizes: Sizes, slot_bytes: int) -> None:
        largest = max(sizes.chunks)
        self._sizes = sizes
        self.slot_bytes = slot_bytes
        self.piece_bytes = min(largest, slot_bytes)
        self.count = -(-largest // self.piece_bytes)

    def piece(self, op: Op, turn: int) -> int:
        """Return the bytes that *op* moves in a round: one slot for each of its chunks."""
        regions = op.sources or op.destinations
        if not regions:
            return 0
        whole = self._sizes.of(op, regions[0], -1)
        most = regions[0].count * self.piece_bytes
        return min(whole, (turn + 1) * most) - min(whole, turn * most)

    def messages(self, size_bytes: int) -> list[int]:
        """Return the sizes of a step's messages: full slots and a remainder, or one empty message."""
        full, rest = divmod(size_bytes, self.slot_bytes)
        return [self.slot_bytes] * full + [rest] * (rest > 0 or full == 0)
