"""Read MSCCL++ execution plans: JSON files whose ops refer to channels by index."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....errors import ConfigError, did_you_mean
from ....support.documents import parse_json
from .._model import (
    CONTROL_OPS,
    PACKET_OPS,
    SIGNALS,
    SUMS,
    WAITS,
    Buffer,
    Channel,
    ChannelType,
    Op,
    Program,
    RankProgram,
    Region,
    ThreadBlock,
)
from ._checks import MAX_CHUNKS, MAX_RANKS, Fields, buffer_chunks, collective_named, require

_DATA = {"put", "get", "copy", "pws", "pwsf", "re", "res", "rre", "rres", "gstore", "glres"}
OPS = tuple(sorted(_DATA | PACKET_OPS | CONTROL_OPS | {"pipeline"}))
_CHANNELS = {"signal", "wait", "rlxsignal", "rlxwait", "flush"}
_PUTS = {"put", "pws", "pwsf", "ppkt"}
_ONE_SOURCE = {"copy", "cpkt", "upkt", "rppkt", "gstore", "gstorepkt"}
_READ_SCRATCH = {"upkt", "rppkt", "repkt", "respkt", "recpkt", "recspkt"}
# The sources and destinations that the executor assumes: buffers of the own rank (h), buffers of other
# ranks (r), or a switch channel (s).
_PLACES = {
    "put pws pwsf ppkt": ("h+", "r+"),
    "rppkt": ("h", "r+"),
    "get": ("r+", "h+"),
    "copy cpkt upkt": ("h", "h"),
    "re repkt": ("h+", "h"),
    "recpkt": ("h+", "hh"),
    "res respkt": ("h+", "hr*"),
    "recspkt": ("h+", "hhr*"),
    "rre": ("hr*", "h"),
    "rres": ("hr*", "hr*"),
    "gstore gstorepkt": ("h", "s"),
    "glres": ("s", "s"),
}
_PLACES_OF = {name: places for names, places in _PLACES.items() for name in names.split()}
_PLACE_WORDS = {
    "h": "one buffer of its own rank",
    "h+": "buffers of its own rank",
    "hh": "two buffers of its own rank",
    "r+": "buffers of other ranks",
    "hr*": "a buffer of its own rank, then buffers of other ranks",
    "hhr*": "two buffers of its own rank, then buffers of other ranks",
    "s": "a switch channel",
}
_BY_PORT = {"put", "pws", "pwsf", "ppkt", "rppkt"}
_LONGEST_UNIT = 1 << 40


@dataclass(frozen=True)
class RemoteBuffer:
    """A buffer of another rank, and the types of channels that reach the buffer."""

    rank: int
    buffer: Buffer
    types: tuple[str, ...]


@dataclass
class Tables:
    """The targets of indices in a rank's ops: channels, and accessible remote buffers."""

    rank: int
    channels: Mapping[ChannelType, Sequence[Channel]]
    remote: Sequence[RemoteBuffer]
    remote_of: dict[ChannelType, list[int]] = field(default_factory=dict)
    switch_buffer: dict[int, Buffer] = field(default_factory=dict)

    def of_block(self, block: Fields) -> Tables:
        """Return the tables of a thread block, which has its own lists of channels and buffers."""
        own: dict[ChannelType, list[Channel]] = {}
        buffers: dict[int, Buffer] = {}
        for item in block.list("channels", optional=True):
            kind = item.choice("channel_type", ChannelType)
            have = self.channels.get(kind, ())
            for number in item.integers("channel_ids", 0, MAX_CHUNKS):
                require(
                    number < len(have),
                    f"{block.where}: it uses {kind.value} channel {number}, but its rank has {len(have)}.",
                )
                if "buff" in item:
                    buffers[len(own.get(kind, ()))] = item.choice("buff", Buffer)
                own.setdefault(kind, []).append(have[number])
        remote: dict[ChannelType, list[int]] = {}
        for item in block.list("remote_buffer_refs", optional=True):
            kind = item.choice("access_channel_type", ChannelType)
            for number in item.integers("remote_buffer_ids", 0, len(self.remote) - 1):
                require(
                    kind.value in self.remote[number].types,
                    f"{block.where}: it accesses remote buffer {number} over {kind.value} channels, but that "
                    f"buffer's 'access_channel_types' are {', '.join(self.remote[number].types)}.",
                )
                remote.setdefault(kind, []).append(number)
        return Tables(self.rank, own, self.remote, remote, buffers)

    def channel(self, kind: ChannelType, number: int, where: str) -> Channel:
        """Return the thread block's channel *number* among those of *kind*."""
        have = self.channels.get(kind, ())
        require(
            0 <= number < len(have),
            f"{where}: it uses {kind.value} channel {number}, but its thread block has {len(have)}.",
        )
        return have[number]

    def region(self, item: Fields, kind: ChannelType) -> Region:
        """Return the region of an entry of src_buff or dst_buff."""
        where = item.where
        index = item.integer("index", 0, MAX_CHUNKS)
        count = item.integer("size", 1, MAX_CHUNKS)
        if "switch_channel_id" in item:
            number = item.integer("switch_channel_id", 0, MAX_CHUNKS)
            channel = self.channel(ChannelType.SWITCH, number, where)
            buffer = channel.buffer or self.switch_buffer.get(number)
            if buffer is None:
                raise ConfigError(f"{where}: switch channel {number} does not say which buffer it reaches.")
            return Region(channel.ranks, buffer, index, count)
        if "buffer_id" in item:
            number = item.integer("buffer_id", 0, MAX_CHUNKS)
            have = self.remote_of.get(kind, [])
            require(
                number < len(have),
                f"{where}: it uses remote buffer {number} over {kind.value} channels, but its thread block "
                f"has {len(have)}.",
            )
            remote = self.remote[have[number]]
            return Region((remote.rank,), remote.buffer, index, count)
        buffer = item.choice("type", Buffer)
        return Region((self.rank,), buffer, index, count)


