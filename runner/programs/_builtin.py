"""Generate the engine's collective algorithms, and MSCCL++'s all-pairs algorithms, as programs.

A program of an engine algorithm sends the same messages between the same ranks, within one group. All
programs except the all-to-all work in place. Halving-doubling orders partners so that each exchange is
contiguous: all-reduce and all-gather start with the nearest partner, reduce-scatter with the farthest.

In all-pairs programs, every rank exchanges data with every other rank by puts, gets or packets, and its
workgroups (thread blocks) are divided among the peers. Several workgroups for one peer take equal parts of
the data. Puts and gets are enclosed by two handshakes. The first handshake waits until the peer's buffer may
be accessed, and the second until its data has arrived or may be overwritten. Packets carry flags with their
data, and need no handshake.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ConfigError, did_you_mean
from ._model import Buffer, Channel, ChannelType, Op, Program, RankProgram, Region, StepWriter, ThreadBlock

ALL_PAIRS = {
    "put": ("all-gather", "reduce-scatter", "all-to-all"),
    "get": ("all-gather", "reduce-scatter", "all-to-all"),
    "packet": ("all-gather",),
}


def all_pairs_program(transfer: str, collective: str, ranks: int, workgroups: int = 0) -> Program:
    """Return a program for *collective* in which every rank exchanges data directly with all others.

    *transfer* is put, get or packet. Each rank has *workgroups* workgroups (0: one per peer).
    Raises `ConfigError` if *transfer* cannot implement the collective.
    """
    if transfer not in ALL_PAIRS:
        raise ConfigError(f"There is no variant '{transfer}'{did_you_mean(transfer, ALL_PAIRS)}")
    if collective not in ALL_PAIRS[transfer]:
        raise ConfigError(
            f"The direct exchange '{transfer}' does not support {collective}, only "
            f"{', '.join(ALL_PAIRS[transfer])}."
        )
    workgroups = workgroups or ranks - 1
    if ranks < 2 or workgroups < 1:
        raise ConfigError(
            f"A direct exchange needs at least 2 ranks and 1 workgroup, not {ranks} and {workgroups}."
        )
    writer = _Writer(transfer, collective, ranks, workgroups)
    scratch = ranks if transfer == "packet" or (transfer, collective) == ("put", "reduce-scatter") else 0
    programs = tuple(
        RankProgram(rank, ranks, ranks, scratch, tuple(writer.blocks(rank))) for rank in range(ranks)
    )
    name = f"all_pairs_{transfer}_{collective}_{workgroups}"
    protocol = "LL" if transfer == "packet" else "Simple"
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
        threads_per_block=1024,
        double_scratch=transfer == "packet",
    )


class _Writer:
    def __init__(self, transfer: str, collective: str, ranks: int, workgroups: int) -> None:
        self.transfer = transfer
        self.collective = collective
        self.ranks = ranks
        self.workgroups = workgroups
        self.parts = max(1, workgroups // (ranks - 1))
        self.sums = collective == "reduce-scatter"

    def tasks(self, rank: int) -> list[list[tuple[int, int]]]:
        """Return the (peer, part of the data) pairs of each workgroup of a rank."""
        every = [(peer, part) for part in range(self.parts) for peer in _others(rank, self.ranks)]
        return [every[number :: self.workgroups] for number in range(self.workgroups)]

    @staticmethod
    def end(rank: int, peer: int, part: int) -> Channel:
        return Channel(ChannelType.MEMORY, rank, peer, part)

    def blocks(self, rank: int) -> list[ThreadBlock]:
        """Return the thread blocks of a rank in an all-pairs program."""
        result = []
        for number, tasks in enumerate(self.tasks(rank)):
            ops = self._packets(rank, tasks) if self.transfer == "packet" else self._ops(rank, number, tasks)
            result.append(ThreadBlock(number, Op.placed(ops)))
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

        def handshake(relaxed: str) -> list[Op]:
            return [Op(f"{relaxed}signal", (), channels=ends), Op(f"{relaxed}wait", (), channels=ends), nop]

        begin = handshake("rlx") if ends else []
        over = [nop, *handshake("" if self.transfer == "put" else "rlx")] if ends else []
        if self.sums and self.transfer == "get":
            return [*begin, *together, self._sum(rank, number), *together, *over]
        moved = [self._move(rank, peer, part) for peer, part in tasks]
        if self.collective == "all-to-all" and number == 0:
            own = Region((rank,), Buffer.INPUT, rank, 1), Region((rank,), Buffer.OUTPUT, rank, 1)
            moved.append(Op("copy", (), (own[0],), (own[1],)))
        if self.sums:
            return [*begin, *moved, *over, *together, self._sum(rank, number)]
        return [*begin, *moved, *over]

    def _move(self, rank: int, peer: int, part: int) -> Op:
        """Return the op that puts a part of the data to *peer* or gets it from there."""
        channel = (self.end(rank, peer, part),)
        share = (part, self.parts)
        source, target = (rank, peer) if self.transfer == "put" else (peer, rank)
        if self.collective == "all-gather":
            regions = Region((source,), Buffer.OUTPUT, source, 1), Region((target,), Buffer.OUTPUT, source, 1)
        elif self.collective == "all-to-all":
            regions = Region((source,), Buffer.INPUT, target, 1), Region((target,), Buffer.OUTPUT, source, 1)
        else:
            regions = Region((source,), Buffer.INPUT, target, 1), Region((target,), Buffer.SCRATCH, source, 1)
        return Op(self.transfer, (), (regions[0],), (regions[1],), channel, share=share)

    def _sum(self, rank: int, number: int) -> Op:
        """Return the op with which workgroup *number* reduces its share of the rank's result."""
        mine = Region((rank,), Buffer.INPUT, rank, 1)
        share = (number, self.workgroups)
        if self.transfer == "get":
            read = tuple(Region((peer,), Buffer.INPUT, rank, 1) for peer in _others(rank, self.ranks))
            return Op("rre", (), (mine, *read), (mine,), share=share)
        came = tuple(Region((rank,), Buffer.SCRATCH, peer, 1) for peer in _others(rank, self.ranks))
        return Op("re", (), (mine, *came), (mine,), share=share)


