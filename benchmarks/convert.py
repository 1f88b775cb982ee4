r"""Measure the conversion of a rank's traces, compared with the public converter if installed.

    python benchmarks/convert.py et_0.json.gz kineto_0.json.gz --repeat 1 --repeat 10
    python benchmarks/convert.py et_0.json kineto_0.json --linker VENV/bin/chakra_trace_link \
        --converter VENV/bin/chakra_converter

Every measurement is a new process on one core that reads the files, links them, builds the graph of all steps
and writes it. The benchmark measures `convert_files`, the command ``chakrascope convert`` and, if their paths
are given, mlc-chakra's linker and converter in sequence, on the same uncompressed files. ``--repeat N`` first
writes traces that are N times as long, with new ids and later times. Of ``--runs N`` runs, the table shows
the wall time and the CPU time of the run with the least CPU time, which other processes affect less. Ratios
are relative to `convert_files`. Python must cache bytecode, as it does by default (no
PYTHONDONTWRITEBYTECODE), because each process would otherwise compile the sources.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ID_KEYS = ("External id", "Record function id", "correlation", "Ev Idx")
STEP = "ProfilerStep#"
CONVERT = """
import sys
from chakrascope.converter import convert_files
convert_files([sys.argv[1]], [sys.argv[2]], sys.argv[3], step="all")
"""


@dataclass(frozen=True)
class Cost:
    """The cost of one process, or of several consecutive processes."""

    wall_s: float
    cpu_s: float
    peak_mb: float

    def then(self, other: Cost) -> Cost:
        """Return the total cost of this process and *other*."""
        peak = max(self.peak_mb, other.peak_mb)
        return Cost(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s, peak)


def main() -> None:
    """Run the measurements named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("host", type=Path)
    parser.add_argument("device", type=Path)
    parser.add_argument("--repeat", type=int, action="append")
    parser.add_argument("--linker", type=Path, help="mlc-chakra's chakra_trace_link")
    parser.add_argument("--converter", type=Path, help="mlc-chakra's chakra_converter")
    parser.add_argument("--runs", type=int, default=1, help="number of runs of each converter")
    parser.add_argument("--core", type=int, default=0, help="CPU core on which all processes run")
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.core})
    for times in options.repeat or [1]:
        with tempfile.TemporaryDirectory() as folder:
            report(times, options, Path(folder))


def report(times: int, options: argparse.Namespace, folder: Path) -> None:
    """Print one table: the traces repeated *times* times."""
    host, device = folder / "host.json", folder / "device.json"
    # In another process: a child's peak memory is never below its parent's.
    with get_context("spawn").Pool(1) as pool:
        pool.apply(write_repeated, (options.host, options.device, times, host, device))
    sizes = [file.stat().st_size / 1e6 for file in (host, device)]
    print(f"{times} x: host trace {sizes[0]:.1f} MB, device trace {sizes[1]:.1f} MB")
    measured = partial(least, options.runs, folder)
    base = measured(sys.executable, "-c", CONVERT, host, device, folder / "ours" / "job")
    show("convert_files", base, base)
    arguments = (
        "--host-trace",
        host,
        "--device-trace",
        device,
        "--step",
        "all",
        "-o",
        folder / "command" / "job",
    )
    show(
        "chakrascope convert",
        measured(sys.executable, "-m", "chakrascope.cli", "convert", *arguments),
        base,
    )
    if options.linker is None or options.converter is None:
        return
    linked = folder / "linked.json"
    traces = ("--chakra-host-trace", host, "--chakra-device-trace", device)
    link = measured(options.linker, "--rank", "0", *traces, "--output-file", linked)
    convert = measured(options.converter, "PyTorch", "--input", linked, "--output", folder / "theirs.et")
    show("chakra_trace_link + chakra_converter", link.then(convert), base)


def write_repeated(host: Path, device: Path, times: int, new_host: Path, new_device: Path) -> None:
    """Write both traces repeated *times* times, indented as PyTorch does."""
    for trace, repeated, path in ((host, repeated_host, new_host), (device, repeated_device, new_device)):
        with path.open("w") as file:
            json.dump(repeated(load(trace), times), file, indent=2)


def show(name: str, cost: Cost, base: Cost) -> None:
    """Print one row of the table of costs."""
    ratios = (cost.wall_s / base.wall_s, cost.cpu_s / base.cpu_s, cost.peak_mb / base.peak_mb)
    print(
        f"  {name:37} {cost.wall_s:8.2f} s {cost.cpu_s:8.2f} s cpu {cost.peak_mb:7.0f} MB   "
        + "  ".join(f"x {ratio:5.1f}" for ratio in ratios),
        flush=True,
    )


def least(runs: int, folder: Path, *command: object) -> Cost:
    """Run *command* in *folder* several times and return the cost of the cheapest run."""
    return min((measured(folder, *command) for _ in range(runs)), key=lambda cost: cost.cpu_s)


def measured(folder: Path, *command: object) -> Cost:
    """Run *command* in *folder* and return its cost."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [str(part) for part in command], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} failed with exit code {process.returncode}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def load(path: Path) -> Any:
    """Return the JSON document at *path*, plain or gzip."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)


def repeated_device(document: Any, times: int) -> Any:
    """Return a Kineto document repeated *times* times."""
    events = document["traceEvents"]
    spans = [event for event in events if event.get("ph") == "X"]
    first, last = min(e["ts"] for e in spans), max(e["ts"] + e["dur"] for e in spans)
    largest = {
        key: max((value for e in spans if isinstance(value := e.get("args", {}).get(key), int)), default=0)
        + 1
        for key in ID_KEYS
    }
    steps = 1 + max(
        (int(e["name"][len(STEP) :]) for e in spans if str(e["name"]).startswith(STEP)), default=0
    )
    result = [*events]
    for number in range(1, times):
        for event in spans:
            moved = {
                **event,
                "ts": event["ts"] + number * (last - first + 1000),
                "args": {**event.get("args", {})},
            }
            for key in ID_KEYS:
                if isinstance(moved["args"].get(key), int):
                    moved["args"][key] += number * largest[key]
            if str(moved["name"]).startswith(STEP):
                moved["name"] = f"{STEP}{int(moved['name'][len(STEP) :]) + number * steps}"
            result.append(moved)
    return {**document, "traceEvents": result}


def repeated_host(document: Any, times: int) -> Any:
    """Return a host trace repeated *times* times (schemas with a list of attributes)."""
    nodes = document["nodes"]
    ids = 1 + max(node["id"] for node in nodes)
    records = 1 + max(
        attribute["value"] for node in nodes for attribute in node["attrs"] if attribute["name"] == "rf_id"
    )
    roots = {node["id"] for node in nodes if node["name"].startswith("[pytorch|")}
    result = [*nodes]
    for number in range(1, times):
        for node in nodes:
            if node["id"] in roots:
                continue
            moved = copy.copy(node)
            moved["id"] += number * ids
            if moved["ctrl_deps"] not in roots:
                moved["ctrl_deps"] += number * ids
            moved["attrs"] = [
                {**attribute, "value": attribute["value"] + number * records}
                if attribute["name"] == "rf_id" and attribute["value"]
                else attribute
                for attribute in node["attrs"]
            ]
            result.append(moved)
    return {**document, "nodes": result}


if __name__ == "__main__":
    main()
