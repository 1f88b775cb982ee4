"""Compare the engine with real ASTRA-sim on random experiments, by hand.

Example: ``python benchmarks/astra_sim_fuzz.py UNAWARE AWARE --count 2000 --first 0 --out differences``, with
the paths of ASTRA-sim's two analytical binaries. Each seed gives one experiment, which runs on the
congestion-unaware backend and, if the network has one dimension, on the congestion-aware backend. An
experiment with different results is reduced, and written to a separate folder with both results. The exit
status is 1 if any results differed.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import astra_sim_run
import random_experiments
from random_experiments import Experiment

LIMIT_S = 20.0
EXAMPLES = 12
TIMES = {"cycles": "finish_ns", "gpu_time": "compute_ns", "comm_time": "comm_ns", "overlap": "overlap_ns"}
SHARES = {
    "compute_bound_pct": ("compute_bound", 100),
    "compute_util_pct": ("compute_utilization", 100),
    "memory_util_pct": ("memory_utilization", 100),
    "operation_intensity": ("operation_intensity", 1),
}
_WHY = re.compile(r"Assertion `([^']+)|what\(\):\s*(.+)|removed before call (.+)|\](?=[^\]]*$)(.+)")


def ours(folder: Path, backend: str, options: dict[str, Any]) -> dict[str, Any]:
    """Simulate the files in *folder*; return the status, and the table of ranks if they all finish."""
    from chakrascope.errors import Cancelled, ChakrascopeError, SimulationStalled  # noqa: PLC0415
    from chakrascope.runner import simulate  # noqa: PLC0415

    groups = folder / "groups.json"
    end = time.monotonic() + LIMIT_S
    try:
        result = simulate(
            folder / "workload",
            folder / "system.json",
            folder / "network.yml",
            folder / "memory.json",
            groups if groups.exists() else None,
            f"analytical-{backend}",
            progress=lambda *_: time.monotonic() < end,
            **options,
        )
    except SimulationStalled as error:
        return {"status": "stalls", "message": str(error), "waiting": {wait["rank"] for wait in error.waits}}
    except Cancelled:
        return {"status": "loops", "message": f"not done after {LIMIT_S:g} s"}
    except ChakrascopeError as error:
        return {"status": "refuses", "message": f"{type(error).__name__}: {error}"}
    except Exception as error:
        return {"status": "crashes", "message": repr(error)}
    table = result.ranks.set_index("rank").to_dict("index")
    facts = {name: result.provenance[name] for name in ("folded", "finish_order")}
    return {"status": "finishes", "message": "", "ranks": table} | facts


class Engine:
    """The engine in a separate process, so that a crash or a hang counts as an answer."""

    def __init__(self) -> None:
        self.pool = self._start()

    def _start(self) -> futures.ProcessPoolExecutor:
        return futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def __call__(self, folder: Path, backend: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of `ours`, or that the process crashed or hung."""
        job = self.pool.submit(ours, folder, backend, options)
        try:
            return job.result(LIMIT_S + 30)
        except futures.process.BrokenProcessPool:
            answer = {"status": "crashes", "message": "the process died"}
        except futures.TimeoutError:
            answer = {"status": "hangs", "message": "no answer, and no progress either"}
            for process in list(self.pool._processes.values()):
                process.kill()
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.pool = self._start()
        return answer


def compare(mine: dict[str, Any], theirs: astra_sim_run.Answer) -> list[str]:
    """Return a sentence for each differing figure of a rank; ASTRA-sim must have finished."""
    if mine["status"] != "finishes":
        return [f"ASTRA-sim finishes, the engine {mine['status']}: {mine['message']}"]
    found = []
    for rank, figures in sorted(theirs.ranks.items()):
        row = mine["ranks"][rank]
        # ASTRA-sim prints the difference of two unsigned numbers, which may have wrapped around.
        pairs: dict[str, tuple[float, float, float]]
        pairs = {"exposed": (int(row["exposed_comm_ns"]) % 2**64, int(figures["exposed"]) % 2**64, 0.0)}
        pairs |= {
            name: (row[column], figures[name], 0.0) for name, column in TIMES.items() if name in figures
        }
        for name, (column, scale) in SHARES.items():
            if name in figures:
                pairs[name] = (row[column] * scale, figures[name], 0.00051)
        for name, (got, want, tolerance) in pairs.items():
            if not abs(got - want) <= tolerance:
                found.append(f"rank {rank}: {name} is {got}, ASTRA-sim says {want}")
    return found


