"""Measure the overhead of captured over unprofiled steps, and remove it from host time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median_low, quantiles
from typing import Any, NamedTuple

import numpy as np

from ...errors import UsageError
from ...support import duration_text
from ...tracer import RankEntry, StepRange
from ..chakra import Graph, NodeType, Workload
from ._conventions import COMM_LANE

__all__ = [
    "ProfilerOverhead",
    "measured_overhead",
    "profiler_overhead",
    "usual_step_ns",
    "with_overhead_told",
    "without_overhead",
]

_CAPTURED, _UNPROFILED, _RESCALED = "captured_step_ns", "unprofiled_step_ns", "host_rescaled"
_SCATTER = "unprofiled_quartiles_ns"
_KEY, _REMOVED = "profiler_overhead", "profiler_ns"
# Fewer steps are no baseline: the first ones of a job, or one that also saves, would decide.
_LEAST_STEPS = 5
# Steps whose middle half is wider than that, relative to the median, are no baseline either.
_MOST_SCATTER = 0.2
# Steps of the same job differ by as much without any profiler.
_WORTH_TELLING = 1.1


class ProfilerOverhead(NamedTuple):
    """The median captured and the median unprofiled step of the slowest rank.

    *removed_ns* is the cost of recording operators, already subtracted from the workload's host time.
    *host_rescaled* means that the remaining difference was subtracted, too. *quartiles_ns* are those of
    unprofiled steps, None in workloads of versions that did not record them.
    """

    captured_ns: int
    unprofiled_ns: int
    removed_ns: int = 0
    host_rescaled: bool = False
    quartiles_ns: tuple[int, int] | None = None

    @property
    def is_scattered(self) -> bool:
        """Whether unprofiled steps differ too much for a comparison."""
        low, high = self.quartiles_ns or (0, 0)
        return high - low > _MOST_SCATTER * self.unprofiled_ns

    @property
    def ratio(self) -> float:
        """The ratio of a captured to an unprofiled step, without the cost of recording."""
        return (self.captured_ns - self.removed_ns) / self.unprofiled_ns

    @property
    def matters(self) -> bool:
        """Whether results include it, and it exceeds the spread of steps."""
        return self.ratio >= _WORTH_TELLING and not self.host_rescaled and not self.is_scattered

    @property
    def text(self) -> str:
        """The overhead as a clause of a sentence."""
        if self.is_scattered and self.quartiles_ns:
            low, high = map(duration_text, self.quartiles_ns)
            return (
                f"unprofiled steps scatter (the middle half takes {low} to {high}), so it is not known how "
                f"much longer the profiler made the captured ones ({duration_text(self.captured_ns)})"
            )
        times = f"{duration_text(self.captured_ns)} against {duration_text(self.unprofiled_ns)}"
        ratio = self.captured_ns / self.unprofiled_ns
        text = f"captured steps take {ratio:.1f} times as long as unprofiled ones ({times})"
        if not self.removed_ns:
            return text
        return f"{text}; {duration_text(self.removed_ns)}, the cost of recording operators, is taken out"


def measured_overhead(
    entries: Sequence[RankEntry], captured: Sequence[Sequence[StepRange]]
) -> dict[str, Any]:
    """Return the workload's metadata on how much longer the *captured* steps took.

    {} if fewer than five steps of a rank were timed without a profiler.
    """
    recorded = [_durations_ns(steps) for steps in captured]
    unprofiled = [_durations_ns(entry.unprofiled_steps) for entry in entries]
    if not entries or not all(recorded) or min(map(len, unprofiled)) < _LEAST_STEPS:
        return {}
    slowest = max(unprofiled, key=median_low)
    low, _, high = quantiles(slowest, n=4, method="inclusive")
    return {
        _KEY: {
            _CAPTURED: max(map(median_low, recorded)),
            _UNPROFILED: median_low(slowest),
            _SCATTER: [round(low), round(high)],
        }
    }


def usual_step_ns(entries: Sequence[RankEntry]) -> int:
    """Return the median unprofiled step of the slowest rank (ns); 0 if steps are too few or too different."""
    overhead = profiler_overhead(measured_overhead(entries, [entry.steps for entry in entries]))
    return 0 if overhead is None or overhead.is_scattered else overhead.unprofiled_ns


def _durations_ns(steps: Sequence[StepRange]) -> list[int]:
    return [step.end_ns - step.start_ns for step in steps if step.end_ns > step.start_ns]


def profiler_overhead(metadata: Mapping[str, Any]) -> ProfilerOverhead | None:
    """Return the profiler's overhead in the *metadata* of a workload; None if absent."""
    told = metadata.get(_KEY)
    if not isinstance(told, Mapping):
        return None
    captured, unprofiled = (told.get(key) for key in (_CAPTURED, _UNPROFILED))
    if not all(type(value) is int and value > 0 for value in (captured, unprofiled)):
        return None
    quartiles = told.get(_SCATTER)
    if not (isinstance(quartiles, list) and [type(value) for value in quartiles] == [int, int]):
        quartiles = None
    scatter = (quartiles[0], quartiles[1]) if quartiles else None
    rescaled = told.get(_RESCALED) is True
    return ProfilerOverhead(
        int(captured or 0), int(unprofiled or 0), _removed_ns(metadata), rescaled, scatter
    )


def _removed_ns(metadata: Mapping[str, Any]) -> int:
    """Return the subtracted cost of recording, on the rank with the largest one."""
    accounting, steps = metadata.get("accounting"), metadata.get("steps")
    figures = accounting.values() if isinstance(accounting, Mapping) else ()
    removed = [one.get(_REMOVED) for one in figures if isinstance(one, Mapping)]
    count = len(steps) if isinstance(steps, list) else 1
    return max((value for value in removed if type(value) is int), default=0) // max(1, count)


def with_overhead_told(workload: Workload) -> Workload:
    """Return *workload* with the overhead as an assumption, if it matters or was subtracted."""
    overhead = profiler_overhead(workload.metadata)
    if overhead is None or not (overhead.matters or overhead.removed_ns):
        return workload
    said = overhead.text
    if overhead.matters:
        said += ", so host time is that much too long; 'convert --rescale-host' scales it"
    return _assuming(workload, said, {})


def without_overhead(workload: Workload, place: str) -> Workload:
    """Return *workload* with host time scaled by what an unprofiled step takes of a captured one.

    Raises `UsageError` if too few steps of *place* were timed without a profiler, or if they scatter.
    """
    overhead = profiler_overhead(workload.metadata)
    if overhead is None:
        raise UsageError(
            f"{place} does not say what a step takes without a profiler: that needs {_LEAST_STEPS} steps "
            "outside the captured ones. Capture again with 'chakrascope trace' and let the script take more "
            "steps, or convert without --rescale-host."
        )
    if overhead.is_scattered:
        raise UsageError(
            f"{place}: {overhead.text}. There is nothing to scale host time by; convert without "
            "--rescale-host."
        )
    told = {**workload.metadata[_KEY], _RESCALED: True}
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
