"""Simulate Table 1 of the ASTRA-sim 3.0 paper, with its actual and its intended settings."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from chakrascope.converter import microbenchmark
from chakrascope.runner import Result, simulate

HERE = Path(__file__).resolve().parent
RANKS = 8
SIZE_BYTES = 1 << 20
# The figures of the paper (arXiv 2606.10440, Table 1), in its units.
PUBLISHED = {
    "makespan_us": 165.98,
    "bus_bandwidth_gbps": 88.45,
    "shortest_ns": 11_250,
    "longest_ns": 14_552,
    "mean_ns": 11_477,
    "drops": 0,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="ns3", help="a packet-level backend")
    parser.add_argument("-o", "--output", type=Path, help="write the table as CSV")
    options = parser.parse_args()
    table = table_1(options.backend)
    print(table.to_string())
    if options.output is not None:
        table.to_csv(options.output)


def table_1(backend: str) -> pd.DataFrame:
    """Return the paper's figures and the simulated figures, one column each."""
    workload = microbenchmark("all-reduce", RANKS, SIZE_BYTES)
    columns: dict[str, dict[str, float]] = {"published": PUBLISHED}
    for name in ("as-run", "as-meant"):
        result = simulate(workload, HERE / "system.json", HERE / f"network-{name}.yml", backend=backend)
        columns[name] = figures(result)
    return pd.DataFrame(columns)


def figures(result: Result) -> dict[str, float]:
    """Return the figures of the paper's table for one result."""
    took = result.flows["end_ns"] - result.flows["start_ns"]
    moved_bits = 8 * 2 * (RANKS - 1) / RANKS * SIZE_BYTES
    return {
        "makespan_us": result.makespan_ns / 1000,
        "bus_bandwidth_gbps": round(moved_bits / result.makespan_ns, 2),
        "shortest_ns": int(took.min()),
        "longest_ns": int(took.max()),
        "mean_ns": round(float(took.mean()), 2),
        "drops": result.provenance["packets"]["drops"],
    }


if __name__ == "__main__":
    main()
