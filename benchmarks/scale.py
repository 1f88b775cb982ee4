"""Measure time and peak memory of commands: start, run, summary and critical path.

    python benchmarks/scale.py                                  # the commands' start, and a million nodes
    python benchmarks/scale.py --only nodes --nodes 4000000 --ranks 1024
    python benchmarks/scale.py --only ranks --ranks 10000       # 1,000 nodes each, 500 all-reduces of all
    python benchmarks/scale.py --only curve --ranks 1024        # a fourth, a half and all of --nodes
    python benchmarks/scale.py --only answers                   # slack, comparison, SQL: tables of all nodes

Prints a table with the work, its cost before (commit f513360, two cores), its cost now, and the goal. Every
command is a separate process, measured from start to end, with its peak resident memory. All ranks differ,
because the program of each rank is drawn from the rank's number.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

COMMAND = [sys.executable, "-m", "chakrascope.cli"]
PEEK = 5
RANKS_NODES, RANKS_COLLECTIVES = 1000, 500
NODES_A_COLLECTIVE = 100
WIDTH = 8  # ranks of a host
MANY_RANKS = 10_000
KNOWN_SIZE = (1_000_000, 4)  # numbers of nodes and ranks with earlier measurements
# The cost of the same work before (commit f513360), and the goal.
BEFORE = {
    "--help": "0.1 s",
    "runs": "0.93 s",
    "completion": "1.1 s",
    "nodes": "21.3 s, 1.43 GB",
    "ranks": "no word after 7 min, 3.5 GB",
}
GOALS = {
    "--help": "0.15 s",
    "runs": "0.15 s",
    "completion": "0.15 s",
    "nodes": "3 s, 0.3 GB",
    "ranks": "300 s, a word in 1 s",
}


@dataclass(frozen=True)
class Cost:
    """The cost of a process: wall seconds, CPU seconds, peak bytes, and seconds to the first output."""

    seconds: float
    cpu_s: float
    peak_bytes: int
    first_word_s: float | None = None

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s (processors {self.cpu_s:.2f} s), {self.peak_bytes / 1e9:.2f} GB"


def cost_of(command: Sequence[str | Path], *, limit_s: float = 600.0, **environment: str) -> Cost:
    """Run *command* and return its cost; raises `RuntimeError` with its output if it fails."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*map(str, command)], stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )
        first_word_s, usage = None, None
        while usage is None:
            time.sleep(0.002)
            if first_word_s is None and os.fstat(output.fileno()).st_size:
                first_word_s = time.perf_counter() - start
            pid, status, found = os.wait4(process.pid, os.WNOHANG)
            usage = found if pid else None
            if usage is None and time.perf_counter() - start > limit_s:
                process.kill()
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise RuntimeError(f"{process.args} after {seconds:.0f} s:\n{output.read().decode()}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, first_word_s)


def made(folder: Path, *, nodes: int, ranks: int, collectives: int) -> Path:
    """Return a study with a workload of *nodes* per rank, made in a separate process."""
    study = folder / f"study-{ranks}-{nodes}-{collectives}"
    if not study.exists():
        figures = map(str, (nodes, ranks, collectives))
        subprocess.run([sys.executable, __file__, "--make", study, *figures], check=True)
    return study


def make(study: Path, nodes: int, ranks: int, collectives: int) -> None:
    """Write a study with *nodes* nodes per rank, including *collectives* all-reduces of all *ranks*."""
    import numpy as np  # noqa: PLC0415

    from chakrascope.converter import Workload  # noqa: PLC0415 - only the making process loads it
    from chakrascope.runner import Study  # noqa: PLC0415

    graphs = Programs(ranks, nodes, collectives)
    workload = Workload(graphs, np.arange(ranks, dtype=np.int32), {}, {"lanes": "streams"})
    Study.create(study).add_workload(workload, "job")
    dimensions = [size for size in (min(WIDTH, ranks), ranks // min(WIDTH, ranks)) if size > 1]
    count = len(dimensions)
    (study / "network.yml").write_text(
        f"topology: {['Switch'] * count}\nnpus_count: {dimensions}\n"
        f"bandwidth: {[400.0, 50.0][:count]}\nlatency: {[500.0, 2000.0][:count]}\n",
        encoding="utf-8",
    )


class Programs(Sequence):
    """The graphs of all ranks, each made on demand to save memory."""

    def __init__(self, ranks: int, nodes: int, collectives: int) -> None:
        self._sizes = ranks, nodes, collectives

    def __len__(self) -> int:
        return self._sizes[0]

    def __getitem__(self, rank):
        if not 0 <= rank < len(self):
            raise IndexError(rank)
        return program(rank, *self._sizes[1:])


def program(rank: int, nodes: int, collectives: int):
    """Return the graph of *rank*: a host that launches kernels, and after some of them an all-reduce.

    The next kernel waits for the all-reduce. Durations are drawn from the rank's number.
    """
    import numpy as np  # noqa: PLC0415

    from chakrascope.converter.chakra import (  # noqa: PLC0415
        CollectiveType,
        EdgeKind,
        Graph,
        NodeType,
        TextColumn,
    )

    draw = np.random.default_rng(rank)
    ids = np.arange(nodes)
    every = nodes // collectives
    place = ids % every
    is_comm = place == every - 1
    is_host = (place % 2 == 0) & (place < every - 2)
    is_kernel = ~is_comm & ~is_host
    hosts, kernels, comms = (np.flatnonzero(kind) for kind in (is_host, is_kernel, is_comm))
    duration = np.where(is_host, draw.integers(2_000, 6_000, nodes), draw.integers(5_000, 50_000, nodes))
    layer = (ids // every) % 48
    texts = [f"layers.{number}.{part}" for number in range(48) for part in ("attention", "mlp")]
    operators = ["aten::mm", "aten::add", "aten::layer_norm", "nccl:all_reduce"]
    columns = {
        "node_id": ids,
        "name": TextColumn(np.where(is_comm, 3, ids % 3).astype(np.int32), operators),
        "operator": TextColumn(np.where(is_comm, 3, ids % 3).astype(np.int32), operators),
        "module": TextColumn((2 * layer + (place > every // 2)).astype(np.int32), texts),
        "phase": TextColumn((ids >= nodes // 3).astype(np.int32), ["forward", "backward"]),
        "kind": TextColumn(
            np.where(is_comm, 2, is_host).astype(np.int32), ["compute", "host", "communication"]
        ),
        "type": np.where(is_comm, NodeType.COMM_COLL, NodeType.COMP),
        "duration_ns": np.where(is_comm, 0, duration),
        "is_cpu_op": is_host,
        "comm_type": np.where(is_comm, CollectiveType.ALL_REDUCE, -1),
        "comm_size_bytes": np.where(is_comm, 1 << 20, -1) << (ids // every % 4),
        "stream": np.where(is_comm, 20, np.where(is_host, 0, 7)),
    }
    before = kernels[np.searchsorted(kernels, comms) - 1]
    after = np.searchsorted(kernels, comms)
    waits = after < len(kernels)
    launches = kernels[is_host[kernels - 1] & (kernels > 0)]
    ties = [
        (hosts[:-1], hosts[1:], EdgeKind.PROGRAM_ORDER),
        (kernels[:-1], kernels[1:], EdgeKind.STREAM_ORDER),
        (launches - 1, launches, EdgeKind.LAUNCH),
        (before, comms, EdgeKind.COMM_ISSUE),
        (comms[waits], kernels[after[waits]], EdgeKind.COMM_WAIT),
    ]
    edges = [np.column_stack([source, target, np.full(len(source), kind)]) for source, target, kind in ties]
    return Graph.of_columns(rank, columns, np.concatenate(edges))


def start_costs(study: Path) -> dict[str, str]:
    """Return the minimum cost of a command without work over a few runs."""
    typed = {"COMP_WORDS": "chakrascope summary --r", "COMP_CWORD": "2"}
    cases: dict[str, tuple[list[str], dict[str, str]]] = {
        "--help": (["--help"], {}),
        "runs": (["runs", str(study)], {}),
        "completion": ([], {"_CHAKRASCOPE_COMPLETE": "bash_complete", **typed}),
    }
    script = [Path(sys.executable).with_name("chakrascope")]
    return {
        name: str(
            min((cost_of(script + words, **options) for _ in range(PEEK)), key=lambda cost: cost.seconds)
        )
        for name, (words, options) in cases.items()
    }


def step_costs(study: Path, limit_s: float) -> dict[str, Cost]:
    """Return the costs of a run of *study*, of its summary and of its critical path."""
    shutil.rmtree(study / "runs", ignore_errors=True)
    network = ["--network", study / "network.yml"]
    words = {"run": ["run", study, *network], "summary": ["summary", study]}
    words["critical-path"] = ["critical-path", study]
    return {name: cost_of(COMMAND + command, limit_s=limit_s) for name, command in words.items()}


def together(costs: dict[str, Cost]) -> str:
    """Return the sum of *costs* and each cost as text."""
    seconds, cpu_s = (sum(getattr(cost, name) for cost in costs.values()) for name in ("seconds", "cpu_s"))
    whole = Cost(seconds, cpu_s, max(cost.peak_bytes for cost in costs.values()))
    return f"{whole} ({'; '.join(f'{name} {cost}' for name, cost in costs.items())})"


def row(key: str, work: str, now: str) -> None:
    """Print one row of the table of costs."""
    print(f"| {work} | {BEFORE.get(key, '')} | {now} | {GOALS.get(key, '')} |", flush=True)


def measure_start(options: argparse.Namespace) -> None:
    """Print the start-up costs of the commands."""
    study = made(options.folder, nodes=200, ranks=4, collectives=2)
    step_costs(study, options.limit)
    for name, cost in start_costs(study).items():
        row(name, f"`{name}`", cost)


def measure_nodes(options: argparse.Namespace) -> None:
    """Print the costs of a run, its summary and its critical path."""
    _measure_steps(options, options.nodes)


def measure_curve(options: argparse.Namespace) -> None:
    """Print the costs for a fourth, a half and all of the nodes."""
    for part in (4, 2, 1):
        _measure_steps(options, options.nodes // part)


def _measure_steps(options: argparse.Namespace, nodes: int) -> None:
    own = nodes // options.ranks
    study = made(options.folder, nodes=own, ranks=options.ranks, collectives=own // NODES_A_COLLECTIVE)
    costs = step_costs(study, options.limit)
    key = "nodes" if (nodes, options.ranks) == KNOWN_SIZE else ""
    row(key, f"run, summary, critical path: {nodes:,} nodes on {options.ranks:,} ranks", together(costs))


def measure_ranks(options: argparse.Namespace) -> None:
    """Print the costs of many different ranks with repeated all-reduces."""
    study = made(options.folder, nodes=RANKS_NODES, ranks=options.ranks, collectives=RANKS_COLLECTIVES)
    shutil.rmtree(study / "runs", ignore_errors=True)
    command = [*COMMAND, "run", study, "--network", study / "network.yml"]
    work = f"{options.ranks:,} ranks x {RANKS_NODES:,} nodes, {RANKS_COLLECTIVES} all-reduces of all"
    cost = cost_of(command, limit_s=options.limit)
    row(
        "ranks" if options.ranks == MANY_RANKS else "",
        work,
        f"{cost}, first word after {cost.first_word_s or cost.seconds:.1f} s",
    )


def measure_answers(options: argparse.Namespace) -> None:
    """Print the costs of answers about all nodes, or about selected nodes."""
    own = options.nodes // options.ranks
    study = made(options.folder, nodes=own, ranks=options.ranks, collectives=own // NODES_A_COLLECTIVE)
    if not (study / "runs").exists():
        network = (study / "network.yml").read_text(encoding="utf-8")
        (study / "slower.yml").write_text(network.replace("[400.0", "[200.0"), encoding="utf-8")
        for name in ("slower.yml", "network.yml"):
            cost_of([*COMMAND, "run", study, "--network", study / name], limit_s=options.limit)
    sums = "SELECT rank, count(*), sum(end_ns - start_ns) FROM nodes GROUP BY rank"
    named = "SELECT name, avg(end_ns - start_ns) FROM nodes WHERE kind = 'compute' GROUP BY name"
    for words in (
        ["summary", study, "--view", "slack"],
        ["summary", study, "--view", "slack", "--rank", "1"],
        ["summary", study, "--view", "slack", "--format", "csv"],
        ["compare", study],
        ["compare", study, "--view", "overview"],
        ["compare", study, "--view", "nodes", "--format", "csv"],
        ["query", study, sums],
        ["query", study, named],
    ):
        asked = " ".join(str(word) for word in words if word != study)
        row("", f"`{asked}`: {options.nodes:,} nodes", cost_of(COMMAND + words, limit_s=options.limit))


WORKS: dict[str, Callable[[argparse.Namespace], None]] = {
    "start": measure_start,
    "nodes": measure_nodes,
    "curve": measure_curve,
    "ranks": measure_ranks,
    "answers": measure_answers,
}


def main() -> None:
    """Run and print the measurements named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[*WORKS],
        help="measurement; may be repeated [default: start and nodes]",
    )
    parser.add_argument("--nodes", type=int, default=1_000_000, help="total number of nodes of all ranks")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--limit", type=float, default=600.0, help="maximum time of a command in seconds")
    parser.add_argument(
        "--folder", type=Path, help="folder that stores the studies; existing studies are reused"
    )
    parser.add_argument("--make", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make(Path(options.make[0]), *map(int, options.make[1:]))
        return
    with tempfile.TemporaryDirectory() as folder:
        options.folder = options.folder or Path(folder)
        print("| work | before | now | goal |\n|---|---|---|---|")
        for name in options.only or ["start", "nodes"]:
            WORKS[name](options)


if __name__ == "__main__":
    main()
