"""Runs an MSCCL++ plan on integers as its executor does, in random orders; nothing here is the product's.

Semantics: execution_plan.cc and execution_kernel.hpp (microsoft/mscclpp 1f5f065). Memory is words of 8 bytes;
a packet is two words, its flag in both. Thread i of a block does the elements i, i + threads and so on, and
what concerns channel or semaphore i of an op.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterator
from math import lcm
from typing import Any, NamedTuple

from random_schedule import GARBAGE, Key, Thread, Wrong, integers, run_threads

UNIT = 2  # words of an aligned unit of 16 bytes
PIPELINE_UNITS = 2
WIDE = {"put", "pws", "pwsf", "get", "copy", "re", "res", "rre", "rres", "gstore"}
BY_PORT = {"put", "pws", "pwsf", "ppkt", "rppkt"}
WRITTEN = {"re": 1, "rre": 1, "repkt": 1, "recpkt": 2}  # targets; all of them for other ops
REDUCTIONS = {"repkt", "respkt", "recpkt", "recspkt"}
Word = Any  # an integer, or (flag, half, value) of a packet


class Ref(NamedTuple):
    """What an entry of src_buff or dst_buff means; *first* and *units* are of 16 bytes."""

    ranks: tuple[int, ...]
    buffer: str
    first: int
    units: int
    local: bool  # reached by the rank's own pointer, which distinguishes the halves of scratch


def walk(ops: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield all ops, those of pipelines too."""
    for op in ops:
        yield op
        yield from walk(op.get("ops", []))


