"""Measure the engine's speed and memory, compared with ASTRA-sim if its binary is given.

Examples: ``python benchmarks/engine_speed.py`` measures only the engine: events per second, and the overhead
of a call. ``python benchmarks/engine_speed.py --astra-sim UNAWARE`` alternates between ASTRA-sim's
congestion-unaware binary and the engine, on the same input files. ``--long`` adds a case that takes ASTRA-sim
a minute. Times are the minimum CPU seconds of one thread over the repetitions, which vary less than wall time
on a busy machine. Each measurement runs in a separate process, so that its peak memory can be measured.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import astra_sim_run
import random_experiments
from random_experiments import et

from chakrascope.support import element, picture

Case = dict[str, Any]
SMALL, LARGE = 1 << 20, 1 << 30
LIST_KEYS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
CALLS = 10_000
STEP_COLLECTIVES = 400
EVENT_CASES = [*((256, chunks) for chunks in (1, 2, 4, 8, 16, 24, 32, 48, 64)), (128, 4), (512, 4), (1024, 4)]


def ring_case(ranks: int, *, chunks: int = 4) -> Case:
    """Return a ring all-reduce of 1 MiB on one dimension of *ranks* NPUs."""
    return _case(f"ring {ranks}", [("Ring", ranks, "ring")], chunks, size=SMALL, count=1)


def long_case() -> Case:
    """Return four 1 GiB all-reduces in 64 chunks on 8x8x16 = 1,024 NPUs."""
    dimensions = [("Ring", 8, "ring"), ("FullyConnected", 8, "direct"), ("Switch", 16, "halvingDoubling")]
    return _case("8x8x16, 4 x 1 GiB", dimensions, 64, size=LARGE, count=4)


def _case(name: str, dimensions: list[tuple[str, int, str]], chunks: int, *, size: int, count: int) -> Case:
    topologies, counts, algorithms = (list(column) for column in zip(*dimensions, strict=True))
    network = {"topology": topologies, "npus_count": counts}
    network |= {"bandwidth": [50.0] * len(counts), "latency": [500.0] * len(counts)}
    system = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "localBWAware",
        "preferred-dataset-splits": chunks,
        "active-chunks-per-dimension": 1,
        "endpoint-delay": 10,
        "local-mem-bw": 50,
    }
    system |= {f"{key}-implementation": algorithms for key in LIST_KEYS}
    kind = {"type": "COLL", "comm_type": "ALL_REDUCE", "comm_size": size}
    program = [
        {"id": index, "name": f"n{index}", "data_deps": [index - 1] if index else []} | kind
        for index in range(count)
    ]
    return {
        "name": name,
        "network": network,
        "system": system,
        "memory": {"memory-type": "NO_MEMORY_EXPANSION"},
        "groups": {},
        "custom": {},
        "per_node": {},
        "workload": [program] * math.prod(counts),
    }


def _engine() -> Any:
    from chakrascope.runner import engine  # noqa: PLC0415 - only the measuring processes load it

    return engine


def _config(case: Case, *, fold: bool) -> Any:
    config = _engine().Config()
    for name, value in case["network"].items():
        setattr(config, name, value)
    for name, value in case["system"].items():
        setattr(config, name.replace("-", "_"), value)
    config.fold = fold
    config.record_nodes = True
    return config


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _simulate(folder: str, fold: bool) -> dict[str, Any]:
    """Simulate the files in *folder*, reading each rank as ASTRA-sim does; return times and memory."""
    case = json.loads((Path(folder) / "case.json").read_text())
    ranks = math.prod(case["network"]["npus_count"])
    programs = [f"{folder}/workload.{rank}.et" for rank in range(ranks)]
    engine, config, before = _engine(), _config(case, fold=fold), _peak_bytes()
    wall, cpu = time.perf_counter(), time.process_time()
    output = engine.simulate(config, programs, range(ranks))
    return {
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.perf_counter() - wall,
        "events": output.events,
        "folded": bool(output.folded),
        "makespan_ns": output.makespan_ns,
        "peak_bytes": _peak_bytes(),
        "grown_bytes": _peak_bytes() - before,
    }


def _two_ranks(program: bytes) -> Callable[[], Any]:
    engine, config = _engine(), _config(ring_case(2), fold=False)
    small = et.program([{"id": 0, "type": "COMP", "duration_micros": 1}])
    return lambda: engine.simulate(config, [program, small], [0, 1])


def _calls() -> dict[str, Any]:
    """Simulate two tiny programs repeatedly in one process."""
    call = _two_ranks(et.program([{"id": 0, "type": "COMP", "duration_micros": 1}]))
    for _ in range(100):
        call()
    before, start = _peak_bytes(), time.process_time()
    for _ in range(CALLS):
        call()
    seconds = (time.process_time() - start) / CALLS
    return {"calls": CALLS, "call_s": seconds, "grown_bytes": _peak_bytes() - before}


def _training_step() -> dict[str, Any]:
    """Simulate a step of 400 all-reduces of 64 MiB, each after a computation, on 65,536 equal NPUs."""
    dimensions = [("Ring", 16, "ring"), ("FullyConnected", 64, "direct"), ("Switch", 64, "ring")]
    case = _case("16x64x64", dimensions, 4, size=LARGE // 16, count=STEP_COLLECTIVES)
    program: list[dict[str, Any]] = []
    for node in case["workload"][0]:
        index = 2 * node["id"]
        work = {
            "id": index,
            "type": "COMP",
            "duration_micros": 100,
            "data_deps": [index - 1] if index else [],
        }
        program += [work, node | {"id": index + 1, "data_deps": [index]}]
    engine, config, data = _engine(), _config(case, fold=True), et.program(program)
    ranks, before, start = len(case["workload"]), _peak_bytes(), time.process_time()
    output = engine.simulate(config, [data], [0] * ranks)
    facts = {"ranks": ranks, "collectives": STEP_COLLECTIVES, "cpu_s": time.process_time() - start}
    facts |= {"makespan_ns": output.makespan_ns, "folded": bool(output.folded)}
    return facts | {"grown_bytes": _peak_bytes() - before}


MEASUREMENTS: dict[str, Callable[..., dict[str, Any]]] = {
    "simulate": _simulate,
    "calls": _calls,
    "training step": _training_step,
}


def measure(name: str, *words: Any) -> dict[str, Any]:
    """Run the measurement *name* in a separate process, and return its figures."""
    command = [sys.executable, __file__, "--measure", json.dumps([name, *words])]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(answer))


def _written(case: Case, folder: str) -> Path:
    path = Path(folder)
    random_experiments.write(case, path)
    facts = {name: case[name] for name in ("network", "system")}
    (path / "case.json").write_text(json.dumps(facts))
    return path


def beside(case: Case, binary: Path | None, repeats: int) -> dict[str, Any]:
    """Run *case* in turns on ASTRA-sim, the engine and the folding engine; return the best times."""
    runs: dict[str, list[dict[str, Any]]] = {"unfolded": [], "folded": [], "astra_sim": []}
    with tempfile.TemporaryDirectory() as folder:
        path = _written(case, folder)
        for _ in range(repeats):
            if binary:
                answer = astra_sim_run.run(binary, path, limit_s=600)
                facts = {"cpu_s": answer.cpu_seconds, "wall_s": answer.seconds}
                longest = max(int(figures["cycles"]) for figures in answer.ranks.values())
                runs["astra_sim"].append(facts | {"peak_bytes": answer.peak_bytes, "makespan_ns": longest})
            runs["unfolded"].append(measure("simulate", folder, False))
            runs["folded"].append(measure("simulate", folder, True))
    best = {name: min(tries, key=lambda run: run["cpu_s"]) for name, tries in runs.items() if tries}
    if binary:
        for name in ("unfolded", "folded"):
            best[name]["ratio"] = best["astra_sim"]["cpu_s"] / best[name]["cpu_s"]
            best[name]["same_answer"] = best["astra_sim"]["makespan_ns"] == best[name]["makespan_ns"]
    return {"case": case["name"]} | best


def compare(binary: Path, repeats: int, *, long: bool) -> dict[str, Any]:
    """Measure every case, compare it with ASTRA-sim and print a table."""
    print("case                 ASTRA-sim s   MiB |  engine s   MiB  ratio | folded s   MiB   ratio  same")
    print("(the engine's MiB: more than Python, NumPy and pandas had taken before)")
    rows = []
    for case in [ring_case(256), ring_case(512), ring_case(1024), *([long_case()] if long else [])]:
        row = beside(case, binary, repeats)
        rows.append(row)
        print(_line(row), flush=True)
    return {"cases": rows}


def _line(row: dict[str, Any]) -> str:
    theirs, plain, folded = row["astra_sim"], row["unfolded"], row["folded"]
    same = plain["same_answer"] and folded["same_answer"]
    return (
        f"{row['case']:20} {theirs['cpu_s']:11.3f} {_mib(theirs['peak_bytes'])} | "
        f"{plain['cpu_s']:9.4f} {_mib(plain['grown_bytes'])} {plain['ratio']:6.1f} | "
        f"{folded['cpu_s']:8.5f} {_mib(folded['grown_bytes'])} {folded['ratio']:7.0f}  {same}"
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:5.1f}"


def alone(repeats: int) -> dict[str, Any]:
    """Measure the engine without ASTRA-sim: events per second, and small calls."""
    rows = []
    print("ring all-reduce, 1 MiB       events   seconds   ns/event")
    for ranks, chunks in EVENT_CASES:
        plain = beside(ring_case(ranks, chunks=chunks), None, repeats)["unfolded"]
        rows.append({"ranks": ranks, "chunks": chunks, "events": plain["events"], "cpu_s": plain["cpu_s"]})
        figures = (
            f"{plain['events']:11,} {plain['cpu_s']:9.4f} {plain['cpu_s'] / plain['events'] * 1e9:10.1f}"
        )
        print(f"  {ranks:5} NPUs, {chunks:2} chunks {figures}", flush=True)
    calls = measure("calls")
    print(
        f"{calls['calls']:,} tiny simulations: {calls['call_s'] * 1e6:.0f} us each, "
        f"{calls['grown_bytes']:,} bytes more memory at the end"
    )
    step = measure("training step")
    print(
        f"{step['collectives']} all-reduces on {step['ranks']:,} NPUs, folded: {step['cpu_s']:.3f} s, "
        f"{_mib(step['grown_bytes'])} MiB"
    )
    return {"events": rows, "calls": calls, "training_step": step}


def plot(rows: list[dict[str, Any]]) -> str:
    """Return an SVG of CPU seconds over events, with a line for the mean cost of an event."""
    width, height, left, bottom = 560, 320, 60, 45
    most = max(row["events"] for row in rows)
    each = sum(row["cpu_s"] for row in rows) / sum(row["events"] for row in rows)
    longest = max(most * each, *(row["cpu_s"] for row in rows))

    def place(events: float, seconds: float) -> tuple[float, float]:
        x = left + events / most * (width - left - 20)
        return round(x, 1), round(height - bottom - seconds / longest * (height - bottom - 20), 1)

    (x0, y0), (x1, y1) = place(0, 0), place(most, most * each)
    middle = {"text_anchor": "middle"}
    parts = [
        element("rect", width="100%", height="100%", fill="white"),
        element("path", d=f"M{x0} 20V{y0}H{width - 20}", fill="none", stroke="#555"),
        element("path", d=f"M{x0} {y0}L{x1} {y1}", stroke="#999", stroke_dasharray=4),
        element("text", f"million events (dashed: {each * 1e9:.0f} ns an event)", x=width / 2, y=height - 8,
                **middle),
        element("text", "processor seconds", x=14, y=height / 2, transform=f"rotate(-90 14 {height / 2})",
                **middle),
    ]  # fmt: skip
    for row in rows:
        x, y = place(row["events"], row["cpu_s"])
        parts.append(element("circle", cx=x, cy=y, r=4, fill="#1f6fb4"))
    for part in range(5):
        x, y = place(most * part / 4, longest * part / 4)
        parts.append(element("text", f"{most * part / 4e6:.1f}", x=x, y=y0 + 16, **middle))
        parts.append(element("text", f"{longest * part / 4:.2f}", x=left - 6, y=y + 4, text_anchor="end"))
    return picture(width, height, *parts, font_family="sans-serif", font_size=12) + "\n"


def main() -> int:
    """Run the chosen measurements; print a table, and write the figures if a file is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--astra-sim", type=Path, help="ASTRA-sim's congestion-unaware analytical binary")
    parser.add_argument("--long", action="store_true", help="add 8x8x16 NPUs with four 1 GiB all-reduces")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--plot", type=Path, help="SVG file for seconds over events (without --astra-sim)")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        name, *words = json.loads(chosen.measure)
        print(json.dumps(MEASUREMENTS[name](*words)))
        return 0
    binary: Path | None = chosen.astra_sim
    figures = compare(binary, chosen.repeats, long=chosen.long) if binary else alone(chosen.repeats)
    if chosen.plot and not binary:
        chosen.plot.write_text(plot(figures["events"]))
    text = json.dumps(figures, indent=1)
    if chosen.json:
        chosen.json.write_text(text + "\n")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
