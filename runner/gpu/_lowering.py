"""Convert MSCCL++ plans and MSCCL XML to operations of workgroups.

Plans of MSCCL++:

* Data ops load all sources, sum the sources, and store the sum to all destinations, line by line.
* Packets are data with flags. Packets take twice the space. Readers wait for the flags, so no signal is
  needed. A fence precedes a signal after other data, except for a relaxed signal.
* A proxy carries out transfers over a port channel.
* A semaphore is a counter. Each direction of a channel is a counter at the rank that waits.

MSCCL XML, with messages like NCCL's primitives: a connection has slots in the memory of the receiving rank.
A sender waits for a free slot, stores data into the slot and notifies the receiver. The protocol Simple
notifies by a fence and a flag after the data. The protocols LL and LL128 notify by flags in the data. The
receiver reads the slot and then frees the slot. Chunks larger than a slot are sent in rounds. In each round,
all thread blocks repeat their steps for the data of one slot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...errors import ConfigError, did_you_mean
from .. import engine
from ..programs import (
    MESSAGE_OPS,
    SIGNALS,
    SUMS,
    WAITS,
    AlikeRanks,
    Channel,
    ChannelType,
    Op,
    Program,
    Region,
    Rounds,
    Sizes,
    ThreadBlock,
)
from ._machine import LINE_BYTES, Machine

FLAGGED = 2.0
_Cell = tuple[int, str, int, int]
_Source = tuple[int, int, int, tuple[int, ...]]
"""An op in its round: rank, thread block, round, place."""


class _Lowering:
    """Writes a program's operations for one size and machine; *nodes* has the node of each rank's GPU."""

    def __init__(self, program: Program, sizes: Sizes, machine: Machine, nodes: Sequence[int]) -> None:
        self.program = program
        self.sizes = sizes
        self.machine = machine
        self.nodes = nodes
        self.places = Places()
        self.period = self._period()
        self.ranks = [RankWriter(rank, self.places) for rank in range(self.period)]
        self.groups: dict[tuple[int, ...], int] = {}

    def _period(self) -> int:
        """Return the number of ranks to write; each further rank does what the rank *period* before does."""
        count = self.program.num_ranks
        if not isinstance(self.program.ranks, AlikeRanks) or not self.sizes.equal:
            return count
        nodes = list(dict.fromkeys(self.nodes))
        if len(nodes) == 1:
            return 1
        each = count // len(nodes)
        return each if list(self.nodes) == [node for node in nodes for _ in range(each)] else count


class PlanLowering(_Lowering):
    """Writes the operations of a plan."""

    def __init__(self, program: Program, sizes: Sizes, machine: Machine, nodes: Sequence[int]) -> None:
        super().__init__(program, sizes, machine, nodes)
        # The counters of packets by destination chunk, with the op that writes the packets and its share.
        self.packets: dict[_Cell, list[tuple[int, _Source, tuple[int, int]]]] = defaultdict(list)
        self.written: dict[tuple[_Source, int], int] = {}

    def run(self) -> list[RankWriter]:
        """Write the operations of all ranks."""
        for rank in self.program.ranks:
            for number, value in enumerate(rank.semaphores):
                self.ranks[rank.rank].counter(("semaphore", number), value)
            for block in rank.thread_blocks:
                self._find_packets(rank.rank, block)
        per_wavefront = self.machine.compute.wavefront_threads
        for rank in self.program.ranks:
            for block in rank.thread_blocks:
                threads = block.threads or self.program.threads_per_block or per_wavefront
                self.ranks[rank.rank].begin_block(max(1, threads // per_wavefront))
                for op, turn in self.sizes.unrolled(rank.rank, block):
                    self._op(self.ranks[rank.rank], block, op, turn)
        return self.ranks

    # Packets.

    def _find_packets(self, rank: int, block: ThreadBlock) -> None:
        """Create a counter at the destination rank for each region that receives packets."""
        for op, turn in self.sizes.unrolled(rank, block):
            packets = zip(op.destinations, op.packet_flags[1], strict=True)
            for number, (region, flagged) in enumerate(packets):
                if flagged:
                    writes = (rank, block.id, turn, op.path)
                    counter = self._common_counter(region.ranks)
                    self.written[writes, number] = counter
                    for cell in self.sizes.cells(region, turn):
                        self.packets[cell].append((counter, writes, op.share))

    def _common_counter(self, ranks: Sequence[int]) -> int:
        """Return the number of a new counter that exists on all *ranks*."""
        number = max(len(self.ranks[rank].values) for rank in ranks)
        for rank in ranks:
            values = self.ranks[rank].values
            values.extend([0] * (number + 1 - len(values)))
        return number

    def _await_packets(self, writer: RankWriter, block: ThreadBlock, op: Op, turn: int) -> None:
        """Wait for the packets that *op* reads, except packets that *op* or a later op writes."""
        reads = (writer.rank, block.id, turn, op.path)
        wanted: dict[int, None] = {}
        for region in op.packet_sources:
            for cell in self.sizes.cells(region, turn):
                for counter, writes, share in self.packets.get(cell, ()):
                    if _meet(share, op.share) and not (writes[:2] == reads[:2] and writes >= reads):
                        wanted[counter] = None
        if wanted:
            writer.await_([(writer.rank, counter, 1) for counter in wanted])

    # Ops.

    def _op(self, writer: RankWriter, block: ThreadBlock, op: Op, turn: int) -> None:
        writer.at(op, turn)
        name = op.name
        if name == "nop":
            writer.add(engine.GpuOp.SYNC)
        elif name == "barrier":
            counter = writer.counter(("barrier", op.barrier))
            writer.add(engine.GpuOp.BARRIER, uses=[(writer.rank, counter, op.barrier_blocks)])
        elif name in {"signal", "rlxsignal"}:
            self._signal(writer, block, op)
        elif name in WAITS:
            self._wait(writer, op)
        elif name == "sem_acquire":
            writer.take([(writer.rank, writer.counter(("semaphore", n)), 1) for n in op.semaphores])
        elif name == "sem_release":
            writer.signal([(writer.rank, writer.counter(("semaphore", n)), 1) for n in op.semaphores])
        elif name in SUMS:
            self._sum(writer, block, op, turn)
        elif name != "flush":  # the executor (execution_kernel.hpp) skips it, as it has no destinations
            self._copy(writer, block, op, turn)

    def _incoming(self, channel: Channel) -> int:
        """Return the counter on which the owner of *channel* waits."""
        return self.ranks[channel.rank].counter(channel.incoming)

    def _outgoing(self, channel: Channel) -> Use:
        return channel.peer, self._incoming(channel.other_end), 1

    def _signal(self, writer: RankWriter, block: ThreadBlock, op: Op) -> None:
        memory = [channel for channel in op.channels if channel.type is ChannelType.MEMORY]
        for channel in op.channels:
            if channel.type is ChannelType.PORT:
                peer, counter, _ = self._outgoing(channel)
                writer.proxy(0, (peer, -1, 1.0, counter))
        for channel in memory:
            self._check_reach(writer.rank, block, op, channel.peer)
        if memory:
            if op.name == "signal":
                writer.add(engine.GpuOp.FENCE)
            writer.signal([self._outgoing(channel) for channel in memory])

    def _wait(self, writer: RankWriter, op: Op) -> None:
        """Wait for signals; a switch adds the round trip of the last poll."""
        writer.take([(writer.rank, self._incoming(channel), 1) for channel in op.awaited])
        for channel in op.channels:
            if channel.type is ChannelType.SWITCH:
                writer.data(LINE_BYTES, [(-1, self._group(channel.ranks), 1.0, -1)], [])

    def _copy(self, writer: RankWriter, block: ThreadBlock, op: Op, turn: int) -> None:
        """Write an op that copies source k to destination k."""
        self._await_packets(writer, block, op, turn)
        for number, (source, target) in enumerate(zip(op.sources, op.destinations, strict=True)):
            size = self.sizes.of(op, source, turn, target)
            into = self._target(writer, block, op, turn, number)
            if op.by_port:
                counter = self._outgoing(op.channels[number])[1] if op.name in SIGNALS else into[3]
                writer.proxy(size, (into[0], -1, into[2], counter))
            else:
                writer.data(size, [self._source(writer, block, op, source, number)], [into])
        if op.name == "pwsf":
            writer.add(engine.GpuOp.FLUSH)

    def _sum(self, writer: RankWriter, block: ThreadBlock, op: Op, turn: int) -> None:
        """Write an op that sums all sources into every destination."""
        self._await_packets(writer, block, op, turn)
        size = max(self.sizes.of(op, region, turn) for region in (*op.sources, *op.destinations))
        sources = [self._source(writer, block, op, region, n) for n, region in enumerate(op.sources)]
        targets = [self._target(writer, block, op, turn, n) for n in range(len(op.destinations))]
        writer.data(size, sources, targets)

    def _source(self, writer: RankWriter, block: ThreadBlock, op: Op, region: Region, number: int) -> Access:
        wire = FLAGGED if op.packet_flags[0][number] else 1.0
        return self._access(writer, block, op, region, wire, -1)

    def _target(self, writer: RankWriter, block: ThreadBlock, op: Op, turn: int, number: int) -> Access:
        counter = self.written.get(((writer.rank, block.id, turn, op.path), number), -1)
        wire = FLAGGED if counter >= 0 else 1.0
        return self._access(writer, block, op, op.destinations[number], wire, counter)

    def _access(  # noqa: PLR0917 - all of one access
        self, writer: RankWriter, block: ThreadBlock, op: Op, region: Region, wire: float, counter: int
    ) -> Access:
        if len(region.ranks) == 1:
            if not op.by_port:
                self._check_reach(writer.rank, block, op, region.ranks[0])
            return region.ranks[0], -1, wire, counter
        if not self.machine.scale_up.multicast:
            raise ConfigError(
                f"{self.program.where(writer.rank, block.id, op)}: it needs a switch that multicasts and "
                f"reduces, but the machine '{self.machine.name}' has none (scale_up.multicast); choose a "
                "program without switch channels."
            )
        for rank in region.ranks:
            self._check_reach(writer.rank, block, op, rank)
        return -1, self._group(region.ranks), wire, counter

    def _group(self, ranks: tuple[int, ...]) -> int:
        """Return the number of a group of ranks at the switch."""
        return self.groups.setdefault(ranks, len(self.groups))

    def _check_reach(self, rank: int, block: ThreadBlock, op: Op, peer: int) -> None:
        if self.nodes[rank] != self.nodes[peer]:
            raise ConfigError(
                f"{self.program.where(rank, block.id, op)}: loads and stores reach rank {peer} only within a "
                f"node, and nodes of the machine '{self.machine.name}' have {self.machine.scale_up.gpus} "
                "GPUs; use a program with port channels between nodes, or raise scale_up.gpus."
            )


def _meet(first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Return whether two shares of a chunk (the k-th of n parts) overlap."""
    return (
        first[0] * second[1] < (second[0] + 1) * first[1]
        and second[0] * first[1] < (first[0] + 1) * second[1]
    )


