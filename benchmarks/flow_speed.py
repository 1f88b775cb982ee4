"""Measure the messages per second of the flow-level backend, compared with the packet-level backend.

``python benchmarks/flow_speed.py [--large]`` simulates collectives on Clos fabrics of 400 Gb/s with 8 hosts
per leaf, and rings on one switch. The benchmark measures CPU time, because the machine may be busy. The
packet-level backend runs only if it takes seconds. ``--large`` adds 512 ranks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

from chakrascope.converter import microbenchmark
from chakrascope.runner import NetworkConfig, simulate

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Case:
    """A pattern of communication, and the bytes that each rank sends."""

    pattern: str
    ranks: int
    size_bytes: int
    packets: bool = False
    clos: bool = True


SMALL = (
    Case("all-reduce", 16, 16 * MIB, packets=True),
    Case("all-to-all", 16, 16 * MIB, packets=True),
    Case("all-to-all", 64, GIB),
    Case("all-reduce", 64, 256 * MIB),
    Case("all-gather", 64, 64 * MIB),
    Case("all-reduce", 128, 256 * MIB, clos=False),
    Case("all-reduce", 256, 256 * MIB, clos=False),
)
LARGE = (Case("all-to-all", 512, 64 * MIB), Case("all-reduce", 512, GIB))


def main() -> None:
    """Measure each case, and print one line per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also simulate 512 ranks")
    for line in lines((*SMALL, *LARGE) if parser.parse_args().large else SMALL):
        print(line, flush=True)


def lines(cases: tuple[Case, ...]) -> Iterator[str]:
    """Yield the measurements of each case."""
    for case in cases:
        makespan_ns, flows, flow_s, flags = measure(case, "flow")
        where = "" if case.clos else " on one switch"
        line = f"{case.pattern} {case.ranks} ranks{where} {case.size_bytes / MIB:g} MiB: {flows} messages in "
        line += f"{flow_s:.2f} s ({flows / flow_s:,.0f} a second)"
        if case.packets:
            packet_ns, _, packet_s, _ = measure(case, "packet")
            line += f"; packets {packet_s:.2f} s ({packet_s / flow_s:.1f} times)"
            line += f", error {makespan_ns / packet_ns - 1:+.2%}"
        yield f"{line} {' '.join(flags)}".rstrip()


def measure(case: Case, backend: str) -> tuple[int, int, float, list[str]]:
    """Return the makespan in ns, the messages, the CPU time in s and the flags of a simulation."""
    switch = {
        "topology": ["Switch"],
        "npus_count": [case.ranks],
        "bandwidth": [46.566],
        "latency": [500.0],
    }
    fabric = {"packet": {"fabric": {"hosts_per_leaf": 8}}} if case.clos else {}
    network = NetworkConfig.from_mapping(switch | fabric, "clos" if case.clos else "switch")
    workload = microbenchmark(case.pattern, case.ranks, case.size_bytes)
    begun = time.process_time()
    result = simulate(workload, "default", network, backend=backend)
    spent_s = time.process_time() - begun
    flags = result.provenance.get("flow", {}).get("flags", [])
    return result.makespan_ns, len(result.flows), spent_s, flags


if __name__ == "__main__":
    main()
