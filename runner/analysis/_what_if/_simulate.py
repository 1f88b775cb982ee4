"""Simulate a changed experiment: once, or once for each thing that could be faster."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....errors import UsageError
from ..._experiment import Experiment, WorkloadSource
from ..._result import Result
from ..._traits import about_backend
from ...backends import Progress, get_backend
from ...gpu import faster_machine
from ._changed import with_faster_network, with_faster_nodes, without_edge
from ._skew import without_skew
from ._target import COLUMNS, NETWORK, NODES, Target

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["sensitivity", "simulate_faster", "what_if"]

_REMOVABLE = (*COLUMNS, *NODES, "edge", "skew")


def what_if(
    experiment: Experiment, changes: Sequence[tuple[Target, float]], progress: Progress | None = None
) -> Result:
    """Simulate *experiment* with all *changes*: each a target, and how many times as fast it is to be.

    Infinitely fast takes no time. A collective has that much less data; an edge is dropped and a skew evened
    out, whatever the number. Raises `UsageError` for a
    target that the experiment does not have, or that cannot change its result.
    """
    for target, times in changes:
        experiment = _changed(experiment, target, times)
    return get_backend(experiment.backend).run(experiment, progress)


def simulate_faster(experiment: Experiment, target: Target, times: float) -> int:
    """Return the makespan (ns) when *target* is *times* as fast as in *experiment*; below 1 is slower."""
    return what_if(experiment, [(target, times)]).makespan_ns


def sensitivity(
    experiment: Experiment,
    makespan_ns: int,
    chosen: Sequence[Target],
    times: float = 1.1,
    simulate: Callable[[Experiment, Target, float], int] = simulate_faster,
) -> pd.DataFrame:
    """Return a row per target: the step time if it alone is *times* as fast, largest gain first."""
    import pandas as pd  # noqa: PLC0415

    rows = [(target.label, target.key, simulate(experiment, target, times)) for target in chosen]
    table = pd.DataFrame(rows, columns=["target", "key", "makespan_ns"])
    table["delta_ns"] = table["makespan_ns"] - makespan_ns
    table["relative"] = table["delta_ns"] / max(1, makespan_ns)
    ordered: pd.DataFrame = table.sort_values("makespan_ns", kind="stable", ignore_index=True)
    return ordered


def _with_faster_machine(experiment: Experiment, target: Target, times: float) -> Experiment:
    if experiment.gpu_machine is None:
        raise UsageError(
            f"A run of '{experiment.backend}' has no machine whose figures could change; ask a run of 'gpu', "
            "or change the network (bandwidth:0)."
        )
    machine = faster_machine(experiment.gpu_machine, target.name, times)
    return dataclasses.replace(experiment, machine=machine)


def _changed(experiment: Experiment, target: Target, times: float) -> Experiment:
    measured = not about_backend(experiment.backend).network
    removable = (*_REMOVABLE, "collective") if measured else _REMOVABLE
    if not (0.01 <= times <= 1000 or (times == math.inf and target.what in removable)):
        raise UsageError(
            f"'{target.key[:60]}' can be 0.01 to 1000 times as fast, or 'inf' (gone), but for data "
            f"and networks; not {times:g} times."
        )
    if target.what in NETWORK:
        if measured:
            raise UsageError(
                f"A run of '{experiment.backend}' has no network that could change; simulate the workload on "
                "one, and ask that run."
            )
        if experiment.gpu_machine is not None:
            raise UsageError(
                f"A run of '{experiment.backend}' has the links of a machine, and nothing else of a network "
                "has an effect; change machine:scale_up.bytes_per_ns or machine:scale_up.latency_ns."
            )
        network = with_faster_network(experiment.network, experiment.backend, target, times)
        return dataclasses.replace(experiment, network=network)
    if target.what == "machine":
        return _with_faster_machine(experiment, target, times)
    model = experiment.workload.model
    if target.what == "edge":
        changed = without_edge(model, *target.edge)
    elif target.what == "skew":
        changed = without_skew(model, int(target.name), measured=measured)
    else:
        changed = with_faster_nodes(model, target, times, measured=measured)
    return dataclasses.replace(experiment, workload=WorkloadSource.of_model(changed))
