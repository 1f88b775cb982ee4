"""From which size on the simple protocol beats packets, and what that depends on, for gpu_report.py."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chakrascope.runner.gpu import Machine, find_machine, simulate_program
from chakrascope.runner.programs import Op, Program, all_pairs_program
from chakrascope.support import bytes_text

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
RATES = {"256 GiB/s": 256 * GIB / 1e9, "1 TiB/s": 1024 * GIB / 1e9}
PAPER = {
    ("256 GiB/s", 500): "512 KiB",
    ("256 GiB/s", 5000): "2 MiB",
    ("1 TiB/s", 500): "4 MiB",
    ("1 TiB/s", 5000): "16 MiB",
}


@dataclass(frozen=True)
class Setup:
    """The assumptions of a crossing; *packets* and *simple* change the programs."""

    words: str = ""
    gpus: int = 8
    workgroups_per_peer: int = 4
    machine: Mapping[str, Any] = field(default_factory=dict)
    packets: Callable[[list[Op]], list[Op]] | None = None
    simple: Callable[[list[Op]], list[Op]] | None = None

    def program(self, way: str) -> Program:
        """Return the all-gather by puts or packets."""
        program = all_pairs_program(way, "all-gather", self.gpus, self.workgroups_per_peer * (self.gpus - 1))
        change = self.packets if way == "packet" else self.simple
        return program if change is None else _changed(program, change, self.words)


def _changed(program: Program, change: Callable[[list[Op]], list[Op]], words: str) -> Program:
    ranks = tuple(
        replace(
            rank,
            thread_blocks=tuple(
                replace(
                    block,
                    ops=tuple(replace(op, path=(place,)) for place, op in enumerate(change(list(block.ops)))),
                )
                for block in rank.thread_blocks
            ),
        )
        for rank in program.ranks
    )
    return replace(program, name=f"{program.name}, {words}", ranks=ranks)


def _without_first_handshake(ops: list[Op]) -> list[Op]:
    return [op for op in ops if op.name not in {"rlxsignal", "rlxwait"}]


def _without_fence(ops: list[Op]) -> list[Op]:
    return [replace(op, name={"signal": "rlxsignal", "wait": "rlxwait"}.get(op.name, op.name)) for op in ops]


def _without_unpacking(ops: list[Op]) -> list[Op]:
    return [op for op in ops if op.name != "upkt"]


def _in_two_parts(ops: list[Op]) -> list[Op]:
    """Put half of the data, signal, put the other half, signal; then wait for both."""
    moved = [op for op in ops if op.name == "put"]
    first, last = ops.index(moved[0]), ops.index(moved[-1]) + 1
    waits = [op for op in ops[last:] if op.name == "wait"]
    parts = []
    for half in range(2):
        for op in moved:
            place, count = op.share
            parts.append(replace(op, share=(2 * place + half, 2 * count)))
        parts += [op for op in ops[last:] if op.name == "signal"]
    return [*ops[:first], *parts, *waits, *waits, ops[-1]]


SETUPS = (
    Setup("as above"),
    Setup("reading a semaphore takes no time", machine={"compute__poll_ns": 0.0}),
    Setup("the simple protocol without the handshake at its start", simple=_without_first_handshake),
    Setup("signals do not wait for the acknowledgement of the data", simple=_without_fence),
    Setup("the simple protocol in two parts, each with a signal", simple=_in_two_parts),
    Setup("packets are read where they are, and not unpacked", packets=_without_unpacking),
    Setup("memory of 16 times the bandwidth", machine={"memory__bytes_per_ns": 16 * 4096 * GIB / 1e9}),
    Setup("memory with 300 ns of latency", machine={"memory__latency_ns": 300.0, "compute__poll_ns": 341.0}),
    Setup("one workgroup per peer", workgroups_per_peer=1),
    Setup("fair arbitration", machine={"arbitration": "fair"}),
    Setup("2 GPUs", gpus=2),
    Setup("4 GPUs", gpus=4),
    Setup("16 GPUs", gpus=16, workgroups_per_peer=2),
)


def crossing(latency_ns: float, bandwidth: float, gpus: int = 8, setup: Setup | None = None) -> float:
    """Return from which size on an all-gather with the simple protocol is faster than with packets.

    It is 0 where that is so from 16 KiB on, and infinite where it is not so up to 256 MiB.
    """
    setup = setup or Setup(gpus=gpus)
    link = {"scale_up__latency_ns": latency_ns, "scale_up__bytes_per_ns": bandwidth}
    machine = generic(**{**link, **setup.machine})
    packet, simple = setup.program("packet"), setup.program("put")
    step = 32 * setup.gpus * setup.workgroups_per_peer

    def gap(size: float) -> float:
        return time_ns(packet, int(size), machine) - time_ns(simple, int(size), machine)

    low = 16 * KIB
    if gap(low) > 0:
        return 0.0
    while gap(4 * low) < 0:
        low *= 4
        if low >= 64 * MIB:
            return math.inf
    high = 4 * low
    while high / low > 1.1:
        middle = step * round(math.sqrt(low * high) / step)
        low, high = (low, middle) if gap(middle) > 0 else (middle, high)
    return math.sqrt(low * high)


def _size(size: float) -> str:
    if math.isinf(size):
        return "above 256 MiB"
    return bytes_text(int(size)) if size > 0 else "below 16 KiB"


def crossings_part() -> Iterator[str]:
    """Yield the section of the page."""
    yield "### Packets against the simple protocol"
    yield ""
    yield (
        "The size above which the simple protocol is faster: an all-gather among 8 GPUs, four workgroups per "
        "peer, by output size, within 5 %. In brackets: the next power of two, as in the paper."
    )
    yield ""
    yield "| link latency | " + " | ".join(f"{name}, paper | here" for name in RATES) + " |"
    yield "|---|---|---|---|---|"
    for latency in (500, 1000, 2000, 5000):
        cells = []
        for name, rate in RATES.items():
            size = crossing(latency, rate)
            power = f" ({bytes_text(1 << math.ceil(math.log2(size)))})" if 0 < size < math.inf else ""
            cells.append(f"{PAPER.get((name, latency), '')} | {_size(size)}{power}")
        yield f"| {latency / 1e3:g} us | " + " | ".join(cells) + " |"
    yield ""
    yield from _what_is_known()
    yield ""
    yield "With one assumption changed at a time:"
    yield ""
    yield "| | " + " | ".join(f"{name}, {latency / 1e3:g} us" for name, latency in PAPER) + " |"
    yield "|---|" + "---|" * len(PAPER)
    yield "| paper | " + " | ".join(PAPER.values()) + " |"
    for setup in SETUPS:
        sizes = (crossing(latency, RATES[name], setup=setup) for name, latency in PAPER)
        yield f"| {setup.words} | " + " | ".join(map(_size, sizes)) + " |"
    yield ""


def _what_is_known() -> Iterator[str]:
    yield (
        "The simple protocol waits for four link latencies and reads a semaphore in its own memory twice. "
        "Packets wait for two latencies, send twice the bytes and access the memory three times. So "
        "packets save a constant, and their cost grows with the size."
    )
    yield ""
    yield (
        "Sizes grow with latency as in the paper. With the bandwidth they grow by at most four times; in the "
        "paper by eight, or, as its sizes are powers of two, by more than four. No assumption below gives "
        "that. The paper does not state the collective, GPUs, workgroups and parts, or whether packets are "
        "unpacked."
    )


def time_ns(program: Program, size_bytes: int, machine: Machine) -> float:
    """Return how long *program* takes for *size_bytes* of the larger buffer.

    With ``GPU_REPORT_TIMES``, a folder, times are kept there, so that a run can be taken up again.
    """
    shard = size_bytes // program.num_ranks if program.collective == "all-gather" else size_bytes
    folder = os.environ.get("GPU_REPORT_TIMES")
    what = f"{replace(machine, sources={})} {program.name} {program.num_ranks} {size_bytes}"
    kept = Path(folder or "") / hashlib.sha256(what.encode()).hexdigest()[:16]
    if folder and kept.is_file():
        return float(kept.read_text(encoding="utf-8"))
    found = float(simulate_program(program, shard, machine, record_ops=False).time_ns)
    if folder:
        kept.write_text(str(found), encoding="utf-8")
    return found


def generic(**changes: Any) -> Machine:
    """Return the generic GPU with *changes*, such as ``scale_up__latency_ns``."""
    machine = find_machine("generic")
    for key, value in changes.items():
        part, _, name = key.partition("__")
        machine = replace(
            machine, **{part: replace(getattr(machine, part), **{name: value}) if name else value}
        )
    return machine
