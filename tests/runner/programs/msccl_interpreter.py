"""Runs an MSCCL XML on integers as msccl-executor-nccl does, in random orders; nothing here is the product's.

Semantics: its msccl_parser.cc and msccl_kernel.cu (Azure/msccl-executor-nccl c6f6b36). Steps without effect
are dropped, reductions into one place fused, and flags of steps compared by "at least".
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from xml.etree import ElementTree

from random_schedule import GARBAGE, Key, Thread, Wrong, integers, run_threads

SLOTS = {"Simple": 2, "LL": 8, "LL128": 8}
SLOT_BYTES = {"Simple": 2 << 20, "LL": 32 << 10, "LL128": 576_000}
MOST_TOGETHER = 71
LOOPS = 2  # number of iterations over parts of its chunks
CALLS = 2
SENDS = {"s", "rcs", "rrs", "rrcs"}
RECEIVES = {"r", "rcs", "rrs", "rrc", "rrcs"}
MOST_FUSED = 16


@dataclass
class Transmission:
    """A step in the kernel's representation."""

    type: str
    source: tuple[str, int]
    target: tuple[str, int]
    count: int
    raises: bool
    waits: list[tuple[int, int]] = field(default_factory=list)
    others: list[int] = field(default_factory=list)  # offsets of the sources of a fused reduction


def transmissions(block: ElementTree.Element) -> list[Transmission]:
    """Return the steps of a thread block as the executor's parser creates them."""
    made: list[Transmission] = []
    waits: list[tuple[int, int]] = []
    chain: tuple[str, str, int] | None = None  # of a reduction that the next one may be fused with
    reductions = 0
    for step in block:
        get = step.get
        kind, depends = get("type"), int(get("depid", "-1"))
        if depends >= 0:
            waits.append((depends, int(get("deps", "-1"))))
        if kind == "nop":
            continue
        source = (get("srcbuf", ""), int(get("srcoff", "0")))
        target = (get("dstbuf", ""), int(get("dstoff", "0")))
        raises = get("hasdep") == "1"
        count = int(get("cnt", "0"))
        if kind == "re" and chain == (source[0], *target) and depends < 0:
            last = made[-1]
            last.others.append(source[1])
            last.count, last.raises = count, raises
        else:
            if waits and depends < 0:
                raise Wrong("the parser refuses a chain of dependencies without its end")
            made.append(Transmission(kind or "", source, target, count, raises, waits, [source[1]]))
            waits = []
        chain = None
        if kind == "re":
            reductions += 1
            if not raises and reductions != MOST_FUSED:
                chain = (source[0], *target)
    return made


