"""Size limits of programs, and the value checks that all readers share."""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeVar

from ....errors import ConfigError, did_you_mean
from ....support import count_text
from .._model import Buffer, Op, Program, Region

MAX_RANKS = 1 << 16
MAX_CHUNKS = 1 << 20
MAX_OPS = 1 << 22
COLLECTIVES = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
    "sendrecv": "send-receive",
    "custom": "custom",
    "test": "custom",  # a name that occurs in the unit tests of MSCCL++'s language
}


def require(holds: bool, message: str) -> None:
    """Raise `ConfigError` with *message* unless *holds*."""
    if not holds:
        raise ConfigError(message)


def collective_named(key: str, name: str, source: str) -> str:
    """Return Chakrascope's name of the collective that a file's *key* calls *name*."""
    plain = name.lower().replace("_", "").replace("-", "")
    if plain not in COLLECTIVES:
        wrong = f"cannot be {name!r}" if name else "is missing"
        raise ConfigError(f"{source}: {key} {wrong}{did_you_mean(plain, tuple(COLLECTIVES))}")
    return COLLECTIVES[plain]


def buffer_chunks(collective: str, chunks: int, ranks: int, source: str) -> tuple[int, int]:
    """Return how many chunks input and output have if the larger of them has *chunks*.

    Raises `ConfigError` for chunks that the collective cannot divide among its ranks.
    """
    share, rest = divmod(chunks, ranks)
    require(
        rest == 0 or collective not in {"all-gather", "reduce-scatter", "all-to-all"},
        f"{source}: {count_text(chunks, 'chunk')} cannot be divided among {ranks} ranks, as the collective "
        f"'{collective}' requires; use a multiple of {ranks}.",
    )
    return {"all-gather": (share, chunks), "reduce-scatter": (chunks, share)}.get(
        collective, (chunks, chunks)
    )


def check_ops(program: Program) -> None:
    """Raise `ConfigError` for an op that accesses memory that no buffer has, or needs too many threads.

    Flags double the size of packets. The executor of plans makes room for flags in the scratch buffer
    only, and only for the protocol LL.
    """
    for rank, block, op in program.walk():
        where = program.where(rank, block.id, op)
        lanes = len(op.semaphores) + len(op.channels) * (op.by_port or not op.sources)
        require(
            lanes <= program.threads_per_block or not lanes,
            f"{where}: it has {lanes} channels or semaphores, one for each thread, but thread blocks have "
            f"{program.threads_per_block} threads (num_threads_per_block).",
        )
        require(
            not (program.reuses_scratch and _is_misread(op)),
            f"{where}: in a pipeline that reuses the scratch buffer, MSCCL++'s executor reads later "
            "sources of this op at wrong offsets; set 'reuse_resources' to false.",
        )
        regions = (*op.sources, *op.destinations)
        for region, flagged in zip(regions, itertools.chain(*op.packet_flags), strict=True):
            for owner in region.ranks:
                _check_region(program, where, owner, region, flagged)
            if program.double_scratch and (op.by_port or region.ranks != (rank,)):
                require(
                    flagged == (region.buffer is Buffer.SCRATCH),
                    f"{where}: with a double scratch buffer, MSCCL++'s executor reaches the scratch "
                    "buffer of another rank only with packets, and other buffers only without.",
                )


def _is_misread(op: Op) -> bool:
    """Return whether the executor takes the later sources of an op in a pipeline for parts of the input."""
    in_pipeline = len(op.path) > 1
    later = any(region.buffer is Buffer.SCRATCH for region in op.sources[1:])
    return in_pipeline and op.name in {"re", "res"} and later


def _check_region(program: Program, where: str, owner: int, region: Region, flagged: bool) -> None:
    have = program.chunks_of(owner, region.buffer)
    end = region.index + region.count
    require(
        end <= have,
        f"{where}: it reaches to chunk {end - 1} of the {region.buffer.words} buffer of rank {owner}, which "
        f"has {have} chunk{'s' * (have != 1)}; enlarge the buffer or correct the offset.",
    )
    has_room = region.buffer is Buffer.SCRATCH and program.protocol == "LL"
    require(
        not flagged or has_room or 2 * end <= have,
        f"{where}: the {region.buffer.words} buffer of rank {owner} has no room for the flags of packets up "
        f"to chunk {end - 1}; use the scratch buffer and the protocol LL.",
    )


_MISSING = object()
_Choice = TypeVar("_Choice", bound=Enum)


class Fields:
    """An object of a plan. Errors name its place, *where*, and its file, *source*."""

    def __init__(self, data: Any, source: str, where: str = "") -> None:
        self.source = source
        self.where = where or source
        if not isinstance(data, dict):
            raise ConfigError(f"{self.where}: expected a JSON object, not {reprlib.repr(data)}.")
        self.data: dict[str, Any] = data

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def integer(self, key: str, least: int, most: int, default: int | None = None) -> int:
        """Return the integer *key*, which must lie between *least* and *most*."""
        value = self.data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(key, f"a whole number from {least} to {most}", value)
        return value

    def integers(self, key: str, least: int, most: int) -> list[int]:
        """Return the list *key*, whose items must be integers between *least* and *most*."""
        values = self.data.get(key, _MISSING)
        if not isinstance(values, list) or not all(
            isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
            for value in values
        ):
            raise self._wrong(key, f"a list of whole numbers from {least} to {most}", values)
        return values

    def text(self, key: str, default: str) -> str:
        """Return the string *key*."""
        value = self.data.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string", value)
        return value

    def choice(self, key: str, kind: type[_Choice]) -> _Choice:
        """Return the member of *kind* that the string *key* names."""
        value, allowed = self.text(key, ""), [each.value for each in kind]
        if value not in allowed:
            raise ConfigError(f"{self.where}: '{key}' cannot be {value!r}{did_you_mean(value, allowed)}")
        return kind(value)

    def choices(self, key: str, allowed: Sequence[str]) -> list[str]:
        """Return the list *key*, whose items must be among *allowed*."""
        values = self.data.get(key, _MISSING)
        if not isinstance(values, list) or not all(value in allowed for value in values):
            raise self._wrong(key, f"a list of {', '.join(allowed)}", values)
        return values

    def flag(self, key: str, default: bool) -> bool:
        """Return the boolean *key*."""
        value = self.data.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def list(self, key: str, *, optional: bool = False) -> list[Fields]:
        """Return the list *key*, whose items must be objects."""
        values = self.data.get(key, [] if optional else _MISSING)
        if not isinstance(values, list):
            raise self._wrong(key, "a list", values)
        return [Fields(value, self.source, self.where) for value in values]

    def _wrong(self, key: str, wanted: str, value: Any) -> ConfigError:
        if value is _MISSING or value is None:
            return ConfigError(f"{self.where}: '{key}' is missing; it must be {wanted}.")
        return ConfigError(f"{self.where}: '{key}' must be {wanted}, but is {reprlib.repr(value)}.")
