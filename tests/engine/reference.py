"""Run recorded experiments through the engine, and compare all figures with the reference simulator."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import et

from chakrascope.runner import MemoryConfig, NetworkConfig, SystemConfig, load_groups
from chakrascope.runner import simulate as run_experiment

BACKENDS = {"unaware": "analytical-unaware", "aware": "analytical-aware"}
ROOFLINE = {
    "compute_bound_pct": ("compute_bound", 100),
    "compute_util_pct": ("compute_utilization", 100),
    "memory_util_pct": ("memory_utilization", 100),
    "operation_intensity": ("operation_intensity", 1),
}
TIMES = {"cycles": "finish_ns", "gpu_time": "compute_ns", "comm_time": "comm_ns", "overlap": "overlap_ns"}
NAMES = {
    "GPU time": "gpu_time",
    "Comm time": "comm_time",
    "Total compute-communication overlap": "overlap",
    "Compute bound percentage": "compute_bound_pct",
    "Average compute utilization": "compute_util_pct",
    "Average memory utilization": "memory_util_pct",
    "Average operation intensity": "operation_intensity",
}


def load(path: Path) -> list[dict]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def options(case: dict) -> dict:
    """Return the command-line options of a case as arguments of `simulate`."""
    chosen: dict = {}
    for option in case["options"]:
        name, _, value = option.lstrip("-").partition("=")
        if name == "num-queues-per-dim":
            chosen["num_queues_per_dim"] = int(value)
        elif name == "injection-scale":
            chosen["injection_scale"] = float(value)
        else:
            chosen["rendezvous"] = value in {"", "true"}
    return chosen


def run_case(case: dict, backend: str, folder: Path):
    """Write the files of a hand-made case to *folder* and simulate them."""
    for name, content in case["files"].items():
        (folder / name).write_bytes(base64.b64decode(content))
    return run_experiment(
        folder / "workload",
        folder / "system.json",
        folder / "network.yml",
        folder / "memory.json",
        folder / case["groups"] if case["groups"] else None,
        BACKENDS[backend],
        **options(case),
    )


def run_random(experiment: dict, backend: str, folder: Path):
    """Write the programs of a random experiment to *folder* and simulate them."""
    for rank, nodes in enumerate(experiment["workload"]):
        (folder / f"workload.{rank}.et").write_bytes(et.program(nodes))
    groups = None
    if experiment["groups"]:
        (folder / "groups.json").write_text(json.dumps(experiment["groups"]))
        groups = load_groups(folder / "groups.json")
    return run_experiment(
        folder / "workload",
        SystemConfig.from_mapping(experiment["system"], "system"),
        NetworkConfig.from_mapping(experiment["network"], "network"),
        MemoryConfig.from_mapping(experiment["memory"], "memory"),
        groups,
        BACKENDS[backend],
    )


def recorded(answer: dict) -> dict[int, dict]:
    """Return the figures of each rank, recorded in either of two formats."""
    if "ranks" in answer:
        return {int(rank): figures for rank, figures in answer["ranks"].items()}
    ranks: dict[int, dict] = {}
    for rank, (cycles, exposed) in enumerate(zip(answer["cycles"], answer["exposed"], strict=True)):
        ranks[rank] = {"cycles": cycles, "exposed": exposed}
        for name, key in NAMES.items():
            value = (answer.get("stats") or {}).get(name, [None] * (rank + 1))[rank]
            if value is not None:
                ranks[rank][key] = float(value.rstrip("%"))
    return ranks


def differences(result, answer: dict) -> list[str]:
    """Return a line for each figure that differs from the recorded figure."""
    table = result.ranks.set_index("rank")
    found = []

    def compare(rank: int, name: str, got: float, want: float, tolerance: float = 0.0) -> None:
        if abs(got - want) > tolerance:
            found.append(f"rank {rank}: {name} is {got}, recorded {want}")

    for rank, figures in recorded(answer).items():
        # The reference prints the difference of two unsigned numbers, which may have wrapped around.
        compare(rank, "exposed", int(table.exposed_comm_ns[rank]) % 2**64, figures["exposed"] % 2**64)
        for name, column in TIMES.items():
            if name in figures:
                compare(rank, name, int(table[column][rank]), int(figures[name]))
        for name, (column, scale) in ROOFLINE.items():
            if name in figures:
                compare(rank, name, table[column][rank] * scale, float(figures[name]), 0.00051)
    return found