class Machine:
    """The ranks of one program with their buffers, connections and flags."""

    def __init__(self, root: ElementTree.Element, random_: random.Random, seed: int) -> None:
        self.random, self.seed = random_, seed
        self.count = int(root.get("ngpus", "0"))
        self.chunks = int(root.get("nchunksperloop", "0"))
        self.collective = root.get("coll", "").replace("_", "")
        self.in_place = root.get("inplace", "1") == "1"
        if self.in_place and root.get("outofplace") == "1":
            self.in_place = random_.random() < 0.5
        self.slots = SLOTS[root.get("proto", "Simple")]
        # Chunks per message: one for large buffers, as many as fit into a slot for those of maxBytes.
        most = int(root.get("maxBytes", "0"))
        least = SLOT_BYTES[root.get("proto", "Simple")] * self.chunks // most if most else 1
        self.together = min(MOST_TOGETHER, max(1, random_.choice((least, 2 * least, MOST_TOGETHER))))
        self.changed: set[Hashable] = set()
        self.fresh = itertools.count(GARBAGE, 10**6 + 3)
        self.results: dict[tuple[int, ...], list[int | None]] = {}  # of a collective without a set result
        self.gpus = sorted(root, key=lambda gpu: int(gpu.get("id", "0")))
        self.memory = [self.buffers(rank, gpu) for rank, gpu in enumerate(self.gpus)]
        self.blocks = [{int(tb.get("id", "0")): tb for tb in gpu.findall("tb")} for gpu in self.gpus]
        self.steps = [{n: transmissions(tb) for n, tb in blocks.items()} for blocks in self.blocks]
        self.check_connections()
        self.check_bounds()
        self.flags: list[dict[int, tuple[int, int, int]]] = [{} for _ in self.gpus]
        self.fifos: dict[tuple[int, int, int], deque[list[int]]] = {}
        self.started = [0] * self.count
        self.ended = [0] * self.count
        self.running = [0] * self.count
        self.inputs: list[list[list[list[int]]]] = []

    def buffers(self, rank: int, gpu: ElementTree.Element) -> dict[str, tuple[list[list[int]], int, int]]:
        """Return the memory of each buffer, its offset there, and its chunks.

        The caller of a collective determines the sizes of input and output, regardless of the program.
        """
        size = {name: int(gpu.get(f"{name}_chunks", "0")) for name in "ios"}
        if self.collective != "custom":
            size |= {"i": self.chunks, "o": self.chunks}
            shares = {"allgather": "i", "reducescatter": "o"}
            if self.collective in shares:
                size[shares[self.collective]] = self.chunks // self.count
        memory = {name: (self.garbage(chunks), 0, chunks) for name, chunks in size.items()}
        if self.in_place:
            whole = self.garbage(max(size["i"], size["o"]))
            shares = {"allgather": "i", "reducescatter": "o"}
            for name in "io":
                memory[name] = (whole, 0, len(whole))
            if self.collective in shares:
                part = len(whole) // self.count
                memory[shares[self.collective]] = (whole, rank * part, part)
        return memory

    def check_connections(self) -> None:
        """Require both ends of each connection, which its setup needs (ncclTransportP2pSetup)."""
        ends: dict[str, set[tuple[int, int, str]]] = {"send": set(), "recv": set()}
        for rank, blocks in enumerate(self.blocks):
            for block in blocks.values():
                channel, to, come = (block.get(key, "") for key in ("chan", "send", "recv"))
                ends["send"].add((rank, int(to), channel))
                ends["recv"].add((int(come), rank, channel))
        real = [{end for end in ends[side] if min(end[:2]) >= 0} for side in ("send", "recv")]
        if real[0] != real[1]:
            raise Wrong("a connection with one end")

    def check_bounds(self) -> None:
        """Check what the parser checks: the first chunk of a step, against the chunks of its <gpu>."""
        sides = {"s": "s", "r": "t", "rcs": "t", "rrs": "s", "rrcs": "st", "cpy": "st", "re": "st"}
        for gpu, blocks in zip(self.gpus, self.steps, strict=True):
            for step in (step for steps in blocks.values() for step in steps):
                for side in sides.get(step.type, ""):
                    buffer, offset = step.source if side == "s" else step.target
                    if offset >= int(gpu.get(f"{buffer}_chunks", "0")):
                        raise Wrong("the parser refuses an offset")

    def garbage(self, chunks: int) -> list[list[int]]:
        return [[next(self.fresh) for _ in range(LOOPS)] for _ in range(chunks)]

    def cell(self, rank: int, place: tuple[str, int], chunk: int) -> list[int]:
        memory, first, chunks = self.memory[rank][place[0]]
        index = place[1] + chunk
        if not 0 <= index < chunks:
            raise Wrong(f"rank {rank} reaches past its buffer {place[0]}")
        return memory[first + index]

    def run(self, suspects: Collection[Key]) -> int:
        """Run `CALLS` calls, and return the number of events; raises `Wrong`."""
        threads: dict[Key, Thread] = {}
        for rank in range(self.count):
            threads[rank, -1, 0] = self.rank(rank)
            for number in self.blocks[rank]:
                threads[rank, number, 0] = self.block(rank, number)
        return run_threads(threads, self.random, self.changed, suspects)

    def rank(self, rank: int) -> Thread:
        """Begin each call of a rank with new input, and check its output."""
        for call in range(1, CALLS + 1):
            yield None
            self.fill(rank, call)
            self.started[rank] = call
            self.running[rank] = len(self.blocks[rank])
            self.changed.add(("start", rank))
            yield ("end", rank), lambda: not self.running[rank]
            self.check(rank, call)
            self.ended[rank] = call
            for name in "io":
                memory, _, _ = self.memory[rank][name]
                memory[:] = self.garbage(len(memory))

    def fill(self, rank: int, call: int) -> None:
        while len(self.inputs) < call:
            random_ = random.Random(f"{self.seed}-{len(self.inputs)}")  # the same in every order
            made = [
                [[random_.randrange(10**6) for _ in range(LOOPS)] for _ in range(self.memory[r]["i"][2])]
                for r in range(self.count)
            ]
            self.inputs.append(made)
        memory, first, chunks = self.memory[rank]["i"]
        for chunk in range(chunks):
            memory[first + chunk][:] = self.inputs[call - 1][rank][chunk]

    def check(self, rank: int, call: int) -> None:
        memory, first, chunks = self.memory[rank]["o"]
        given = self.inputs[call - 1]
        for chunk in range(chunks):
            expected = expected_chunk(self.collective, given, rank, chunk, chunks)
            if expected is None:
                self.results[self.in_place, call, rank, chunk] = integers(memory[first + chunk])
            elif memory[first + chunk] != expected:
                raise Wrong(f"rank {rank} ends call {call} with a wrong chunk {chunk}")

    def block(self, rank: int, number: int) -> Thread:
        block, steps = self.blocks[rank][number], self.steps[rank][number]
        channel = int(block.get("chan", "0"))
        goes = self.fifos.setdefault((rank, int(block.get("send", "-1")), channel), deque())
        comes = self.fifos.setdefault((int(block.get("recv", "-1")), rank, channel), deque())
        for call in range(1, CALLS + 1):
            yield ("start", rank), lambda call=call: self.started[rank] == call
            for loop in range(LOOPS):
                raised = 0
                for step in steps:
                    yield from self.await_flags(rank, call, loop, step)
                    raised += max(0, len(step.waits) - 1)
                    yield from self.transmit(rank, loop, step, goes, comes)
                    raised += len(step.others) - 1
                    if step.raises:
                        self.flags[rank][number] = (call, loop, raised)
                        self.changed.add(("flag", rank, number))
                    raised += 1
            self.running[rank] -= 1
            self.changed.add(("end", rank))

    def await_flags(self, rank: int, call: int, loop: int, step: Transmission) -> Thread:
        for other, place in step.waits:
            goal = (call, loop, place)
            yield (
                ("flag", rank, other),
                lambda other=other, goal=goal: self.flags[rank].get(other, (0, 0, 0)) >= goal,
            )

    def transmit(
        self, rank: int, loop: int, step: Transmission, goes: deque[list[int]], comes: deque[list[int]]
    ) -> Thread:
        for first in range(0, step.count, self.together):
            chunks = range(first, min(first + self.together, step.count))
            values = [0] * len(chunks)
            if step.type in RECEIVES:
                yield id(comes), lambda: bool(comes)
            if step.type in SENDS:
                yield id(goes), lambda: len(goes) < self.slots
            if step.type in RECEIVES:
                message = comes.popleft()
                self.changed.add(id(comes))
                values = [*message, *(next(self.fresh) for _ in chunks)][: len(chunks)]
            for place, chunk in enumerate(chunks):
                if step.type not in {"r", "rcs", "re"}:
                    values[place] += self.cell(rank, step.source, chunk)[loop]
                elif step.type == "re":
                    values[place] = self.cell(rank, step.target, chunk)[loop]
                    for other in step.others:
                        yield None
                        values[place] += self.cell(rank, (step.source[0], other), chunk)[loop]
                yield None
                if step.type not in {"s", "rrs"}:
                    self.cell(rank, step.target, chunk)[loop] = values[place]
            if step.type in SENDS:
                goes.append(values)
                self.changed.add(id(goes))
            yield None


def expected_chunk(
    collective: str, given: list[list[list[int]]], rank: int, chunk: int, chunks: int
) -> list[int] | None:
    """Return the expected content of a chunk of *rank*'s output."""
    count = len(given)
    if collective == "allreduce":
        return [sum(words) for words in zip(*(own[chunk] for own in given), strict=True)]
    if collective == "reducescatter":
        mine = rank * chunks + chunk
        return [sum(words) for words in zip(*(own[mine] for own in given), strict=True)]
    each = chunks // count
    if collective == "allgather":
        return given[chunk // each][chunk % each]
    if collective == "alltoall":
        return given[chunk // each][rank * each + chunk % each]
    return None
