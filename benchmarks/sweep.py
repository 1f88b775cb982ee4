"""Measure the overhead of a sweep compared with its simulations, and the growth of its memory.

    python benchmarks/sweep.py --points 1000 --workers 2

The benchmark simulates one workload on this number of networks with the analytical backend. "Alone" is the
cost of the points as separate runs with all tables, one after another on as many processors as the sweep has
workers (measured before on up to 50 points). The ratios divide the wall time and the CPU time of the sweep by
these costs; other processes affect CPU time less. Memory is the resident size of the processes, sampled once
a second, after a tenth of the points and at the end.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from chakrascope.converter import microbenchmark
from chakrascope.runner import NetworkConfig, Study, get_backend, prepare, run_sweep


def main() -> None:
    """Run the measurements named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--collectives", type=int, default=200, help="number of collectives per rank")
    parser.add_argument(
        "--cluster", help="address of a Dask scheduler; set --workers to its number of threads"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report(options, Path(folder) / "study")


def report(options: argparse.Namespace, folder: Path) -> None:
    """Print time, overhead and memory of one sweep."""
    study = Study.create(folder)
    study.add_workload(
        microbenchmark("all-reduce", options.ranks, 1 << 22, repeats=options.collectives), "job"
    )
    axes = {"network.npus_count": [options.ranks], "network.latency": list(range(options.points))}
    alone_s, alone_cpu_s = alone(study, options)
    memory = Memory(options.points)
    started, cpu_before_s = time.perf_counter(), _cpu_s()
    found = run_sweep(
        study,
        axes,
        network="ring-8",
        workers=options.workers,
        cluster=options.cluster,
        progress=memory.sample,
    )
    wall_s, cpu_s = time.perf_counter() - started, (_cpu_s() - cpu_before_s) / options.workers
    heads = (
        "points",
        "workers",
        "wall s",
        "alone s",
        "ratio",
        "cpu s",
        "alone s",
        "ratio",
        "early MB",
        "end MB",
    )
    print(" ".join(f"{head:>8}" for head in heads))
    figures = (wall_s, alone_s, wall_s / alone_s, cpu_s, alone_cpu_s, cpu_s / alone_cpu_s)
    print(
        f"{found.simulated:>8} {options.workers:>8} "
        + " ".join(f"{figure:>8.2f}" for figure in figures)
        + f" {memory.early_mb:>8.0f} {memory.late_mb:>8.0f}"
    )


def alone(study: Study, options: argparse.Namespace) -> tuple[float, float]:
    """Return the wall time and CPU time of the points as separate runs, divided by the number of workers."""
    network = NetworkConfig.preset("ring-8")
    sample = min(options.points, 50)
    started, cpu_before_s = time.perf_counter(), _cpu_s()
    for latency in range(sample):
        own = replace(network, npus_count=(options.ranks,), latency=(float(latency),))
        experiment = prepare(study.workload_prefix(), "default", own)
        get_backend(experiment.backend).run(experiment)
    share = options.points / sample / options.workers
    return (time.perf_counter() - started) * share, (_cpu_s() - cpu_before_s) * share


def _cpu_s() -> float:
    """Return the CPU time of this process and of its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Memory:
    """Resident memory of this process and its children."""

    def __init__(self, points: int) -> None:
        self._early = points // 10
        self._next = 0.0
        self.early_mb = 0.0
        self.late_mb = 0.0

    def sample(self, finished: int, points: int, failed: int) -> None:
        """Take a sample if the last one is at least a second old."""
        if time.monotonic() < self._next or finished == points:
            return
        self._next = time.monotonic() + 1
        self.late_mb = sum(_resident_mb(pid) for pid in ["self", *_children()])
        if finished <= self._early:
            self.early_mb = self.late_mb


def _children() -> list[str]:
    return Path("/proc/thread-self/children").read_text(encoding="ascii").split()


def _resident_mb(pid: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


if __name__ == "__main__":
    main()
