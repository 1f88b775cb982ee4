"""Simulate an experiment with what-if changes, together or one at a time."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from ....errors import SimulationStalled, UsageError
from ..._experiment import Detail, Experiment, WorkloadSource
from ..._result import Result
from ..._sync_points import SyncPoints
from ..._traits import about_backend
from ...backends import get_backend
from ...gpu import faster_machine
from ._changed import with_faster_network, with_faster_nodes, with_less_latency, without_edge
from ._skew import without_skew
from ._target import COLUMNS, COMMUNICATION, NETWORK, NODES, Target

if TYPE_CHECKING:
    import pandas as pd

_MAX_OFF = 0.1  # relative error above which a replay without changes is not trusted
_REPEATS, _SETTLED = 4, 0.01  # limits: consecutive steps, and relative change of a steady step time
_REMOVABLE = (*COLUMNS, *NODES, "edge", "skew")
_LEAST, _MOST = 0.01, 1000  # limits on the factor of a change


def what_if(experiment: Experiment, changes: Sequence[tuple[Target, float]]) -> Result:
    """Simulate *experiment* with all *changes*, each a target and a speed-up factor.

    The factor may be infinite. The factor divides the data of a collective, and the data and latency of all
    communication. The factor is ignored for an edge or a skew, which are removed. In a replay, ranks wait for
    each other at the same points as in the measurement, provided that these waits reproduce the measured time
    without changes. Raises `UsageError` for a target that the experiment lacks, or that cannot change the
    result.
    """
    sync, unchanged_ns = None, 0
    if about_backend(experiment.backend).replays:
        sync, unchanged_ns = _unchanged(experiment)
    changed = experiment
    for target, times in changes:
        changed = _changed(changed, target, times, sync)
    if changed.workload is not experiment.workload:
        source = WorkloadSource.of_model(changed.workload.model)  # encoded once for all changes
        changed = dataclasses.replace(changed, workload=source)
    if sync is not None and unchanged_ns:
        with suppress(SimulationStalled):  # a faster node may overtake an arrival that peers wait for
            result, period_ns = _repeated(changed, sync)
            gain_ns = unchanged_ns - period_ns
            return dataclasses.replace(result, makespan_ns=max(0, int(sync.finish_ns.max()) - gain_ns))
    return get_backend(experiment.backend).run(changed)


@functools.lru_cache(maxsize=2)
def _unchanged(experiment: Experiment) -> tuple[SyncPoints | None, int]:
    """Return the points where ranks of a replay wait, and the step time (ns) with these waits.

    The points are None for a single rank and for equal ranks. The time is 0 if it differs much from the
    measured time.
    """
    source = experiment.workload
    if len(set(source.program_of_rank.tolist())) == 1 or source.representative_of_rank is not None:
        return None, 0
    everything = dataclasses.replace(experiment, detail=Detail.EVERYTHING)
    alone = get_backend(experiment.backend).run(everything)
    sync = SyncPoints.of(alone, source.model)
    try:
        _, period_ns = _repeated(dataclasses.replace(experiment, detail=Detail.TOTALS), sync)
    except SimulationStalled:
        return sync, 0
    least_ns, most_ns = int(sync.finish_ns.min()), int(sync.finish_ns.max())
    is_measured = least_ns <= (1 + _MAX_OFF) * period_ns and period_ns <= (1 + _MAX_OFF) * most_ns
    return sync, period_ns if is_measured else 0


def _repeated(experiment: Experiment, sync: SyncPoints) -> tuple[Result, int]:
    """Simulate a step with the waits of *sync*; return the result and the period (ns) of repeated steps.

    A rank begins the next step as soon as it has ended this one, even if its peers are late.
    """
    backend, begin_ns = get_backend(experiment.backend), np.zeros_like(sync.begin_ns)
    first: Result | None = None
    ended_ns = period_ns = 0
    for _ in range(_REPEATS):
        step = dataclasses.replace(experiment, sync=dataclasses.replace(sync, begin_ns=begin_ns))
        detail = experiment.detail if first is None else Detail.TOTALS
        result = backend.run(dataclasses.replace(step, detail=detail))
        first = first or result
        finish_ns = result.columns("ranks")["finish_ns"]
        before_ns, period_ns = period_ns, result.makespan_ns - ended_ns
        if abs(period_ns - before_ns) <= _SETTLED * period_ns:
            break
        begin_ns, ended_ns = finish_ns - finish_ns.min(), int(finish_ns.max() - finish_ns.min())
        if ended_ns <= _SETTLED * period_ns:
            break
    assert first is not None
    return first, period_ns


def simulate_faster(experiment: Experiment, target: Target, times: float) -> int:
    """Return the makespan (ns) if *target* were *times* as fast in *experiment* (below 1: slower)."""
    return what_if(experiment, [(target, times)]).makespan_ns


def sensitivity(
    experiment: Experiment, makespan_ns: int, chosen: Sequence[Target], times: float = 1.1
) -> pd.DataFrame:
    """Return the step time with each target alone *times* as fast, by gain."""
    import pandas as pd  # noqa: PLC0415

    if not _LEAST <= times <= _MOST:
        raise UsageError(
            f"Contributors cannot be made {times:g} times as fast. Next: give a factor from {_LEAST} to "
            f"{_MOST}."
        )
    rows = [(target.label, target.key, simulate_faster(experiment, target, times)) for target in chosen]
    table = pd.DataFrame(rows, columns=["target", "key", "makespan_ns"])
    table["delta_ns"] = table["makespan_ns"] - makespan_ns
    table["relative"] = table["delta_ns"] / max(1, makespan_ns)
    ordered: pd.DataFrame = table.sort_values("makespan_ns", kind="stable", ignore_index=True)
    return ordered


def _with_faster_machine(experiment: Experiment, target: Target, times: float) -> Experiment:
    if experiment.gpu_machine is None:
        raise UsageError(
            f"A run on '{experiment.backend}' has no GPU machine to change. Next: use a run on 'gpu', or "
            "change the network (bandwidth:0)."
        )
    machine = faster_machine(experiment.gpu_machine, target.name, times)
    return dataclasses.replace(experiment, machine=machine)


def _changed(experiment: Experiment, target: Target, times: float, sync: SyncPoints | None) -> Experiment:
    """Return *experiment* with one change, whose programs are still to be encoded if its workload changed."""
    measured = not about_backend(experiment.backend).network
    removable = (*_REMOVABLE, "collective") if measured else _REMOVABLE
    if not (_LEAST <= times <= _MOST or (times == math.inf and target.what in removable)):
        raise UsageError(
            f"'{target.key[:60]}' cannot be made {times:g} times as fast. Next: give a factor from {_LEAST} "
            f"to {_MOST}" + (", or inf to remove the part." if target.what in removable else ".")
        )
    if target.what in NETWORK:
        if measured:
            raise UsageError(
                f"A run on '{experiment.backend}' has no network to change. Next: simulate the workload on a "
                "network with `chakrascope run`, and use that run."
            )
        if experiment.gpu_machine is not None:
            raise UsageError(
                f"A run on '{experiment.backend}' uses the links of its machine, not those of the network. "
                "Next: change machine:scale_up.bytes_per_ns or machine:scale_up.latency_ns."
            )
        network = with_faster_network(experiment.network, experiment.backend, target, times)
        return dataclasses.replace(experiment, network=network)
    if target.what == "machine":
        return _with_faster_machine(experiment, target, times)
    model = experiment.workload.model
    if target.what == "edge":
        changed = without_edge(model, *target.edge)
    elif target.what == "skew":
        changed = without_skew(model, int(target.name))
    else:
        changed = with_faster_nodes(model, target, times, measured=measured, sync=sync)
        if target.key == COMMUNICATION and not measured:
            experiment = _with_less_latency(experiment, times)
    return dataclasses.replace(experiment, workload=dataclasses.replace(experiment.workload, loaded=changed))


def _with_less_latency(experiment: Experiment, times: float) -> Experiment:
    """Return *experiment* with every latency of messages divided by *times*."""
    system, machine = experiment.system, experiment.gpu_machine
    if machine is not None:
        for key in ("scale_up.latency_ns", "scale_out.latency_ns"):
            machine = faster_machine(machine, key, times)
        return dataclasses.replace(experiment, machine=machine)
    if system.endpoint_delay is not None:
        system = dataclasses.replace(system, endpoint_delay=round(system.endpoint_delay / times))
    network = with_less_latency(experiment.network, times)
    return dataclasses.replace(experiment, network=network, system=system)
