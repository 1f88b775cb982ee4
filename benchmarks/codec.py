"""Measure reading and writing foreign graphs of a million nodes, compared with Python's protobuf.

    python benchmarks/codec.py [--nodes N]

``plain`` nodes contain the attributes that ASTRA-sim reads, and each waits for one other node. ``public``
nodes are nodes of MLCommons Chakra's public converter, including attributes that have no column here. Each
figure comes from a separate process: CPU seconds, and the peak growth of memory beyond the file itself.
Python's protobuf (its C decoder, and a loop over each field) reads a twentieth of the nodes, and its time is
scaled.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from random_experiments import et

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "converter"))
import chakra_schema  # noqa: E402 - the tests' own schema, read by protobuf

__all__ = ["plain"]

PUBLIC = ROOT / "tests" / "data" / "converter" / "chakra" / "public.0.et"
FEW = 20


def plain(count: int) -> bytes:
    """Return a program of *count* compute nodes that each wait for the next node, and a free node.

    A simulation can only read this program.
    """
    work = {"type": "COMP", "duration_micros": 17, "num_ops": 1 << 20}
    node = et.node({"id": 0, "name": "aten::addmm"} | work)
    tail = node[2:]  # everything except the id, which comes first
    free = et.program([{"id": 0, "type": "COMP", "duration_micros": 1}])
    parts = [free]
    for index in range(1, count + 1):
        following = index % count + 1
        body = b"\x08" + et.varint(index) + tail + b"\x28" + et.varint(following)
        parts.append(et.varint(len(body)) + body)
    return b"".join(parts)


def public(count: int) -> bytes:
    """Return *count* nodes of the public converter by repeating one small file."""
    metadata, *bodies = chakra_schema.messages(PUBLIC.read_bytes())
    nodes = [chakra_schema.Node.FromString(body) for body in bodies]
    for node in nodes:
        del node.data_deps[:], node.ctrl_deps[:]
        node.id = 0  # left out
    tails = [node.SerializeToString() for node in nodes]
    parts = [chakra_schema.framed(metadata)]
    for index in range(count):
        body = b"\x08" + et.varint(index) + tails[index % len(tails)]
        parts.append(et.varint(len(body)) + body)
    return b"".join(parts)


def _memory_bytes(which: str) -> int:
    """Return the current (``VmRSS``) or peak (``VmHWM``) memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(which))


def _timed(work: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
    before, start = _memory_bytes("VmRSS"), time.process_time()
    result = work()
    return {"cpu_s": time.process_time() - start, "grown_bytes": _memory_bytes("VmHWM") - before}, result


def _decode(data: bytes) -> dict[str, Any]:
    from chakrascope.converter import decode_graph  # noqa: PLC0415 - only the measuring processes load it

    facts, graph = _timed(lambda: decode_graph(data))
    return facts | {"nodes": len(graph.node_columns["node_id"])}


def _encode(data: bytes) -> dict[str, Any]:
    from chakrascope.converter import decode_graph, encode_graph  # noqa: PLC0415

    graph = decode_graph(data)
    return _timed(lambda: encode_graph(graph))[0]


def _engine(data: bytes) -> dict[str, Any]:
    from chakrascope.runner import engine  # noqa: PLC0415

    config = engine.Config()
    config.topology, config.npus_count, config.bandwidth, config.latency = ["Ring"], [2], [50.0], [500.0]
    small = et.program([{"id": 0, "type": "COMP", "duration_micros": 1}])
    return _timed(lambda: engine.simulate(config, [data, small], [0, 1]))[0]


def _protobuf(data: bytes) -> dict[str, Any]:
    every = chakra_schema.messages(data)
    bodies = [body for place, body in enumerate(every) if place and place % FEW == 0]

    def read() -> None:
        for body in bodies:
            node = chakra_schema.Node.FromString(body)
            _ = (node.id, node.name, node.type, list(node.data_deps), node.duration_micros)
            _ = {item.name: getattr(item, str(item.WhichOneof("value"))) for item in node.attr}

    return {"cpu_s": _timed(read)[0]["cpu_s"] * FEW}


CASES: dict[str, Callable[[int], bytes]] = {"plain": plain, "public": public}
MEASUREMENTS = {"decode": _decode, "encode": _encode, "engine": _engine, "protobuf": _protobuf}


def measure(name: str, path: Path, *, repeats: int = 3) -> dict[str, Any]:
    """Return the measurement *name* of a file, the fastest of *repeats*, each in a separate process."""
    command = [sys.executable, __file__, "--measure", name, str(path)]
    answers = [
        json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        for _ in range(repeats)
    ]
    return dict(min(answers, key=lambda answer: answer["cpu_s"]))


def compare(case: str, data: bytes) -> None:
    """Print the measurements of *data*."""
    # A simulation stops at the public converter's METADATA nodes.
    names = [name for name in MEASUREMENTS if name != "engine" or case == "plain"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.et"
        path.write_bytes(data)
        found = {name: measure(name, path) for name in names}
    protobuf = found["protobuf"]["cpu_s"]
    print(f"{case}: {found['decode']['nodes']:,} nodes, {len(data) / 2**20:.0f} MiB")
    for name, facts in found.items():
        grown = f", {facts['grown_bytes'] / 2**20:5.0f} MiB" if "grown_bytes" in facts else ""
        print(f"  {name:8} {facts['cpu_s']:7.3f} s, protobuf's {protobuf / facts['cpu_s']:4.1f} times{grown}")


def main() -> None:
    """Run the measurements named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1_000_000, help="number of nodes (default: %(default)s)")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, path = options.measure
        print(json.dumps(MEASUREMENTS[name](Path(path).read_bytes())))
        return
    for case, make in CASES.items():
        compare(case, make(options.nodes))


if __name__ == "__main__":
    main()
