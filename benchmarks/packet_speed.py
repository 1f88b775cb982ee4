"""Measure the packets per second of the packet-level backend, compared with ASTRA-sim's ns-3.

Example: ``ASTRA_SIM_HOME=~/astra-sim python benchmarks/packet_speed.py``. Both simulators run the same ring
all-reduce on hosts around one switch (400 Gb/s, 500 ns, an acknowledgement per packet), alternately. The
benchmark measures the CPU time of this process and of the processes that it starts, because the machine may
be busy. Without ASTRA-sim, only Chakrascope's backend runs.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np

from chakrascope.converter import CollectiveType, Graph, NodeType, Workload
from chakrascope.runner import Experiment, NetworkConfig, Result, SystemConfig, prepare
from chakrascope.runner.backends import packet_backend
from chakrascope.runner.backends.astra_sim import AstraSimBackend, find_astra_sim
from chakrascope.runner.config import PacketPart

MIB = 1 << 20


def ring_all_reduce(ranks: int, size_bytes: int, clock: int) -> Experiment:
    """Return the experiment of one all-reduce of *size_bytes* on *ranks* ranks in one chunk."""
    links = [[host, ranks, "400Gbps", "500ns", 0] for host in range(ranks)]
    packet = {
        "ASTRA_SIM_CLOCK": clock,
        "BUFFER_SIZE": 32,
        "CC_MODE": 12,
        "GLOBAL_T": 0,
        "L2_ACK_INTERVAL": 1,
        "links": links,
        "nodes": ranks + 1,
        "switches": [ranks],
    }
    node = {
        "node_id": 0,
        "name": "all-reduce",
        "type": NodeType.COMM_COLL,
        "comm_type": CollectiveType.ALL_REDUCE,
        "comm_size_bytes": size_bytes,
        "duration_ns": 1000,
    }
    graphs = tuple(Graph.build(rank, [node], []) for rank in range(ranks))
    network = NetworkConfig(("Switch",), (ranks,), (46.57,), (500.0,), packet=PacketPart.from_mapping(packet))
    system = SystemConfig(
        all_reduce_implementation=("ring",),
        preferred_dataset_splits=1,
        endpoint_delay=10,
        local_mem_bw=1600.0,
    )
    workload = Workload(graphs, np.arange(ranks, dtype=np.int32), {}, {})
    return prepare(workload, system, network, semantics="astra-sim")


def measure(run: Callable[[], Result]) -> tuple[Result, float, float]:
    """Return the result of *run*, its CPU time and its wall-clock time in s."""
    before, begun = _processor_s(), time.monotonic()
    result = run()
    return result, _processor_s() - before, time.monotonic() - begun


def _processor_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(item.ru_utime + item.ru_stime for item in used)


def main() -> None:
    """Run both simulators, and print their packets per second."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--mib", type=int, default=64, help="size of the all-reduce in MiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", type=int, choices=(0, 1), default=0, help="1: ASTRA-sim's clock of 1 ns")
    chosen = parser.parse_args()
    experiment = ring_all_reduce(chosen.ranks, chosen.mib * MIB, chosen.clock)
    backends = {"packet": packet_backend()} | (
        {"astra-sim:ns3": AstraSimBackend("ns3")} if "ns3" in find_astra_sim() else {}
    )
    times: dict[str, list[float]] = {name: [] for name in backends}
    packets = 0
    for _ in range(chosen.rounds):
        for name, backend in backends.items():
            result, processor_s, wall_s = measure(lambda backend=backend: backend.run(experiment))
            times[name].append(processor_s)
            packets = packets or result.provenance["packets"]["data_packets"]
            print(
                f"{name}: {processor_s:.2f} s of processor, {wall_s:.2f} s, makespan {result.makespan_ns} ns"
            )
    rates = {name: packets / statistics.median(values) for name, values in times.items()}
    for name, rate in rates.items():
        print(f"{name}: {packets} data packets, {rate:,.0f} a second of processor time")
    if len(rates) == 2:
        print(f"ratio {rates['packet'] / rates['astra-sim:ns3']:.1f}")


if __name__ == "__main__":
    main()