class Fuzzer:
    """Run experiments on both simulators and store the differences."""

    def __init__(self, binaries: dict[str, Path], out: Path) -> None:
        self.binaries = binaries
        self.out = out
        self.engine = Engine()
        self.verdicts: Counter[str] = Counter()
        self.features: Counter[str] = Counter()
        self.differences: list[dict[str, Any]] = []
        self.reasons: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}
        self.astra_sim_s = 0.0
        self.figures = 0

    def both(self, experiment: Experiment, backend: str) -> tuple[dict[str, Any], astra_sim_run.Answer]:
        """Run *experiment* on the engine first (ASTRA-sim may create files), then on ASTRA-sim."""
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        try:
            random_experiments.write(experiment, folder)
            mine = self.engine(folder, backend, experiment["options"])
            words = random_experiments.command_options(experiment)
            return mine, astra_sim_run.run(self.binaries[backend], folder, words, limit_s=LIMIT_S)
        finally:
            shutil.rmtree(folder)

    def check(self, seed: int) -> None:
        """Compare the experiment of *seed* on each backend that can run it."""
        experiment = random_experiments.draw(seed)
        one = len(experiment["network"]["topology"]) == 1
        for backend in self.binaries if one else ["unaware"]:
            mine, theirs = self.both(experiment, backend)
            status = theirs.status(len(experiment["workload"]))
            self.astra_sim_s += theirs.seconds
            if status != "finishes":
                verdict = f"ASTRA-sim {status}, the engine {mine['status']}"
                unfinished = set(range(len(experiment["workload"]))) - theirs.ranks.keys()
                if mine["status"] == status == "stalls" and mine["waiting"] != unfinished:
                    verdict += " (other ranks)"
                self._note(verdict, seed, mine, theirs)
                self.reasons[f"{verdict}: {_short(theirs.reason)}"] += 1
                continue
            found = compare(mine, theirs)
            if found:
                self._note("different", seed, mine, theirs)
                self._reduce(experiment, backend, found)
                continue
            self._agreed(experiment, backend, mine, theirs)

    def _agreed(self, experiment: Experiment, backend: str, mine: dict[str, Any], theirs: Any) -> None:
        self.verdicts[f"same ({backend})"] += 1
        self.verdicts["same, folded"] += mine["folded"]
        if mine["finish_order"] != theirs.order:
            self._note("same, ranks finish in another order", experiment["seed"], mine, theirs)
            self.verdicts["same, ranks finish in another order, folded"] += mine["folded"]
        self.figures += sum(len(figures) for figures in theirs.ranks.values())
        self.features.update(random_experiments.features(experiment))

    def _note(self, verdict: str, seed: int, mine: dict[str, Any], theirs: astra_sim_run.Answer) -> None:
        self.verdicts[verdict] += 1
        examples = self.examples.setdefault(verdict, [])
        if len(examples) < EXAMPLES:
            reason = f"seed {seed}: ASTRA-sim: {theirs.reason or '-'}; engine: {mine['message'] or '-'}"
            examples.append(reason)

    def _reduce(self, experiment: Experiment, backend: str, found: list[str]) -> None:
        """Shrink a difference and write it with both answers."""

        def differs(candidate: Experiment) -> bool:
            mine, theirs = self.both(candidate, backend)
            finishes = theirs.status(len(candidate["workload"])) == "finishes"
            return finishes and bool(compare(mine, theirs))

        small = shrink(experiment, differs)
        mine, theirs = self.both(small, backend)
        folder = self.out / f"seed{experiment['seed']}-{backend}"
        folder.mkdir(parents=True, exist_ok=True)
        random_experiments.write(small, folder)
        (folder / "experiment.json").write_text(json.dumps(small, indent=1))
        report = {
            "backend": backend,
            "options": random_experiments.command_options(small),
            "found": found,
            "reduced": compare(mine, theirs),
        }
        (folder / "difference.json").write_text(json.dumps(report, indent=1))
        self.differences.append(report | {"seed": experiment["seed"], "folder": str(folder)})
        print(f"seed {experiment['seed']} ({backend}) differs: {report['reduced'][:2]}", flush=True)

    def report(self) -> dict[str, Any]:
        """Return all counts so far."""
        return {
            "verdicts": dict(sorted(self.verdicts.items())),
            "figures_compared": self.figures,
            "features": dict(sorted(self.features.items())),
            "reasons": dict(self.reasons.most_common()),
            "examples": self.examples,
            "astra_sim_seconds": self.astra_sim_s,
            "differences": self.differences,
        }


