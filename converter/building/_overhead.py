"""Measure the cost of recording per step and per event, and subtract this cost from host time."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from statistics import median, median_low, quantiles
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import UsageError
from ...support import duration_text
from .._columns import which
from ..chakra import COMM_LANE, NodeType, Workload

if TYPE_CHECKING:  # not imported at run time, because the results need no traces
    from ...tracer import Evidence, RankEntry, StepRange
    from ..readers import Events
    from ._rank_graph import RankGraph
    from ._steps import Window

_CAPTURED, _UNPROFILED, _RESCALED = "captured_step_ns", "unprofiled_step_ns", "host_rescaled"
_SCATTER, _ERROR = "unprofiled_quartiles_ns", "unprofiled_error_ns"
_KEY, _REMOVED = "profiler_overhead", "profiler_ns"
# The minimum number of baseline steps. With fewer steps, the first steps or a step with a checkpoint dominate
# the median.
_MIN_STEPS = 5
# Maximum interquartile range of baseline steps, relative to the median.
_MAX_SCATTER = 0.2
# The minimum ratio of captured to unprofiled steps that is reported. Steps without a profiler also differ by
# up to this ratio.
_WORTH_TELLING = 1.1
# Number of steps at the start of a run that allocate and compile.
_FIRST = 3
# A step longer than this multiple of the median did work that usual steps do not do.
_LONG = 1.5
# The standard error of a normal sample's median is 0.93 interquartile ranges / sqrt(number of values).
_MEDIAN_ERROR = 0.93
# Maximum relative error of a median used as a baseline. A difference of fewer than _ERRORS standard errors
# may be due to chance.
_MAX_ERROR, _ERRORS = 0.1, 2
# Maximum recording cost per event. PyTorch's profiler takes 1 to 5 us per event, including its Python part.
# Additional time has other causes.
_MAX_NS = 10_000
# Events per block in which PyTorch allocates events (`BlockSize` in torch/csrc/profiler/collection.h). The
# first event of a block costs much more than the other events.
_BLOCK = 512
_WAITS = ("sync", "wait", "idle")
CLOCK_PHASES = ("loader", "forward", "backward", "optimizer")
"""Phases that the tracer times in every step; the last phase is everything after the backward pass."""


class ProfilerOverhead(NamedTuple):
    """The durations of the median captured and the median unprofiled step of the slowest rank.

    *removed_ns* is the cost of recording operators, already subtracted from the workload's host time.
    *host_rescaled* means that the remaining difference was also subtracted. *quartiles_ns* are the quartiles
    of unprofiled steps, and *error_ns* is the standard error of their median. For workloads of old versions,
    which did not record these values, they are None and -1.
    """

    captured_ns: int
    unprofiled_ns: int
    removed_ns: int = 0
    host_rescaled: bool = False
    quartiles_ns: tuple[int, int] | None = None
    error_ns: int = -1

    @property
    def is_scattered(self) -> bool:
        """Whether unprofiled steps differ too much for a comparison."""
        low, high = self.quartiles_ns or (0, 0)
        return high - low > _MAX_SCATTER * self.unprofiled_ns

    @property
    def usual_ns(self) -> int:
        """The median unprofiled step (ns), or 0 if the error of the median is large."""
        return self.unprofiled_ns if 0 <= self.error_ns <= _MAX_ERROR * self.unprofiled_ns else 0

    @property
    def ratio(self) -> float:
        """The ratio of a captured step, without the cost of recording, to an unprofiled step."""
        return (self.captured_ns - self.removed_ns) / self.unprofiled_ns

    @property
    def matters(self) -> bool:
        """Whether results include the profiler's overhead, and the overhead exceeds the spread of steps."""
        return self.ratio >= _WORTH_TELLING and not self.host_rescaled and not self.is_scattered

    @property
    def text(self) -> str:
        """The profiler's overhead as a clause of a sentence."""
        if self.is_scattered and self.quartiles_ns:
            low, high = map(duration_text, self.quartiles_ns)
            text = (
                f"unprofiled steps vary (middle half: {low} to {high}), so they do not show how much longer "
                f"captured steps ({duration_text(self.captured_ns)}) take"
            )
        else:
            times = f"{duration_text(self.captured_ns)} against {duration_text(self.unprofiled_ns)}"
            ratio = self.captured_ns / self.unprofiled_ns
            text = f"captured steps take {ratio:.1f} times as long as unprofiled ones ({times})"
        if not self.removed_ns:
            return text
        return f"{text}; {duration_text(self.removed_ns)}, the cost of recording operators, is subtracted"


