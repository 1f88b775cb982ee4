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
from ....support.table import Floats
from ._dependencies import COMPUTE_TYPES
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

    *recorded_ns* is the time from the first start to the last end of a step, and *replayed_ns* is this time
    without delays that no operation explains. *ideal_ns*, the same for all steps, is the time if every
    operation takes the mean (computation) or median (communication) of its type. *by_type*, *by_replica* and
    *by_stage* are step times over the ideal if only operations of that type, replica or stage are as
    measured. *worker_share* (M_W) is the share of the slowdown that disappears if the slowest 3 % of workers
    become ideal, and *last_stage_share* (M_S) is this share for the last of several stages. Both are None
    without a slowdown.
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
    """Return the share of the slowdown that disappears in *without_ns*, or None without a slowdown."""
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


_USUAL = 0.1  # quantile over steps, so that effects of only some steps do not count


def micro_batch_factors(layout: Layout, work_ns: npt.NDArray[np.int64]) -> tuple[Floats, float]:
    """Return relative times of micro-batches, and the correlation of forward and backward times.

    The factors (operations, steps, replicas) are medians over all stages and both directions, and 1 for
    operations other than computation. For the correlation, forward and backward times are compared
    within steps, and the median is taken over workers. 0.9 or more means that sequence lengths differ
    (OSDI 2025), and 0 that times vary by noise alone. The mean compute time of a worker affects neither
    the factors nor the correlation. The mean compute time of a step affects the correlation only with
    one micro-batch per step, when forward and backward times come from different stages.
    """
    factors = np.ones(work_ns.shape)
    places = layout.select(*COMPUTE_TYPES)
    relative = work_ns[places] / np.maximum(1.0, work_ns[places].mean(axis=1, keepdims=True))
    batches = _batches(layout, places)
    for batch in np.unique(batches):
        own = batches == batch
        median = np.median(relative[own], axis=0)
        factors[places[own]] = np.where(median > 0, median, 1.0)
    return factors, _correlation(layout, places, batches, relative)


def _batches(layout: Layout, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each computation's micro-batch as logged, or its index within its chunk."""
    if (layout.micro_batches[places] >= 0).all():
        return layout.micro_batches[places]
    seen: dict[tuple[int, str, int], int] = {}
    batches = np.empty(len(places), np.int64)
    for at, place in enumerate(places):
        operation = layout.operations[place]
        key = operation.stage, operation.type, int(layout.chunks[place])
        batches[at] = seen[key] = seen.get(key, -1) + 1
    return batches


def _correlation(
    layout: Layout, places: npt.NDArray[np.int64], batches: npt.NDArray[np.int64], relative: Floats
) -> float:
    stages = np.array([layout.operations[place].stage for place in places])
    forward = np.array([layout.operations[place].type == COMPUTE_TYPES[0] for place in places])
    several = len(np.unique(batches)) > 1
    if not several and layout.stages == 1:
        return 0.0  # an intermittently slow worker gives the same correlation
    found = []
    for stage in range(layout.stages):
        pair = []
        for direction, place in ((forward, stage), (~forward, (stage + 1) % layout.stages)):
            own = np.flatnonzero(direction & (stages == place))
            own = own[np.argsort(batches[own], kind="stable")]
            pair.append(relative[own] - (relative[own].mean(axis=0, keepdims=True) if several else 1))
        one, other = pair
        if one.shape != other.shape or not one.size:
            continue
        scale = np.sqrt((one**2).sum(axis=(0, 1)) * (other**2).sum(axis=(0, 1)))
        found.append(np.where(scale > 0, (one * other).sum(axis=(0, 1)) / np.maximum(scale, 1e-300), 0.0))
    return float(np.median(found)) if found else 0.0


def stage_factors(layout: Layout, work_ns: Floats) -> Floats:
    """Return each stage's compute time relative to the median of the others (operations, stages).

    Entries of other stages, and of operations that are not computation, are 1. A stage's time is
    the lower median over replicas, so that one slow worker does not lengthen it, and the 10 %
    quantile over steps, because a long stage is long in all of them.
    """
    factors = np.ones((len(layout.operations), layout.stages))
    for kind in COMPUTE_TYPES:
        levels = np.full(layout.stages, np.nan)
        of_stage = [layout.select(kind, stage=stage) for stage in range(layout.stages)]
        for stage, places in enumerate(of_stage):
            if len(places):
                by_replica = np.sort(work_ns[places].mean(axis=0), axis=1)
                levels[stage] = np.quantile(by_replica[:, (layout.replicas - 1) // 2], _USUAL)
        for stage, places in enumerate(of_stage):
            others = np.delete(levels, stage)
            if len(places) and np.isfinite(others).any() and levels[stage] > 0 and np.nanmedian(others) > 0:
                factors[places, stage] = levels[stage] / np.nanmedian(others)
    return factors


def worker_factors(layout: Layout, work_ns: Floats) -> Floats:
    """Return each worker's compute time relative to its peers (replicas, stages, steps).

    Peers are the other workers of the stage in the same step. For a worker without peers, its own other steps
    are used.
    """
    of_stage = [layout.select(*COMPUTE_TYPES, stage=stage) for stage in range(layout.stages)]
    loads = np.array([work_ns[places].sum(axis=0).T for places in of_stage])
    loads = np.maximum(loads.transpose(1, 0, 2), 1.0)  # axes: replicas, stages, steps
    if layout.replicas == 1:
        return np.asarray(loads / np.quantile(loads, _USUAL, axis=2, keepdims=True))
    ordered = np.sort(loads, axis=0)
    # Without one worker, the larger loads move up by one place in the order.
    count = layout.replicas - 1
    ranks = np.argsort(np.argsort(loads, axis=0), axis=0)
    low, high = (
        np.take_along_axis(ordered, np.where(ranks <= place, place + 1, place), axis=0)
        for place in ((count - 1) // 2, count // 2)
    )
    return np.asarray(loads / ((low + high) / 2))
