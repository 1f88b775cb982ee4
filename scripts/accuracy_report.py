#!/usr/bin/env python3
"""Write docs/validation/accuracy.md: times of captured steps, simulated on the network on which they ran.

``python scripts/accuracy_report.py [--traces FOLDER]... [-o FOLDER]`` converts every trace set captured on
CPUs in the folders and in the folders of the tests. The script replays and simulates the median step of each
trace set, and divides the results by the measured step. The network is the loopback of one machine, whose
bandwidth and latency are unknown. Each trace set is simulated on the network that best fits the steps of all
other sets.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from prose import wrapped

from chakrascope.converter import Workload, convert, convert_files
from chakrascope.errors import ChakrascopeError
from chakrascope.runner import NetworkConfig, simulate

ROOT = Path(__file__).resolve().parent.parent
TRACES = ROOT / "tests" / "data" / "converter"
# The bandwidths (GiB/s per direction) and latencies (ns) of a loopback that are tried.
BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
LATENCIES = (0.0, 20_000.0, 100_000.0, 300_000.0)
BACKEND = "analytical-unaware"
Network = tuple[float, float]


class Step(NamedTuple):
    """A captured step: the workload of its ranks, and the time of the slowest rank."""

    name: str
    workload: Workload
    measured_ns: int


class Row(NamedTuple):
    """The time of a step, relative to the measurement: replayed, and simulated on *network*."""

    step: Step
    replayed: float
    predicted: float
    network: Network


def main() -> None:
    """Read the command line, simulate every capture and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--traces",
        type=Path,
        action="append",
        default=[],
        help="folder with more trace sets; may be repeated",
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=ROOT / "docs" / "validation", help="folder to write"
    )
    given = parser.parse_args()
    try:
        rows = predictions(distinct(step for folder in [TRACES, *given.traces] for step in steps_in(folder)))
    except ChakrascopeError as error:
        sys.exit(str(error))
    (given.output / "accuracy.md").write_text(wrapped(report(rows)), encoding="utf-8")


def steps_in(folder: Path) -> Iterator[Step]:
    """Yield the median step of each complete trace set in *folder* that was captured on CPUs."""
    for place in sorted(folder.iterdir()):
        if (place / "manifest.json").is_file():
            workload = convert(place)
        elif (place / "et_0.json.gz").is_file() and (place / "ptcap_0.json.gz").is_file():
            workload = convert_files(f"{place}/et_{{rank}}.json.gz", f"{place}/kineto_{{rank}}.json.gz")
        else:
            continue
        yield Step(place.name, workload, max(workload.metadata["measured_step_ns"].values()))


def distinct(steps: Iterable[Step]) -> list[Step]:
    """Return *steps* without duplicates; steps of the same name get a number."""
    found: dict[tuple[str, int], Step] = {}
    for step in steps:
        same = sum(name == step.name for name, _ in found)
        name = f"{step.name} ({same + 1})" if same else step.name
        found.setdefault((step.name, step.measured_ns), step._replace(name=name))
    return list(found.values())


def predictions(steps: Sequence[Step]) -> list[Row]:
    """Return a row for each of *steps*, simulated on the network that fits the other steps best."""
    networks = list(product(BANDWIDTHS, LATENCIES))
    table = [{network: ratio(step, network) for network in networks} for step in steps]
    rows = []
    for number, step in enumerate(steps):
        others = [ratios for other, ratios in enumerate(table) if other != number]
        best = min(networks, key=lambda network: _misses(others, network))
        rows.append(Row(step, ratio(step, None), table[number][best], best))
    return rows


def _misses(others: Sequence[dict[Network, float]], network: Network) -> float:
    """Return the median error of the other steps on *network*."""
    return statistics.median(abs(math.log(ratios[network])) for ratios in others)


def ratio(step: Step, network: Network | None) -> float:
    """Return predicted over measured time; if *network* is None, nodes take their measured time."""
    if network is None:
        return simulate(step.workload, "default", None, backend="replay").makespan_ns / step.measured_ns
    bandwidth, latency = network
    config = NetworkConfig(("Switch",), (step.workload.num_ranks,), (bandwidth,), (latency,))
    return simulate(step.workload, "default", config, backend=BACKEND).makespan_ns / step.measured_ns


def report(rows: Sequence[Row]) -> str:
    """Return the page as Markdown."""
    replayed, predicted = ([getattr(row, name) for row in rows] for name in ("replayed", "predicted"))
    lines = [
        "# Simulated and measured steps",
        "",
        "`python scripts/accuracy_report.py` writes this page (`--traces FOLDER` adds captures). "
        "`accuracy_report.py` simulates captured steps of PyTorch 2.13 on gloo, with all ranks on the "
        "CPUs of one machine. The tables divide simulated times by the measured step of the slowest "
        "rank, so 0.90 means that a simulated step is 10 % too short.",
        "",
        "* *Replayed* steps use the measured time of every node. If a replayed step differs from the "
        "measured step, the graph does not explain the difference.",
        f"* *Simulated* steps use measured computation, and communication by `{BACKEND}` on the system "
        "`default`. For each step, the bandwidth and latency of the loopback are the pair (of "
        f"{len(BANDWIDTHS) * len(LATENCIES)} candidates) that best fits the median of *all other* steps.",
        "",
        "| | replayed / measured | simulated / measured |",
        "|---|---|---|",
        f"| median of {len(rows)} | {statistics.median(replayed):.2f} | {statistics.median(predicted):.2f} |",
        f"| median error | {_median_error(replayed):.1%} | {_median_error(predicted):.1%} |",
        f"| largest error | {_worst(replayed):.2f} | {_worst(predicted):.2f} |",
        "",
        "| trace set | ranks | measured step | replayed / measured | simulated / measured | network |",
        "|---|---|---|---|---|---|",
        *map(_line, sorted(rows, key=lambda row: -abs(math.log(row.predicted)))),
        "",
        *_READING,
        "",
    ]
    return "\n".join(lines)


_READING = (
    "The whole simulation error is in communication, because bandwidth and latency include "
    "neither gloo's host time (copies, and a thread that wakes for each message) "
    "nor the sharing of cores and memory. The largest errors occur in steps that send and receive "
    "messages one after another (`ring_2`, `pp_2`, `interleaved_2`).",
)


def _line(row: Row) -> str:
    bandwidth, latency = row.network
    return (
        f"| `{row.step.name}` | {row.step.workload.num_ranks} | {row.step.measured_ns / 1e6:.1f} ms | "
        f"{row.replayed:.2f} | {row.predicted:.2f} | {bandwidth:g} GiB/s, {latency / 1000:g} µs |"
    )


def _median_error(ratios: Sequence[float]) -> float:
    return statistics.median(abs(value - 1) for value in ratios)


def _worst(ratios: Sequence[float]) -> float:
    return max(ratios, key=lambda value: abs(math.log(value)))


if __name__ == "__main__":
    main()
