"""Simulate a fabric with failed or slow links, and print the cost of each failure."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from chakrascope.converter import microbenchmark
from chakrascope.runner import NetworkConfig, simulate
from chakrascope.runner.config import read_failures

HERE = Path(__file__).resolve().parent
RANKS = 16
SIZE_BYTES = 4 << 20
FAILURES: dict[str, list[dict[str, Any]]] = {
    "nothing": [],
    "one link of a leaf down": [{"link": [16, 20]}],
    "one link of a leaf at a quarter": [{"link": [16, 20], "rate": 0.25}],
    "one spine down": [{"device": 20}],
    "three spines down": [{"device": 20}, {"device": 21}, {"device": 22}],
    "one rank's link at half": [{"link": [0, 16], "rate": 0.5}],
    "one link of a leaf at a quarter from 50 us on": [{"link": [16, 20], "rate": 0.25, "at": "50us"}],
    "one spine down from 50 us on": [{"device": 20, "at": "50us"}],
    "one spine down from 50 us to 70 us": [{"device": 20, "at": "50us", "until": "70us"}],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--backend", action="append", help="may be repeated [default: analytical-aware and packet]"
    )
    options = parser.parse_args()
    print(costs(options.backend or ["analytical-aware", "packet"]).to_string())


def costs(backends: list[str]) -> pd.DataFrame:
    """Return the times in us of an all-reduce and an all-to-all under each failure."""
    network = NetworkConfig.load(HERE / "fabric.yml")
    columns: dict[str, dict[str, float]] = {}
    for pattern in ("all-reduce", "all-to-all"):
        workload = microbenchmark(pattern, RANKS, SIZE_BYTES)
        for backend in backends:
            column = columns.setdefault(f"{pattern}, {backend}", {})
            for name, failures in FAILURES.items():
                failed = replace(network, failures=read_failures(failures, (), name))
                result = simulate(workload, "default", failed, backend=backend)
                column[name] = round(result.makespan_ns / 1000, 1)
    return pd.DataFrame(columns)


if __name__ == "__main__":
    main()
