"""Write programs step by step; thread blocks and dependencies follow automatically."""

from __future__ import annotations

from dataclasses import dataclass, field

from ._model import Buffer, Op, Program, RankProgram, Region, ThreadBlock

_WRITES = {"r", "rcs", "rrc", "rrcs", "cpy", "re"}
_READS = {"s", "rrs", "rrc", "rrcs", "cpy", "re"}


@dataclass
class _Block:
    send: int
    receive: int
    channel: int
    ops: list[Op] = field(default_factory=list)


class StepWriter:
    """Collects the steps of each rank in a thread block per pair of peers, and derives dependencies."""

    def __init__(self, ranks: int, in_place: bool, collective: str) -> None:
        self.ranks = ranks
        self.in_place = in_place
        self.buffer = Buffer.OUTPUT if collective == "all-gather" else Buffer.INPUT
        self.blocks: list[dict[tuple[int, int, int], _Block]] = [{} for _ in range(ranks)]
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
        blocks = self.blocks[rank]
        block = blocks.setdefault((*peers, channel), _Block(*peers, channel))
        number = list(blocks).index((*peers, channel))
        region = Region((rank,), self.buffer, chunk, count)
        written = region if target is None else Region((rank,), target[0], target[1], count)
        sources = (region,) if name in _READS else ()
        targets = (written,) if name in _WRITES else ()
        waits = self._waits(rank, number, sources, targets)
        for wait in waits[:-1]:
            block.ops.append(Op("nop", (len(block.ops),), after=wait))
        place = len(block.ops)
        block.ops.append(Op(name, (place,), sources, targets, after=waits[-1] if waits else None))
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

    def program(  # noqa: PLR0917 - what a program says of itself
        self,
        name: str,
        collective: str,
        chunks: int,
        protocol: str = "Simple",
        alignment_bytes: int = 1,
        uneven: bool = False,
    ) -> Program:
        """Return the program made of all added steps."""
        gathers = collective == "all-gather"
        inputs = 0 if gathers else chunks
        outputs = chunks if gathers or not self.in_place else 0
        ranks = tuple(
            RankProgram(
                rank,
                inputs,
                outputs,
                0,
                tuple(
                    ThreadBlock(number, tuple(block.ops), block.send, block.receive, block.channel)
                    for number, block in enumerate(blocks.values())
                ),
            )
            for rank, blocks in enumerate(self.blocks)
        )
        return Program(
            name,
            name,
            "msccl",
            collective,
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