def measured_overhead(
    entries: Sequence[RankEntry], captured: Sequence[Sequence[StepRange]]
) -> dict[str, Any]:
    """Return the workload's metadata on the overhead of the *captured* steps.

    The result is {} if fewer than five steps of a rank were timed without a profiler.
    """
    recorded = [_durations_ns(steps) for steps in captured]
    unprofiled = [_durations_ns(entry.unprofiled_steps) for entry in entries]
    if not entries or not all(recorded) or min(map(len, unprofiled)) < _MIN_STEPS:
        return {}
    slowest = max(unprofiled, key=median_low)
    low, _, high = quantiles(slowest, n=4, method="inclusive")
    return {
        _KEY: {
            _CAPTURED: max(map(median_low, recorded)),
            _UNPROFILED: median_low(slowest),
            _SCATTER: [round(low), round(high)],
            _ERROR: round(_error_of_median(slowest)),
        }
    }


def usual_step_ns(entries: Sequence[RankEntry]) -> int:
    """Return the slowest rank's median unprofiled step (ns), or 0 if the median's error is large."""
    overhead = profiler_overhead(measured_overhead(entries, [entry.steps for entry in entries]))
    return 0 if overhead is None else overhead.usual_ns


def _error_of_median(values: Sequence[int]) -> float:
    """Return the standard error of the median of *values*, assuming a normal distribution."""
    low, _, high = quantiles(values, n=4, method="inclusive")
    return float(_MEDIAN_ERROR * (high - low) / len(values) ** 0.5)


def _durations_ns(steps: Sequence[StepRange]) -> list[int]:
    return [step.end_ns - step.start_ns for step in steps if step.end_ns > step.start_ns]


def profiler_overhead(metadata: Mapping[str, Any]) -> ProfilerOverhead | None:
    """Return the profiler's overhead in the *metadata* of a workload, or None if it is unknown."""
    stated = metadata.get(_KEY)
    if not isinstance(stated, Mapping):
        return None
    captured, unprofiled = (stated.get(key) for key in (_CAPTURED, _UNPROFILED))
    if not all(type(value) is int and value > 0 for value in (captured, unprofiled)):
        return None
    quartiles = stated.get(_SCATTER)
    if not (isinstance(quartiles, list) and [type(value) for value in quartiles] == [int, int]):
        quartiles = None
    scatter = (quartiles[0], quartiles[1]) if quartiles else None
    error = stated.get(_ERROR)
    return ProfilerOverhead(
        int(captured or 0),
        int(unprofiled or 0),
        _removed_ns(metadata),
        host_rescaled=stated.get(_RESCALED) is True,
        quartiles_ns=scatter,
        error_ns=error if type(error) is int else -1,
    )


def _removed_ns(metadata: Mapping[str, Any]) -> int:
    """Return the subtracted cost of recording a step (ns) on the rank with the largest cost."""
    accounting, steps = metadata.get("accounting"), metadata.get("steps")
    figures = accounting.values() if isinstance(accounting, Mapping) else ()
    removed = [one.get(_REMOVED) for one in figures if isinstance(one, Mapping)]
    count = len(steps) if isinstance(steps, list) else 1
    return max((value for value in removed if type(value) is int), default=0) // max(1, count)


def with_overhead_noted(workload: Workload) -> Workload:
    """Return *workload* with an assumption on the profiler's overhead, if it matters or was subtracted."""
    overhead = profiler_overhead(workload.metadata)
    if overhead is None or not (overhead.matters or overhead.removed_ns):
        return workload
    assumption = overhead.text
    if overhead.matters:
        assumption += ", so host time is too long by this ratio; 'convert --rescale-host' corrects it"
    return _assuming(workload, assumption, {})