def read_op(item: Fields, path: tuple[int, ...], tables: Tables, semaphores: int) -> Op:
    """Read the op at *path*; raises `ConfigError` for an op that no executor supports."""
    name = item.text("name", "")
    item.where = f"{item.where}, op {'.'.join(map(str, path))}"
    if name not in OPS:
        raise ConfigError(f"{item.where}: there is no op {name!r}{did_you_mean(name, OPS)}")
    item.where += f" ({name})"
    if name == "pipeline":
        return _pipeline(item, path, tables, semaphores)
    if name == "barrier":
        return Op(
            name,
            path,
            barrier=item.integer("barrier_id", 0, MAX_CHUNKS),
            barrier_blocks=item.integer("num_threadblocks", 1, MAX_CHUNKS),
        )
    if name in {"sem_acquire", "sem_release"}:
        return Op(name, path, semaphores=tuple(item.integers("semaphore_ids", 0, semaphores - 1)))
    if name == "nop":
        return Op(name, path)
    regions = [part for side in ("src_buff", "dst_buff") for part in item.list(side, optional=True)]
    kind = ChannelType.MEMORY
    if name in _CHANNELS or "channel_type" in item or any("buffer_id" in part for part in regions):
        kind = item.choice("channel_type", ChannelType)
    if name in _CHANNELS:
        numbers = item.integers("channel_ids", 0, MAX_CHUNKS)
        require(bool(numbers), f"{item.where}: it names no channel.")
        return Op(name, path, channels=tuple(tables.channel(kind, n, item.where) for n in numbers))
    return _data_op(item, name, path, tables, kind)


