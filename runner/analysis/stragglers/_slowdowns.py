"""The slowdown of a job by stragglers: in total, and by type of operation, replica and stage.

Definitions are those of "Understanding Stragglers in Large Model Training Using What-if Analysis"
(OSDI 2025).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....errors import TraceError
from ._layout import Layout
from ._replay import Replay

_SLOWEST_PERCENT = 3
_NAMES = {
    "forward-send": "forward-pp-comm",
    "forward-recv": "forward-pp-comm",
    "backward-send": "backward-pp-comm",
    "backward-recv": "backward-pp-comm",
}


@dataclass(frozen=True)
class Slowdowns:
    """The times (integer ns) and slowdowns of each step.

    *recorded_ns* is from the first start to the last end of a step, and *replayed_ns* the same
    without delays that no operation explains. *ideal_ns*, the same for all steps, is the time if
    every operation takes the mean (computation) or median (communication) of its type. *by_type*,
    *by_replica* and *by_stage* are step times over the ideal if only operations of that type,
    replica or stage are as measured. *worker_share* (M_W) is how much of the slowdown disappears if
    the slowest 3 % of workers become ideal, and *last_stage_share* (M_S) the same for the last of
    several stages; both are None without a slowdown.
    """

    recorded_ns: npt.NDArray[np.int64]
    replayed_ns: npt.NDArray[np.int64]
    ideal_ns: int
    by_type: Mapping[str, npt.NDArray[np.float64]]
    by_replica: npt.NDArray[np.float64]
    by_stage: npt.NDArray[np.float64]
    worker_share: float | None
    last_stage_share: float | None

    @property
    def by_step(self) -> npt.NDArray[np.float64]:
        """Each step's slowdown: its replayed time over the ideal time."""
        return self.replayed_ns / self.ideal_ns

    @property
    def overall(self) -> float:
        """The job's slowdown S: the mean replayed step time over the ideal."""
        return float(self.replayed_ns.mean() / self.ideal_ns)

    @property
    def replay_error(self) -> float:
        """The relative excess of the mean recorded step time over the mean replayed one."""
        return float(self.recorded_ns.mean() / self.replayed_ns.mean() - 1)

    @property
    def by_worker(self) -> npt.NDArray[np.float64]:
        """Each worker's slowdown S_w (replicas, stages, steps): the minimum of its replica and stage."""
        return np.minimum(self.by_replica[:, None], self.by_stage[None])


def slowdowns(replay: Replay) -> Slowdowns:
    """Replay all steps as measured, with ideal times, and with one measured type, replica or stage."""
    layout = replay.layout
    kinds = [_NAMES.get(op.type, op.type) for op in layout.operations]
    types = dict.fromkeys(kinds)
    what_ifs = [
        mask(layout),
        ~mask(layout),
        *(mask(layout, [kind == name for kind in kinds]) for name in types),
        *(mask(layout, [op.stage == stage for op in layout.operations]) for stage in range(layout.stages)),
    ]
    times = replay.step_ns(np.array(what_ifs))
    replayed, ideal = times[0], int(times[1, 0])
    if ideal <= 0 or replayed.min() <= 0:
        raise TraceError("All operations of a step have a duration of 0. Next: give durations in seconds.")
    ratios = times[2:] / ideal
    by_replica, by_stage = replay.step_ns_of_replicas() / ideal, ratios[len(types) :]
    slowest = _slowest_workers(layout, by_replica.mean(axis=1), by_stage.mean(axis=1))
    last = mask(layout, [op.stage == layout.stages - 1 for op in layout.operations])
    removed = replay.step_ns(np.array([~slowest, ~last]))
    starts, ends = layout.start_ns, layout.end_ns
    return Slowdowns(
        ends.max(axis=(0, 2)) - starts.min(axis=(0, 2)),
        replayed,
        ideal,
        dict(zip(types, ratios, strict=False)),
        by_replica,
        by_stage,
        share_explained(replayed, removed[0], ideal),
        share_explained(replayed, removed[1], ideal) if layout.stages > 1 else None,
    )


def mask(layout: Layout, wanted: Sequence[bool] | None = None, replica: int = -1) -> npt.NDArray[np.bool_]:
    """Return a mask (operations, replicas) of all or *wanted* operations, on all replicas or one."""
    chosen = np.zeros((len(layout.operations), layout.replicas), bool)
    chosen[:, slice(None) if replica < 0 else replica] = True
    if wanted is not None:
        chosen &= np.array(wanted)[:, None]
    return chosen


def share_explained(
    slow_ns: npt.NDArray[np.int64], without_ns: npt.NDArray[np.int64], ideal_ns: int
) -> float | None:
    """Return how much of the slowdown disappears in *without_ns*, or None without a slowdown."""
    slowdown = float(slow_ns.mean() - ideal_ns)
    return float(slow_ns.mean() - without_ns.mean()) / slowdown if slowdown > 0 else None


def _slowest_workers(
    layout: Layout, by_replica: npt.NDArray[np.float64], by_stage: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Return a mask of the operations of the slowest 3 % of workers (at least one)."""
    scores = np.minimum(by_replica[:, None], by_stage)
    replicas, stages = np.nonzero(layout.ranks >= 0)
    order = np.lexsort([layout.ranks[replicas, stages], -scores[replicas, stages]])
    chosen = np.zeros(scores.shape, bool)
    for place in order[: -(-len(order) * _SLOWEST_PERCENT // 100)]:
        chosen[replicas[place], stages[place]] = True
    return np.asarray(chosen[:, [op.stage for op in layout.operations]].T)
