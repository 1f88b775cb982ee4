"""Read the ops of an MSCCL++ plan, with all numbers resolved to channels and buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....errors import ConfigError, did_you_mean
from .._model import CONTROL_OPS, PACKET_OPS, Buffer, Channel, ChannelType, Op, Region
from ._checks import MOST_CHUNKS, Fields, require

_DATA = {"put", "get", "copy", "pws", "pwsf", "re", "res", "rre", "rres", "gstore", "glre", "glres"}
OPS = tuple(sorted(_DATA | PACKET_OPS | CONTROL_OPS | {"pipeline"}))
_CHANNELS = {"signal", "wait", "rlxsignal", "rlxwait", "flush"}
_SUMS = {"re", "res", "rre", "rres", "glre", "glres", "repkt", "respkt", "recpkt", "recspkt"}
_PUTS = {"put", "pws", "pwsf", "ppkt"}
_ONE_SOURCE = {"copy", "cpkt", "upkt", "rppkt", "gstore", "gstorepkt"}
_READ_SCRATCH = {"upkt", "rppkt", "repkt", "respkt", "recpkt", "recspkt"}
_LONGEST_UNIT = 1 << 40


@dataclass
class Tables:
    """The tables that resolve the numbers in a rank's ops: channels, and accessible remote buffers."""

    rank: int
    channels: Mapping[ChannelType, Sequence[Channel]]
    remote: Sequence[tuple[int, Buffer]]
    remote_of: dict[ChannelType, list[int]] = field(default_factory=dict)
    switch_buffer: dict[int, Buffer] = field(default_factory=dict)

    def of_block(self, block: Fields) -> Tables:
        """Return the tables of a thread block, which has separate lists of channels and buffers."""
        own: dict[ChannelType, list[Channel]] = {}
        buffers: dict[int, Buffer] = {}
        for item in block.list("channels", optional=True):
            item.where = block.where
            kind = ChannelType(item.choice("channel_type", [kind.value for kind in ChannelType]))
            have = self.channels.get(kind, ())
            for number in item.integers("channel_ids", 0, MOST_CHUNKS):
                require(
                    number < len(have),
                    f"{block.where}: it uses {kind.value} channel {number}, but its rank has {len(have)}.",
                )
                if "buff" in item:
                    names = [buffer.value for buffer in Buffer]
                    buffers[len(own.get(kind, ()))] = Buffer(item.choice("buff", names))
                own.setdefault(kind, []).append(have[number])
        remote: dict[ChannelType, list[int]] = {}
        for item in block.list("remote_buffer_refs", optional=True):
            item.where = block.where
            kind = ChannelType(item.choice("access_channel_type", [kind.value for kind in ChannelType]))
            remote.setdefault(kind, []).extend(item.integers("remote_buffer_ids", 0, len(self.remote) - 1))
        return Tables(self.rank, own, self.remote, remote, buffers)

    def channel(self, kind: ChannelType, number: int, where: str) -> Channel:
        """Return the thread block's channel with the *number* among channels of *kind*."""
        have = self.channels.get(kind, ())
        require(
            0 <= number < len(have),
            f"{where}: it uses {kind.value} channel {number}, but its thread block has {len(have)}.",
        )
        return have[number]

    def region(self, item: Fields, kind: ChannelType, where: str) -> Region:
        """Return the region of an entry of src_buff or dst_buff."""
        item.where = where
        index = item.integer("index", 0, MOST_CHUNKS)
        count = item.integer("size", 1, MOST_CHUNKS)
        if "switch_channel_id" in item:
            number = item.integer("switch_channel_id", 0, MOST_CHUNKS)
            channel = self.channel(ChannelType.SWITCH, number, where)
            buffer = channel.buffer or self.switch_buffer.get(number)
            if buffer is None:
                raise ConfigError(f"{where}: switch channel {number} does not say which buffer it reaches.")
            return Region(channel.ranks, buffer, index, count)
        if "buffer_id" in item:
            number = item.integer("buffer_id", 0, MOST_CHUNKS)
            have = self.remote_of.get(kind, [])
            require(
                number < len(have),
                f"{where}: it uses remote buffer {number} over {kind.value} channels, but its thread block "
                f"has {len(have)}.",
            )
            rank, buffer = self.remote[have[number]]
            return Region((rank,), buffer, index, count)
        buffer = Buffer(item.choice("type", [buffer.value for buffer in Buffer]))
        return Region((self.rank,), buffer, index, count)


def read_op(item: Fields, path: tuple[int, ...], tables: Tables, semaphores: int) -> Op:
    """Return the op at *path*; raises `ConfigError` for an op that no executor supports."""
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
            barrier=item.integer("barrier_id", 0, MOST_CHUNKS),
            barrier_blocks=item.integer("num_threadblocks", 1, MOST_CHUNKS),
        )
    if name in {"sem_acquire", "sem_release"}:
        return Op(name, path, semaphores=tuple(item.integers("semaphore_ids", 0, semaphores - 1)))
    if name == "nop":
        return Op(name, path)
    kind = (
        ChannelType(item.choice("channel_type", [kind.value for kind in ChannelType]))
        if ("channel_type" in item)
        else ChannelType.MEMORY
    )
    if name in _CHANNELS:
        numbers = item.integers("channel_ids", 0, MOST_CHUNKS)
        require(bool(numbers), f"{item.where}: it names no channel.")
        return Op(name, path, channels=tuple(tables.channel(kind, n, item.where) for n in numbers))
    return _data_op(item, name, path, tables, kind)


def _data_op(item: Fields, name: str, path: tuple[int, ...], tables: Tables, kind: ChannelType) -> Op:
    where = item.where
    sources = tuple(tables.region(part, kind, where) for part in item.list("src_buff"))
    destinations = tuple(tables.region(part, kind, where) for part in item.list("dst_buff"))
    require(bool(sources) and bool(destinations), f"{where}: it moves data from or to nowhere.")
    sizes = {region.count for region in (*sources, *destinations)}
    sources, destinations = _as_executed(name, kind, sources, destinations, where)
    pairs = zip(sources, destinations, strict=False)  # a reduction may have any number of sources
    require(
        len(sizes) == 1 if name in _SUMS else all(a.count == b.count for a, b in pairs),
        f"{where}: its sources and destinations are of different sizes.",
    )
    numbers = item.integers("channel_ids", 0, MOST_CHUNKS) if "channel_ids" in item else []
    channels = tuple(tables.channel(kind, number, where) for number in numbers)
    if not channels:
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

    Raises `ConfigError` for sources and destinations that the executor would ignore.
    """
    if name in _READ_SCRATCH:  # this op reads packets only from the scratch buffer
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
    if name not in _SUMS:
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
    return sources, destinations


def _channels_to(
    tables: Tables, kind: ChannelType, rank: int, regions: Sequence[Region], where: str
) -> tuple[Channel, ...]:
    """Return the thread block's channels to the remote ranks of *regions*, one channel per rank."""
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
    chunks = context.integer("num_chunks", 1, MOST_CHUNKS)
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
