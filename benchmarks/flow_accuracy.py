"""Measure the error of the flow-level backend against the packet-level backend.

``python benchmarks/flow_accuracy.py [--cases FILE...]`` runs the experiments of the fidelity page and random
experiments on both backends, and the recorded cases of the files only on `flow`. For each set, it prints the
median and the quantiles of the error of the makespan, with and without flags. ``--write`` stores the errors
for the backend ``auto``. ``--seed`` draws other experiments.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/runner/backends"), str(ROOT / "tests/runner")]

from fidelity_report import NETWORKS, PATTERNS, SIZES, load  # noqa: E402
from packets import case_network, case_system, case_workload, read_cases  # noqa: E402

from chakrascope.converter import Workload, microbenchmark  # noqa: E402
from chakrascope.runner import NetworkConfig, SystemConfig, simulate  # noqa: E402

RECORDED = [
    ROOT / "tests/data/runner/packet_cases.jsonl.gz",
    ROOT / "tests/data/runner/packet_controls.jsonl.gz",
]
TABLE = ROOT / "runner/backends/flow_errors.json"
NO_CONTROL, CONTROLS = 12, (1, 3)
QUANTILES = (0.5, 0.9, 0.99)
# What `auto` promises by default.
NOTABLE = 0.02
# Ring collectives, collectives with constant partners, exchanges between all pairs, and a shift.
DRAWN = (
    ("all-reduce", "ring"),
    ("all-reduce", "halvingDoubling"),
    ("all-gather", "ring"),
    ("reduce-scatter", "ring"),
    ("all-to-all", "direct"),
    ("ring-shift", "direct"),
)


@dataclass(frozen=True)
class Measured:
    """The error of one case, with its settings and the CPU seconds of both backends."""

    case: str
    kind: str
    error: float
    flags: tuple[str, ...]
    flow_s: float = 0.0
    packet_s: float = 0.0


def main() -> None:
    """Measure the errors of each set of experiments, and print one row per set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, nargs="*", default=RECORDED, help="recorded cases (.jsonl.gz)")
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.relative_to(ROOT)}")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random experiments (1)")
    parser.add_argument("--drawn", type=int, default=144, help="number of random experiments (144)")
    options = parser.parse_args()
    page = list(experiments())
    drawn = list(draw(options.seed, options.drawn))
    cases = list({found.case: found for path in options.cases for found in recorded(path)}.values())
    sets = {
        "the fidelity page": page,
        "the fidelity page, not flagged": [item for item in page if not item.flags],
        "drawn": drawn,
        "drawn, not flagged": [item for item in drawn if not item.flags],
        "drawn, flagged": [item for item in drawn if item.flags],
        "recorded, no congestion control": [item for item in cases if item.kind == "none"],
        "recorded, DCQCN or HPCC, not flagged": [
            item for item in cases if item.kind == "control" and not item.flags
        ],
        "flagged": [item for item in page + drawn + cases if item.flags],
    }
    for name, items in sets.items():
        print_row(name, items)
    for name, items in (("the fidelity page", page), ("drawn", drawn)):
        print_flags(name, items)
    if options.write:
        write(page + drawn + cases)


def experiments() -> Iterator[Measured]:
    """Yield the errors of the fidelity page's experiments."""
    for name in NETWORKS:
        network = load(name)
        for pattern in PATTERNS:
            for label, size in SIZES.items():
                workload = microbenchmark(pattern, network.num_ranks, size)
                yield measure(f"{name} {pattern} {label}", "page", workload, "default", network)


