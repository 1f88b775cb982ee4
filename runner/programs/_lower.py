"""Convert a program to messages with dependencies, which every backend and ASTRA-sim can run.

* A put, a send or a packet becomes a message to the rank that owns the filled buffer. The thread block
  continues immediately, but its messages to one peer are sent in order.
* A signal right after data to the same peer travels with the data. Other signals are separate messages.
* Reading another rank's buffer (a get, or a reduction that reads) becomes a request and a reply.
* A multicast by the switch becomes one message per rank, and an in-network reduction one read per rank.
* Reductions and copies take the time to read and write their bytes at local memory bandwidth.
* The protocol LL sends twice the bytes (8 of 16 bytes are flags). LL128 sends 128 bytes for 120 bytes.
* An XML whose chunks exceed an NCCL slot runs in rounds: the thread blocks repeat all steps for each part
  of the chunks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...errors import ConfigError
from ...support import bytes_text
from ._model import CONTROL_OPS, MESSAGE_OPS, SIGNALS, SUMS, WAITS, Channel, Op, Program, Region, ThreadBlock
from ._sizes import SLOT_BYTES, Rounds, Sizes

CONTROL_BYTES = 8
_MAX_STEPS = 1 << 20
_READS = {"get", "rre", "rres", "glres"}
_SWITCH = {"gstore", "gstorepkt", "glres"}


@dataclass(frozen=True, slots=True)
class Message:
    """A node of a rank: a ``send`` or a ``receive`` of some bytes, or ``local`` work on them.

    Local work moves its bytes *passes* times; a reduction reads twice and writes once. *after* are
    the numbers of the rank's nodes that must precede it. *tag* is unique to a message and the same
    at both ends. *place* is the (thread block, op) from which the node comes.
    """

    kind: str
    peer: int
    size_bytes: int
    tag: int
    after: tuple[int, ...]
    place: tuple[int, str]
    passes: int = 0


@dataclass(frozen=True)
class Lowered:
    """A program as messages: the nodes of each rank for one size, and notes on approximations.

    *rounds* is the number of repetitions of the steps of an XML, each for another part of the chunks.
    """

    program: Program
    size_bytes: int
    ranks: tuple[tuple[Message, ...], ...]
    remarks: tuple[str, ...] = ()
    rounds: int = 1


def lower(program: Program, size_bytes: int) -> Lowered:
    """Return the messages of *program* for a collective of *size_bytes*, counted as ASTRA-sim does.

    Raises `ConfigError` for a size that the chunks do not divide or that takes too many rounds, and
    for a program that deadlocks.
    """
    return _Lowering(program, Sizes(program, size_bytes)).run()


@dataclass
class _Frontier:
    """The dependencies of a thread block's next op: nodes of the rank, and data in flight to other ranks."""

    nodes: dict[int, None] = field(default_factory=dict)
    pending: dict[int, dict[int, None]] = field(default_factory=dict)  # pending receives by peer

    def join(self, other: _Frontier) -> None:
        self.nodes.update(other.nodes)
        for peer, receives in other.pending.items():
            self.pending.setdefault(peer, {}).update(receives)

    def copy(self) -> _Frontier:
        return _Frontier(dict(self.nodes), {peer: dict(nodes) for peer, nodes in self.pending.items()})


@dataclass
class _Block:
    rank: int
    block: ThreadBlock
    ops: list[tuple[Op, int]]  # each op with its iteration or round (-1: none)
    at: int = 0
    part: int = 0
    arrived: int = -1
    frontier: _Frontier = field(default_factory=_Frontier)
    last_send: dict[int, int] = field(default_factory=dict)
    stale: set[int] = field(default_factory=set)  # peers to which data can no longer carry a signal


