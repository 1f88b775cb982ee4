"""Compare the emulation's transports over loopback: rate, latency, CPU time and memory.

``python benchmarks/transports.py``, on a machine that does nothing else. Each transport is a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
from typing import Any

from emulation import MIB, emulated, message, waits

TRANSPORTS = ("tcp", "libfabric:tcp", "libfabric:shm", "gloo")


def processor_s() -> float:
    """Return the processor time of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def figures(transport: str, rounds: int) -> dict[str, Any]:
    """Return what a *transport* does, by the name of each figure."""
    place = f"loopback,transport={transport}"
    rates, latencies, peaks = [], [], []
    for _ in range(rounds):
        result = emulated(message(512 * MIB, 3), place)
        flow = result.flows.sort_values("start_ns").iloc[1]
        rates.append(8 * flow["bytes"] / (flow["end_ns"] - flow["begun_ns"]))
        peaks.append(max(result.provenance["emulation"]["peak_bytes"]))
        flows = emulated(message(1000, 300), place).flows
        latencies.append((flows["end_ns"] - flows["start_ns"]).quantile([0.5, 0.99]))
    before = processor_s()
    emulated(waits([1_000_000], 2), place)
    between = processor_s()
    emulated(waits([3_000_000_000], 2), place)
    waited = (processor_s() - between) - (between - before)
    return {
        "gbit_per_s": round(statistics.median(rates), 1),
        "latency_us": [round(statistics.median(each) / 1e3, 1) for each in zip(*latencies, strict=True)],
        "cores_while_2_ranks_wait": round(waited / 3, 2),
        "rank_mib": max(peaks) // MIB,
    }


def main() -> None:
    """Measure all transports, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("transports", nargs="*", default=TRANSPORTS)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for transport in given.transports:
        print(json.dumps({"transport": transport} | figures(transport, given.rounds)), flush=True)


if __name__ == "__main__":
    main()