def draw(seed: int, count: int) -> Iterator[Measured]:
    """Yield the errors of *count* operations on Clos fabrics; two thirds have dependent steps."""
    numbers = random.Random(seed)
    for index in range(count):
        pattern, algorithm = DRAWN[index % len(DRAWN)]
        ranks, leaf, over = (numbers.choice(some) for some in ((16, 32, 64), (4, 8), (1, 2, 4)))
        size = min(1 << numbers.randrange(18, 25), (1 << 28) // ranks**2 * 4)
        if pattern == "all-gather":
            size = min(size, 1 << 28 >> 2 * ranks.bit_length())
        speed, latency, chunks = (
            numbers.choice(some) for some in ((100, 100, 400), (500.0, 500.0, 2000.0), (4, 4, 1))
        )
        network = NetworkConfig.from_mapping(
            {
                "topology": ["Switch"],
                "npus_count": [ranks],
                "bandwidth": [speed * 1e9 / 8 / 2**30],
                "latency": [latency],
                "packet": {"fabric": {"hosts_per_leaf": leaf, "oversubscription": over}},
            },
            "drawn",
        )
        system = replace(SystemConfig.preset("default"), preferred_dataset_splits=chunks)
        if pattern == "all-reduce":
            system = replace(system, all_reduce_implementation=(algorithm,))
        case = f"{pattern} {algorithm} {size >> 10} KiB, {ranks} ranks {leaf} a leaf {over}:1 {speed} Gb/s"
        workload = microbenchmark(pattern, ranks, size)
        yield measure(f"{case} {latency:g} ns, {chunks} chunks", "drawn", workload, system, network)


def measure(
    case: str, kind: str, workload: Workload, system: SystemConfig | str, network: NetworkConfig
) -> Measured:
    """Return the error of one experiment, and the CPU times of both backends."""
    begun = time.process_time()
    flow = simulate(workload, system, network, backend="flow")
    between = time.process_time()
    packet = simulate(workload, system, network, backend="packet")
    flags = tuple(flow.provenance["flow"]["flags"])
    error = flow.makespan_ns / packet.makespan_ns - 1
    return Measured(case, kind, error, flags, between - begun, time.process_time() - between)


def recorded(path: Path) -> Iterator[Measured]:
    """Yield the errors of the recorded cases of a file."""
    for case in read_cases(path):
        flow = simulate(
            case_workload(case), case_system(case), case_network(case), backend="flow", semantics="astra-sim"
        )
        mode = case["cc_mode"]
        kind = "none" if mode == NO_CONTROL else "control" if mode in CONTROLS else "other"
        error = flow.makespan_ns / max(case["cycles"]) - 1
        yield Measured(case["id"], kind, error, tuple(flow.provenance["flow"]["flags"]))


def print_row(name: str, items: list[Measured]) -> None:
    """Print the quantiles of the errors of a set, and its worst cases."""
    if not items:
        return
    sizes = np.abs([item.error for item in items])
    shown = "  ".join(f"{share:.0%} {np.quantile(sizes, share):.3%}" for share in QUANTILES)
    seconds = sum(item.flow_s for item in items), sum(item.packet_s for item in items)
    print(f"{name}: {len(items)} cases  {shown}  (flow {seconds[0]:.1f} s, packet {seconds[1]:.1f} s)")
    slower = [item.flow_s / item.packet_s for item in items if item.flow_s > item.packet_s > 0]
    if slower:
        print(f"    flow took longer in {len(slower)}, {max(slower):.2f} times at most")
    for item in sorted(items, key=lambda item: -abs(item.error))[:5]:
        print(f"    {item.error:+.2%} {item.case} {' '.join(item.flags)}")


def print_flags(name: str, items: list[Measured]) -> None:
    """Print the precision and the recall of the flags."""
    flagged = [item for item in items if item.flags]
    off = [item for item in items if abs(item.error) > NOTABLE]
    found = sum(abs(item.error) > NOTABLE for item in flagged)
    print(f"{name}: {len(flagged)} flagged, {len(off)} off by more than {NOTABLE:.0%}, {found} both")


def write(items: list[Measured]) -> None:
    """Write the quantiles of the errors for each flag, and without a flag."""
    situations: dict[str, list[float]] = {"none": []}
    for item in items:
        for flag in item.flags or ("none",):
            situations.setdefault(flag, []).append(abs(item.error))
    rows = {
        flag: {
            "cases": len(errors),
            **{f"{share:g}": round(float(np.quantile(errors, share)), 6) for share in QUANTILES},
        }
        for flag, errors in sorted(situations.items())
    }
    TABLE.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
