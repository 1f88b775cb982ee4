"""Simulate the distribution of a predicted step time, with kernel and rank times that vary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from ...converter import NodeType, Workload
from ...converter.chakra import Graph
from ...errors import UsageError
from ...support.table import Floats
from .._experiment import Detail, Experiment, WorkloadSource
from ..backends import Progress, get_backend
from .models import AXIS_LANES, LANES, Plan

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_SHARDED = 2  # the lowest ZeRO stage with collectives that overlap the passes
_LEAST = 1e-300  # least random number; keeps its n-th root above 0 for large n


@dataclass(frozen=True)
class Variation:
    """Relative standard deviations of the times of *kernels*, and of the speeds of *ranks*.

    Both variations are log-normal. The factor of a rank is constant over a step, and kernels vary
    independently of each other. *replays* steps are simulated with random numbers from *seed*. The
    constructor raises `UsageError` for values out of range.
    """

    kernels: float = 0.0
    ranks: float = 0.0
    replays: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("kernels", "ranks"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(
                    f"--spread {name}={getattr(self, name):.0%} is not between 0 and 100 %. Next: use, for "
                    "example, --spread kernels=5%,ranks=2%."
                )
        if not self.kernels and not self.ranks:
            raise UsageError(
                "--spread has nothing that varies. Next: use, for example, --spread kernels=5%,ranks=2%."
            )


@dataclass(frozen=True)
class StepDistribution:
    """The distribution of step times: the times (ns) of replays with a *variation*, in order of replays."""

    variation: Variation
    steps_ns: tuple[int, ...]

    def quantile_ns(self, share: float) -> int:
        """Return the step time in ns that the given share of the replays does not exceed."""
        return round(float(np.quantile(self.steps_ns, share)))

    def to_json(self) -> dict[str, Any]:
        """Return quantiles and mean of the step time in ns, and the parameters of the replays."""
        return {
            **asdict(self.variation),
            "mean_ns": round(sum(self.steps_ns) / len(self.steps_ns)),
            "quantiles_ns": {f"{share:g}": self.quantile_ns(share) for share in _QUANTILES},
        }


def step_distribution(
    experiment: Experiment, plan: Plan, variation: Variation, progress: Progress | None = None
) -> StepDistribution:
    """Simulate *experiment*, a step of *plan*, repeatedly with varied times of kernels and ranks.

    A rank that represents other ranks is as slow as the slowest represented rank. Between two collectives,
    the kernels of a representing rank are as slow as those of the collective's slowest participant. Waiting
    time that a ring hides is not subtracted. If every rank has a graph, the times of each graph are drawn
    separately. In this case, sharded weights raise `UsageError`, because the order of their collectives would
    depend on the times.
    """
    workload = experiment.workload.model
    if workload.representative_of_rank is None and plan.zero >= _SHARDED and plan.world > 1:
        raise UsageError(
            "--spread with --all-ranks needs the same order of collectives on all ranks, and sharded "
            "gradients and weights have no fixed order. Next: leave out --all-ranks."
        )
    drawn = _Drawn(workload, plan, variation)
    backend = get_backend(experiment.backend)
    steps = []
    for number in range(variation.replays):
        source = WorkloadSource.of_model(drawn.workload(np.random.default_rng([variation.seed, number])))
        replay = replace(experiment, workload=source, detail=Detail.TOTALS)
        steps.append(backend.run(replay, progress).makespan_ns)
    return StepDistribution(variation, tuple(steps))


class _Drawn:
    """Draws random times for the kernels of a *workload*."""

    def __init__(self, workload: Workload, plan: Plan, variation: Variation) -> None:
        self._workload, self._variation = workload, variation
        folded = workload.representative_of_rank
        self._members = (
            dict.fromkeys(range(workload.num_ranks), 1)
            if folded is None
            else dict(zip(*(each.tolist() for each in np.unique(folded, return_counts=True)), strict=True))
        )
        meeting = {} if folded is None else _meeting(plan)
        self._parts = [_Segments.of(graph, meeting, variation.kernels) for graph in workload.graphs]

    def workload(self, random: np.random.Generator) -> Workload:
        """Return a copy of the workload with newly drawn kernel times."""
        graphs = tuple(
            self._graph(graph, part, random)
            for graph, part in zip(self._workload.graphs, self._parts, strict=True)
        )
        return replace(self._workload, graphs=graphs)

    def _graph(self, graph: Graph, part: _Segments, random: np.random.Generator) -> Graph:
        members = np.array([self._members[graph.rank]])
        rank = _factors(np.array([self._variation.ranks]), members, random)[0]
        durations = np.array(graph.node_columns["duration_ns"])
        factors = rank * _factors(part.variation, part.meeting, random)[part.of_kernel]
        durations[part.kernels] = np.rint(durations[part.kernels] * factors)
        return graph.with_columns(duration_ns=durations)


def _meeting(plan: Plan) -> Mapping[int, int]:
    """Return, by lane, how many members the collectives have that computation waits for.

    Gradient reductions that run once per step are left out, because kernel variations average out over a
    step.
    """
    data = plan.tp * plan.degree(*plan.data_axes)
    return {
        AXIS_LANES["tp"]: plan.tp,
        AXIS_LANES["overlap"]: plan.tp,
        AXIS_LANES["cp"]: plan.tp * plan.cp,
        AXIS_LANES["ep"]: plan.tp * plan.ep,
        AXIS_LANES["dispatch"]: plan.tp * plan.ep,
        AXIS_LANES["experts"]: plan.tp * plan.ep,
        AXIS_LANES["etp"]: plan.expert_split,
        **({AXIS_LANES["gather"]: data} if plan.shards_each_pass else {}),
    }


@dataclass(frozen=True)
class _Segments:
    """The rows of a graph's *kernels*, and the segment (between two collectives) of each kernel.

    *variation* contains the relative standard deviation of each segment, and *meeting* contains the number of
    ranks that synchronise at the end of the segment.
    """

    kernels: npt.NDArray[np.int64]
    of_kernel: npt.NDArray[np.int64]
    variation: Floats
    meeting: npt.NDArray[np.int64]

    @classmethod
    def of(cls, graph: Graph, meeting: Mapping[int, int], kernels: float) -> _Segments:
        """Return the segments of *graph*; *kernels* is the relative standard deviation of one kernel."""
        columns = {name: np.asarray(graph.node_columns[name]) for name in ("type", "stream", "duration_ns")}
        lanes, collective = columns["stream"], columns["type"] == NodeType.COMM_COLL
        ranks = np.ones(len(lanes), dtype=np.int64)
        for lane, count in meeting.items():
            for level in (lane, lane + 1):
                ranks[collective & (lanes == level)] = count
        kinds = graph.node_columns["kind"]
        computes = np.array([text == "compute" for text in kinds.texts], dtype=bool)[kinds.numbers]
        rows = np.flatnonzero(computes & (lanes == LANES["compute"]))
        ends = np.flatnonzero(ranks > 1)
        # A kernel that no synchronising collective follows forms a segment by itself.
        behind = np.searchsorted(ends, rows)
        alone = behind == len(ends)
        key = np.where(alone, len(lanes) + np.arange(len(rows)), behind)
        numbers, of_kernel = np.unique(key, return_inverse=True)
        size = np.append(ends, 0)[np.minimum(numbers, len(ends))]
        durations = columns["duration_ns"][rows].astype(float)
        total = np.bincount(of_kernel, durations)
        square = np.bincount(of_kernel, durations**2)
        variation = kernels * np.sqrt(square) / np.maximum(total, 1.0)
        return cls(rows, of_kernel, variation, np.where(numbers < len(ends), ranks[size], 1))


def _factors(variation: Floats, members: npt.NDArray[np.int64], random: np.random.Generator) -> Floats:
    """Return log-normal factors of mean 1; each factor is the maximum over its number of *members*."""
    highest = np.maximum(random.random(len(variation)), _LEAST) ** (1 / members)
    inverse = NormalDist().inv_cdf
    drawn = np.array([inverse(min(each, 1 - 1e-16)) for each in highest.tolist()])
    width = np.sqrt(np.log1p(variation**2))
    factors: Floats = np.exp(width * drawn - width**2 / 2)
    return factors