def _data_op(item: Fields, name: str, path: tuple[int, ...], tables: Tables, kind: ChannelType) -> Op:
    where = item.where
    sources = tuple(tables.region(part, kind) for part in item.list("src_buff"))
    destinations = tuple(tables.region(part, kind) for part in item.list("dst_buff"))
    require(bool(sources) and bool(destinations), f"{where}: it has no source or no destination.")
    sizes = {region.count for region in (*sources, *destinations)}
    sources, destinations = _as_executed(name, kind, sources, destinations, where)
    _check_places(item, name)
    pairs = zip(sources, destinations, strict=False)  # a reduction may have any number of sources
    require(
        len(sizes) == 1 if name in SUMS else all(a.count == b.count for a, b in pairs),
        f"{where}: its sources and destinations are of different sizes.",
    )
    numbers = item.integers("channel_ids", 0, MAX_CHUNKS) if "channel_ids" in item else []
    channels = tuple(tables.channel(kind, number, where) for number in numbers)
    require(
        kind is ChannelType.PORT or name not in {"pws", "pwsf"},
        f"{where}: MSCCL++'s executor sends no signal with this op over {kind.value} channels; use 'put' and "
        "'signal'.",
    )
    if kind is ChannelType.PORT:
        _check_ports(name, channels, destinations, where)
    elif not channels:
        channels = _channels_to(tables, kind, tables.rank, (*sources, *destinations), where)
    share = (0, 1)
    if "tbg_info" in item:
        group = Fields(item.data["tbg_info"], item.source, where)
        size = group.integer("tbg_size", 1, 1 << 16)
        share = (group.integer("tb_id", 0, size - 1), size)
    return Op(name, path, sources, destinations, channels, share=share)


def _as_executed(
    name: str,
    kind: ChannelType,
    sources: tuple[Region, ...],
    destinations: tuple[Region, ...],
    where: str,
) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """Return the sources and destinations that MSCCL++'s executor (execution_kernel.hpp) would use.

    The executor exchanges the offsets of both sides of a get. Raises `ConfigError` for sources and
    destinations that the executor would ignore.
    """
    if name in _READ_SCRATCH:  # the op reads packets from the scratch buffer only
        plain = 0 if name in _ONE_SOURCE else 1
        packets = tuple(replace(region, buffer=Buffer.SCRATCH) for region in sources[plain:])
        sources = (*sources[:plain], *packets)
    if name in _ONE_SOURCE:
        require(
            len(sources) == 1 and (len(destinations) == 1 or name == "rppkt"),
            f"{where}: it has {len(sources)} sources and {len(destinations)} destinations, but its executor "
            "uses the first only; write an op for each.",
        )
        sources *= len(destinations)
    if name not in SUMS:
        require(
            len(sources) == len(destinations),
            f"{where}: it has {len(sources)} sources but {len(destinations)} destinations.",
        )
    if name in _PUTS and kind is ChannelType.MEMORY:
        require(
            len({region.buffer for region in sources}) == 1,
            f"{where}: its sources are in several buffers, but its executor takes all from the first "
            "one's; write an op for each buffer.",
        )
    if name == "get":
        pairs = tuple(zip(sources, destinations, strict=True))
        sources = tuple(replace(source, index=target.index) for source, target in pairs)
        destinations = tuple(replace(target, index=source.index) for source, target in pairs)
    return sources, destinations


def _check_places(item: Fields, name: str) -> None:
    """Raise `ConfigError` for an op with other buffers than the executor assumes."""
    for side, words, places in zip(
        ("src_buff", "dst_buff"), ("sources", "destinations"), _PLACES_OF[name], strict=True
    ):
        found = "".join(
            "s" if "switch_channel_id" in part else "r" if "buffer_id" in part else "h"
            for part in item.list(side)
        )
        require(
            re.fullmatch(places, found) is not None,
            f"{item.where}: its {words} must be {_PLACE_WORDS[places]}, as MSCCL++'s executor assumes.",
        )


