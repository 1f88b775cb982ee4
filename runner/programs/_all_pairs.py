"""All-pairs programs as in MSCCL++: every rank exchanges data with every other rank by puts, gets or packets.

The workgroups (thread blocks) of a rank are divided among its peers. Several workgroups for one peer take
equal parts of the data. Puts and gets begin with a handshake, so that no buffer is accessed before its rank
has begun. Puts and gets end with another handshake, after which the data of puts has arrived and the buffers
of gets may be overwritten. Packets carry flags in their data and need no handshake.
"""

from __future__ import annotations

from ...errors import ConfigError, did_you_mean
from ._model import Buffer, Channel, ChannelType, Op, Program, RankProgram, Region, ThreadBlock

ALL_PAIRS = {
    "put": ("all-gather", "reduce-scatter", "all-to-all"),
    "get": ("all-gather", "reduce-scatter", "all-to-all"),
    "packet": ("all-gather",),
}
_THREADS = 1024


def all_pairs_program(
    way: str, collective: str, ranks: int, workgroups: int = 0, threads: int = _THREADS
) -> Program:
    """Return a program for *collective* in which each rank exchanges data directly with all other ranks.

    *way* is put, get or packet. Each rank has *workgroups* workgroups (0: one per peer) of *threads* threads.
    Raises `ConfigError` if there is no program for the collective with this *way*.
    """
    if way not in ALL_PAIRS:
        raise ConfigError(f"There is no variant '{way}'{did_you_mean(way, ALL_PAIRS)}")
    if collective not in ALL_PAIRS[way]:
        raise ConfigError(
            f"There is no program by {way} for {collective}; there is one for {', '.join(ALL_PAIRS[way])}."
        )
    workgroups = workgroups or ranks - 1
    if ranks < 2 or workgroups < 1:
        raise ConfigError(
            f"It takes at least 2 ranks and a workgroup, not {ranks} and {workgroups}, to exchange data."
        )
    writer = _Writer(way, collective, ranks, workgroups)
    scratch = ranks if way == "packet" or (way, collective) == ("put", "reduce-scatter") else 0
    programs = tuple(
        RankProgram(rank, ranks, ranks, scratch, tuple(writer.blocks(rank)), tuple(writer.channels(rank)))
        for rank in range(ranks)
    )
    name = f"all_pairs_{way}_{collective}_{workgroups}"
    protocol = "LL" if way == "packet" else "Simple"
    in_place = collective != "all-to-all"
    return Program(
        name,
        name,
        "mscclpp",
        collective,
        protocol,
        in_place,
        ranks,
        programs,
        alignment_bytes=16,
        threads_per_block=threads,
        double_scratch=way == "packet",
    )


