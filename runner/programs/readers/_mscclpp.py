"""Read MSCCL++ execution plans, which are JSON files with ops that refer to channels by index."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence

from ....errors import ConfigError, did_you_mean
from .._model import Buffer, Channel, ChannelType, Program, RankProgram, ThreadBlock
from ._checks import MOST_CHUNKS, MOST_RANKS, Fields, collective_named, require
from ._plan_ops import Tables, read_op

_PROTOCOLS = ("Simple", "LL")
# The ops that need both ends of their channels.
_MEETINGS = {"signal", "rlxsignal", "wait", "rlxwait", "pws", "pwsf"}


def read_mscclpp(content: bytes, source: str) -> Program:
    """Return the program in *content*, an MSCCL++ execution plan that was read from *source*.

    If no executor could run an op, raises `ConfigError` with its rank, thread block and op.
    """
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: this is not JSON ({error}); check the file.") from error
    plan = Fields(data, source)
    gpus = plan.list("gpus")
    require(
        0 < len(gpus) <= MOST_RANKS, f"{source}: the plan is for {len(gpus)} ranks; it needs at least one."
    )
    ids = [gpu.integer("id", 0, len(gpus) - 1) for gpu in gpus]
    require(
        sorted(ids) == list(range(len(gpus))),
        f"{source}: the plan has {len(gpus)} ranks, but their ids are {sorted(ids)[:20]}; each id must be "
        "there once.",
    )
    protocol = plan.text("protocol", "Simple")
    if protocol not in _PROTOCOLS:
        raise ConfigError(
            f"{source}: the protocol cannot be {protocol!r}{did_you_mean(protocol, _PROTOCOLS)}"
        )
    collective = collective_named("'collective'", plan.text("collective", ""), source)
    ranks = tuple(sorted((_rank(gpu, len(gpus)) for gpu in gpus), key=lambda rank: rank.rank))
    _check_pairs(ranks, source)
    most = plan.integer("max_message_size", 0, (1 << 64) - 1, (1 << 64) - 1)
    return Program(
        name=plan.text("name", "unnamed"),
        source=source,
        language="mscclpp",
        collective=collective,
        protocol=protocol,
        in_place=plan.flag("inplace", True),
        chunks=_chunks(ranks, collective, source),
        ranks=ranks,
        least_bytes=plan.integer("min_message_size", 0, (1 << 64) - 1, 0),
        most_bytes=None if most == (1 << 64) - 1 else most,
        alignment_bytes=plan.integer("buffer_alignment", 1, 1 << 30, 16),
        threads_per_block=plan.integer("num_threads_per_block", 1, 1 << 12, 1024),
        reuses_scratch=plan.flag("reuse_resources", False),
        double_scratch=plan.flag("use_double_scratch_buffer", False),
    )


def _chunks(ranks: Sequence[RankProgram], collective: str, source: str) -> int:
    chunks = max(max(rank.input_chunks, rank.output_chunks) for rank in ranks)
    if collective != "all-gather" and ranks[0].input_chunks:
        chunks = max(rank.input_chunks for rank in ranks)
    require(chunks > 0, f"{source}: no rank has a chunk of input or output.")
    return chunks


def _rank(gpu: Fields, count: int) -> RankProgram:
    rank = gpu.integer("id", 0, count - 1)
    gpu.where = f"{gpu.source}: rank {rank}"
    tables = Tables(rank, _channels(gpu, rank, count), _remote_buffers(gpu, count))
    semaphores = tuple(
        item.integer("init_value", 0, 1 << 31, 0) for item in gpu.list("semaphores", optional=True)
    )
    blocks = []
    for place, item in enumerate(gpu.list("threadblocks")):
        item.where = f"{gpu.where}, thread block {place}"
        require(
            item.integer("id", 0, 1 << 20, place) == place,
            f"{item.where}: thread blocks must be numbered 0, 1, 2 ... in order.",
        )
        own = tables.of_block(item)
        ops = tuple(
            read_op(op, (number,), own, len(semaphores)) for number, op in enumerate(item.list("ops"))
        )
        blocks.append(ThreadBlock(place, ops))
    _check_semaphores(blocks, semaphores, gpu.where)
    return RankProgram(
        rank=rank,
        input_chunks=gpu.integer("input_chunks", 0, MOST_CHUNKS, 0),
        output_chunks=gpu.integer("output_chunks", 0, MOST_CHUNKS, 0),
        scratch_chunks=gpu.integer("scratch_chunks", 0, MOST_CHUNKS, 0),
        thread_blocks=tuple(blocks),
        channels=tuple(channel for channels in tables.channels.values() for channel in channels),
        semaphores=semaphores,
    )


def _channels(gpu: Fields, rank: int, count: int) -> dict[ChannelType, list[Channel]]:
    channels: dict[ChannelType, list[Channel]] = defaultdict(list)
    numbers: Counter[tuple[ChannelType, int]] = Counter()
    for item in gpu.list("channels", optional=True):
        item.where = gpu.where
        kind = ChannelType(item.choice("channel_type", [kind.value for kind in ChannelType]))
        if kind is ChannelType.SWITCH:
            name = item.text("buffer_type", "")
            buffer = Buffer(item.choice("buffer_type", [buffer.value for buffer in Buffer])) if name else None
            for group in item.list("rank_groups"):
                group.where = gpu.where
                ranks = tuple(group.integers("ranks", 0, count - 1))
                require(
                    rank in ranks,
                    f"{gpu.where}: a switch channel reaches ranks {list(ranks)}, but not its own.",
                )
                channels[kind].append(Channel(kind, rank, -1, len(channels[kind]), buffer, ranks))
            continue
        for peer in item.integers("connected_to", 0, count - 1):
            require(
                peer != rank,
                f"{gpu.where}: a {kind.value} channel is connected to the rank's own; use 'copy'.",
            )
            channels[kind].append(Channel(kind, rank, peer, numbers[kind, peer]))
            numbers[kind, peer] += 1
    return channels


def _remote_buffers(gpu: Fields, count: int) -> list[tuple[int, Buffer]]:
    buffers = []
    for item in gpu.list("remote_buffers", optional=True):
        item.where = gpu.where
        buffer = Buffer(item.choice("type", [buffer.value for buffer in Buffer]))
        buffers.append((item.integer("rank", 0, count - 1), buffer))
    return buffers


def _check_pairs(ranks: Sequence[RankProgram], source: str) -> None:
    """Raise `ConfigError` for a signal or wait on a channel if the peer lacks the other end of the channel.

    For channels that only carry data, the executor adds a missing end automatically.
    """
    ends = {(end.type, end.rank, end.peer, end.number) for rank in ranks for end in rank.channels}
    for rank in ranks:
        users = {
            channel: f", thread block {block.id}, op {op.place} ({op.name})"
            for block in reversed(rank.thread_blocks)
            for op in block.walk()
            if op.name in _MEETINGS
            for channel in op.channels
        }
        for end, user in users.items():
            if end.peer >= 0 and (end.type, end.peer, end.rank, end.number) not in ends:
                raise ConfigError(
                    f"{source}: rank {rank.rank}{user}: its {end.type.value} channel "
                    f"{end.number} to rank {end.peer} does not pair: rank {end.peer} has no such channel to "
                    f"rank {rank.rank}. Give both ranks as many channels to each other."
                )


def _check_semaphores(blocks: Sequence[ThreadBlock], values: Sequence[int], where: str) -> None:
    """Raise `ConfigError` if too many acquisitions would make a semaphore negative."""
    left = Counter(dict(enumerate(values)))
    last: dict[int, str] = {}
    for block in blocks:
        for op in block.walk():
            for semaphore in op.semaphores:
                left[semaphore] += 1 if op.name == "sem_release" else -1
                if op.name == "sem_acquire":
                    last[semaphore] = f"thread block {block.id}, op {op.place} ({op.name})"
    for semaphore, value in left.items():
        require(
            value >= 0,
            f"{where}, {last.get(semaphore, '')}: semaphore {semaphore} goes negative: it begins with "
            f"{values[semaphore]} and is acquired {values[semaphore] - value} times more often than it is "
            "released.",
        )
