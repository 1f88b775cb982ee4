"""How much longer captured steps take than those that nothing recorded, and host time without that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np

from ...errors import UsageError
from ...support import duration_text
from ...tracer import RankEntry, StepRange
from ..chakra import Graph, NodeType, Workload
from ._lane_numbers import COMM_LANE

__all__ = [
    "ProfilerOverhead",
    "measured_overhead",
    "profiler_overhead",
    "with_overhead_told",
    "without_overhead",
]

_CAPTURED, _UNPROFILED, _RESCALED = "captured_step_ns", "unprofiled_step_ns", "host_rescaled"
_KEY = "profiler_overhead"
# Steps of the same job differ by as much without any profiler.
_WORTH_TELLING = 1.1


class ProfilerOverhead(NamedTuple):
    """What the median captured and the median unprofiled step took on the slowest rank.

    *host_rescaled* says that the workload's host time is without the difference.
    """

    captured_ns: int
    unprofiled_ns: int
    host_rescaled: bool = False

    @property
    def ratio(self) -> float:
        """How many times an unprofiled step a captured one takes."""
        return self.captured_ns / self.unprofiled_ns

    @property
    def matters(self) -> bool:
        """Whether results have it in them, and more of it than steps differ anyway."""
        return self.ratio >= _WORTH_TELLING and not self.host_rescaled

    @property
    def text(self) -> str:
        """The fact in one clause."""
        times = f"{duration_text(self.captured_ns)} against {duration_text(self.unprofiled_ns)}"
        return f"captured steps take {self.ratio:.1f} times as long as unprofiled ones ({times})"


def measured_overhead(
    entries: Sequence[RankEntry], captured: Sequence[Sequence[StepRange]]
) -> dict[str, Any]:
    """Return the workload's metadata on how much longer the *captured* steps took; {} if it was not timed."""
    pairs = [
        (_median(steps), _median(entry.unprofiled_steps))
        for steps, entry in zip(captured, entries, strict=True)
    ]
    if not pairs or not all(ours and theirs for ours, theirs in pairs):
        return {}
    slowest = (max(times) for times in zip(*pairs, strict=True))
    return {_KEY: dict(zip((_CAPTURED, _UNPROFILED), slowest, strict=True))}


def _median(steps: Sequence[StepRange]) -> int:
    """Return what the median step took, as `choose_steps` takes it; 0 if there is none."""
    times = [step.end_ns - step.start_ns for step in steps if step.end_ns > step.start_ns]
    return median_low(times) if times else 0


def profiler_overhead(metadata: Mapping[str, Any]) -> ProfilerOverhead | None:
    """Return what the *metadata* of a workload says about the profiler's overhead; None if nothing."""
    told = metadata.get(_KEY)
    if not isinstance(told, Mapping):
        return None
    captured, unprofiled = (told.get(key) for key in (_CAPTURED, _UNPROFILED))
    if not all(type(value) is int and value > 0 for value in (captured, unprofiled)):
        return None
    return ProfilerOverhead(int(captured or 0), int(unprofiled or 0), told.get(_RESCALED) is True)


def with_overhead_told(workload: Workload) -> Workload:
    """Return *workload* with the overhead among its assumptions, if it matters."""
    overhead = profiler_overhead(workload.metadata)
    if overhead is None or not overhead.matters:
        return workload
    said = f"{overhead.text}, so host time is that much too long; 'convert --rescale-host' scales it"
    return _assuming(workload, said, {})


def without_overhead(workload: Workload, place: str) -> Workload:
    """Return *workload* with host time scaled by what an unprofiled step takes of a captured one.

    Raises `UsageError` if no step was timed before the capture of *place*.
    """
    overhead = profiler_overhead(workload.metadata)
    if overhead is None:
        raise UsageError(
            f"{place} does not say what a step takes without a profiler, so there is nothing to scale host "
            "time by. Capture again with 'chakrascope trace' and a --warmup of 2 or more, or convert without "
            "--rescale-host."
        )
    told = {_CAPTURED: overhead.captured_ns, _UNPROFILED: overhead.unprofiled_ns, _RESCALED: True}
    if overhead.ratio <= 1:
        return _assuming(workload, f"host time is as recorded, because {overhead.text}", {_KEY: told})
    share = 1 / overhead.ratio
    scaled = Workload(
        graphs=tuple(_scaled(graph, overhead) for graph in workload.graphs),
        program_of_rank=workload.program_of_rank,
        groups=workload.groups,
        metadata=workload.metadata,
    )
    said = f"host time was scaled by {share:.3f}, the same for every operator, because {overhead.text}"
    return _assuming(scaled, said, {_KEY: told})


def _scaled(graph: Graph, overhead: ProfilerOverhead) -> Graph:
    return graph.derived(duration_ns=partial(_durations, overhead))


def _durations(overhead: ProfilerOverhead, nodes: Mapping[str, Any]) -> np.ndarray:
    on_host = (nodes["stream"] < COMM_LANE) & (nodes["type"] == NodeType.COMP)
    durations = nodes["duration_ns"]
    scaled = np.rint(durations / overhead.ratio).astype(np.int64)
    changed: np.ndarray = np.where(on_host, scaled, durations)
    return changed


def _assuming(workload: Workload, said: str, changed: Mapping[str, Any]) -> Workload:
    assumptions = [said, *workload.metadata.get("assumptions", [])]
    return Workload(
        graphs=workload.graphs,
        program_of_rank=workload.program_of_rank,
        groups=workload.groups,
        metadata={**workload.metadata, **changed, "assumptions": assumptions},
    )
