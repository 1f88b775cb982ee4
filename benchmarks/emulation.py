"""Measure the emulator: its rate compared with iperf3, its waits, its memory, and its transports.

Run ``python benchmarks/emulation.py`` on an idle machine. Rates need root and iperf3. ``--only transports``
compares the transports over loopback. Each result is printed as a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from chakrascope.converter import EdgeKind, Graph, NodeType, Workload
from chakrascope.runner import get_backend, prepare
from chakrascope.runner.emulation import Namespaces

MIB = 1 << 20
PARTS = ("waits", "rates", "transports")
TRANSPORTS = ("tcp", "libfabric:tcp", "libfabric:shm", "gloo")


def message(size_bytes: int, count: int) -> Workload:
    """Return a workload in which rank 0 sends rank 1 *count* messages, one after the other."""
    ranks = []
    for rank, kind in enumerate((NodeType.COMM_SEND, NodeType.COMM_RECV)):
        nodes = [
            {
                "node_id": number,
                "name": f"message {number}",
                "type": kind,
                "comm_size_bytes": size_bytes,
                "comm_src": 0,
                "comm_dst": 1,
                "comm_tag": number,
                "duration_ns": 0,
            }
            for number in range(count)
        ]
        edges = [(number - 1, number, EdgeKind.DATA) for number in range(1, count)]
        ranks.append(Graph.build(rank, nodes, edges))
    return Workload(tuple(ranks), np.arange(2, dtype=np.int32), {}, {})


def waits(durations_ns: list[int], ranks: int) -> Workload:
    """Return a workload in which every rank computes for each of the durations in turn."""
    nodes = [
        {"node_id": number, "name": f"compute {number}", "type": NodeType.COMP, "duration_ns": duration}
        for number, duration in enumerate(durations_ns)
    ]
    edges = [(number - 1, number, EdgeKind.DATA) for number in range(1, len(nodes))]
    metadata = {"measured_step_ns": sum(durations_ns)}  # durations in ns, not microseconds
    graphs = tuple(Graph.build(rank, nodes, edges) for rank in range(ranks))
    return Workload(graphs, np.arange(ranks, dtype=np.int32), {}, metadata)


def emulated(workload: Workload, place: str) -> Any:
    """Return the result of an emulation."""
    backend = f"emulation:{place}"
    return get_backend(backend).run(prepare(workload, "default", None, backend=backend))


def rate_of_ours(place: str, size_bytes: int) -> tuple[float, int]:
    """Return the rate (Mbit/s) of the second of three messages, and the peak memory of a rank in bytes."""
    result = emulated(message(size_bytes, 3), place)
    flow = result.flows.sort_values("start_ns").iloc[1]
    facts = result.provenance["emulation"]
    return 8e3 * flow["bytes"] / (flow["end_ns"] - flow["begun_ns"]), max(facts["peak_bytes"])


def rate_of_iperf3(rate_bps: int | None, seconds: float) -> float:
    """Return the rate (Mbit/s) of one iperf3 stream between two namespaces, measured by the receiver."""
    iperf3 = ["chrt", "--rr", "1", "iperf3"]  # with the priority of our ranks
    with Namespaces(2, [rate_bps] * 2) as network:
        server = subprocess.Popen(network.command(1, [*iperf3, "-s", "-1"]), stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        client = network.command(0, [*iperf3, "-c", network.addresses(1)[0], "-t", str(seconds), "-J"])
        report = subprocess.run(client, capture_output=True, text=True, check=True).stdout
        server.wait(timeout=10)
    return float(json.loads(report)["end"]["sum_received"]["bits_per_second"]) / 1e6


def rates(rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the rates of the emulation and of iperf3, on links of several rates and an unshaped link."""
    for name, rate_bps, size in (("200Mbit", 200_000_000, 16), ("1000Mbit", 10**9, 64), ("", None, 2048)):
        place = f"namespaces=2,link={name}" if name else "namespaces=2"
        ours, theirs, memory = [], [], []
        for _ in range(rounds):
            rate, peak = rate_of_ours(place, size * MIB)
            ours.append(rate)
            memory.append(peak)
            if shutil.which("iperf3"):
                theirs.append(rate_of_iperf3(rate_bps, 2))
        fact = {"link": name or "not shaped", "ours_mbps": round(statistics.median(ours))}
        if theirs:
            fact |= {"iperf3_mbps": round(statistics.median(theirs))}
            fact |= {"share": round(statistics.median(ours) / statistics.median(theirs), 3)}
        yield fact | {"message_mib": size, "rank_mib": max(memory) // MIB}


def processor_s(workload: Workload, place: str = "loopback") -> float:
    """Return the CPU time of all processes of an emulation in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    emulated(workload, place)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def lateness(ranks: int) -> dict[str, Any]:
    """Return the lateness of waits, and the share of a core that waiting takes."""
    durations = [30_000, 100_000, 300_000, 1_000_000, 3_000_000, 20_000_000] * 40
    late = emulated(waits(durations, ranks), "loopback").provenance["emulation"]["compute_late_ns"]
    # The time to start is the same for short and long waits.
    short, long = (processor_s(waits([duration], ranks)) for duration in (1_000_000, 3_000_000_000))
    return {
        "ranks": ranks,
        "late_us": {key: value / 1e3 for key, value in late.items() if key != "count"},
        "operations": late["count"],
        "s_of_processor_to_wait_for_3_s": round(long - short, 2),
    }


def transport_figures(transport: str, rounds: int) -> dict[str, Any]:
    """Return the rate, latency, waiting and memory of a *transport* over loopback."""
    place = f"loopback,transport={transport}"
    rates, latencies, peaks = [], [], []
    for _ in range(rounds):
        result = emulated(message(512 * MIB, 3), place)
        flow = result.flows.sort_values("start_ns").iloc[1]
        rates.append(8 * flow["bytes"] / (flow["end_ns"] - flow["begun_ns"]))
        peaks.append(max(result.provenance["emulation"]["peak_bytes"]))
        flows = emulated(message(1000, 300), place).flows
        latencies.append((flows["end_ns"] - flows["start_ns"]).quantile([0.5, 0.99]))
    short, long = (processor_s(waits([duration], 2), place) for duration in (1_000_000, 3_000_000_000))
    return {
        "transport": transport,
        "gbit_per_s": round(statistics.median(rates), 1),
        "latency_us": [round(statistics.median(each) / 1e3, 1) for each in zip(*latencies, strict=True)],
        "cores_while_2_ranks_wait": round((long - short) / 3, 2),
        "rank_mib": max(peaks) // MIB,
    }


def measured(part: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the results of the measurements of one *part*."""
    if part == "waits":
        yield from map(lateness, (1, 2, 4))
    elif part == "rates":
        yield from rates(rounds)
    else:
        yield from (transport_figures(transport, rounds) for transport in TRANSPORTS)


def main() -> None:
    """Run all measurements, or the named part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for part in (given.only,) if given.only else PARTS:
        for fact in measured(part, given.rounds):
            print(json.dumps(fact), flush=True)


if __name__ == "__main__":
    main()