def builtin_program(algorithm: str, collective: str, ranks: int) -> Program:
    """Return the engine's *algorithm* for *collective* among *ranks* ranks as a program.

    Raises `ConfigError` for an algorithm that is not built in or does not support this number of
    ranks.
    """
    if algorithm not in BUILTIN_PROGRAMS:
        raise ConfigError(
            f"There is no built-in algorithm '{algorithm}'{did_you_mean(algorithm, BUILTIN_PROGRAMS)}"
        )
    makers = BUILTIN_PROGRAMS[algorithm]
    if collective not in makers:
        raise ConfigError(
            f"The built-in algorithm '{algorithm}' does not support {collective}, only {', '.join(makers)}."
        )
    if ranks < 2 or (algorithm in {"halvingDoubling", "doubleBinaryTree"} and ranks & (ranks - 1)):
        wanted = "at least 2" if ranks < 2 else "a power of two of"
        raise ConfigError(f"'{algorithm}' needs {wanted} ranks, not {ranks}.")
    chunks = 2 if algorithm == "doubleBinaryTree" else ranks
    in_place = collective != "all-to-all"
    writer = StepWriter(ranks, in_place, collective)
    makers[collective](writer, ranks)
    return writer.program(f"{algorithm}_{collective}", chunks)


def write_ring(writer: StepWriter, count: int) -> None:
    """Add a ring."""
    for rank in range(count):
        write_ring_rank(writer, rank, count)


def write_ring_rank(  # noqa: PLR0917 - what differs between rings
    writer: StepWriter, rank: int, count: int, offset: int = 0, channels: int = 1, slices: int = 1
) -> None:
    """Add a rank of a ring; for an all-reduce, it first sends the part that is *offset* before its own.

    A part has a share for each channel, which is sent in *slices*.
    """
    reduce, copy = ["rrs"] * (count - 2), ["rcs"] * (count - 2)
    offset, names = {
        "all-reduce": (offset, ["s", *reduce, "rrcs", *copy, "r"]),
        "reduce-scatter": (1, ["s", *reduce, "rrc"]),
        "all-gather": (0, ["s", *copy, "r"]),
    }[writer.collective]
    peers = ((rank + 1) % count, (rank - 1) % count)
    for channel in range(channels):
        for turn, name in enumerate(names):
            first = ((rank - offset - turn) % count * channels + channel) * slices
            for chunk in range(first, first + slices):
                writer.step(rank, name, chunk, peers, channel=channel)


def _others(rank: int, count: int) -> list[int]:
    """Return the other ranks, starting at *rank* + 1 so that ranks begin with different peers."""
    return [(rank + distance) % count for distance in range(1, count)]