def without_overhead(workload: Workload, place: str) -> Workload:
    """Return *workload* with host time scaled by the ratio of an unprofiled to a captured step.

    Raises `UsageError` if too few steps of *place* were timed without a profiler, or if these steps scatter.
    """
    overhead = profiler_overhead(workload.metadata)
    if overhead is None:
        raise UsageError(
            f"{place} has too few unprofiled step times: --rescale-host needs {_MIN_STEPS} steps outside "
            "the captured ones. Capture again with 'chakrascope trace' and let the script take more "
            "steps, or convert without --rescale-host."
        )
    if overhead.is_scattered:
        raise UsageError(
            f"{place}: {overhead.text}. There is nothing to scale host time by; convert without "
            "--rescale-host."
        )
    changed = {**workload.metadata[_KEY], _RESCALED: True}
    if overhead.ratio <= 1:
        return _assuming(workload, f"host time is as recorded, because {overhead.text}", {_KEY: changed})
    share, durations = 1 / overhead.ratio, partial(_durations, overhead)
    graphs = tuple(graph.derived(duration_ns=durations) for graph in workload.graphs)
    assumption = f"host time was scaled by {share:.3f}, the same for every operator, because {overhead.text}"
    return _assuming(replace(workload, graphs=graphs), assumption, {_KEY: changed})


def _durations(overhead: ProfilerOverhead, nodes: Mapping[str, Any]) -> np.ndarray:
    on_host = (nodes["stream"] < COMM_LANE) & (nodes["type"] == NodeType.COMP)
    durations = nodes["duration_ns"]
    scaled = np.rint(durations / overhead.ratio).astype(np.int64)
    changed: np.ndarray = np.where(on_host, scaled, durations)
    return changed


def _assuming(workload: Workload, assumption: str, changed: Mapping[str, Any]) -> Workload:
    assumptions = [assumption, *workload.metadata.get("assumptions", [])]
    return replace(workload, metadata={**workload.metadata, **changed, "assumptions": assumptions})


def cost_of_recording(evidence: Evidence | None, events: Events, converted: Sequence[StepRange]) -> float:
    """Return the profiler's cost (ns) of recording one of the thread's *events*, or 0.0 if unknown.

    The cost is the CPU time of the *converted* steps minus the CPU time of unprofiled steps, divided by the
    number of events. The upper quartile of unprofiled steps is used because the converted step may be slow.
    The cost is unknown without *evidence*, and if unprofiled steps are few or differ widely.
    """
    if evidence is None:
        return 0.0
    steps = evidence.steps
    used = {index: steps.cpu_ns[end] - steps.cpu_ns[begin] for index, begin, end in steps.steps()}
    recorded = {index for index, _, end in steps.steps() if steps.recorded[end]}
    plain = [used[index] for index in sorted(used.keys() - recorded)]
    plain = plain[_FIRST:] if len(plain) >= _FIRST + _MIN_STEPS else plain
    usual = [one for one in plain if one <= _LONG * median(plain)]
    if len(usual) < _MIN_STEPS:
        return 0.0
    error = _error_of_median(usual)
    _, middle, high = quantiles(usual, n=4, method="inclusive")
    if error > _MAX_ERROR * middle:
        return 0.0
    own = [step for step in converted if step.index in used]
    excess = sum(used[step.index] - high for step in own)
    bounds = [(step.start_ns, step.end_ns) for step in own]
    count = int(np.diff(np.searchsorted(events.start_ns, bounds)).sum()) if own else 0
    if not count or excess < _ERRORS * error * len(own):
        return 0.0
    return min(excess / count, _MAX_NS)


def costs_by_phase(
    cost_ns: float, evidence: Evidence | None, phases: np.ndarray, converted: Sequence[StepRange]
) -> np.ndarray:
    """Return the cost of recording each event, which is *cost_ns* on average in the *converted* steps.

    *phases* are the events' phases in `CLOCK_PHASES` (-1: outside the steps). Some events cost more than
    others. Each phase bears a share of the total cost, in proportion to its excess over the median unprofiled
    step.
    """
    costs = np.full(len(phases), cost_ns)
    if evidence is None or not cost_ns or not evidence.steps.forward_ns:
        return costs
    counts = np.bincount(phases[phases >= 0], minlength=len(CLOCK_PHASES))
    longer = np.where(counts > 0, _longer_phases(evidence, {step.index for step in converted}), 0.0)
    if not longer.any():
        return costs
    per_event = cost_ns * counts.sum() * longer / longer.sum() / np.maximum(counts, 1)
    return np.where(phases >= 0, np.minimum(per_event, _MAX_NS)[phases], cost_ns)


