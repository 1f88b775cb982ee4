"""Ask what a step would take if one thing were faster, by simulating it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...converter import Workload
from ...errors import UsageError
from ...runner import CriticalPath, Experiment, WorkloadSource, get_backend

__all__ = ["Target", "sensitivity", "simulate_faster", "targets"]

_NO_NETWORK = ("replay", "fake")
_COLUMNS = ("operator", "module", "kind")


@dataclass(frozen=True)
class Target:
    """One thing that could be faster: nodes with a *name* in a column, or a network dimension (from 0)."""

    what: str
    name: str

    @property
    def label(self) -> str:
        """The target in words."""
        if self.what in ("bandwidth", "latency"):
            better = "more bandwidth" if self.what == "bandwidth" else "less latency"
            return f"network dimension {int(self.name) + 1}: {better}"
        return (
            "host time between operators" if self == Target("kind", "launch") else f"{self.what} {self.name}"
        )

    @property
    def key(self) -> str:
        """The target as one text, which :meth:`parse` reads."""
        return f"{self.what}:{self.name}"

    @classmethod
    def parse(cls, key: str) -> Target:
        """Return the target written as *key*; raises UsageError for anything else."""
        what, _, name = key.partition(":")
        if what not in (*_COLUMNS, "bandwidth", "latency") or not name:
            raise UsageError(f"'{key[:60]}' is nothing that could be faster; choose one of those listed.")
        return cls(what, name)


def targets(path: CriticalPath, backend: str, dimensions: int, count: int = 5) -> list[Target]:
    """Return what could be faster: the path's largest operators and modules, host time, the network."""
    # Only a replay takes the duration of a communication from the workload.
    kinds = ["compute", "memory"] + ["communication"] * (backend == "replay")
    scaled = path.segments[path.segments["kind"].isin(kinds)]
    found = [Target(what, name) for what in ("operator", "module") for name in _largest(scaled, what, count)]
    if (path.segments["kind"] == "launch").any():
        found.append(Target("kind", "launch"))
    if backend not in _NO_NETWORK:
        for dimension in range(dimensions):
            found += [Target("bandwidth", str(dimension)), Target("latency", str(dimension))]
    return found


def _largest(segments: pd.DataFrame, column: str, count: int) -> list[str]:
    named = segments[segments[column] != ""]
    return [str(name) for name in named.groupby(column)["duration_ns"].sum().nlargest(count).index]


def simulate_faster(experiment: Experiment, target: Target, times: float) -> int:
    """Return the makespan (ns) when *target* is *times* as fast as in *experiment*; below 1 is slower.

    Raises UsageError if *times* is not positive or the network has no such dimension.
    """
    if not 0.01 <= times <= 1000:
        raise UsageError(f"Something can be 0.01 to 1000 times as fast, not {times:g} times.")
    return get_backend(experiment.backend).run(_changed(experiment, target, times)).makespan_ns


def sensitivity(
    experiment: Experiment,
    makespan_ns: int,
    chosen: Sequence[Target],
    times: float = 1.1,
    simulate: Callable[[Experiment, Target, float], int] = simulate_faster,
) -> pd.DataFrame:
    """Return a row a target of what the step takes when it alone is *times* as fast, most helpful first."""
    rows = [(target.label, simulate(experiment, target, times)) for target in chosen]
    table = pd.DataFrame(rows, columns=["target", "makespan_ns"])
    table["delta_ns"] = table["makespan_ns"] - makespan_ns
    table["relative"] = table["delta_ns"] / max(1, makespan_ns)
    ordered: pd.DataFrame = table.sort_values("makespan_ns", kind="stable", ignore_index=True)
    return ordered


def _changed(experiment: Experiment, target: Target, times: float) -> Experiment:
    if target.what in _COLUMNS:
        workload = _with_faster_nodes(experiment.workload.model, target, times)
        return dataclasses.replace(experiment, workload=WorkloadSource.of_model(workload))
    network = experiment.network
    if not (target.name.isdigit() and int(target.name) < network.dimensions):
        raise UsageError(f"The network has no dimension {target.name[:20]}; choose one of those listed.")
    factors = [times if dimension == int(target.name) else 1.0 for dimension in range(network.dimensions)]
    pairs = zip(getattr(network, target.what), factors, strict=True)
    if target.what == "bandwidth":
        changed = dataclasses.replace(network, bandwidth=tuple(value * factor for value, factor in pairs))
    else:
        changed = dataclasses.replace(network, latency=tuple(value / factor for value, factor in pairs))
    return dataclasses.replace(experiment, network=changed)


def _with_faster_nodes(workload: Workload, target: Target, times: float) -> Workload:
    """Return *workload* with the durations of the target's nodes divided by *times*, rounded."""
    graphs = []
    for graph in workload.graphs:
        chosen = (graph.nodes[target.what] == target.name).to_numpy()
        durations = graph.nodes["duration_ns"].to_numpy()
        faster = np.where(chosen, np.rint(durations / times).astype(np.int64), durations)
        graphs.append(dataclasses.replace(graph, nodes=graph.nodes.assign(duration_ns=faster)))
    return dataclasses.replace(workload, graphs=tuple(graphs))
