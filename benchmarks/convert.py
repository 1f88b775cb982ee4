"""Measure the conversion of a rank's traces: time, processor time and peak memory, and how they grow.

    python benchmarks/convert.py et_0.json.gz kineto_0.json.gz --repeat 1 --repeat 3 --repeat 10

Each measurement runs in a fresh process that reads the files, links them, builds the graph of all steps and
writes it. ``--repeat N`` first writes traces N times as long, with new ids and later times. Another
converter's commands, run on the same files with ``/usr/bin/time -v``, compare with the figures printed here.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ID_KEYS = ("External id", "Record function id", "correlation", "Ev Idx")
STEP = "ProfilerStep#"


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("host", type=Path)
    parser.add_argument("device", type=Path)
    parser.add_argument("--repeat", type=int, action="append")
    parser.add_argument("--once", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once is not None:
        print(json.dumps(measure(options.host, options.device, options.once)))
        return
    print(
        f"{'times':>5} {'host MB':>8} {'device MB':>9} {'nodes':>9} {'wall s':>7} {'cpu s':>7} {'peak MB':>8}"
    )
    for times in options.repeat or [1]:
        with tempfile.TemporaryDirectory() as folder:
            report(times, options, Path(folder))


def report(times: int, options: argparse.Namespace, folder: Path) -> None:
    """Print one row: the traces repeated *times* times."""
    host, device = folder / "host.json", folder / "device.json"
    host.write_text(json.dumps(repeated_host(load(options.host), times)))
    device.write_text(json.dumps(repeated_device(load(options.device), times)))
    command = [sys.executable, __file__, str(host), str(device), "--once", str(folder / "out")]
    started = time.perf_counter()
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    wall = time.perf_counter() - started
    found = json.loads(process.stdout)
    sizes = [file.stat().st_size / 1e6 for file in (host, device)]
    print(
        f"{times:5} {sizes[0]:8.1f} {sizes[1]:9.1f} {found['nodes']:9,} {wall:7.2f} {found['cpu_s']:7.2f} "
        f"{found['peak_mb']:8.0f}"
    )


def measure(host: Path, device: Path, output: Path) -> dict[str, float]:
    """Convert in this process and return what it took, imports included."""
    from chakrascope.converter import convert_files  # noqa: PLC0415 - its import is part of the cost

    workload = convert_files([host], [device], output, step="all")
    return {
        "nodes": len(workload.graphs[0].nodes),
        "cpu_s": sum(os.times()[:2]),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def load(path: Path) -> Any:
    """Return the JSON document at *path*, plain or gzip."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)


def repeated_device(document: Any, times: int) -> Any:
    """Return a Kineto document *times* as long."""
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
    """Return a host trace *times* as long (schemas with a list of attributes)."""
    nodes = document["nodes"]
    ids = 1 + max(node["id"] for node in nodes)
    records = 1 + max(
        attribute["value"] for node in nodes for attribute in node["attrs"] if attribute["name"] == "rf_id"
    )
    result = [*nodes]
    for number in range(1, times):
        for node in nodes:
            moved = copy.copy(node)
            moved["id"] += number * ids
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