class _Lowering:
    def __init__(self, program: Program, sizes: Sizes) -> None:
        self.program = program
        self.sizes = sizes
        self.nodes: list[list[Message]] = [[] for _ in program.ranks]
        self.tags = 0
        self.tokens: dict[tuple[object, ...], deque[_Frontier]] = defaultdict(deque)
        self.cells: dict[tuple[int, str, int, int], dict[int, None]] = {}
        self.messages: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
        self.ended: dict[tuple[int, int, int], _Frontier] = {}
        self.lengths = {
            (rank.rank, block.id): len(block.ops) for rank in program.ranks for block in rank.thread_blocks
        }
        self.awaited = program.awaited()
        self.barriers: dict[tuple[int, int], list[_Frontier]] = defaultdict(list)
        self.opened: dict[tuple[int, int], list[_Frontier]] = defaultdict(list)
        self.waiting: dict[tuple[object, ...], list[_Block]] = defaultdict(list)
        self.ready: deque[_Block] = deque()
        self.remarks: dict[str, None] = {}
        self.rounds = Rounds(sizes, SLOT_BYTES.get(program.protocol, SLOT_BYTES["Simple"]))
        self.turns = self.rounds.count if program.language == "msccl" else 1
        if self.turns > 1:
            self._go_in_rounds()
        for rank in program.ranks:
            for number, value in enumerate(rank.semaphores):
                free = (_Frontier() for _ in range(value))
                self.tokens["semaphore", rank.rank, number].extend(free)
            for block in rank.thread_blocks:
                self.ready.append(_Block(rank.rank, block, self._unrolled(rank.rank, block)))

    def _go_in_rounds(self) -> None:
        """Note that the program runs in rounds; raises `ConfigError` for too many steps."""
        program, turns = self.program, self.turns
        if turns * program.num_ops > _MAX_STEPS:
            raise ConfigError(
                f"{program.source}: {turns} rounds of {program.num_ops} steps are more than the "
                f"{_MAX_STEPS} messages that can be made of {bytes_text(self.sizes.size_bytes)}; use the "
                "protocol Simple, more chunks, or a smaller collective."
            )
        self.remarks[
            "Programs that pass messages processed chunks larger than an NCCL slot "
            f"({bytes_text(self.rounds.slot_bytes)} with {program.protocol}) in rounds."
        ] = None

    def _unrolled(self, rank: int, block: ThreadBlock) -> list[tuple[Op, int]]:
        """Return each op of a thread block with its iteration, or its round in an XML."""
        if self.program.language == "msccl":
            return [(op, turn) for turn in range(self.turns) for op in block.ops]
        return list(self.sizes.unrolled(rank, block))

    def run(self) -> Lowered:
        """Convert all thread blocks; return the nodes of every rank."""
        while self.ready:
            block = self.ready.popleft()
            while block.at < len(block.ops):
                awaited = self._advance(block, *block.ops[block.at])
                if awaited is not None:
                    self.waiting[awaited].append(block)
                    break
                step = block.at % self.lengths[block.rank, block.block.id]
                if (block.rank, block.block.id, step) in self.awaited:
                    self.ended[block.rank, block.block.id, block.at] = block.frontier.copy()
                    self._wake(("step", block.rank, block.block.id, block.at))
                block.at += 1
                block.part = 0
                block.arrived = -1
        stuck = [block for blocks in self.waiting.values() for block in blocks]
        if stuck:
            op = stuck[0].ops[stuck[0].at][0]
            raise ConfigError(
                f"{self.program.where(stuck[0].rank, stuck[0].block.id, op)}: it waits forever; "
                "'chakrascope algorithm prove' shows why."
            )
        for nodes in self.nodes:
            if not nodes:  # a rank without work still needs a node
                nodes.append(Message("local", -1, 0, 0, (), (-1, "-")))
        return Lowered(
            self.program,
            self.sizes.size_bytes,
            tuple(tuple(nodes) for nodes in self.nodes),
            tuple(self.remarks),
            self.turns,
        )

    def _wake(self, what: tuple[object, ...]) -> None:
        self.ready.extend(self.waiting.pop(what, ()))

    def _add(self, rank: int, message: Message) -> int:
        self.nodes[rank].append(message)
        return len(self.nodes[rank]) - 1

    def _message(self, block: _Block, op: Op, peer: int, size: int) -> int:
        """Add a message of *size* bytes to *peer*; return the number of its receive node there."""
        self.tags += 1
        place = (block.block.id, op.place)
        after = dict(block.frontier.nodes)
        if peer in block.last_send:
            after[block.last_send[peer]] = None
        send = self._add(block.rank, Message("send", peer, max(1, size), self.tags, tuple(after), place))
        block.last_send[peer] = send
        receive = self._add(peer, Message("receive", block.rank, max(1, size), self.tags, (), place))
        block.frontier.pending.setdefault(peer, {})[receive] = None
        block.stale.discard(peer)
        return receive

    def _read(self, block: _Block, op: Op, peer: int, size: int) -> int:
        """Add a request for *size* bytes to *peer* and its reply; return the number of the receive node."""
        self.tags += 2
        place = (block.block.id, op.place)
        after = tuple(block.frontier.nodes)
        ask, answer, size = self.tags - 1, self.tags, max(1, size)
        self._add(block.rank, Message("send", peer, CONTROL_BYTES, ask, after, place))
        asked = self._add(peer, Message("receive", block.rank, CONTROL_BYTES, ask, (), place))
        self._add(peer, Message("send", block.rank, size, answer, (asked,), place))
        return self._add(block.rank, Message("receive", peer, size, answer, (), place))

    def _local(self, block: _Block, op: Op, passes: int, size: int, also: Iterable[int] = ()) -> int:
        """Add local work that follows all earlier work and the nodes *also*, and that the block waits for."""
        after = dict(block.frontier.nodes) | dict.fromkeys(also)
        place = (block.block.id, op.place)
        node = self._add(block.rank, Message("local", -1, size, 0, tuple(after), place, passes))
        self._past(block, {node: None})
        return node

    def _past(self, block: _Block, nodes: dict[int, None]) -> None:
        """Let the thread block depend only on *nodes*; earlier data can no longer carry later signals."""
        block.frontier.nodes = nodes
        block.stale.update(block.frontier.pending)

    def _wait_for(self, block: _Block, nodes: Iterable[int]) -> None:
        fresh = [node for node in nodes if node not in block.frontier.nodes]
        if fresh:
            block.frontier.nodes.update(dict.fromkeys(fresh))
            block.stale.update(block.frontier.pending)

    def _advance(self, block: _Block, op: Op, turn: int) -> tuple[object, ...] | None:
        if op.after is not None:
            other, place = op.after
            key = (block.rank, other, turn * self.lengths[block.rank, other] + place)
            if key not in self.ended:
                return ("step", *key)
            self._wait_for(block, self.ended[key].nodes)
        if self.program.language == "msccl":
            return self._step(block, op, turn)
        if op.name == "barrier":
            return self._barrier(block, op)
        if op.name in WAITS or op.name == "sem_acquire":
            return self._take(block, op)
        if op.name not in CONTROL_OPS:
            awaited = self._data(block, op, turn)
            if awaited is not None:
                return awaited
        if op.name in SIGNALS:
            for channel in op.channels:
                self._signal(block, op, channel)
            if op.name == "pwsf":
                self._wait_for(block, [block.last_send[channel.peer] for channel in op.channels])
        elif op.name == "sem_release":
            for number in op.semaphores:
                self._give(("semaphore", block.rank, number), block.frontier.copy())
        return None

    def _give(self, token: tuple[object, ...], frontier: _Frontier) -> None:
        self.tokens[token].append(frontier)
        self._wake(token)

    def _signal(self, block: _Block, op: Op, channel: Channel) -> None:
        peer = channel.peer
        if not block.frontier.pending.get(peer) or peer in block.stale:
            self._message(block, op, peer, CONTROL_BYTES)
        came = block.frontier.pending.pop(peer)
        self._give(channel.outgoing, _Frontier(came))

    def _take(self, block: _Block, op: Op) -> tuple[object, ...] | None:
        tokens = [channel.incoming for channel in op.awaited]
        tokens += [("semaphore", block.rank, number) for number in op.semaphores]
        while block.part < len(tokens):
            token = tokens[block.part]
            if not self.tokens[token]:
                return token
            given = self.tokens[token].popleft()
            self._wait_for(block, given.nodes)
            for peer, receives in given.pending.items():
                block.frontier.pending.setdefault(peer, {}).update(receives)
            block.part += 1
        return None

    def _barrier(self, block: _Block, op: Op) -> tuple[object, ...] | None:
        key = (block.rank, op.barrier)
        if block.arrived < 0:
            block.arrived = len(self.opened[key])
            self.barriers[key].append(block.frontier.copy())
            if len(self.barriers[key]) == op.barrier_blocks:
                together = _Frontier()
                for frontier in self.barriers.pop(key):
                    together.join(frontier)
                self.opened[key].append(together)
                self._wake(("barrier", *key, block.arrived))
        if block.arrived >= len(self.opened[key]):
            return ("barrier", *key, block.arrived)
        together = self.opened[key][block.arrived]
        self._wait_for(block, together.nodes)
        fresh = together.pending.keys() - block.frontier.pending.keys()
        block.frontier.join(together.copy())
        block.stale -= fresh
        return None

    def _step(self, block: _Block, op: Op, turn: int) -> tuple[object, ...] | None:
        """Convert a step of an XML in one round: receive, reduce and send the data of each slot."""
        parts = MESSAGE_OPS.get(op.name, ())
        size = self.rounds.piece(op, turn)
        pieces = self.rounds.messages(size) if parts else [size]
        while block.part < len(pieces):
            awaited = self._piece(block, op, parts, pieces[block.part])
            if awaited is not None:
                return awaited
            block.part += 1
        return None

    def _piece(self, block: _Block, op: Op, parts: tuple[str, ...], size: int) -> tuple[object, ...] | None:
        """Convert a step of an XML for the data of one slot."""
        if "receive" in parts:
            connection = (block.block.receive, block.rank, block.block.channel)
            if not self.messages[connection]:
                return ("message", *connection)
            came = self.messages[connection].popleft()
            size = self._xml_size(self.nodes[block.rank][came].size_bytes)
            self._wait_for(block, [came])
        if "reduce" in parts or op.name == "re":
            self._local(block, op, 3, size)
        elif op.name == "cpy":
            self._local(block, op, 2, size)
        if "send" in parts:
            connection = (block.rank, block.block.send, block.block.channel)
            receive = self._message(block, op, block.block.send, self._flagged(size, self.program.protocol))
            self.messages[connection].append(receive)
            self._wake(("message", *connection))
        return None

    def _xml_size(self, sent: int) -> int:
        if self.program.protocol == "LL":
            return sent // 2
        return sent * 120 // 128 if self.program.protocol == "LL128" else sent

    @staticmethod
    def _flagged(size: int, protocol: str) -> int:
        if protocol == "LL":
            return 2 * size
        return -(-size // 120) * 128 if protocol == "LL128" else size

    def _data(self, block: _Block, op: Op, turn: int) -> tuple[object, ...] | None:
        """Convert an op of a plan that moves data."""
        came: dict[int, None] = {}
        for region in op.packet_sources:
            for cell in self.sizes.cells(region, turn):
                if cell not in self.cells:
                    return ("cell", *cell)
                came.update(self.cells[cell])
        if op.name in _SWITCH:
            self.remarks["The switch's multicast and reduction became messages between ranks."] = None
        if op.name in SUMS:
            self._sum(block, op, turn, came)
        else:
            self._copy(block, op, turn, came)
        return None

    def _copy(self, block: _Block, op: Op, turn: int, came: dict[int, None]) -> None:
        """Convert an op of a plan that copies source k to destination k."""
        if came:
            self._wait_for(block, came)
        _, flags = op.packet_flags
        for source, target, flagged in zip(op.sources, op.destinations, flags, strict=True):
            size = self.sizes.of(op, source, turn, target)
            if op.name == "get":
                self._wait_for(block, [self._read(block, op, source.ranks[0], size)])
                continue
            self._store(block, op, target, size, turn, flagged, copied=True)

    def _store(  # noqa: PLR0917 - all of one transfer
        self, block: _Block, op: Op, target: Region, size: int, turn: int, flagged: bool, copied: bool
    ) -> None:
        """Store *size* bytes in *target*; a local copy takes time, storing a local sum does not."""
        for rank in target.ranks:
            if rank != block.rank:
                node = self._message(block, op, rank, 2 * size if flagged else size)
            elif copied and len(target.ranks) == 1:
                node = self._local(block, op, 2, size)
            else:
                node = max(block.frontier.nodes, default=-1)
            if flagged:
                one = Region((rank,), target.buffer, target.index, target.count)
                for cell in self.sizes.cells(one, turn):
                    self.cells.setdefault(cell, {}).update({node: None} if node >= 0 else {})
                    self._wake(("cell", *cell))

    def _sum(self, block: _Block, op: Op, turn: int, came: dict[int, None]) -> None:
        """Convert an op of a plan that sums all sources into every destination."""
        size = max(self.sizes.of(op, region, turn) for region in (*op.sources, *op.destinations))
        read = dict(came)
        sources = 0
        for source in op.sources:
            for rank in source.ranks:
                sources += 1
                if rank != block.rank and op.name in _READS:
                    read[self._read(block, op, rank, size)] = None
        self._local(block, op, sources + 1, size, read)
        for target, flagged in zip(op.destinations, op.packet_flags[1], strict=True):
            self._store(block, op, target, size, turn, flagged, copied=False)
