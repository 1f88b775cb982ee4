"""A synthetic training job: 1F1B pipelines of data-parallel replicas, logged by operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["TrainingJob"]

Place = tuple[int, int]  # replica and stage
Factor = Callable[[int, int, int, int], float]


def one(*_: int) -> float:
    return 1.0


def none(*_: int) -> float:
    return 0.0


@dataclass
class TrainingJob:
    """The parameters of a job: times in seconds, factors by (step, replica, stage, micro-batch).

    *compute*, *link* (by the lower stage) and *reduce* multiply computations, messages and the reduction of
    gradients; *late* is added before the first operation of a step and *pause* before backward computations.
    A receive is posted when the previous one has been used or, if receives *block*, once its worker needs it.
    """

    replicas: int = 2
    stages: int = 2
    micro_batches: int = 4
    steps: int = 4
    forward_s: float = 0.010
    backward_s: float = 0.020
    message_s: float = 0.001
    collective_s: float = 0.005
    noise: float = 0.0
    seed: int = 0
    compute: Factor = one
    link: Factor = one
    reduce: Factor = one
    late: Factor = none
    pause: Factor = none
    block: bool = False

    def table(self) -> pd.DataFrame:
        """Return the operations of all steps, in ByteDance's columns."""
        random = np.random.default_rng(self.seed)
        return pd.concat([_Step(self, step, random).run() for step in range(self.steps)], ignore_index=True)

    def write(self, path: Path) -> Path:
        """Write the table to *path*, as Parquet or, depending on the suffix, as CSV."""
        table = self.table()
        if path.suffix == ".csv":
            table.to_csv(path, index=False)
        else:
            table.to_parquet(path, index=False)
        return path


class _Step:
    def __init__(self, job: TrainingJob, step: int, random: np.random.Generator) -> None:
        self.job, self.step, self.random = job, step, random
        self.rows: list[dict[str, object]] = []
        self.places = [(replica, stage) for replica in range(job.replicas) for stage in range(job.stages)]
        self.ended: dict[tuple[str, Place, int], float] = {}  # computations
        self.received: dict[tuple[str, Place, int], float] = {}
        self.sent: dict[tuple[str, Place], float] = {}

    def run(self) -> pd.DataFrame:
        job = self.job
        ready = {place: job.late(self.step, *place, 0) for place in self.places}
        free = self.pipeline(self.meet("params-all-gather", ready, lambda place: place[1]))
        for place in self.places:
            self.log(place, "gc", free[place], free[place])
        normed = {place: self.own("layernorm-grads-all-reduce", place, free[place]) for place in self.places}
        ends = {place: end for place, end in normed.items() if place[1] in (0, job.stages - 1)}
        normed |= self.meet("embedding-grads-all-reduce", ends, lambda place: place[0])
        reduced = self.meet("grads-reduce-scatter", normed, lambda place: place[1], job.reduce)
        clipped = self.meet("optimizer-clip-main-grad", reduced, lambda place: 0)
        for place in self.places:
            self.own("optimizer", place, clipped[place])
        return pd.DataFrame(self.rows)

    def pipeline(self, begin: dict[Place, float]) -> dict[Place, float]:
        """Run forward and backward of all micro-batches; returns when each worker's last one ends."""
        free, done = dict(begin), dict.fromkeys(begin, 0)
        programs = {place: self.program(place[1]) for place in begin}
        while any(done[place] < len(programs[place]) for place in begin):
            for place in begin:
                while done[place] < len(programs[place]):
                    direction, number = programs[place][done[place]]
                    if not self.arrives(direction, place, number, free[place]):
                        break
                    free[place] = self.compute(direction, place, number, free[place])
                    done[place] += 1
        return free

    def program(self, stage: int) -> list[tuple[str, int]]:
        count = self.job.micro_batches
        warm = min(self.job.stages - stage - 1, count)
        program = [("forward", number) for number in range(warm)]
        for number in range(count - warm):
            program += [("forward", warm + number), ("backward", number)]
        return program + [("backward", number) for number in range(count - warm, count)]

    def compute(self, direction: str, place: Place, number: int, free: float) -> float:
        job = self.job
        start = max(free, self.received.get((direction, place, number), 0.0))
        if direction == "backward":
            start += job.pause(self.step, *place, number)
        took = job.forward_s if direction == "forward" else job.backward_s
        took *= job.compute(self.step, *place, number) * (1 + job.noise * self.random.standard_normal())
        self.ended[direction, place, number] = end = start + took
        self.log(place, f"{direction}-compute", start, end, number)
        return end

    def arrives(self, direction: str, target: Place, number: int, free: float) -> bool:
        """Log the message that a computation needs, if any; False if it cannot have been sent yet."""
        job, (replica, stage) = self.job, target
        source = replica, stage - 1 if direction == "forward" else stage + 1
        if not 0 <= source[1] < job.stages:
            return True
        if (direction, source, number) not in self.ended:
            return False
        if direction == "backward" and not number:
            before = self.ended.get(("forward", target, max(0, job.stages - stage - 2)), 0.0)
        else:
            before = self.ended.get((direction, target, number - 1), 0.0)
        posted = max(before, self.received.get((direction, target, number - 1), 0.0))
        begun = max(self.ended[direction, source, number], self.sent.get((direction, source), 0.0))
        posted = max(posted, free) if job.block else posted
        took = job.message_s * job.link(self.step, replica, min(stage, source[1]), number)
        end = max(begun, posted) + took
        self.sent[direction, source] = self.received[direction, target, number] = end
        self.log(source, f"{direction}-send", begun, end, number)
        self.log(target, f"{direction}-recv", posted, end, number)
        return True

    def meet(
        self, kind: str, ready: dict[Place, float], group: Callable[[Place], int], factor: Factor = one
    ) -> dict[Place, float]:
        """Run a collective of the workers of one *group*, from when the last one is ready."""
        ends = {}
        for place, start in ready.items():
            members = [other for other in ready if group(other) == group(place)]
            slowest = max(factor(self.step, *member, 0) for member in members)
            ends[place] = max(ready[member] for member in members) + self.job.collective_s * slowest
            self.log(place, kind, start, ends[place])
        return ends

    def own(self, kind: str, place: Place, start: float) -> float:
        self.log(place, kind, start, start + 0.001)
        return start + 0.001

    def log(self, place: Place, kind: str, start: float, end: float, number: int = 0) -> None:
        replica, stage = place
        is_compute = kind.endswith("-compute")
        has_chunk = is_compute or kind in ("params-all-gather", "grads-reduce-scatter")
        self.rows.append(
            {
                "dp_rank": replica,
                "stage": stage,
                "rank": stage * self.job.replicas + replica,
                "step": 10 + self.step,
                "optype": kind,
                "start_ts": start,
                "duration": end - start,
                "seq_id": number,
                "mc": 0 if has_chunk else -1,
                "mb_id": number if is_compute else -1,
                "gmc": stage if is_compute else -1,
            }
        )