def _check_ports(name: str, channels: Sequence[Channel], destinations: Sequence[Region], where: str) -> None:
    """Raise `ConfigError` for an op that the executor cannot run over its port channels."""
    require(
        name in _BY_PORT,
        f"{where}: MSCCL++'s executor has no such op over port channels; use memory channels.",
    )
    peers = [channel.peer for channel in channels]
    ranks = [rank for region in destinations for rank in region.ranks]
    require(
        peers == ranks,
        f"{where}: its port channels lead to ranks {peers}, but its destinations are at ranks {ranks}; name "
        "the channel of each destination in order.",
    )


def _channels_to(
    tables: Tables, kind: ChannelType, rank: int, regions: Sequence[Region], where: str
) -> tuple[Channel, ...]:
    """Return the thread block's channels to the remote ranks of *regions*, one per rank."""
    if kind is ChannelType.SWITCH:
        wanted = {region.ranks for region in regions if len(region.ranks) > 1}
        return tuple(c for c in tables.channels.get(kind, ()) if c.ranks in wanted)[:1]
    peers = dict.fromkeys(peer for region in regions for peer in region.ranks if peer != rank)
    channels = []
    for peer in peers:
        ends = [channel for channel in tables.channels.get(kind, ()) if channel.peer == peer]
        require(bool(ends), f"{where}: its thread block has no {kind.value} channel to rank {peer}.")
        channels.append(ends[0])
    return tuple(channels)


def _pipeline(item: Fields, path: tuple[int, ...], tables: Tables, semaphores: int) -> Op:
    require(len(path) == 1, f"{item.where}: a pipeline inside a pipeline has no meaning.")
    context = Fields(item.data.get("iter_context"), item.source, item.where)
    chunks = context.integer("num_chunks", 1, MAX_CHUNKS)
    body = []
    for number, part in enumerate(item.list("ops")):
        part.where = item.where.rpartition(", op ")[0]
        op = read_op(part, (*path, number), tables, semaphores)
        require(
            op.share == (0, 1) and op.name not in PACKET_OPS,
            f"{part.where}: its executor runs ops with tbg_info, and those of packets, past their ends in a "
            "pipeline; write it outside.",
        )
        counts = {region.count for region in (*op.sources, *op.destinations)}
        require(
            counts <= {chunks},
            f"{part.where}: it moves {sorted(counts)} chunks inside a pipeline over {chunks}.",
        )
        body.append(op)
    return Op(
        "pipeline",
        path,
        body=tuple(body),
        unit_bytes=context.integer("unit_size", 1, _LONGEST_UNIT),
        pipeline_chunks=chunks,
    )


_PROTOCOLS = ("Simple", "LL")


def read_mscclpp(content: bytes, source: str) -> Program:
    """Parse *content*, an MSCCL++ execution plan read from *source*.

    Raises `ConfigError` with rank, thread block and op if no executor could run it.
    """
    try:
        data = parse_json(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: this is not JSON ({error}); check the file.") from error
    plan = Fields(data, source)
    gpus = plan.list("gpus")
    require(
        0 < len(gpus) <= MAX_RANKS, f"{source}: the plan is for {len(gpus)} ranks; it needs at least one."
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
    _check_groups(ranks, source)
    alignment = plan.integer("buffer_alignment", 1, 1 << 30, 16)
    require(
        alignment % 16 == 0,
        f"{source}: 'buffer_alignment' is {alignment}, but MSCCL++'s executor moves 16 bytes at a time; make "
        "it a multiple of 16.",
    )
    double_scratch = plan.flag("use_double_scratch_buffer", False)
    require(
        not double_scratch or len({rank.scratch_chunks for rank in ranks}) == 1,
        f"{source}: with a double scratch buffer, all ranks need the same number of scratch chunks.",
    )
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
        alignment_bytes=alignment,
        threads_per_block=plan.integer("num_threads_per_block", 1, 1024, 1024),
        reuses_scratch=plan.flag("reuse_resources", False),
        double_scratch=double_scratch,
    )


def _chunks(ranks: Sequence[RankProgram], collective: str, source: str) -> int:
    """Return the chunks of the larger buffer; the executor derives the size of a chunk from either buffer."""
    chunks = max(max(rank.input_chunks, rank.output_chunks) for rank in ranks)
    if collective != "all-gather" and ranks[0].input_chunks:
        chunks = max(rank.input_chunks for rank in ranks)
    require(chunks > 0, f"{source}: no rank has a chunk of input or output.")
    if collective != "custom":
        inputs, outputs = buffer_chunks(collective, chunks, len(ranks), source)
        for rank in ranks:
            have = rank.input_chunks, rank.output_chunks
            require(
                have[0] in {0, inputs} and have[1] in {0, outputs} and have != (0, 0),
                f"{source}: rank {rank.rank} has {have[0]} input chunks and {have[1]} output chunks, but the "
                f"collective '{collective}' needs {inputs} and {outputs}.",
            )
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
        input_chunks=gpu.integer("input_chunks", 0, MAX_CHUNKS, 0),
        output_chunks=gpu.integer("output_chunks", 0, MAX_CHUNKS, 0),
        scratch_chunks=gpu.integer("scratch_chunks", 0, MAX_CHUNKS, 0),
        thread_blocks=tuple(blocks),
        channels=tuple(channel for channels in tables.channels.values() for channel in channels),
        semaphores=semaphores,
    )