def _short(reason: str) -> str:
    """Return the constant part of ASTRA-sim's message for failures with *reason*."""
    match = _WHY.search(reason)
    text = next((part for part in match.groups() if part), reason) if match else reason
    return re.sub(r"\d+", "N", text).strip()[:90] or "-"


def shrink(experiment: Experiment, differs: Callable[[Experiment], bool], tries: int = 150) -> Experiment:
    """Return a smaller experiment for which *differs* is still true, after at most *tries* runs."""
    progress = True
    while progress:
        progress = False
        for candidate in _smaller(experiment):
            if tries == 0:
                return experiment
            tries -= 1
            if differs(candidate):
                experiment, progress = candidate, True
                break
    return experiment


def _smaller(experiment: Experiment) -> Iterator[Experiment]:
    """Yield *experiment* without a node on all ranks, with a simpler option, or without a rare key."""
    ids = sorted({node["id"] for program in experiment["workload"] for node in program}, reverse=True)
    for node_id in ids:
        candidate = copy.deepcopy(experiment)
        candidate["workload"] = [_without(program, node_id) for program in candidate["workload"]]
        if all(candidate["workload"]):
            yield candidate
    for name, plain in {"num_queues_per_dim": 1, "injection_scale": 1.0, "rendezvous": False}.items():
        if experiment["options"][name] != plain:
            yield {**experiment, "options": experiment["options"] | {name: plain}}
    plain_system = {"preferred-dataset-splits": 1, "active-chunks-per-dimension": 1, "endpoint-delay": 10}
    for name, value in plain_system.items():
        if experiment["system"].get(name, value) != value:
            yield {**experiment, "system": experiment["system"] | {name: value}}
    for name in ("model-shared-bus", "roofline-enabled", "replay-only"):
        if name in experiment["system"]:
            left = {key: value for key, value in experiment["system"].items() if key != name}
            yield {**experiment, "system": left}


def _without(program: list[dict[str, Any]], node_id: int) -> list[dict[str, Any]]:
    kept = [node for node in program if node["id"] != node_id]
    for node in kept:
        for name in ("data_deps", "ctrl_deps"):
            node[name] = [parent for parent in node.get(name, ()) if parent != node_id]
    return kept


def main() -> int:
    """Run the given seeds and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("unaware", type=Path, help="ASTRA-sim's congestion-unaware analytical binary")
    parser.add_argument("aware", type=Path, help="ASTRA-sim's congestion-aware analytical binary")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=2000, help="number of experiments")
    parser.add_argument("--out", type=Path, default=Path("differences"), help="folder for differences")
    parser.add_argument("--json", type=Path, help="file for the counts")
    chosen = parser.parse_args()
    fuzzer = Fuzzer({"unaware": chosen.unaware, "aware": chosen.aware}, chosen.out)
    start = time.monotonic()
    for done, seed in enumerate(range(chosen.first, chosen.first + chosen.count), 1):
        fuzzer.check(seed)
        if done % 100 == 0 or done == chosen.count:
            elapsed = time.monotonic() - start
            print(f"{done} experiments, {elapsed:.0f} s: {dict(fuzzer.verdicts)}", flush=True)
            if chosen.json:
                report = {"first": chosen.first, "experiments": done} | fuzzer.report()
                chosen.json.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(fuzzer.report(), indent=1))
    return 1 if fuzzer.differences else 0


if __name__ == "__main__":
    sys.exit(main())