def _direct_reduce_scatter(writer: StepWriter, count: int) -> None:
    for rank in range(count):
        for peer in _others(rank, count):
            writer.step(rank, "s", peer, (peer, peer))
        for peer in _others(rank, count):
            writer.step(rank, "rrc", rank, (peer, peer))


def _direct_all_gather(writer: StepWriter, count: int) -> None:
    for rank in range(count):
        for peer in _others(rank, count):
            writer.step(rank, "s", rank, (peer, peer))
        for peer in _others(rank, count):
            writer.step(rank, "r", peer, (peer, peer))


def _direct_all_reduce(writer: StepWriter, count: int) -> None:
    _direct_reduce_scatter(writer, count)
    _direct_all_gather(writer, count)


def _direct_all_to_all(writer: StepWriter, count: int) -> None:
    for rank in range(count):
        for peer in _others(rank, count):
            writer.step(rank, "s", peer, (peer, peer))
        for peer in _others(rank, count):
            writer.step(rank, "r", peer, (peer, peer), target=(Buffer.OUTPUT, peer))
        writer.step(rank, "cpy", rank, target=(Buffer.OUTPUT, rank))


def _halving(writer: StepWriter, rank: int, distances: list[int], count: int) -> list[tuple[int, int, int]]:
    """Exchange halves with the partners at *distances*; return (partner, first chunk, chunks retained)."""
    low, size = 0, count
    rounds = []
    for distance in distances:
        peer = rank ^ distance
        size //= 2
        kept = low + size if rank & distance else low
        sent = low if rank & distance else low + size
        writer.step(rank, "s", sent, (peer, peer), size)
        writer.step(rank, "rrc", kept, (peer, peer), size)
        low = kept
        rounds.append((peer, kept, size))
    return rounds


def _doubling_all_reduce(writer: StepWriter, count: int) -> None:
    distances = [1 << bit for bit in range(count.bit_length() - 1)]
    for rank in range(count):
        for peer, kept, size in reversed(_halving(writer, rank, distances, count)):
            other = kept - size if kept % (2 * size) else kept + size
            writer.step(rank, "s", kept, (peer, peer), size)
            writer.step(rank, "r", other, (peer, peer), size)


def _halving_reduce_scatter(writer: StepWriter, count: int) -> None:
    distances = [1 << bit for bit in reversed(range(count.bit_length() - 1))]
    for rank in range(count):
        _halving(writer, rank, distances, count)


def _doubling_all_gather(writer: StepWriter, count: int) -> None:
    for rank in range(count):
        size = 1
        while size < count:
            peer = rank ^ size
            writer.step(rank, "s", rank // size * size, (peer, peer), size)
            writer.step(rank, "r", peer // size * size, (peer, peer), size)
            size *= 2


def _trees_all_reduce(writer: StepWriter, count: int) -> None:
    for tree in range(2):
        for rank in range(count):
            _tree(writer, rank, count, tree)


def _tree(writer: StepWriter, rank: int, count: int, tree: int) -> None:
    """Add a rank's steps in one of two trees; the leaves of one tree are inner nodes of the other tree."""
    shift = tree  # the second tree numbers the ranks from 1
    number = rank + shift
    top = count // 2

    def at(place: int) -> int:
        return place - shift

    def step(name: str, send: int, receive: int) -> None:
        writer.step(rank, name, tree, (send, receive), channel=tree)

    if number in {0, count}:
        step("rrc", -1, at(top))
        step("s", at(top), -1)
        return
    bit = number & -number
    root = count - 1 if shift else 0
    parent = root if number == top else at((number & ~bit) | (bit << 1))
    if bit == 1:
        step("s", parent, -1)
        step("r", -1, parent)
        return
    left, right = at(number - bit // 2), at(number + bit // 2)
    step("rrc", -1, left)
    step("rrs", parent, right)
    step("rcs", left, parent)
    step("s", right, -1)


BUILTIN_PROGRAMS: dict[str, dict[str, Callable[[StepWriter, int], None]]] = {
    "ring": dict.fromkeys(("all-reduce", "reduce-scatter", "all-gather"), write_ring),
    "direct": {
        "all-reduce": _direct_all_reduce,
        "reduce-scatter": _direct_reduce_scatter,
        "all-gather": _direct_all_gather,
        "all-to-all": _direct_all_to_all,
    },
    "halvingDoubling": {
        "all-reduce": _doubling_all_reduce,
        "reduce-scatter": _halving_reduce_scatter,
        "all-gather": _doubling_all_gather,
    },
    "doubleBinaryTree": {"all-reduce": _trees_all_reduce},
}
