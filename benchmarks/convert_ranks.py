"""Measure time and memory of the conversion of many large ranks, by workers and after interruptions.

    python benchmarks/convert_ranks.py --ranks 64 --megabytes 20 --workers 1 --workers 2
    python benchmarks/convert_ranks.py --ranks 256 --stop-after 20 --folder FOLDER   # keeps the traces there
    python benchmarks/convert_ranks.py --dask 1 --dask 8     # on Dask workers of this machine

The traces are copies of a real rank on a GPU (`tests/data/converter/dlrm_v100_8`), repeated up to the
requested size, for all ranks of one job. Each figure comes from one process, ``chakrascope convert`` with all
steps, and its workers. The benchmark prints the time, and the peak memory of the command and of its largest
worker. On Dask, it prints the CPU time of workers (per rank and per worker), scheduler and client until all
graphs are written, because wall time is meaningless with more workers than cores.
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
    """The cost of a command: wall time, CPU time with its workers, and peak memory."""

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
    """Run the measurements named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--megabytes", type=float, default=20, help="size of each rank's trace in MB")
    parser.add_argument(
        "--workers",
        type=int,
        action="append",
        help="number of local workers; may be repeated [default: 1 and 2]",
    )
    parser.add_argument(
        "--dask",
        type=int,
        action="append",
        metavar="WORKERS",
        help="convert on a Dask cluster with this number of workers",
    )
    parser.add_argument("--step", default="all")
    parser.add_argument(
        "--stop-after", type=float, help="interrupt the conversion once, after this time in seconds"
    )
    parser.add_argument(
        "--folder", type=Path, help="folder that stores the traces; existing traces are reused"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = options.folder or Path(folder)
        pattern = traces(place, options.ranks, options.megabytes)
        total = sum(path.stat().st_size for path in pattern.parent.iterdir())
        print(f"{options.ranks} ranks of {total / options.ranks / 1e6:.1f} MB, step {options.step}")
        for workers in options.dask or []:
            print(
                f"  on {workers} Dask workers: {on_dask(workers, pattern, options.step, Path(folder))}",
                flush=True,
            )
        for workers in options.workers or ([] if options.dask else [1, 2]):
            output = Path(folder) / f"by-{workers}" / "job"
            command = [*COMMAND, "--device-trace", pattern, "--step", options.step, "-o", output]
            command += ["--workers", workers]
            if options.stop_after:
                print(f"  stopped: {cost_of(command, options.stop_after)}", flush=True)
            print(f"  {workers} workers: {cost_of(command)}", flush=True)


def traces(folder: Path, ranks: int, megabytes: float) -> Path:
    """Return a file name pattern for the traces of *ranks* in *folder*; missing traces are written."""
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
    """Run *command*, and interrupt it if a time is given; raises `RuntimeError` if it fails by itself."""
    start = time.perf_counter()
    before = os.times()
    own, largest = 0, 0
    stopped = False
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([*map(str, command)], stdout=output, stderr=subprocess.STDOUT)
        while process.poll() is None:
            time.sleep(LOOK_S)
            own = max(own, memory_of(process.pid))
            largest = max([largest, *map(memory_of, children_of(process.pid))])
            if stop_after_s and not stopped and time.perf_counter() - start > stop_after_s:
                process.send_signal(signal.SIGINT)
                stopped = True
        seconds = time.perf_counter() - start
        if process.returncode and not stopped:
            output.seek(0)
            raise RuntimeError(f"{process.args}:\n{output.read().decode()}")
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(seconds, cpu_s, own, largest)


def on_dask(workers: int, pattern: Path, step: str, folder: Path) -> str:
    """Convert on a cluster of *workers* single-threaded workers; return the cost of each part."""
    from distributed import Client  # noqa: PLC0415 - an extra

    from chakrascope.converter import convert_files  # noqa: PLC0415 - commands are separate processes
    from chakrascope.converter.building import finished_ranks  # noqa: PLC0415

    file = folder / f"scheduler-{workers}.json"
    dask = [sys.executable, "-m", "dask"]
    parts = [
        [*dask, "scheduler", "--scheduler-file", file, "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    ]
    parts += [
        [*dask, "worker", "--scheduler-file", file, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    ] * workers
    processes = [
        subprocess.Popen([*map(str, part)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for part in parts
    ]
    with Client(scheduler_file=str(file)) as client, finished_ranks(folder / f"on-{workers}") as finished:
        client.wait_for_workers(workers)
        client.run(import_converter)
        before, own = [cpu_of(process.pid) for process in processes], os.times()
        ranks = len(convert_files(None, str(pattern), step=step, cluster=str(file), finished=finished).graphs)
        took, now = [cpu_of(process.pid) for process in processes], os.times()
        client.shutdown()
    for process in processes:
        process.wait()
    scheduler, *each = [after - then for then, after in zip(before, took, strict=True)]
    client_s = now.user + now.system - own.user - own.system
    return (
        f"{sum(each) / ranks:.3f} s of a processor per rank ({min(each):.1f} to {max(each):.1f} s each), "
        f"scheduler {scheduler:.1f} s, client {client_s:.1f} s"
    )


def import_converter() -> str:
    """Import the modules that a worker imports once."""
    from chakrascope.converter import convert_files  # noqa: PLC0415

    return str(convert_files.__name__)


def cpu_of(pid: int) -> float:
    """Return the CPU time of a running process."""
    figures = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(figures[11]) + int(figures[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> int:
    """Return the peak memory of a process, or 0 if the process has ended."""
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
