"""Measure the conversion of many large ranks: by workers, stopped and begun again, and the memory it takes.

    python benchmarks/convert_ranks.py --ranks 64 --megabytes 20 --workers 1 --workers 2
    python benchmarks/convert_ranks.py --ranks 256 --stop-after 20 --folder FOLDER   # keeps the traces there

The traces are those of a real rank on a GPU (`tests/data/converter/dlrm_v100_8`), repeated until they are as
large as asked for, of ranks of one job. Each figure is of a process of its own, ``chakrascope convert`` with
all steps, and those that it starts. Besides time it tells the most memory of the command itself and of the
largest of its workers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from convert import load, repeated_device

TRACE = Path(__file__).resolve().parents[1] / "tests/data/converter/dlrm_v100_8/kineto_0.json.gz"
RANK = 987654321
COMMAND = [sys.executable, "-m", "chakrascope.cli", "convert"]
LOOK_S = 0.05


@dataclass(frozen=True)
class Cost:
    """What a command took: on the clock, of the processors with its workers, and at most in memory."""

    seconds: float
    cpu_s: float
    own_bytes: int
    worker_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.seconds:.1f} s (processors {self.cpu_s:.1f} s), {self.own_bytes / 1e9:.2f} GB, "
            f"a worker {self.worker_bytes / 1e9:.2f} GB"
        )


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--megabytes", type=float, default=20, help="of each rank's trace")
    parser.add_argument("--workers", type=int, action="append", help="[default: 1 and 2]")
    parser.add_argument("--step", default="all")
    parser.add_argument("--stop-after", type=float, help="seconds after which it is interrupted, once")
    parser.add_argument("--folder", type=Path, help="keep the traces here, and use those that are here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = options.folder or Path(folder)
        pattern = traces(place, options.ranks, options.megabytes)
        total = sum(path.stat().st_size for path in pattern.parent.iterdir())
        print(f"{options.ranks} ranks of {total / options.ranks / 1e6:.1f} MB, step {options.step}")
        for workers in options.workers or [1, 2]:
            output = Path(folder) / f"by-{workers}" / "job"
            command = [*COMMAND, "--device-trace", pattern, "--step", options.step, "-o", output]
            command += ["--workers", workers]
            if options.stop_after:
                print(f"  stopped: {cost_of(command, options.stop_after)}", flush=True)
            print(f"  {workers} workers: {cost_of(command)}", flush=True)


def traces(folder: Path, ranks: int, megabytes: float) -> Path:
    """Return a pattern for the traces of *ranks* in *folder*, written unless they are there."""
    place = folder / f"traces-{ranks}-{megabytes:g}"
    if not place.exists():
        document = load(TRACE)
        more = len(json.dumps(document["traceEvents"], indent=2))
        times = max(1, round(megabytes * 1e6 / more))
        document = repeated_device(document, times) | {"baseTimeNanoseconds": RANK}
        document["distributedInfo"] |= {"rank": RANK, "world_size": ranks}
        text = json.dumps(document, indent=2)
        place.mkdir(parents=True)
        for rank in range(ranks):
            (place / f"rank{rank}.json").write_text(text.replace(str(RANK), str(rank)))
    return place / "rank{rank}.json"


def cost_of(command: Sequence[object], stop_after_s: float | None = None) -> Cost:
    """Run *command*, interrupted after a while if asked for; raises `RuntimeError` if it fails otherwise."""
    start = time.perf_counter()
    before = os.times()
    own, largest = 0, 0
    stopped = False
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen([*map(str, command)], stdout=told, stderr=subprocess.STDOUT)
        while process.poll() is None:
            time.sleep(LOOK_S)
            own = max(own, memory_of(process.pid))
            largest = max([largest, *map(memory_of, children_of(process.pid))])
            if stop_after_s and not stopped and time.perf_counter() - start > stop_after_s:
                process.send_signal(signal.SIGINT)
                stopped = True
        seconds = time.perf_counter() - start
        if process.returncode and not stopped:
            told.seek(0)
            raise RuntimeError(f"{process.args}:\n{told.read().decode()}")
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(seconds, cpu_s, own, largest)


def memory_of(pid: int) -> int:
    """Return the most memory that a process has held, 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    held = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(held[0]) * 1024 if held else 0


def children_of(pid: int) -> list[int]:
    """Return the processes that a process started."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


if __name__ == "__main__":
    main()
