"""Convert MSCCL XML to operations of workgroups, with messages like NCCL's primitives.

A connection has slots in the memory of the receiving rank. A sender waits for a free slot, stores data into
the slot and notifies the receiver. The protocol Simple notifies by a fence and a flag after the data. The
protocols LL and LL128 notify by flags in the data. The receiver reads the slot and then frees the slot.
Chunks larger than a slot are sent in rounds. In each round, all thread blocks repeat their steps for the data
of one slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ConfigError, did_you_mean
from ..programs import MESSAGE_OPS, Op, Program, Rounds, Sizes, ThreadBlock
from ._machine import Machine
from ._operations import Access, Places, RankWriter

# The bytes that each protocol stores per byte of data.
WIRE = {"Simple": 1.0, "LL": 2.0, "LL128": 128 / 120}
_MOST_STEPS = 1 << 22


class StepLowering:
    """Writes the operations of an MSCCL XML for one size and machine; *nodes* are the nodes of the GPUs."""

    def __init__(self, program: Program, sizes: Sizes, machine: Machine, nodes: Sequence[int]) -> None:
        self.program = program
        self.nodes = nodes
        if program.protocol not in machine.protocols:
            raise ConfigError(
                f"{program.source}: the machine '{machine.name}' has no figures for the protocol "
                f"'{program.protocol}'{did_you_mean(program.protocol, machine.protocols)}"
            )
        self.protocol = machine.protocols[program.protocol]
        self.wire = WIRE[program.protocol]
        self.flags = program.protocol != "Simple"
        self.wavefronts = max(1, self.protocol.threads // machine.compute.wavefront_threads)
        self.groups: dict[tuple[int, ...], int] = {}
        self.places = Places()
        self.ranks = [RankWriter(rank.rank, self.places) for rank in program.ranks]
        self.awaited = program.awaited()
        self.rounds = Rounds(sizes, self.protocol.slot_bytes)

    def run(self) -> list[RankWriter]:
        """Write the operations of all ranks."""
        if self.rounds.count * self.program.num_ops > _MOST_STEPS:
            raise ConfigError(
                f"{self.program.source}: {self.rounds.count} rounds of {self.program.num_ops} steps are more "
                f"than the {_MOST_STEPS} that can be simulated; make the slots of the machine's protocol "
                f"'{self.program.protocol}' larger, or the collective smaller."
            )
        for rank in self.program.ranks:
            writer = self.ranks[rank.rank]
            for block in rank.thread_blocks:
                writer.begin_block(self.wavefronts)
                for turn in range(self.rounds.count):
                    for place, op in enumerate(block.ops):
                        self._step(writer, block, op, place, turn)
        return self.ranks

    def _step(self, writer: RankWriter, block: ThreadBlock, op: Op, place: int, turn: int) -> None:
        writer.at(op, turn if self.rounds.count > 1 else -1)
        if op.after is not None:
            progress = writer.counter(("step", *op.after))
            writer.await_([(writer.rank, progress, turn + 1)])
        size = self.rounds.piece(op, turn)
        parts = MESSAGE_OPS.get(op.name, ())
        if parts:
            for piece in self.rounds.messages(size):
                self._message(writer, block, op, parts, piece)
        elif op.name in {"cpy", "re"}:
            own = (writer.rank, -1, 1.0, -1)
            writer.data(size, [own] * len(op.sources), [own] * len(op.destinations))
        if (writer.rank, block.id, place) in self.awaited:
            writer.signal([(writer.rank, writer.counter(("step", block.id, place)), 1)])

    def _message(
        self, writer: RankWriter, block: ThreadBlock, op: Op, parts: tuple[str, ...], size: int
    ) -> None:
        """Receive and send the data of one slot: wait for the two peers, move the data, notify the peers."""
        writer.pause(self.protocol.message_ns)
        own: Access = (writer.rank, -1, 1.0, -1)
        sources = [own] * len(op.sources)
        targets = [own] * len(op.destinations)
        waits = []
        if "receive" in parts:
            key = (block.receive, writer.rank, block.channel)
            waits.append((writer.rank, self.ranks[writer.rank].counter(("data", *key)), 1))
            sources.append((writer.rank, -1, self.wire, -1))
        if "send" in parts:
            key = (writer.rank, block.send, block.channel)
            room = writer.counter(("room", *key), self.protocol.slots)
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
        came = self.ranks[peer].counter(("data", writer.rank, peer, block.channel))
        if self.nodes[writer.rank] != self.nodes[peer]:
            # The data is stored in the memory from which the proxy sends.
            writer.data(size, sources, [*targets, (writer.rank, -1, self.wire, -1)])
            writer.proxy(size, (peer, -1, self.wire, came))
        elif self.flags:
            writer.data(size, sources, [*targets, (peer, -1, self.wire, came)])
        else:
            writer.data(size, sources, [*targets, (peer, -1, self.wire, -1)])
            writer.fence()
            writer.signal([(peer, came, 1)])

    def _give_back(self, writer: RankWriter, block: ThreadBlock) -> None:
        sender = block.receive
        key = ("room", sender, writer.rank, block.channel)
        room = self.ranks[sender].counter(key, self.protocol.slots)
        if self.nodes[writer.rank] != self.nodes[sender]:
            writer.proxy(0, (sender, -1, 1.0, room))
        else:
            writer.signal([(sender, room, 1)])
