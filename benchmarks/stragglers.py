"""Plant stragglers into synthetic jobs and let `diagnose TABLE` find them; also test healthy jobs.

    python benchmarks/stragglers.py --seeds 0-9
    python benchmarks/stragglers.py --published FOLDER

The seed chooses the job (replicas, stages, micro-batches, steps, noise of 1 to 3 %) and the planted cause: a
worker that is 1.2 to 2 times as slow, always, from a step on, or in every n-th step; a long last stage;
sequence lengths; a slow link; a slow reduction of gradients; a late input pipeline; or a pause in every n-th
step. A diagnosis is correct if the first cause has the right kind, place and onset. Further causes are
counted separately. If a planted cause makes steps less than 3 % longer (10 % if only some steps are slow), no
cause may be reported.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from chakrascope.converter.readers import read_operation_table
from chakrascope.runner.analysis import Stragglers, find_stragglers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "runner"))
from training_job import TrainingJob

KINDS = {
    "worker": "worker", "worker from a step on": "worker", "worker in some steps": "worker", "stage": "stage",
    "sequence": "sequence", "link": "network", "reduction": "network", "input": "host", "pause": "host",
}  # fmt: skip
SOME_STEPS = ("worker in some steps", "pause")


@dataclass(frozen=True)
class Plant:
    """A *job* with a cause planted at (*replica*, *stage*), and the expected end of `when`."""

    job: TrainingJob
    replica: int
    stage: int
    onset: str


def planted(kind: str, seed: int) -> Plant:
    """Return a job with a planted cause of *kind*; "" is a healthy job."""
    random = np.random.default_rng([seed, *map(ord, kind)])
    job = TrainingJob(
        replicas=int(random.integers(2, 7)),
        stages=int(random.integers(2, 7)),
        micro_batches=int(random.integers(4, 13)),
        steps=int(random.integers(24, 60)),
        noise=float(random.uniform(0.01, 0.03)),
        seed=seed,
    )
    place = int(random.integers(job.replicas)), int(random.integers(job.stages))
    factor, first = float(random.uniform(1.2, 2)), int(random.integers(6, job.steps - 6))
    period = int(random.integers(4, 9))
    lengths = random.lognormal(0, random.uniform(0.3, 0.7), (job.steps, job.replicas, job.micro_batches))
    step_s = (job.micro_batches + job.stages) * (job.forward_s + job.backward_s)
    onset = {
        "worker from a step on": f"since step {10 + first}",
        "worker in some steps": f"every {period}th",
        "pause": f"every {period}th",
    }.get(kind, "")

    def at(value: float, other: float, wanted: Callable[[int, int], bool]) -> Callable[..., float]:
        return lambda step, replica, stage, batch: (
            value if (replica, stage) == place and wanted(step, batch) else other
        )

    changes = {
        "": {},
        "worker": {"compute": at(factor, 1, lambda *_: True)},
        "worker from a step on": {"compute": at(factor, 1, lambda step, _: step >= first)},
        "worker in some steps": {"compute": at(2 * factor, 1, lambda step, _: step % period == 1)},
        "stage": {"compute": lambda _, __, stage, ___: factor if stage == job.stages - 1 else 1.0},
        "sequence": {"compute": lambda step, replica, _, batch: float(lengths[step, replica, batch])},
        "link": {"link": at(30, 1, lambda *_: True)},
        "reduction": {"reduce": at(step_s / job.collective_s / 4, 1, lambda *_: True)},
        "input": {"late": at(step_s / 5, 0, lambda *_: True)},
        "pause": {"pause": at(step_s / 2, 0, lambda step, batch: step % period == 1 and batch == 2)},
    }[kind]
    if kind == "stage":
        place = -1, job.stages - 1
    return Plant(replace(job, **changes), *place, onset)


def ask(job: TrainingJob) -> Stragglers:
    """Return the diagnosis of *job*."""
    with tempfile.TemporaryDirectory() as folder:
        return find_stragglers(read_operation_table(job.write(Path(folder) / "job.parquet")))


def is_right(kind: str, plant: Plant, found: Stragglers) -> bool:
    """Return whether the first cause is the planted one."""
    if not found.causes:
        return False
    first = found.causes[0]
    at = plant.replica, plant.stage
    places = {"stage": (-1, at[1]), "sequence": (-1, -1), "reduction": (-1, at[1])}.get(kind, at)
    return (first.kind, (first.replica, first.stage)) == (KINDS[kind], places) and first.when.endswith(
        plant.onset
    )


def effect(kind: str, plant: Plant) -> float:
    """Return the additional step time due to the planted cause, in slow steps if only some are slow."""
    changed = replace(plant.job, noise=0.0)
    plain = TrainingJob(
        **{name: getattr(changed, name) for name in ("replicas", "stages", "micro_batches", "steps")}
    )
    ratios = ask(changed).slowdowns.recorded_ns / ask(plain).slowdowns.recorded_ns - 1
    return float(ratios.max() if kind in SOME_STEPS else ratios.mean())


def plants(seeds: range) -> None:
    """Print the number of planted causes of each kind that `diagnose` names."""
    total: Counter[str] = Counter()
    for kind in KINDS:
        counts: Counter[str] = Counter()
        for seed in seeds:
            plant = planted(kind, seed)
            found = ask(plant.job)
            least = 0.1 if kind in SOME_STEPS else 0.03
            if effect(kind, plant) < least:
                counts["hidden"] += 1
                counts["hidden, but named"] += bool(found.causes)
                continue
            counts["planted"] += 1
            counts["right"] += is_right(kind, plant, found)
            counts["others named"] += max(0, len(found.causes) - 1)
            if not is_right(kind, plant, found):
                print(f"  missed: {kind}, seed {seed}: {[(c.kind, c.where, c.when) for c in found.causes]}")
        print(f"{kind:24}", dict(counts), flush=True)
        total += counts
    alarms = sum(bool(ask(planted("", seed).job).causes) for seed in seeds)
    print(f"{'all':24}", dict(total), f"\nhealthy: {alarms} of {len(seeds)} with a cause")


def published(folder: Path) -> None:
    """Print the largest difference from the published answers for each table."""
    for path in sorted(folder.glob("result-*.json")):
        name, expected = path.stem.removeprefix("result-"), json.loads(path.read_text())
        begin = time.perf_counter()
        slowdowns = (
            found := find_stragglers(read_operation_table(folder / f"trace-{name}.parquet"))
        ).slowdowns
        took = time.perf_counter() - begin
        errors = [0.0]
        for place, step in enumerate(map(str, found.layout.steps)):
            pairs = [(slowdowns.by_step[place], expected["blocking_step_slowdown"][step])]
            for name_of, every in (
                ("optype", slowdowns.by_type),
                ("dp_rank", dict(enumerate(slowdowns.by_replica))),
                ("stage", dict(enumerate(slowdowns.by_stage))),
            ):
                theirs = expected[f"blocking_decompose_by_{name_of}_per_step"][step]
                pairs += [(series[place], theirs[str(key)]) for key, series in every.items()]
            errors += [abs(ours / theirs - 1) for ours, theirs in pairs]
        print(
            f"{name}: S {slowdowns.overall:.4f} (published {expected['blocking_slowdown']:.4f}), M_W "
            f"{slowdowns.worker_share:.4f}, M_S {slowdowns.last_stage_share:.4f}, {len(errors) - 1:,} "
            f"figures by step at most {max(errors):.1e} off, replay {slowdowns.replay_error:.2%} "
            f"short, {took:.2f} s"
        )


def main() -> None:
    """Run the checks that the options select."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0-9")
    parser.add_argument("--published", type=Path)
    options = parser.parse_args()
    if options.published:
        published(options.published)
        return
    first, _, last = options.seeds.partition("-")
    plants(range(int(first), int(last or first) + 1))


if __name__ == "__main__":
    main()
