"""The operations of all steps of a capture, from the times that its ranks recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from ...errors import TraceError
from ...support.table import Columns
from ...tracer import RankEntry, TraceSet, read_step_times
from ._operation_table import OPERATION_TYPES, OperationTable

__all__ = ["recorded_operations"]

_PHASES = {
    "input": "loader_ns",
    "forward-compute": "forward_ns",
    "backward-compute": "backward_ns",
    "gc": "",  # the rest of the step: no other phase has a garbage collection
    "descheduled": "delay_ns",
    "collectives": "collective_ns",
    "optimizer": "optimizer_ns",
}
"""Operations of a step in the order in which they count, and the reading of each."""
_NEXT = "Next: record them with `chakrascope trace --steps 0 -- COMMAND`."


@dataclass(frozen=True)
class _Recorded:
    """The steps of one rank, sorted by number, which is the first of *columns*; the others are in ns.

    They are ``start_ns``, and durations by the names of `_PHASES`.
    """

    rank: int
    sends: frozenset[int]
    columns: Columns


def recorded_operations(trace_set: TraceSet) -> OperationTable:
    """Return the operations of the steps after warm-up that all ranks of *trace_set* recorded.

    An operation is the sum of a phase over the step, and begins when the one before ends. A step begins on
    all ranks when it does on the first. ``collectives`` is waiting for peers, and for what they send. Ranks
    that exchange messages are stages of a replica, in their order; others are replicas. Raises `TraceError`
    if there are no such steps.
    """
    warmup = int(trace_set.options.get("warmup", 0))
    recorded = [_recorded(trace_set, entry, warmup) for entry in trace_set.ranks]
    without = next((one.rank for one in recorded if not len(one.columns["step"])), None)
    if without is not None or not recorded:
        who = "no rank" if without is None else f"rank {without}"
        raise TraceError(f"{trace_set.path}: of {who} there are no times of whole steps. {_NEXT}")
    common = reduce(np.intersect1d, [one.columns["step"] for one in recorded])
    if not len(common):
        raise TraceError(f"{trace_set.path}: no step was recorded on all of its ranks. {_NEXT}")
    places = _places(recorded)
    starts_ns = np.min([one.columns["start_ns"][np.isin(one.columns["step"], common)] for one in recorded], 0)
    starts_ns -= starts_ns[0]
    tables = [_operations(one, common, *places[one.rank], starts_ns) for one in recorded]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    order = np.lexsort([columns[name] for name in ("type", "stage", "replica", "step")])
    columns = {name: column[order] for name, column in columns.items()}
    return OperationTable(trace_set.path, columns | {"row": np.arange(1, len(order) + 1)})


def _recorded(trace_set: TraceSet, entry: RankEntry, warmup: int) -> _Recorded:
    """Return what the rank of *entry* recorded of unprofiled steps after *warmup* steps.

    A step during which the system's clock was set back is left out.
    """
    parts = list(read_step_times(trace_set, entry))
    names = ("index", "time_ns", "recorded", *filter(None, _PHASES.values()))
    readings = {
        name: np.array([value for part in parts for value in part.steps.columns[name]], np.int64)
        for name in names
    }
    changes = {name: np.diff(column) for name, column in readings.items()}
    phases = {kind: changes[name] for kind, name in _PHASES.items() if name and kind != "descheduled"}
    phases["gc"] = changes["time_ns"] - sum(phases.values(), np.zeros(1, np.int64))
    whole = (changes["index"] == 1) & (readings["recorded"][1:] == 0) & (readings["index"][:-1] >= warmup)
    whole &= np.logical_and.reduce([duration >= 0 for duration in phases.values()])
    phases = _without_delay(phases, changes["delay_ns"])
    columns = {"step": readings["index"][:-1], "start_ns": readings["time_ns"][:-1], **phases}
    sends = frozenset(peer for part in parts for peer in part.sends)
    return _Recorded(entry.rank, sends, {name: column[whole] for name, column in columns.items()})


def _without_delay(phases: Columns, delay_ns: npt.NDArray[np.int64]) -> Columns:
    """Return *phases* with the wait for a processor as ``descheduled``.

    Where in the step it was is unknown: each phase of work gives the same share of its time.
    """
    work = {kind: time_ns for kind, time_ns in phases.items() if kind != "collectives"}
    total = np.maximum(sum(work.values(), np.zeros(1, np.int64)), 1)
    share = np.clip(delay_ns / total, 0, 1)
    taken = {kind: np.rint(time_ns * share).astype(np.int64) for kind, time_ns in work.items()}
    descheduled = sum(taken.values(), np.zeros(1, np.int64))
    return phases | {kind: work[kind] - taken[kind] for kind in work} | {"descheduled": descheduled}


def _places(recorded: Sequence[_Recorded]) -> dict[int, tuple[int, int]]:
    """Return the replica and the stage of each rank."""
    replica_of = {one.rank: one.rank for one in recorded}
    for one in recorded:
        for peer in one.sends:
            joined = {replica_of[one.rank], replica_of.get(peer, replica_of[one.rank])}
            replica_of |= {rank: min(joined) for rank, of in replica_of.items() if of in joined}
    members: dict[int, list[int]] = {}
    for rank in sorted(replica_of):
        members.setdefault(replica_of[rank], []).append(rank)
    return {
        rank: (replica, stage)
        for replica, ranks in enumerate(members.values())
        for stage, rank in enumerate(ranks)
    }


def _operations(
    recorded: _Recorded,
    common: npt.NDArray[np.int64],
    replica: int,
    stage: int,
    starts_ns: npt.NDArray[np.int64],
) -> Columns:
    """Return the rows of the steps *common* to all ranks, which begin at *starts_ns* on each of them."""
    chosen = np.isin(recorded.columns["step"], common)
    steps = recorded.columns["step"][chosen]
    durations = np.array([recorded.columns[kind][chosen] for kind in _PHASES])
    starts = starts_ns + np.cumsum(durations, axis=0) - durations
    same = {"replica": replica, "stage": stage, "rank": recorded.rank, "model_chunk": stage}
    same |= {"number": 0, "chunk": 0, "micro_batch": -1}
    return {
        "step": np.tile(steps, len(_PHASES)),
        "type": np.repeat([OPERATION_TYPES.index(kind) for kind in _PHASES], len(steps)),
        "start_ns": starts.ravel(),
        "duration_ns": durations.ravel(),
        **{name: np.full(durations.size, value) for name, value in same.items()},
    }
