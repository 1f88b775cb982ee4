"""Measure the error and speed of packet trains on the experiments of docs/validation/fidelity.md.

Example: ``python benchmarks/packet_trains.py --sizes 16KiB,256KiB,4MiB``. Each experiment runs with
``PACKET_TRAIN: 1`` (every packet is a separate event), and then with trains. The error is the relative
difference of the makespans. The benchmark measures the CPU time of the simulation, because the machine may be
busy.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from chakrascope.converter import microbenchmark
from chakrascope.runner import NetworkConfig, Result, simulate
from chakrascope.runner.config import PacketPart

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
from fidelity_report import NETWORKS, PATTERNS, SIZES, load

_LARGE_PACKETS = 100_000


class Row(NamedTuple):
    """One experiment, simulated with and without trains."""

    network: str
    pattern: str
    size: str
    error: float
    packets: int
    train: int
    plain_s: float
    trains_s: float
    events: float


def main() -> None:
    """Run the experiments that the command line selects, and print the results and a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=int, default=64, help="value of PACKET_TRAIN (default: 64)")
    parser.add_argument(
        "--sizes", default="16KiB,256KiB,4MiB", help="message sizes, or all; 16MiB takes minutes"
    )
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--patterns", default=",".join(PATTERNS))
    asked = parser.parse_args()
    sizes = [
        size for size in SIZES if asked.sizes == "all" or size.replace(" ", "") in asked.sizes.split(",")
    ]
    rows = []
    print("network         pattern         size       packets  train    error  time ratio  event ratio")
    for row in _run(asked.networks.split(","), asked.patterns.split(","), sizes, asked.train):
        rows.append(row)
        print(
            f"{row.network:15} {row.pattern:15} {row.size:8} {row.packets:9} {row.train:6} {row.error:+8.2%} "
            f"{row.plain_s / row.trains_s:10.1f} {row.events:11.1f}",
            flush=True,
        )
    print(f"\n{len(rows)} experiments, PACKET_TRAIN {asked.train}")
    _summary(rows)


def _run(networks: Sequence[str], patterns: Sequence[str], sizes: Sequence[str], train: int) -> Iterator[Row]:
    for name in networks:
        network = load(name)
        for pattern in patterns:
            for size in sizes:
                workload = microbenchmark(pattern, network.num_ranks, SIZES[size])
                plain, plain_s = _timed(workload, _with_train(network, 1))
                trains, trains_s = _timed(workload, _with_train(network, train))
                packets, events = (run.provenance["packets"] for run in (plain, trains))
                if packets["data_packets"] != events["data_packets"]:
                    sys.exit(f"{name} {pattern} {size}: trains carry other packets")
                yield Row(
                    name,
                    pattern,
                    size,
                    trains.makespan_ns / plain.makespan_ns - 1,
                    packets["data_packets"],
                    events["train"],
                    plain_s,
                    trains_s,
                    packets["network_events"] / events["network_events"],
                )


def _with_train(network: NetworkConfig, train: int) -> NetworkConfig:
    written: dict[str, Any] = {} if network.packet is None else dict(network.packet.written)
    return replace(network, packet=PacketPart.from_mapping(written | {"PACKET_TRAIN": train}))


def _timed(workload: Any, network: NetworkConfig) -> tuple[Result, float]:
    start = time.process_time()
    result = simulate(workload, "default", network, backend="packet")
    return result, time.process_time() - start


def _summary(rows: list[Row]) -> None:
    errors = sorted(abs(row.error) for row in rows)
    rank = max(0, -(-99 * len(errors) // 100) - 1)
    print(f"error: median {statistics.median(errors):.2%}, p99 {errors[rank]:.2%}, max {errors[-1]:.2%}")
    large = [row for row in rows if row.packets >= _LARGE_PACKETS and row.train > 1]
    for what, ratios in (
        ("processor time", [row.plain_s / row.trains_s for row in large]),
        ("events", [row.events for row in large]),
    ):
        if ratios:
            print(
                f"{what}, without over with trains, {len(ratios)} experiments of {_LARGE_PACKETS:,} packets "
                f"and more: median {statistics.median(ratios):.1f}, {min(ratios):.1f} to {max(ratios):.1f}"
            )


if __name__ == "__main__":
    main()