def _longer_phases(evidence: Evidence, converted: Container[int]) -> np.ndarray:
    """Return the excess (ns) of each of `CLOCK_PHASES` in the *converted* steps over unprofiled steps."""
    steps = evidence.steps
    spent = np.array([getattr(steps, f"{name}_ns") for name in CLOCK_PHASES])
    rows = [
        (index, steps.recorded[end], spent[:, end] - spent[:, begin]) for index, begin, end in steps.steps()
    ]
    own = [taken for index, _, taken in rows if index in converted]
    plain = [taken for _, is_recorded, taken in rows if not is_recorded]
    longer: np.ndarray = np.maximum(np.sum(own, axis=0) - len(own) * np.median(plain[_FIRST:], axis=0), 0)
    return longer


def without_recording(
    own: RankGraph, events: Mapping[int, Events], window: Window, costs_ns: Mapping[int, np.ndarray]
) -> RankGraph:
    """Return the graph *own* with each lane's recording *costs_ns* of *events* subtracted from host nodes.

    The profiler does its work before it records an event's start, and after it records the event's end. Half
    of the cost is subtracted from the node that ran until the start, and half from the node that ran after
    the end. The part that exceeds a node's duration is subtracted from the following nodes with the same
    source location, because recording also slows down later uses of the recorded tensors. If the next node
    has another source location, at most the cost of a block of events is carried over to it. From waiting
    nodes, only the cost of their own events is subtracted.
    """
    if not any(costs.any() for costs in costs_ns.values()):
        return own
    nodes = own.graph.node_columns
    durations = np.array(nodes["duration_ns"])
    starts = nodes["measured_start_ns"] + window.start_ns
    ends, removed = starts + durations, np.zeros(len(durations), dtype=np.int64)
    for lane, recorded in events.items():
        rows = np.flatnonzero((nodes["stream"] == lane) & (nodes["type"] == NodeType.COMP))
        rows = rows[np.argsort(starts[rows], kind="stable")]
        before, order = recorded.start_ns, np.argsort(recorded.end_ns, kind="stable")
        after = recorded.end_ns[order]
        begun, over = (np.append(0, np.cumsum(each / 2)) for each in (costs_ns[lane], costs_ns[lane][order]))
        costs = np.rint(
            begun[np.searchsorted(before, ends[rows], side="right")]
            - begun[np.searchsorted(before, starts[rows], side="right")]
            + over[np.searchsorted(after, ends[rows])]
            - over[np.searchsorted(after, starts[rows])]
        )
        waits = which(nodes["kind"].texts, _WAITS.__contains__)[nodes["kind"].numbers[rows]]
        payable = np.maximum(durations[rows] - 1, 0)  # a critical path never contains a node of 0 ns
        payable = np.where(waits, np.minimum(costs, payable), payable)
        most = np.where(
            _stays(nodes["place"].numbers[rows], nodes["place"].texts),
            np.inf,
            _BLOCK * costs_ns[lane].max(initial=0),
        )
        removed[rows] = _paid(costs, payable, most)
    accounting = {**own.accounting, _REMOVED: int(removed.sum())}
    return replace(own, graph=own.graph.with_columns(duration_ns=durations - removed), accounting=accounting)


def _stays(places: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """Return, for each node, whether the next node has the same known source location."""
    named = which(texts, bool)[places]
    stays: np.ndarray = named & (places == np.append(places[1:], -1))
    return stays


def _paid(costs: np.ndarray, payable: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Return the cost to subtract from each node; at most *most* of the excess passes to the next node."""
    excess = zip((costs - payable).tolist(), most.tolist(), strict=True)
    unpaid = [*accumulate(excess, lambda left, more: min(more[1], max(0.0, left + more[0])), initial=0.0)]
    paid: np.ndarray = np.minimum(payable, costs + unpaid[:-1]).astype(np.int64)
    return paid