def _channels(gpu: Fields, rank: int, count: int) -> dict[ChannelType, list[Channel]]:
    channels: dict[ChannelType, list[Channel]] = defaultdict(list)
    numbers: Counter[tuple[ChannelType, int]] = Counter()
    for item in gpu.list("channels", optional=True):
        kind = item.choice("channel_type", ChannelType)
        if kind is ChannelType.SWITCH:
            buffer = item.choice("buffer_type", Buffer) if item.text("buffer_type", "") else None
            for group in item.list("rank_groups"):
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


def _remote_buffers(gpu: Fields, count: int) -> list[RemoteBuffer]:
    buffers = []
    for item in gpu.list("remote_buffers", optional=True):
        buffer = item.choice("type", Buffer)
        types = item.choices("access_channel_types", [kind.value for kind in ChannelType])
        buffers.append(RemoteBuffer(item.integer("rank", 0, count - 1), buffer, tuple(types)))
    return buffers


def _check_pairs(ranks: Sequence[RankProgram], source: str) -> None:
    """Raise `ConfigError` for a signal or wait on a channel whose other end the peer lacks.

    For channels that only carry data, the executor adds a missing end by itself.
    """
    ends = {(end.type, end.rank, end.peer, end.number) for rank in ranks for end in rank.channels}
    for rank in ranks:
        users = {
            channel: f", thread block {block.id}, op {op.place} ({op.name})"
            for block in reversed(rank.thread_blocks)
            for op in block.walk()
            if op.name in SIGNALS | WAITS
            for channel in op.channels
        }
        for end, user in users.items():
            if end.peer >= 0 and (end.type, end.peer, end.rank, end.number) not in ends:
                raise ConfigError(
                    f"{source}: rank {rank.rank}{user}: its {end.type.value} channel "
                    f"{end.number} to rank {end.peer} does not pair: rank {end.peer} has no such channel to "
                    f"rank {rank.rank}. Give both ranks as many channels to each other."
                )


def _check_groups(ranks: Sequence[RankProgram], source: str) -> None:
    """Raise `ConfigError` for a switch channel that not all of its ranks have, or not in the same order."""
    groups = [[(e.buffer, e.ranks) for e in rank.channels if e.type is ChannelType.SWITCH] for rank in ranks]
    for rank, own in enumerate(groups):
        for other in {member for _, members in own for member in members}:
            require(
                [group for group in own if other in group[1]]
                == [group for group in groups[other] if rank in group[1]],
                f"{source}: ranks {rank} and {other} do not have the same switch channels in the same order.",
            )


def _check_semaphores(blocks: Sequence[ThreadBlock], values: Sequence[int], where: str) -> None:
    """Raise `ConfigError` if the thread blocks acquire a semaphore more often than it is released."""
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
