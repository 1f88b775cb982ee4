"""Measure what a sweep costs beside the simulations themselves, and whether its memory stays flat.

    python benchmarks/sweep.py --points 1000 --workers 2

Simulates one workload on that many networks with the analytical backend. The time inside the simulations,
added up over the points and divided by the workers, is the least a sweep could take; the ratio is the wall
time over that. Memory is what the processes hold (resident), sampled once a second: after a tenth of the
points and at the end.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from chakrascope.converter import microbenchmark
from chakrascope.runner import Study, sweep


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--collectives", type=int, default=200, help="a rank")
    parser.add_argument("--cluster", help="the address of a Dask scheduler; give its threads as --workers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report(options, Path(folder) / "study")


def report(options: argparse.Namespace, folder: Path) -> None:
    """Print time, overhead and memory of one sweep."""
    study = Study.create(folder)
    study.add_workload(
        microbenchmark("all-reduce", options.ranks, 1 << 22, repeats=options.collectives), "job"
    )
    memory = Memory(options.points)
    axes = {"network.npus_count": [options.ranks], "network.latency": list(range(options.points))}
    started = time.perf_counter()
    found = sweep(
        study,
        axes,
        network="ring-8",
        workers=options.workers,
        cluster=options.cluster,
        progress=memory.sample,
    )
    wall_s = time.perf_counter() - started
    pure_s = float(found.points["simulation_s"].sum()) / options.workers
    print(
        f"{'points':>8} {'workers':>8} {'wall s':>8} {'pure s':>8} {'ratio':>7} {'early MB':>9} {'end MB':>8}"
    )
    print(
        f"{found.simulated:>8} {options.workers:>8} {wall_s:>8.1f} {pure_s:>8.1f} {wall_s / pure_s:>7.3f} "
        f"{memory.early_mb:>9.0f} {memory.late_mb:>8.0f}"
    )


class Memory:
    """What this process and its children hold."""

    def __init__(self, points: int) -> None:
        self._early = points // 10
        self._next = 0.0
        self.early_mb = 0.0
        self.late_mb = 0.0

    def sample(self, finished: int, points: int, failed: int) -> None:
        """Look now, if a second has passed since the last time."""
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