# The bytes that each protocol stores per byte of data.
WIRE = {"Simple": 1.0, "LL": 2.0, "LL128": 128 / 120}
_MAX_STEPS = 1 << 22


class StepLowering(_Lowering):
    """Writes the operations of an MSCCL XML."""

    def __init__(self, program: Program, sizes: Sizes, machine: Machine, nodes: Sequence[int]) -> None:
        super().__init__(program, sizes, machine, nodes)
        if program.protocol not in machine.protocols:
            raise ConfigError(
                f"{program.source}: the machine '{machine.name}' has no figures for the protocol "
                f"'{program.protocol}'{did_you_mean(program.protocol, machine.protocols)}"
            )
        self.protocol = machine.protocols[program.protocol]
        self.wire = WIRE[program.protocol]
        self.flags = program.protocol != "Simple"
        self.wavefronts = max(1, self.protocol.threads // machine.compute.wavefront_threads)
        self.rounds = Rounds(sizes, self.protocol.slot_bytes)

    def run(self) -> list[RankWriter]:
        """Write the operations of all ranks."""
        alike = self.period < self.program.num_ranks
        ranks = self.program.ranks[: 1 if alike else None]
        steps = sum(len(block.ops) for rank in ranks for block in rank.thread_blocks)
        if self.rounds.count * steps * self.program.num_ranks // len(ranks) > _MAX_STEPS:
            raise ConfigError(
                f"{self.program.source}: {self.rounds.count} rounds of {self.program.num_ops} steps are more "
                f"than the {_MAX_STEPS} that can be simulated; make the slots of the machine's protocol "
                f"'{self.program.protocol}' larger, or the collective smaller."
            )
        for writer in self.ranks:
            rank = ranks[0 if alike else writer.rank]
            awaited = {op.after for block in rank.thread_blocks for op in block.ops}
            for block in rank.thread_blocks:
                self._block(writer, self._shifted(block, writer.rank) if alike else block, awaited)
        return self.ranks

    def _shifted(self, block: ThreadBlock, shift: int) -> ThreadBlock:
        """Return what a thread block of rank 0 is on rank *shift*."""
        count = self.program.num_ranks
        send, receive = (end if end < 0 else (end + shift) % count for end in (block.send, block.receive))
        return replace(block, send=send, receive=receive)

    def _block(self, writer: RankWriter, block: ThreadBlock, awaited: set[tuple[int, int] | None]) -> None:
        writer.begin_block(self.wavefronts)
        # Most steps of a block differ only in the chunk.
        known: dict[tuple[str, int, int, int], list[_Operation]] = {}
        for turn in range(self.rounds.count):
            for place, op in enumerate(block.ops):
                writer.at(op, turn if self.rounds.count > 1 else -1)
                if op.after is not None:
                    progress = writer.counter(("step", *op.after))
                    writer.await_([(writer.rank, progress, turn + 1)])
                size = self.rounds.piece(op, turn)
                key = (op.name, size, len(op.sources), len(op.destinations))
                if key in known:
                    writer.repeat(known[key])
                else:
                    known[key] = self._step(writer, block, op, size)
                if (block.id, place) in awaited:
                    step = writer.counter(("step", block.id, place))
                    writer.signal([(writer.rank, step, 1)])

    def _counter(  # noqa: PLR0917 - an end of a connection
        self, owner: int, name: str, sender: int, receiver: int, channel: int, value: int = 0
    ) -> int:
        """Return the counter of rank *owner* for a connection; *name* is data or room."""
        count = self.program.num_ranks
        shift = owner - owner % self.period
        key = (name, (sender - shift) % count, (receiver - shift) % count, channel)
        return self.ranks[owner - shift].counter(key, value)

    def _step(self, writer: RankWriter, block: ThreadBlock, op: Op, size: int) -> list[_Operation]:
        """Write a step that moves *size* bytes, and return its operations."""
        operations = writer.blocks[-1][1]
        first = len(operations)
        parts = MESSAGE_OPS.get(op.name, ())
        if parts:
            for piece in self.rounds.messages(size):
                self._message(writer, block, op, parts, piece)
        elif op.name in {"cpy", "re"}:
            own = (writer.rank, -1, 1.0, -1)
            writer.data(size, [own] * len(op.sources), [own] * len(op.destinations))
        return operations[first:]

    def _message(
        self, writer: RankWriter, block: ThreadBlock, op: Op, parts: tuple[str, ...], size: int
    ) -> None:
        """Receive and send the data of one slot: wait for the two peers, move the data, notify the peers."""
        if self.protocol.message_ns > 0:
            writer.add(engine.GpuOp.PAUSE, ns=self.protocol.message_ns)
        own: Access = (writer.rank, -1, 1.0, -1)
        sources = [own] * len(op.sources)
        targets = [own] * len(op.destinations)
        waits = []
        if "receive" in parts:
            came = self._counter(writer.rank, "data", block.receive, writer.rank, block.channel)
            waits.append((writer.rank, came, 1))
            sources.append((writer.rank, -1, self.wire, -1))
        if "send" in parts:
            ends = (writer.rank, block.send, block.channel)
            room = self._counter(writer.rank, "room", *ends, self.protocol.slots)
            waits.append((writer.rank, room, 1))
        if waits:
            writer.take(waits)
        if "send" in parts:
            self._send(writer, block, size, sources, targets)
        else:
            writer.data(size, sources, targets)
        if "receive" in parts:
            self._give_back(writer, block)

    def _send(
        self, writer: RankWriter, block: ThreadBlock, size: int, sources: list[Access], targets: list[Access]
    ) -> None:
        peer = block.send
        came = self._counter(peer, "data", writer.rank, peer, block.channel)
        if self.nodes[writer.rank] != self.nodes[peer]:
            # The data is stored in the memory from which the proxy sends.
            writer.data(size, sources, [*targets, (writer.rank, -1, self.wire, -1)])
            writer.proxy(size, (peer, -1, self.wire, came))
        elif self.flags:
            writer.data(size, sources, [*targets, (peer, -1, self.wire, came)])
        else:
            writer.data(size, sources, [*targets, (peer, -1, self.wire, -1)])
            writer.add(engine.GpuOp.FENCE)
            writer.signal([(peer, came, 1)])

    def _give_back(self, writer: RankWriter, block: ThreadBlock) -> None:
        sender = block.receive
        room = self._counter(sender, "room", sender, writer.rank, block.channel, self.protocol.slots)
        if self.nodes[writer.rank] != self.nodes[sender]:
            writer.proxy(0, (sender, -1, 1.0, room))
        else:
            writer.signal([(sender, room, 1)])


Access = tuple[int, int, float, int]
"""Rank, group of the switch, bytes moved per byte of data, counter to raise; -1 for none."""
Use = tuple[int, int, int]
"""Rank, counter, value."""
_Operation = tuple[engine.GpuOp, int, int, float, tuple[Access, ...], tuple[Access, ...], tuple[Use, ...]]


class Places:
    """Numbers the ops and rounds of a program; the engine labels operations with these numbers."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[tuple[int, ...], int], int] = {}

    def number(self, op: Op, turn: int) -> int:
        """Return the number of *op* in round *turn*."""
        return self.numbers.setdefault((op.path, turn), len(self.numbers))

    def names(self) -> list[tuple[str, int]]:
        """Return the name of the op and the round, in the order of their numbers."""
        return [(".".join(map(str, path)), turn) for path, turn in self.numbers]


@dataclass
class RankWriter:
    """Collects the operations of a rank's thread blocks, and the rank's counters by purpose."""

    rank: int
    places: Places
    counters: dict[Hashable, int] = field(default_factory=dict)
    values: list[int] = field(default_factory=list)
    blocks: list[tuple[int, list[_Operation]]] = field(default_factory=list)
    place: int = -1

    def counter(self, what: Hashable, value: int = 0) -> int:
        """Return the number of a counter; a new counter has the initial *value*."""
        if what not in self.counters:
            self.counters[what] = len(self.values)
            self.values.append(value)
        return self.counters[what]

    def begin_block(self, wavefronts: int) -> None:
        """Begin a new thread block for the following operations."""
        self.blocks.append((wavefronts, []))

    def at(self, op: Op, turn: int) -> None:
        """Attribute the following operations to *op* in round *turn*."""
        self.place = self.places.number(op, turn)

    def data(self, size_bytes: int, sources: Iterable[Access], targets: Iterable[Access]) -> None:
        """Add an operation that loads from all sources, reduces, and stores to all targets."""
        self.add(engine.GpuOp.DATA, size_bytes, sources=sources, targets=targets)

    def proxy(self, size_bytes: int, target: Access) -> None:
        """Add a request for a proxy to move data while the thread block continues."""
        self.add(engine.GpuOp.PROXY, size_bytes, targets=[target])

    def signal(self, uses: Iterable[Use]) -> None:
        """Add an operation that increases counters of any rank."""
        self.add(engine.GpuOp.SIGNAL, uses=uses)

    def take(self, uses: Iterable[Use]) -> None:
        """Add an operation that waits until counters of this rank reach values, and subtracts the values."""
        self.add(engine.GpuOp.TAKE, uses=uses)

    def await_(self, uses: Iterable[Use]) -> None:
        """Add an operation that waits until counters of this rank reach the given values."""
        self.add(engine.GpuOp.AWAIT, uses=uses)

    def add(
        self,
        kind: engine.GpuOp,
        size_bytes: int = 0,
        *,
        ns: float = 0.0,
        sources: Iterable[Access] = (),
        targets: Iterable[Access] = (),
        uses: Iterable[Use] = (),
    ) -> None:
        """Add an operation; a FENCE waits for the acknowledgements of stores, a FLUSH for the proxies."""
        # Tuples of numbers cost the garbage collector no time.
        operation = (kind, self.place, size_bytes, ns, tuple(sources), tuple(targets), tuple(uses))
        self.blocks[-1][1].append(operation)

    def repeat(self, operations: Iterable[_Operation]) -> None:
        """Add *operations* again, for the present op and round."""
        place = self.place
        self.blocks[-1][1].extend(
            (kind, place, size_bytes, ns, sources, targets, uses)
            for kind, _, size_bytes, ns, sources, targets, uses in operations
        )

    def requests(self, group_sizes: Mapping[int, int]) -> int:
        """Return the number of lines that all operations access, in each memory of a switch's group."""
        return sum(
            -(-int(size_bytes * wire) // LINE_BYTES) * group_sizes[group]
            for _, operations in self.blocks
            for kind, _, size_bytes, _, sources, targets, _ in operations
            if kind is engine.GpuOp.DATA
            for _, group, wire, _ in (*sources, *targets)
        )
