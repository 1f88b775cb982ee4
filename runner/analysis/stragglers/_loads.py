"""Compare micro-batches, stages and workers with their peers by compute time, as factors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ._dependencies import COMPUTE_TYPES
from ._layout import Layout

_USUAL = 0.1  # quantile over steps, so that effects of only some steps do not count
_Floats = npt.NDArray[np.float64]


def micro_batch_factors(layout: Layout, work_ns: npt.NDArray[np.int64]) -> tuple[_Floats, float]:
    """Return each micro-batch's time relative to other steps, and the correlation of both directions.

    The factors (operations, steps, replicas) are medians over all stages and both directions, and 1
    for operations other than computation. The correlation is the median over workers of that
    between forward and backward times within steps: 0.9 or more means that sequence lengths differ
    (OSDI 2025), 0 that times vary by noise alone. A worker's mean compute time affects neither. A
    step's affects the correlation only with one micro-batch per step, when forward and backward
    times come from different stages.
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
    layout: Layout, places: npt.NDArray[np.int64], batches: npt.NDArray[np.int64], relative: _Floats
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


def stage_factors(layout: Layout, work_ns: _Floats) -> _Floats:
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


def worker_factors(layout: Layout, work_ns: _Floats) -> _Floats:
    """Return each worker's compute time relative to its peers (replicas, stages, steps).

    Peers are the other workers of the stage in the same step, or for a worker without any, its own
    other steps.
    """
    of_stage = [layout.select(*COMPUTE_TYPES, stage=stage) for stage in range(layout.stages)]
    loads = np.array([work_ns[places].sum(axis=0).T for places in of_stage])
    loads = np.maximum(loads.transpose(1, 0, 2), 1.0)  # replicas, stages, steps
    if layout.replicas == 1:
        return np.asarray(loads / np.quantile(loads, _USUAL, axis=2, keepdims=True))
    ordered = np.sort(loads, axis=0)
    # Without one worker, the larger loads move up one place in the order.
    count = layout.replicas - 1
    ranks = np.argsort(np.argsort(loads, axis=0), axis=0)
    low, high = (
        np.take_along_axis(ordered, np.where(ranks <= place, place + 1, place), axis=0)
        for place in ((count - 1) // 2, count // 2)
    )
    return np.asarray(loads / ((low + high) / 2))
