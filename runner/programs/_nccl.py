"""NCCL's ring, tree and NVLS algorithms as programs, following NCCL's published source.

Each channel has its own part of the buffer and its own thread blocks. The machine's protocol sets
the size of a slot, and chunks larger than a slot repeat the program. With the Simple protocol, a
ring sends a chunk in two slices, so that the next rank can start on the first while the second is
in flight. A tree is a chain of ranks, because the ranks are those of one node.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...errors import ConfigError, did_you_mean
from ._builtin import write_ring_rank
from ._model import (
    PROTOCOLS,
    AlikeRanks,
    Buffer,
    Channel,
    ChannelType,
    Op,
    Program,
    RankProgram,
    Region,
    StepWriter,
    ThreadBlock,
)

NCCL_ALGORITHMS = {
    "ring": ("all-reduce", "all-gather", "reduce-scatter"),
    "tree": ("all-reduce",),
    "nvls": ("all-reduce",),
}
_SLICES = 2
_ALIGNMENT_BYTES = 16
_NVLS_UNITS_AHEAD = 8
_NVLS_UNIT_BYTES = 131_072
# How many of a channel's 20 warps reduce, by number of ranks in the node. The other warps copy data in and
# out (NCCL 2.30, src/device/all_reduce.h).
_NVLS_WARPS = 20
_NVLS_FEW_RANKS, _NVLS_REDUCE_WARPS_OF_FEW, _NVLS_REDUCE_WARPS = 6, 7, 5
# In each part of a channel that sends, one warp only issues fences and signals (src/device/prims_simple.h).
_NVLS_SYNC_WARPS = 1
# 16-byte loads that a reducing thread has in flight: COLL_UNROLL in src/device/all_reduce.h, from
# ncclCollUnroll in src/include/device.h. A thread of the GPU model has one load in flight, so there
# are more threads by this factor.
_NVLS_LOADS = 8
_WARP_THREADS = 32
_MAX_CHANNELS = 64


def nccl_program(  # noqa: PLR0917 - what NCCL itself chooses
    algorithm: str,
    collective: str,
    ranks: int,
    protocol: str = "Simple",
    channels: int = 1,
    unit_bytes: int = _NVLS_UNIT_BYTES,
) -> Program:
    """Return NCCL's *algorithm* (ring, tree, nvls) for *collective* among *ranks* ranks.

    *unit_bytes* is the amount of each rank's data that NVLS processes at a time. Raises `ConfigError` for
    combinations that NCCL does not support.
    """
    if algorithm not in NCCL_ALGORITHMS:
        raise ConfigError(f"NCCL has no algorithm '{algorithm}'{did_you_mean(algorithm, NCCL_ALGORITHMS)}")
    if protocol not in PROTOCOLS:
        raise ConfigError(f"NCCL has no protocol '{protocol}'{did_you_mean(protocol, PROTOCOLS)}")
    if collective not in NCCL_ALGORITHMS[algorithm]:
        raise ConfigError(
            f"NCCL's {algorithm} does not support {collective}. Next: use it for "
            f"{', '.join(NCCL_ALGORITHMS[algorithm])}, or choose another algorithm."
        )
    if ranks < 2 or not 1 <= channels <= _MAX_CHANNELS:
        raise ConfigError(
            f"NCCL's {algorithm} needs at least 2 ranks and 1 to {_MAX_CHANNELS} channels, not {ranks} and "
            f"{channels}."
        )
    name = f"nccl_{algorithm}_{protocol}_{collective}_{channels}"
    if algorithm == "ring":
        return _ring(name, collective, ranks, protocol, channels)
    if algorithm == "tree":
        return _tree(name, ranks, protocol, channels)
    if protocol != "Simple":
        raise ConfigError(f"NCCL's nvls works only with the protocol Simple, not {protocol}.")
    return _nvls(name, ranks, channels, unit_bytes)


def _ring(name: str, collective: str, ranks: int, protocol: str, channels: int) -> Program:
    slices = _SLICES if protocol == "Simple" else 1
    writer = StepWriter(ranks, in_place=True, collective=collective)
    program = writer.program(name, ranks * channels * slices, protocol, _ALIGNMENT_BYTES, True)
    make = partial(_ring_rank, collective=collective, ranks=ranks, channels=channels, slices=slices)
    return replace(program, ranks=AlikeRanks(make, ranks))


def _ring_rank(rank: int, collective: str, ranks: int, channels: int, slices: int) -> RankProgram:
    writer = StepWriter(ranks, in_place=True, collective=collective)
    write_ring_rank(writer, rank, ranks, 1, channels, slices)
    return writer.rank_program(rank, ranks * channels * slices)


def _tree(name: str, ranks: int, protocol: str, channels: int) -> Program:
    writer = StepWriter(ranks, in_place=True, collective="all-reduce")
    for channel in range(channels):
        for rank in range(ranks):
            _tree_steps(writer, rank, channel, is_leaf=rank == ranks - 1)
    return writer.program(name, channels, protocol, _ALIGNMENT_BYTES, True)


def _tree_steps(writer: StepWriter, rank: int, channel: int, *, is_leaf: bool) -> None:
    """Add the steps of one rank of the chain: reduce towards rank 0, then broadcast the result."""
    parent, child = rank - 1, rank + 1

    def step(name: str, send: int, receive: int) -> None:
        writer.step(rank, name, channel, (send, receive), channel=channel)

    if is_leaf:
        step("s", parent, -1)
        step("r", -1, parent)
    elif parent < 0:
        step("rrcs", child, child)
    else:
        step("rrs", parent, child)
        step("rcs", child, parent)


# NVLS copies data to buffers at the switch, which sums and multicasts each rank's part, and copies it back.


def _nvls(name: str, ranks: int, channels: int, unit_bytes: int) -> Program:
    everybody = tuple(range(ranks))
    programs = []
    for rank in everybody:
        blocks = []
        for channel in range(channels):
            blocks += _nvls_blocks(rank, everybody, channel, unit_bytes)
        chunks = ranks * channels
        semaphores = (0, 0, _NVLS_UNITS_AHEAD) * channels
        programs.append(RankProgram(rank, chunks, chunks, chunks, tuple(blocks), semaphores=semaphores))
    return Program(
        name,
        name,
        "mscclpp",
        "all-reduce",
        "Simple",
        True,
        ranks * channels,
        tuple(programs),
        alignment_bytes=_ALIGNMENT_BYTES,
        reuses_scratch=True,
    )


def _nvls_blocks(rank: int, everybody: tuple[int, ...], channel: int, unit_bytes: int) -> list[ThreadBlock]:
    """Return the three thread blocks of an NVLS channel: copy in, reduce, copy out."""
    ranks = len(everybody)
    others = [peer for peer in everybody if peer != rank]
    first = channel * ranks
    filled, summed, free = (3 * channel + number for number in range(3))

    def copies(source: Buffer, target: Buffer) -> list[Op]:
        return [
            Op("copy", (), (Region((rank,), source, index, 1),), (Region((rank,), target, index, 1),))
            for index in range(first, first + ranks)
        ]

    def with_others(name: str, number: int) -> Op:
        ends = (Channel(ChannelType.MEMORY, rank, peer, 2 * channel + number) for peer in others)
        return Op(name, (), channels=tuple(ends))

    nop = Op("nop", ())
    mine = Region(everybody, Buffer.SCRATCH, first + rank, 1)
    switch = Channel(ChannelType.SWITCH, rank, -1, 0, Buffer.SCRATCH, everybody)
    # The switch returns the least of all ranks' counters (NCCL_NVLS_MIN_POLL in src/transport/nvls.cc).
    from_all = with_others("wait", 0)
    parts: list[list[Op]] = [
        [
            Op("sem_acquire", (), semaphores=(free,)),
            nop,
            *copies(Buffer.INPUT, Buffer.SCRATCH),
            nop,
            with_others("signal", 0),
            Op("sem_release", (), semaphores=(filled,)),
        ],
        [
            Op("sem_acquire", (), semaphores=(filled,)),
            replace(from_all, channels=(*from_all.channels, switch)),
            nop,
            Op("glres", (), (mine,), (mine,), (switch,)),
            nop,
            with_others("signal", 1),
            Op("sem_release", (), semaphores=(summed,)),
        ],
        [
            Op("sem_acquire", (), semaphores=(summed,)),
            with_others("wait", 1),
            nop,
            *copies(Buffer.SCRATCH, Buffer.INPUT),
            nop,
            Op("sem_release", (), semaphores=(free,)),
        ],
    ]
    return [
        ThreadBlock(
            3 * channel + number,
            (Op("pipeline", (0,), body=Op.placed(ops, 0), unit_bytes=unit_bytes, pipeline_chunks=1),),
            threads=_WARP_THREADS * wavefronts,
        )
        for number, (ops, wavefronts) in enumerate(zip(parts, _nvls_wavefronts(ranks), strict=True))
    ]


def _nvls_wavefronts(ranks: int) -> tuple[int, int, int]:
    """Return how many wavefronts of an NVLS channel copy in, reduce, and copy out."""
    reduce = _NVLS_REDUCE_WARPS_OF_FEW if ranks <= _NVLS_FEW_RANKS else _NVLS_REDUCE_WARPS
    copy_in = (_NVLS_WARPS - reduce + 1) // 2
    return (
        copy_in - _NVLS_SYNC_WARPS,
        (reduce - _NVLS_SYNC_WARPS) * _NVLS_LOADS,
        _NVLS_WARPS - reduce - copy_in,
    )
