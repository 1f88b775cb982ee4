"""Sizes above which the simple protocol is faster than packets, for gpu_report.py."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from chakrascope.runner.gpu import Machine, find_machine, simulate_program
from chakrascope.runner.programs import Program, all_pairs_program
from chakrascope.support import bytes_text

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
RATES = {"256 GiB/s": 256 * GIB / 1e9, "1 TiB/s": 1024 * GIB / 1e9}
PAPER = {
    ("256 GiB/s", 500): "512 KiB",
    ("256 GiB/s", 5000): "2 MiB",
    ("1 TiB/s", 500): "4 MiB",
    ("1 TiB/s", 5000): "16 MiB",
}
WORKGROUPS_PER_PEER = 4


def crossing(latency_ns: float, bandwidth: float, gpus: int = 8) -> float:
    """Return the size above which an all-gather with the simple protocol is faster than with packets.

    The size is 0 if the simple protocol is already faster at 16 KiB, and infinite if packets are faster up to
    256 MiB.
    """
    machine = generic(scale_up__latency_ns=latency_ns, scale_up__bytes_per_ns=bandwidth)
    workgroups = WORKGROUPS_PER_PEER * (gpus - 1)
    packet, simple = (all_pairs_program(name, "all-gather", gpus, workgroups) for name in ("packet", "put"))
    step = 32 * gpus * WORKGROUPS_PER_PEER

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
    """Yield the lines of the page's section on packets and the simple protocol."""
    yield "### Packets against the simple protocol"
    yield ""
    yield (
        "This table shows the crossover size: the output size, to within 5 %, above which an all-gather "
        "is faster with the simple protocol than with packets. The all-gather runs on 8 GPUs with four "
        "workgroups per peer. The next power of two is in brackets, because the paper states powers of two."
    )
    yield ""
    yield "| link latency | " + " | ".join(f"{name}, paper | {name}, `gpu`" for name in RATES) + " |"
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


def _what_is_known() -> Iterator[str]:
    yield (
        "The simple protocol waits for four link latencies, and reads a semaphore in its own memory twice. "
        "Packets wait for two link latencies, send twice the bytes, and access the memory three times. "
        "Compared with the simple protocol, packets therefore save a constant time, and their "
        "additional cost grows with the size."
    )
    yield ""
    yield (
        "In the paper and in the simulation, the crossover size grows with the link latency. When the "
        "bandwidth rises from 256 GiB/s to 1 TiB/s, the crossover size grows at most fourfold in the "
        "simulation, but more than fourfold in the paper. For its comparison of both protocols, the "
        "paper does not state the collective, the number of GPUs, the workgroups, or whether packets "
        "are unpacked."
    )


def time_ns(program: Program, size_bytes: int, machine: Machine) -> float:
    """Return the time of *program* for *size_bytes* of the larger buffer.

    The folder in the variable ``GPU_REPORT_TIMES`` caches times, so that an interrupted report resumes.
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
