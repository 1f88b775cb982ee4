"""Slowdowns, causes, step times and assumptions of a job, as text and tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ....converter.readers import (
    OperationTable,
    is_operation_table,
    read_operation_table,
    recorded_operations,
)
from ....errors import TraceError
from ....support import change_text, duration_text, share_text
from ....tracer import MANIFEST_NAME, TraceSet
from ..._memory import check_operations
from ...study import Study
from ._causes import StragglerCause, causes
from ._dependencies import dependencies
from ._layout import Layout, lay_out
from ._replay import Replay
from ._series import Change, level_change
from ._slowdowns import Slowdowns, slowdowns

_KINDS = {
    "sequence": "Sequence lengths differ between micro-batches",
    "stage": "Stage too long",
    "worker": "Slow worker",
    "network": "Slow transfer",
    "input": "Late input",
    "gc": "Garbage collection",
    "descheduled": "Descheduled",
    "host": "Late host",
}
_ACTIONS = {
    "sequence": "pack or sort sequences so that micro-batches have equal lengths",
    "stage": "move layers from this stage to the others",
    "worker": "compare clock rates, temperature and other processes of this rank with those of its peers; "
    "replace the machine if it remains slow",
    "network": "check the error counters and rates of the NICs and links between these ranks",
    "input": "give the data loader more workers or more prefetching, and check the storage it reads from",
    "gc": "call gc.freeze() before training, and collect garbage on all ranks in the same steps",
    "descheduled": "give each rank its own cores, and check the CPU limits of its container",
    "host": "profile some of these steps (`chakrascope trace`) to see what the host does",
}
_QUANTILES = (0.5, 0.9, 0.99)
_MIN_CHANGE = 1.03
_MAX_ERROR = 0.05  # relative error of a replay without changes above which figures are uncertain


@dataclass(frozen=True)
class Stragglers:
    """The stragglers of a job: *slowdowns* of the steps in *layout*, and their *causes*."""

    layout: Layout
    slowdowns: Slowdowns
    causes: tuple[StragglerCause, ...]
    remarks: tuple[str, ...]

    @property
    def quantiles_ns(self) -> dict[str, int]:
        """Quantiles and maximum of the recorded step times, in ns."""
        times = self.slowdowns.recorded_ns
        values = {f"p{q * 100:g}": round(float(np.quantile(times, q))) for q in _QUANTILES}
        return values | {"longest": int(times.max())}

    @property
    def change(self) -> Change | None:
        """The step at which recorded step times change level, or None."""
        times = self.slowdowns.recorded_ns.astype(np.float64)
        return level_change(self.layout.steps, times, _MIN_CHANGE)

    @property
    def sentences(self) -> list[str]:
        """Sentences about the slowdown, the step times, each cause, and the replay's error."""
        slowdowns, layout = self.slowdowns, self.layout
        of_recorded = 1 / (1 + slowdowns.replay_error) - 1
        times = {"mean": round(float(slowdowns.recorded_ns.mean())), **self.quantiles_ns}
        texts = ", ".join(f"{name} {duration_text(ns)}" for name, ns in times.items())
        sentences = [
            f"Stragglers make the job {slowdowns.overall:.3f} times as slow as it is without them "
            f"({(layout.ranks >= 0).sum()} workers: {layout.replicas} replicas of {layout.stages} stages; "
            f"{len(layout.steps)} steps).",
            f"Step time: {texts}; without stragglers {duration_text(slowdowns.ideal_ns)}.",
        ]
        if (change := self.change) is not None:
            before, after = duration_text(round(change.before)), duration_text(round(change.after))
            sentences.append(
                f"The median step takes {before} before step {change.step}, and {after} from this step on."
            )
        if slowdowns.worker_share is not None:
            last = slowdowns.last_stage_share
            stage = "" if last is None else f", without the last stage (M_S): {last:.3f}"
            sentences.append(
                "Share of the slowdown that disappears without the slowest 3 % of workers (M_W): "
                f"{slowdowns.worker_share:.3f}{stage}."
            )
        sentences += [f"{place}. {self._cause_text(cause)}" for place, cause in enumerate(self.causes, 1)]
        if not self.causes:
            sentences.append("No worker, stage, link or host makes steps longer by 3 % or more.")
        sentences.append(
            f"The replay without changes is {share_text(abs(of_recorded))} "
            f"{'longer' if of_recorded > 0 else 'shorter'} than the recorded steps."
        )
        return sentences

    @staticmethod
    def _cause_text(cause: StragglerCause) -> str:
        return (
            f"{_KINDS[cause.kind]}: {cause.where}, {cause.when}. Alone, it makes these steps "
            f"{cause.slowdown:.2f} times as long; without it, the mean step takes "
            f"{duration_text(cause.without_ns)}. Evidence: {cause.evidence}. Next: {_ACTIONS[cause.kind]}."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the slowdown, its shares and the step times as plain JSON."""
        found, change = self.slowdowns, self.change
        return {
            "replicas": self.layout.replicas,
            "stages": self.layout.stages,
            "step_count": len(self.layout.steps),
            "slowdown": found.overall,
            "replay_error": found.replay_error,
            "ideal_step_ns": found.ideal_ns,
            "worker_share": found.worker_share,
            "last_stage_share": found.last_stage_share,
            "step_ns": self.quantiles_ns,
            "change": change and {"step": change.step, "before_ns": change.before, "after_ns": change.after},
            "remarks": list(self.remarks),
        }


def operations_of(target: Path) -> OperationTable | None:
    """Return the operations of many steps at *target*, or None if it has none.

    *target* is an operation table, a trace set of `trace --steps 0`, or a study with a table or
    with such a trace set, of which the newest is read. Raises `TraceError` for an unfinished
    recording, and the errors of `read_operation_table`, `recorded_operations` and
    `check_operations`.
    """
    if is_operation_table(target):
        return _table(target)
    if Study.is_study(target):
        study = Study.open(target)
        if not study.trace_sets():
            _refuse_unfinished(study.traces_dir)
            file = study.operations_file
            return _table(file) if file.is_file() else None
        target = study.latest_trace_set()
    if not (target / MANIFEST_NAME).is_file():
        return None
    trace_set = TraceSet.load(target)
    return recorded_operations(trace_set) if any(entry.step_times for entry in trace_set.ranks) else None


def _refuse_unfinished(folder: Path) -> None:
    """Raise `TraceError` if the recording in *folder* has no manifest."""
    for file in sorted(folder.glob("*/rank*.steps.json.gz")):
        raise TraceError(
            f"{file.parent} has no manifest yet: its job is still running, or `chakrascope trace` was "
            "killed. Next: repeat the command after the job has ended."
        )


def _table(path: Path) -> OperationTable:
    """Read the operation table at *path* if memory suffices to analyse it."""
    check_operations(path)
    return read_operation_table(path)


def find_stragglers(table: OperationTable) -> Stragglers:
    """Find stragglers by replaying the steps in *table* with and without each possible cause.

    Raises `TraceError` naming operations that fit no schedule of pipeline stages and replicas.
    """
    layout = lay_out(table)
    replay = Replay(layout, dependencies(layout))
    found = slowdowns(replay)
    remarks = list(layout.remarks)
    if replay.backward_transfers:
        remarks.append(
            f"{replay.backward_transfers:,} transfers end more than 10 ms before their last member begins, "
            "and count as 0: the clocks of the ranks differ"
        )
    every = causes(replay, found)
    named = tuple(cause for cause in every if not cause.is_contention)
    remarks += [
        f"{cause.where} waited for a processor {cause.when}, which alone makes these steps "
        f"{cause.slowdown:.2f} times as long: {_ACTIONS[cause.kind]}"
        for cause in every
        if cause.is_contention
    ]
    if abs(found.replay_error) > _MAX_ERROR and all(cause.kind != "host" for cause in named):
        remarks.append(
            f"the replay differs from the recorded steps by {change_text(1 / (1 + found.replay_error) - 1)}: "
            "times and dependencies contradict each other, so the results are uncertain"
        )
    return Stragglers(layout, found, named, tuple(remarks))


def cause_table(found: Stragglers) -> pd.DataFrame:
    """Return a row per cause with the fields of `StragglerCause`; ``steps`` is the number of slow steps."""
    columns = [
        "kind", "where", "slowdown", "without_ns", "when", "steps", "evidence", "rank", "replica", "stage",
    ]  # fmt: skip
    rows = [asdict(cause) | {"steps": len(cause.steps)} for cause in found.causes]
    table: pd.DataFrame = pd.DataFrame(rows, columns=columns)
    return table


def type_table(found: Stragglers) -> pd.DataFrame:
    """Return the slowdown S_t by each type of operation, on average and in the worst step."""
    steps = found.layout.steps
    rows = [
        (name, float(by_step.mean()), float(by_step.max()), int(steps[by_step.argmax()]))
        for name, by_step in found.slowdowns.by_type.items()
    ]
    rows.sort(key=lambda row: -row[1])
    table: pd.DataFrame = pd.DataFrame(rows, columns=["type", "slowdown", "worst", "worst_step"])
    return table


def worker_table(found: Stragglers) -> pd.DataFrame:
    """Return the slowdown by each worker (S_w), its replica and its stage, slowest worker first."""
    found_by, layout = found.slowdowns, found.layout
    replicas, stages = np.nonzero(layout.ranks >= 0)
    by_replica, by_stage = found_by.by_replica.mean(axis=1), found_by.by_stage.mean(axis=1)
    by_step = found_by.by_worker[replicas, stages]
    rows = pd.DataFrame(
        {
            "rank": layout.ranks[replicas, stages],
            "replica": replicas,
            "stage": stages,
            "slowdown": np.minimum(by_replica[replicas], by_stage[stages]),
            "worst": by_step.max(axis=1),
            "worst_step": layout.steps[by_step.argmax(axis=1)],
            "replica_slowdown": by_replica[replicas],
            "stage_slowdown": by_stage[stages],
        }
    )
    table: pd.DataFrame = rows.sort_values(["slowdown", "rank"], ascending=[False, True], ignore_index=True)
    return table


def step_table(found: Stragglers) -> pd.DataFrame:
    """Return each step's times and slowdown, with its slowest rank and that rank's slowdown.

    ``replica N``, ``stage N`` and columns named after a type are the step's slowdown if only
    operations of that replica, stage or type are as measured.
    """
    by, layout = found.slowdowns, found.layout
    by_worker = by.by_worker
    slowest = by_worker.reshape(-1, by_worker.shape[2]).argmax(axis=0)
    columns = {
        "step": layout.steps,
        "recorded_ns": by.recorded_ns,
        "replayed_ns": by.replayed_ns,
        "slowdown": by.by_step,
        "slowest_rank": layout.ranks.reshape(-1)[slowest],
        "rank_slowdown": by_worker.max(axis=(0, 1)),
    }
    columns |= {f"replica {replica}": series for replica, series in enumerate(by.by_replica)}
    columns |= {f"stage {stage}": series for stage, series in enumerate(by.by_stage)}
    table: pd.DataFrame = pd.DataFrame(columns | dict(by.by_type))
    return table


def heat_map(found: Stragglers) -> pd.DataFrame:
    """Return the slowdown by each rank in each step: a row per rank, a column per step."""
    layout = found.layout
    replicas, stages = np.nonzero(layout.ranks >= 0)
    rows = pd.DataFrame(
        found.slowdowns.by_worker[replicas, stages], columns=[f"step {step}" for step in layout.steps]
    )
    rows.insert(0, "rank", layout.ranks[replicas, stages])
    table: pd.DataFrame = rows.sort_values("rank", ignore_index=True)
    return table


STRAGGLER_TABLES = {
    "causes": cause_table,
    "types": type_table,
    "workers": worker_table,
    "steps": step_table,
    "heat-map": heat_map,
}
"""Makes the table of each view of `Stragglers`."""