class _Writer:
    def __init__(self, way: str, collective: str, ranks: int, workgroups: int) -> None:
        self.way = way
        self.collective = collective
        self.ranks = ranks
        self.workgroups = workgroups
        self.parts = max(1, workgroups // (ranks - 1))
        self.sums = collective == "reduce-scatter"

    def peers(self, rank: int) -> list[int]:
        """Return the other ranks, starting with *rank* + 1, so that ranks start with different peers."""
        return [(rank + distance) % self.ranks for distance in range(1, self.ranks)]

    def tasks(self, rank: int) -> list[list[tuple[int, int]]]:
        """Return the peer and the part of the data of each workgroup of a rank."""
        result: list[list[tuple[int, int]]] = [[] for _ in range(self.workgroups)]
        everything = [(peer, part) for part in range(self.parts) for peer in self.peers(rank)]
        for number, task in enumerate(everything):
            result[number % self.workgroups].append(task)
        return result

    def channels(self, rank: int) -> list[Channel]:
        """Return the channel ends of a rank, one for each peer and part of the data."""
        if self.way == "packet":
            return []
        return [self.end(rank, peer, part) for part in range(self.parts) for peer in self.peers(rank)]

    @staticmethod
    def end(rank: int, peer: int, part: int) -> Channel:
        return Channel(ChannelType.MEMORY, rank, peer, part)

    def blocks(self, rank: int) -> list[ThreadBlock]:
        """Return the thread blocks of a rank in an all-pairs program."""
        result = []
        for number, tasks in enumerate(self.tasks(rank)):
            ops = self._packets(rank, tasks) if self.way == "packet" else self._ops(rank, number, tasks)
            placed = tuple(
                Op(
                    op.name,
                    (place,),
                    op.sources,
                    op.destinations,
                    op.channels,
                    barrier=op.barrier,
                    barrier_blocks=op.barrier_blocks,
                    share=op.share,
                )
                for place, op in enumerate(ops)
            )
            result.append(ThreadBlock(number, placed))
        return result

    def _packets(self, rank: int, tasks: list[tuple[int, int]]) -> list[Op]:
        ops = []
        for peer, part in tasks:
            target = Region((peer,), Buffer.SCRATCH, rank, 1)
            mine = Region((rank,), Buffer.OUTPUT, rank, 1)
            ops.append(Op("ppkt", (), (mine,), (target,), share=(part, self.parts)))
        for peer, part in tasks:
            source = Region((rank,), Buffer.SCRATCH, peer, 1)
            target = Region((rank,), Buffer.OUTPUT, peer, 1)
            ops.append(Op("upkt", (), (source,), (target,), share=(part, self.parts)))
        return ops

    def _ops(self, rank: int, number: int, tasks: list[tuple[int, int]]) -> list[Op]:
        ends = tuple(self.end(rank, peer, part) for peer, part in tasks)
        nop = Op("nop", ())
        together = [Op("barrier", (), barrier=0, barrier_blocks=self.workgroups)]
        begin = [Op("rlxsignal", (), channels=ends), Op("rlxwait", (), channels=ends), nop] if ends else []
        strong = self.way == "put"
        over = (
            [
                nop,
                Op("signal" if strong else "rlxsignal", (), channels=ends),
                Op("wait" if strong else "rlxwait", (), channels=ends),
                nop,
            ]
            if ends
            else []
        )
        if self.sums and self.way == "get":
            return [*begin, *together, self._sum(rank, number), *together, *over]
        moved = [self._move(rank, peer, part) for peer, part in tasks]
        if self.collective == "all-to-all" and number == 0:
            own = Region((rank,), Buffer.INPUT, rank, 1), Region((rank,), Buffer.OUTPUT, rank, 1)
            moved.append(Op("copy", (), (own[0],), (own[1],)))
        if self.sums:
            return [*begin, *moved, *over, *together, self._sum(rank, number)]
        return [*begin, *moved, *over]

    def _move(self, rank: int, peer: int, part: int) -> Op:
        """Return the put or get between *rank* and *peer*."""
        channel = (self.end(rank, peer, part),)
        share = (part, self.parts)
        source, target = (rank, peer) if self.way == "put" else (peer, rank)
        if self.collective == "all-gather":
            regions = Region((source,), Buffer.OUTPUT, source, 1), Region((target,), Buffer.OUTPUT, source, 1)
        elif self.collective == "all-to-all":
            regions = Region((source,), Buffer.INPUT, target, 1), Region((target,), Buffer.OUTPUT, source, 1)
        else:
            regions = Region((source,), Buffer.INPUT, target, 1), Region((target,), Buffer.SCRATCH, source, 1)
        return Op(self.way, (), (regions[0],), (regions[1],), channel, share=share)

    def _sum(self, rank: int, number: int) -> Op:
        """Return the op that reduces the workgroup's share of the rank's result."""
        mine = Region((rank,), Buffer.INPUT, rank, 1)
        share = (number, self.workgroups)
        if self.way == "get":
            read = tuple(Region((peer,), Buffer.INPUT, rank, 1) for peer in self.peers(rank))
            return Op("rre", (), (mine, *read), (mine,), share=share)
        came = tuple(Region((rank,), Buffer.SCRATCH, peer, 1) for peer in self.peers(rank))
        return Op("re", (), (mine, *came), (mine,), share=share)