class Machine:
    """The ranks of one plan with their memory, channels and semaphores."""

    def __init__(self, plan: dict[str, Any], random_: random.Random, seed: int) -> None:
        self.plan, self.random, self.seed = plan, random_, seed
        self.gpus = sorted(plan["gpus"], key=lambda gpu: gpu["id"])
        self.count = len(self.gpus)
        self.changed: set[Hashable] = set()
        self.fresh = itertools.count(GARBAGE, 10**6 + 3)
        self.results: dict[tuple[int, ...], list[int | None]] = {}  # of a collective without a set result
        every = [op for gpu in self.gpus for block in gpu["threadblocks"] for op in walk(block["ops"])]
        groups = lcm(*(op["tbg_info"]["tbg_size"] for op in every if "tbg_info" in op), 1)
        starts = [item["init_value"] for gpu in self.gpus for item in gpu.get("semaphores", ())]
        self.reuse = bool(plan.get("reuse_resources")) and max(starts, default=0) > 0
        self.turns = max(starts, default=0) + 2 if self.reuse else 2
        pipelines = any(op["name"] == "pipeline" for op in every)
        # A group shares chunks among two or more threads, and a pipeline ends with a smaller part.
        self.units = PIPELINE_UNITS * self.turns - 1 if pipelines else 2 * groups
        self.scratch_units = PIPELINE_UNITS * max(starts, default=0) if self.reuse else self.units
        lists = ("channel_ids", "semaphore_ids", "dst_buff")
        least = max((2, *(len(op.get(name, ())) for op in every for name in lists)))
        self.threads = least + random_.randrange(2)  # they may or may not divide the elements of a chunk
        self.double = bool(plan.get("use_double_scratch_buffer"))
        self.calls = 3 if self.double else 2  # the third uses the first one's half of scratch again
        if len({(gpu["input_chunks"], gpu["output_chunks"]) for gpu in self.gpus}) > 1:
            raise Wrong("chunks of different sizes")
        if self.double and len({gpu["scratch_chunks"] for gpu in self.gpus}) > 1:
            raise Wrong("halves of different sizes")
        self.memory = [self.buffers(rank, gpu) for rank, gpu in enumerate(self.gpus)]
        self.channels = [self.ends(rank, gpu) for rank, gpu in enumerate(self.gpus)]
        for rank, ends in enumerate(self.channels):  # connectNvlsCollective waits for all
            for other in range(self.count):
                shared = [[end for end in ends["switch"] if other in end[1]]]
                shared += [[end for end in self.channels[other]["switch"] if rank in end[1]]]
                if shared[0] != shared[1]:
                    raise Wrong("a switch channel that not all have")
        self.signals: Counter[tuple[str, int, int, int]] = Counter()
        self.expected: Counter[tuple[str, int, int, int]] = Counter()
        self.semaphores = [[s["init_value"] for s in gpu.get("semaphores", ())] for gpu in self.gpus]
        self.syncers = [Counter() for _ in self.gpus]  # (id, counter 0 to 2) and (id, "at")
        self.queues: dict[tuple[int, int, int], deque[Any]] = {}
        self.pushed: Counter[tuple[int, int, int]] = Counter()
        self.served: Counter[tuple[int, int, int]] = Counter()
        self.met: Counter[tuple[int, int]] = Counter()
        self.started, self.ended = [0] * self.count, [0] * self.count
        self.running = [0] * self.count
        self.inputs: list[list[list[int]]] = []

    # Memory.

    def buffers(self, rank: int, gpu: dict[str, Any]) -> dict[str, tuple[list[Word], int, int]]:
        """Return the memory of each buffer, its offset there, and its words."""
        chunk = self.units * UNIT
        size = {"i": gpu["input_chunks"] * chunk, "o": gpu["output_chunks"] * chunk}
        packets = 2 if self.plan["protocol"] == "LL" else 1
        scratch = gpu["scratch_chunks"] * self.scratch_units * UNIT * packets
        self.half = scratch
        memory = {name: (self.garbage(words), 0, words) for name, words in size.items()}
        memory["s"] = (self.garbage(scratch * (2 if self.double else 1)), 0, 0)
        if self.plan["inplace"]:
            whole = self.garbage(max(size.values()))
            shares = {"allgather": "i", "reducescatter": "o"}
            for name in "io":
                memory[name] = (whole, 0, len(whole))
            if self.plan["collective"] in shares:
                part = len(whole) // self.count
                memory[shares[self.plan["collective"]]] = (whole, rank * part, part)
        return memory

    def garbage(self, words: int) -> list[Word]:
        return [next(self.fresh) for _ in range(words)]

    def place(self, rank: int, buffer: str, word: int, call: int, half: bool) -> tuple[list[Word], int]:
        memory, first, words = self.memory[rank][buffer]
        if buffer == "s":
            word += self.half if half and self.double and call % 2 == 0 else 0
            words = len(memory)
        if not 0 <= word < words:
            raise Wrong(f"rank {rank} reaches past its buffer {buffer}")
        return memory, first + word

    def store(self, memory: list[Word], at: int, value: Word) -> None:
        memory[at] = value
        self.changed.add((id(memory), at // UNIT))

    def number(self, word: Word) -> int:
        return word if isinstance(word, int) else next(self.fresh)

    def offset(self, index: int, buffer: str) -> int:
        return index * (self.scratch_units if buffer == "s" else self.units)

    # Channels and the executor's tables.

    def ends(self, rank: int, gpu: dict[str, Any]) -> dict[str, list[Any]]:
        """Return a rank's channels by type: peer and number among those to it, or buffer and ranks."""
        made: dict[str, list[Any]] = {"memory": [], "port": [], "switch": []}
        numbers: Counter[tuple[str, int]] = Counter()
        for item in gpu.get("channels", ()):
            kind = item["channel_type"]
            if kind == "switch":
                buffer = item.get("buffer_type") or item["buff"]
                made[kind] += [(buffer, group["ranks"]) for group in item["rank_groups"]]
            for peer in item.get("connected_to", ()):
                made[kind].append((peer, numbers[kind, peer]))
                numbers[kind, peer] += 1
        return made

    # Ranks.

    def run(self, suspects: Collection[Key]) -> int:
        """Run two or three calls, and return the number of events; raises `Wrong`."""
        threads: dict[Key, Thread] = {}
        for rank, gpu in enumerate(self.gpus):
            threads[rank, -1, 0] = self.rank(rank)
            for peer, number in self.channels[rank]["port"]:
                self.queues[rank, peer, number] = deque()
                threads[rank, -2 - peer, number] = self.proxy(rank, peer, number)
            for block in gpu["threadblocks"]:
                own = _Block(self, rank, block)
                for thread in range(self.threads):
                    threads[rank, block["id"], thread] = own.thread(thread)
        return run_threads(threads, self.random, self.changed, suspects)

    def rank(self, rank: int) -> Thread:
        """Begin each call of a rank with new input, and check its output."""
        for call in range(1, self.calls + 1):
            yield None
            self.fill(rank, call)
            self.running[rank] = len(self.gpus[rank]["threadblocks"]) * self.threads
            self.started[rank] = call
            self.changed.add(("start", rank))
            # A caller that reuses the input also waits for its puts: one without flush may outlast the
            # kernel.
            queues = [queue for key, queue in self.queues.items() if key[0] == rank]
            yield (
                ("end", rank),
                lambda queues=queues: (
                    not self.running[rank]
                    and not any(
                        kind == "put" and data[0][1] != "s" for queue in queues for kind, *data in queue
                    )
                ),
            )
            self.check(rank, call)
            for name in "io":
                memory, _, _ = self.memory[rank][name]
                memory[:] = self.garbage(len(memory))
            self.ended[rank] = call
            self.changed.update(self.queues)

    def fill(self, rank: int, call: int) -> None:
        while len(self.inputs) < call:
            words = [self.memory[other]["i"][2] for other in range(self.count)]
            random_ = random.Random(f"{self.seed}-{len(self.inputs)}")  # the same in every order
            self.inputs.append([[random_.randrange(10**6) for _ in range(many)] for many in words])
        memory, first, words = self.memory[rank]["i"]
        memory[first : first + words] = self.inputs[call - 1][rank]

    def check(self, rank: int, call: int) -> None:
        memory, first, words = self.memory[rank]["o"]
        expected = self.expected_words(rank, call, words)
        if expected is None:
            self.results[call, rank] = integers(memory[first : first + words])
        elif memory[first : first + words] not in expected:
            raise Wrong(f"rank {rank} ends call {call} with wrong output")

    def expected_words(self, rank: int, call: int, words: int) -> list[list[int]] | None:
        given = self.inputs[call - 1]
        collective = self.plan["collective"].replace("_", "")
        if collective == "allreduce":
            return [[sum(each) for each in zip(*given, strict=True)][:words]]
        if collective == "reducescatter":
            return [[sum(each) for each in zip(*given, strict=True)][rank * words : (rank + 1) * words]]
        if collective == "allgather":
            return [[word for own in given for word in own]]
        if collective == "alltoall":
            part = words // self.count
            return [[word for own in given for word in own[rank * part : (rank + 1) * part]]]
        if collective == "sendrecv":
            return [given[other] for other in range(self.count) if other != rank]
        return None

    def proxy(self, rank: int, peer: int, number: int) -> Thread:
        """Process a port channel: triggers in order, one word after the other."""
        key = (rank, peer, number)
        queue = self.queues[key]
        while True:
            yield key, lambda: bool(queue) or min(self.ended) == self.calls
            if not queue:
                return
            kind, *data = queue[0]
            if kind == "put":
                source, target, words = data
                for word in range(words):
                    yield None
                    memory, at = self.place(*source[:2], source[2] + word, 1, False)
                    to, place = self.place(*target[:2], target[2] + word, 1, False)
                    value = memory[at]
                    yield None  # on its way
                    self.store(to, place, value)
            elif kind == "signal":
                self.signals["port", rank, peer, number] += 1
                self.changed.add(("port", rank, peer, number))
            queue.popleft()
            self.served[key] += 1
            self.changed |= {("served", key), ("end", rank)}


class _Block:
    """A thread block of a rank."""

    def __init__(self, machine: Machine, rank: int, block: dict[str, Any]) -> None:
        self.machine, self.rank, self.block = machine, rank, block
        self.known: dict[tuple[int, str], list[Ref]] = {}  # by id of the op
        own: dict[str, list[int]] = {"memory": [], "port": [], "switch": []}
        for item in block.get("channels", ()):
            own[item["channel_type"]] += item["channel_ids"]
        self.channels = {kind: [machine.channels[rank][kind][n] for n in ids] for kind, ids in own.items()}
        remote = machine.gpus[rank].get("remote_buffers", ())
        self.remote: dict[str, list[tuple[int, str]]] = {"memory": [], "port": []}
        for item in block.get("remote_buffer_refs", ()):
            kind = item["access_channel_type"]
            reached = [n for n, other in enumerate(remote) if kind in other["access_channel_types"]]
            for number in item["remote_buffer_ids"]:
                # The executor's map returns the first buffer for a missing key.
                where = remote[number if number in reached else reached[0]]
                self.remote[kind].append((where["rank"], where["type"]))

    def thread(self, thread: int) -> Thread:
        machine, rank = self.machine, self.rank
        for call in range(1, machine.calls + 1):
            yield ("start", rank), lambda call=call: machine.started[rank] == call
            for op in self.block["ops"]:
                if op["name"] != "pipeline":
                    yield from self.step(op, thread, call, 0, 1 << 30)
                    continue
                unit = PIPELINE_UNITS
                for turn in range(-(-op["iter_context"]["num_chunks"] * machine.units // unit)):
                    for part in op["ops"]:
                        yield from self.step(part, thread, call, turn * unit, unit)
            machine.running[rank] -= 1
            machine.changed.add(("end", rank))

    def step(self, op: dict[str, Any], thread: int, call: int, offset: int, unit: int) -> Thread:
        name, kind = op["name"], op.get("channel_type", "memory")
        if name == "nop":
            yield from self.meet()
        elif name == "barrier":
            yield from self.barrier(op, thread)
        elif name in {"signal", "rlxsignal", "wait", "rlxwait"}:
            yield from self.control(name.removeprefix("rlx"), kind, op["channel_ids"], thread)
        elif name in {"sem_acquire", "sem_release"}:
            yield from self.semaphore(name, op["semaphore_ids"], thread)
        elif name == "flush":
            return  # handleFlush counts destinations, which it has none of
        elif kind == "port" and name in BY_PORT:
            yield from self.by_port(op, thread, call, offset, unit)
        else:
            yield from self.data(op, thread, call, offset, unit)

    def meet(self) -> Thread:
        machine, key = self.machine, (self.rank, self.block["id"])
        machine.met[key] += 1
        goal = -(-machine.met[key] // machine.threads) * machine.threads
        machine.changed.add(("met", key))
        yield ("met", key), lambda: machine.met[key] >= goal

    def barrier(self, op: dict[str, Any], thread: int) -> Thread:
        yield from self.meet()
        if op["num_threadblocks"] == 1:
            return
        if thread == 0:
            number, counters = op["barrier_id"], self.machine.syncers[self.rank]
            at = (counters[number, "at"] + 1) % 3
            counters[number, (at + 1) % 3] = 0
            yield None
            counters[number, at] += 1
            self.machine.changed.add(("barrier", self.rank, number))
            yield None
            yield (
                ("barrier", self.rank, number),
                lambda: counters[number, at] == op["num_threadblocks"],
            )
            counters[number, "at"] = at
        yield from self.meet()

    def control(self, name: str, kind: str, ids: list[int], thread: int) -> Thread:
        machine = self.machine
        yield None
        if thread >= len(ids) or kind == "switch":
            return
        peer, number = self.channels[kind][ids[thread]]
        if name == "signal" and kind == "port":
            machine.queues[self.rank, peer, number].append(("signal",))
            machine.changed.add((self.rank, peer, number))
            machine.pushed[self.rank, peer, number] += 1
        elif name == "signal":
            machine.signals[kind, self.rank, peer, number] += 1
            machine.changed.add((kind, self.rank, peer, number))
        else:
            key = (kind, peer, self.rank, number)
            machine.expected[key] += 1
            goal = machine.expected[key]
            yield key, lambda: machine.signals[key] >= goal

    def semaphore(self, name: str, ids: list[int], thread: int) -> Thread:
        yield None
        if thread >= len(ids):
            return
        values, number = self.machine.semaphores[self.rank], ids[thread]
        before = values[number]
        values[number] += 1 if name == "sem_release" else -1
        self.machine.changed.add(("semaphore", self.rank, number))
        if name == "sem_acquire" and before <= 0:
            yield ("semaphore", self.rank, number), lambda: values[number] >= before

    # Data.

    def refs(self, op: dict[str, Any], side: str) -> list[Ref]:
        """Return the meaning of the entries of src_buff or dst_buff for this block of a group."""
        machine, key = self.machine, (id(op), side)
        if key in self.known:
            return self.known[key]
        made = self.known[key] = []
        group = op.get("tbg_info", {"tb_id": 0, "tbg_size": 1})
        for item in op.get(side, ()):
            ranks: tuple[int, ...] = (self.rank,)
            if "switch_channel_id" in item:
                buffer, ranks = self.channels["switch"][item["switch_channel_id"]]
            elif "buffer_id" in item:
                kind = op.get("channel_type", "memory") if op["name"] in BY_PORT else "memory"
                rank, buffer = self.remote[kind][item["buffer_id"]]
                ranks = (rank,)
            else:
                buffer = item["type"]
            units = item["size"] * machine.units
            each, more = divmod(units, group["tbg_size"])
            first, after = (n * each + min(n, more) for n in (group["tb_id"], group["tb_id"] + 1))
            offset = machine.offset(item["index"], buffer)
            made.append(Ref(tuple(ranks), buffer, offset + first, after - first, "type" in item))
        return made

    def moved(self, buffer: str, offset: int) -> int:
        """Return the offset of a pipeline's iteration in a buffer."""
        return offset % self.machine.scratch_units if self.machine.reuse and buffer == "s" else offset

    def by_port(self, op: dict[str, Any], thread: int, call: int, offset: int, unit: int) -> Thread:
        """Execute a put of the proxy: thread i pushes destination i."""
        machine, name = self.machine, op["name"]
        sources, targets = self.refs(op, "src_buff"), self.refs(op, "dst_buff")
        packets = name in {"ppkt", "rppkt"}
        if name == "rppkt":
            for packet in range(thread, sources[0].units * UNIT, machine.threads):
                yield from self.read_packet("s", sources[0].first * UNIT + packet, call)
            yield from self.meet()
            sources = [sources[0]._replace(buffer="s")] * len(targets)  # regardless of the plan
        yield None
        if thread >= len(targets):
            return
        _, buffer, first, units, _ = sources[thread]
        (to,), target, place, _, _ = targets[thread]
        words = min(units - offset, unit) * UNIT
        source = (self.rank, buffer, (first + self.moved(buffer, offset)) * UNIT)
        goal = (to, target, (place + self.moved(target, offset)) * UNIT)
        if packets:
            half = machine.half if machine.double and call % 2 == 0 else 0
            source = (self.rank, buffer, first * UNIT * 2 + (half if buffer == "s" else 0))
            goal, words = (to, target, place * UNIT * 2 + half), words * 2
        peer, number = self.channels["port"][op["channel_ids"][thread]]
        if peer != to:
            raise Wrong("a channel to another rank than its buffer")
        key = (self.rank, peer, number)
        machine.queues[key].append(("put", source, goal, words))
        if name in {"pws", "pwsf"}:
            machine.queues[key].append(("signal",))
        machine.changed.add(key)
        machine.pushed[key] += 1 + (name in {"pws", "pwsf"})
        if name == "pwsf":
            served = machine.pushed[key]
            yield ("served", key), lambda: machine.served[key] >= served

    def data(self, op: dict[str, Any], thread: int, call: int, offset: int, unit: int) -> Thread:
        """Execute an op that all threads share, each with its elements."""
        sources, targets = self.refs(op, "src_buff"), self.refs(op, "dst_buff")
        name = op["name"]
        pairs = [(sources, targets[: WRITTEN.get(name, len(targets))])]
        if name in {"put", "pws", "pwsf", "ppkt", "get"}:
            pairs = [([source], [target]) for source, target in zip(sources, targets, strict=False)]
            # Only the first of a put's sources determines the buffer.
            if name != "get":
                pairs = [([s._replace(buffer=sources[0].buffer)], t) for (s,), t in pairs]
        elif name in {"copy", "cpkt", "upkt", "gstore", "gstorepkt", "glres"}:
            pairs = [(sources[:1], targets[:1])]
        elif name == "rppkt":
            pairs = [(sources[:1], targets)]
        for froms, tos in pairs:
            units = froms[0].units
            if offset > units:
                raise Wrong("an iteration begins behind what its op moves")
            words = min(units - offset, unit) * UNIT
            width = UNIT if name in WIDE else 1
            for first in range(thread * width, words, self.machine.threads * width):
                yield from self.element(name, froms, tos, call, offset, range(first, first + width))

    def element(  # noqa: PLR0917 - all of one element
        self, name: str, froms: list[Ref], tos: list[Ref], call: int, offset: int, words: range
    ) -> Thread:
        """Process one element: read all sources, then write all targets."""
        machine = self.machine
        values: list[Word] = [0] * len(words)
        skips = {"get": (tos[0].first, froms[0].first)}  # the executor swaps the offsets of a get
        for number, ref in enumerate(froms):
            for lane, word in enumerate(words):
                if reads_packets(name, number):
                    buffer = ref.buffer if name == "gstorepkt" else "s"
                    got = yield from self.read_packet(buffer, ref.first * UNIT + word, call)
                else:
                    first = skips[name][0] if name == "get" else ref.first
                    # For additional sources of a reduction, the executor uses the type of a destination.
                    wraps = "i" if name in {"re", "res"} and number else ref.buffer
                    place = (first + self.moved(wraps, offset)) * UNIT + word
                    cells = [machine.place(rank, ref.buffer, place, call, ref.local) for rank in ref.ranks]
                    got = cells[0][0][cells[0][1]]
                    for memory, at in cells[1:]:
                        got = machine.number(got) + machine.number(memory[at])
                values[lane] = got if len(froms) == 1 else values[lane] + machine.number(got)
        for number, ref in enumerate(tos):
            yield None
            for lane, word in enumerate(words):
                if writes_packets(name, number):
                    if not ref.local and ref.buffer != "s" and machine.double:
                        raise Wrong("packets that are moved by half of scratch, in another buffer")
                    for rank, side in itertools.product(ref.ranks, range(2)):
                        place = (ref.first * UNIT + word) * 2 + side
                        memory, at = machine.place(rank, ref.buffer, place, call, True)
                        machine.store(memory, at, (call, side, machine.number(values[lane])))
                    continue
                first = skips[name][1] if name == "get" else ref.first
                place = (first + self.moved(ref.buffer, offset)) * UNIT + word
                for rank in ref.ranks:
                    memory, at = machine.place(rank, ref.buffer, place, call, ref.local)
                    machine.store(memory, at, values[lane])

    def read_packet(self, buffer: str, packet: int, call: int) -> Iterator[Any]:
        """Wait for the flag of a packet, and return what it holds."""
        (memory, low), (_, high) = [
            self.machine.place(self.rank, buffer, packet * 2 + side, call, True) for side in range(2)
        ]

        value: Word = None

        def arrived() -> bool:
            """Keep the value with the flags; most of the time is spent here, in waiting threads."""
            nonlocal value
            one = memory[low]
            if not isinstance(one, tuple) or one[0] != call or one[1] != 0:
                return False
            other = memory[high]
            value = one[2]
            return isinstance(other, tuple) and other[0] == call and other[1] == 1

        yield (id(memory), low // UNIT), arrived
        return value


def reads_packets(name: str, number: int) -> bool:
    """Return whether an op waits for the flags of its *number*-th source."""
    return name in {"upkt", "rppkt", "gstorepkt"} or (name in REDUCTIONS and number > 0)


def writes_packets(name: str, number: int) -> bool:
    """Return whether an op writes flags to its *number*-th target."""
    return name in {"ppkt", "cpkt", "rppkt", "gstorepkt"} or (name in REDUCTIONS and number > 0)
