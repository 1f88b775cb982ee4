"""Limits of programs, and the checks that all readers share."""

from __future__ import annotations

from ....errors import ConfigError, did_you_mean
from .._model import Op, Program, Region

__all__ = [
    "COLLECTIVES",
    "MOST_CHUNKS",
    "MOST_OPS",
    "MOST_RANKS",
    "check_regions",
    "collective_named",
    "require",
]

MOST_RANKS = 1 << 16
MOST_CHUNKS = 1 << 20
MOST_OPS = 1 << 22
COLLECTIVES = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
    "sendrecv": "send-receive",
    "custom": "custom",
}


def require(holds: bool, message: str) -> None:
    """Raise `ConfigError` with *message* unless it *holds*."""
    if not holds:
        raise ConfigError(message)


def collective_named(name: str, source: str) -> str:
    """Return our name of the collective that a file calls *name*."""
    plain = name.lower().replace("_", "").replace("-", "")
    if plain not in COLLECTIVES:
        raise ConfigError(
            f"{source}: there is no collective {name!r}{did_you_mean(plain, tuple(COLLECTIVES))}"
        )
    return COLLECTIVES[plain]


def check_regions(program: Program) -> None:
    """Raise `ConfigError` for an op that reaches past the end of a buffer, its own or a peer's."""
    for rank in program.ranks:
        for block in rank.thread_blocks:
            for op in block.walk():
                for region in (*op.sources, *op.destinations):
                    _check_region(program, rank.rank, block.id, op, region)


def _check_region(program: Program, rank: int, block: int, op: Op, region: Region) -> None:
    for owner in region.ranks:
        have = program.chunks_of(owner, region.buffer)
        end = region.index + region.count
        require(
            end <= have,
            f"{program.where(rank, block, op)}: it reaches to chunk {end - 1} of the {region.buffer.words} "
            f"buffer of rank {owner}, which has {have} chunk{'s' * (have != 1)}; enlarge the buffer or "
            "correct the offset.",
        )
