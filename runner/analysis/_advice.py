"""Find the causes of step time, and replay the step without each cause to compute the gain."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...converter import Workload
from ...converter.building import (
    StepTimes,
    captured_steps,
    free_cores,
    lacks_bfloat16,
    run_delays,
    step_times,
)
from ...converter.chakra import DELAYED, HOST_CAUSES, KINDS
from ...errors import ChakrascopeError
from ...support import count_text, share_text
from ...support.table import Columns
from .._framed import coded
from .._result import Result
from .._traits import about_backend
from ._advised import (
    LOWER,
    MEAN_STEP,
    MEDIAN_STEP,
    MORE_THREADS,
    NOT_LOWER,
    REMEDIES,
    UNKNOWN,
    Advice,
    Advised,
    Cause,
    moved,
)
from ._candidate import HALF, Candidate
from ._candidates import candidates
from ._critical_path import CriticalPath, breakdown_columns, critical_path
from ._host_time import INSIDE_CALLS
from ._mean_gain import delays_on, over_the_run
from ._path_facts import collective_label
from ._what_if import Target

if TYPE_CHECKING:
    from .._experiment import Experiment

Simulate = Callable[[Sequence[tuple[Target, float]]], Result]
"""Simulate the step with each target sped up by its factor, which may be infinite."""

_MIN_SHARE = 0.01
_MAX_REPLAYED = 6
_MAX_ADVICE = 4
_MAX_PATH_NODES = 200_000  # maximum number of nodes of a replay with a critical path
# The largest run to replay, up to 14 times. A replay takes over 1 µs per node of a program, and a
# twentieth of that per event of each rank.
_MAX_NODES, _MAX_EVENTS = 125_000, 2_000_000
_SLOW = 0.1  # communication below this fraction of the network's bandwidth has another limit
_MIN_RATE = 0.125  # in bytes/ns: 1 Gb/s Ethernet, the slowest network that is assumed
_COVERED = 0.5
_NEAR = 0.1  # the gain of all advice is shown if it differs by more than this fraction from the sum
_NAMED_SHARE = 0.1
_MAX_CAUSES = 10
_PAGE_FAULTS = "page_faults"
_MEAN_CAPTURED_STEP = "the mean captured step"
_MIN_FAULTS = 0.05  # minimum fraction of the median step for advice
_LOWER_PRECISION = re.compile(r"(?:, ([^,]+))?, or lower precision|, lower precision")
_FREE = 0.5  # minimum number of free cores for advice to use more threads


def advise(
    path: CriticalPath,
    result: Result,
    workload: Workload,
    collectives: Columns,
    *,
    link_bytes_per_ns: float = 0.0,
    messages: Columns | None = None,
    simulate: Simulate | None = None,
) -> Advised:
    """Return advice for the step of *result*, with gains from replays or, without *simulate*, upper bounds.

    *link_bytes_per_ns* is the bandwidth of a link of the slowest dimension (0: unknown);
    communication far below that rate would not gain from smaller messages. *messages* are those on
    the path (see `messages_on_path`).
    """
    slow = _slow(collectives, messages, link_bytes_per_ns, workload.metadata)
    found = candidates(path, result, workload, slow.__contains__)
    # Time lost to other processes does not count, because nothing in the script causes it.
    least_ns = _MIN_SHARE * max(1, path.makespan_ns - delays_on(path))
    mattering = [one for one in found if one.is_advised and one.bound_ns >= least_ns]
    halves = _halves(path, simulate, result)
    chosen = _distinct(mattering)[:_MAX_REPLAYED]
    items = [(one, _advice_of(one, path, result, workload, simulate)) for one in chosen]
    helpful = [(one, item) for one, item in items if item.gain_ns >= least_ns]
    helpful.sort(key=lambda pair: -pair[1].gain_ns)
    in_step = [
        (one, _of_the_whole(one, item, result, workload, simulate))
        for one, item in _without_covered(helpful, path)[:_MAX_ADVICE]
    ]
    shown = [(one, over_the_run(one, item, path, result, workload)) for one, item in in_step]
    shown = [(one, item) for one, item in shown if item.gain_ns >= least_ns]
    of_the_run = {item.cause: item.gain_ns for _, item in shown if not item.key}
    recurring = [
        item for item in _recurring(result, workload) if item.gain_ns > of_the_run.get(item.cause, 0)
    ]
    in_long_steps = {item.cause for item in recurring}
    shown = [(one, item) for one, item in shown if item.key or item.cause not in in_long_steps]
    measured = [*recurring, *_page_faults(result, workload)]
    if all(one.remedy != DELAYED for one, _ in shown):
        measured += _usual_delays(result, workload)
    is_of_the_step = not measured and shown == in_step
    together_ns = _together_ns(shown, result, simulate) if is_of_the_step else 0
    top = _contributor(found)
    is_busy = top is not None and top.remedy == DELAYED
    ordered = _ordered([*measured, *_with_overlaps(shown, path)], is_busy=is_busy)
    if is_busy and all(item.cause != DELAYED for item in ordered):  # usual steps wait less than this step
        top = _contributor([one for one in found if one.remedy != DELAYED])
    causes = tuple(_cause(one, path) for one in _distinct(found)[:_MAX_CAUSES])
    return Advised(tuple(ordered), None if top is None else _cause(top, path), causes, halves, together_ns)


def replays_of(result: Result, workload: Workload, experiment: Callable[[], Experiment]) -> Simulate | None:
    """Return a function that replays the *experiment* of *result*, a run of *workload*.

    Returns None if the run is too large or its backend too slow.
    """
    events = int(result.provenance.get("events", result.num_nodes))
    nodes = sum(graph.num_nodes for graph in workload.graphs)
    if not about_backend(result.backend).quick or not 0 < events <= _MAX_EVENTS or nodes > _MAX_NODES:
        return None
    from .._experiment import Detail  # noqa: PLC0415 - analyses of large runs do not need the simulator
    from ._what_if import what_if  # noqa: PLC0415

    detail = Detail.EVERYTHING if result.num_nodes <= _MAX_PATH_NODES else Detail.TOTALS
    asked = replace(experiment(), detail=detail)
    return lambda changes: what_if(asked, list(changes))


def _together_ns(shown: Sequence[tuple[Candidate, Advice]], result: Result, simulate: Simulate | None) -> int:
    """Return the gain of all advice together in ns, or 0 if it is close to the sum of single gains."""
    keys = [(one.target, float(item.key.rpartition("=")[2])) for one, item in shown]
    after = replayed(simulate, *keys) if len(shown) > 1 else None
    if after is None:
        return 0
    gain_ns = result.makespan_ns - after.makespan_ns
    return gain_ns if gain_ns < (1 - _NEAR) * sum(item.gain_ns for _, item in shown) else 0


def _ordered(items: Sequence[Advice], *, is_busy: bool) -> list[Advice]:
    """Sort the advice with the largest likely gains; waits and page faults come after larger causes.

    Page faults occur inside operators, so they are listed after operators that take longer. If waits are the
    largest contributor (*is_busy*), they are sorted by their likely gain.
    """
    ordered = sorted(items, key=lambda item: -item._likely_ns)[:_MAX_ADVICE]
    waits = {(DELAYED, ""), (DELAYED, Target("cause", DELAYED).key)}
    symptoms = {(_PAGE_FAULTS, ""), *(() if is_busy else waits)}
    for item in [one for one in ordered if (one.cause, one.key.partition("=")[0]) in symptoms]:
        ordered.remove(item)
        larger = (
            row
            for row, one in enumerate(ordered, 1)
            if one.gain_ns > item.gain_ns
            or (item.cause == _PAGE_FAULTS and one.kind == "compute" and one.path_ns > item.gain_ns)
        )
        ordered.insert(max(larger, default=0), item)
    return ordered


def _cause(one: Candidate, path: CriticalPath) -> Cause:
    return Cause(
        one.what, one.kind, one.cause, one.path_ns, len(one.rows), one.target.key, *_longest(path, one)
    )


def _distinct(found: Sequence[Candidate]) -> list[Candidate]:
    """Drop candidates with the same path segments as a larger candidate of the same kind."""
    kept: list[Candidate] = []
    for one in found:
        alike = (
            other
            for other in kept
            if other.kind == one.kind and not {one.remedy, other.remedy} & {"skew", "small"}
        )
        if not any(
            len(other.rows) == len(one.rows) and np.array_equal(other.rows, one.rows) for other in alike
        ):
            kept.append(one)
    return kept


def _advice_of(
    one: Candidate, path: CriticalPath, result: Result, workload: Workload, simulate: Simulate | None
) -> Advice:
    """Return the advice on a candidate; its gain comes from a replay if the change can be simulated."""
    gain_ns, is_bound, then = one.bound_ns, True, ""
    after = replayed(simulate, (one.target, one.times))
    if after is not None:
        gain_ns, is_bound, then = result.makespan_ns - after.makespan_ns, False, _bound_by(after, workload)
    rank, node_id, place = _longest(path, one)
    how = one.how or REMEDIES.get(one.remedy, UNKNOWN)
    cores = free_cores(workload.metadata, [rank] if rank >= 0 else None)
    if cores is not None and MORE_THREADS in how:
        how = how.replace(MORE_THREADS, f"{MORE_THREADS} ({cores.text})" * (cores.free >= _FREE))
    if lacks_bfloat16(workload.metadata) and one.kind == "compute":
        how = how.replace(LOWER, NOT_LOWER)
        how = _LOWER_PRECISION.sub(lambda found: f", or {found[1]}" if found[1] else "", how)
    number = "inf" if one.times == math.inf else f"{one.times:g}"
    if one.times != math.inf and not one.is_moved:
        how = f"{one.times:.3g} times as fast: {how}"
    return Advice(
        one.what, how, gain_ns, gain_ns / max(1, path.makespan_ns), f"{one.target.key}={number}", is_bound,
        one.kind, one.cause, one.path_ns, then, "", rank, node_id, place,
    )  # fmt: skip


def _of_the_whole(
    one: Candidate, item: Advice, result: Result, workload: Workload, simulate: Simulate | None
) -> Advice:
    """Add the gain of removing a candidate to advice on halving or moving it.

    The gain of the removal comes from a replay if the removal can be simulated. A function of the script
    can be removed entirely, so without a replay, its time on the path is the upper bound.
    """
    if item.is_bound and one.remedy == "function":
        share, key = one.path_ns / max(1, result.makespan_ns), f"{one.target.key}=inf"
        return replace(item, gain_ns=one.path_ns, share=share, key=key, half_ns=item.gain_ns)
    is_removable = one.is_moved or (one.times == HALF and one.remedy != "precision")
    after = replayed(simulate, (one.target, math.inf)) if is_removable else None
    gain_ns = one.path_ns if after is None else result.makespan_ns - after.makespan_ns
    if one.is_moved:
        return replace(item, whole_ns=gain_ns)
    if after is None:
        return item
    return replace(
        item,
        gain_ns=gain_ns,
        share=gain_ns / max(1, result.makespan_ns),
        key=f"{one.target.key}=inf",
        then=_bound_by(after, workload),
        half_ns=item.gain_ns,
    )


def _step_times(result: Result, workload: Workload) -> StepTimes | None:
    """Return the times of all steps if *result* replays measured ones; None for a simulated network."""
    return None if about_backend(result.backend).network else step_times(workload.metadata, or_captured=True)


def _recurring(result: Result, workload: Workload) -> list[Advice]:
    """Return advice on steps that the script makes longer than others, if there are any.

    The gain is measured: the mean of all unprofiled steps (captured steps, if those are too few) minus the
    mean of the steps that are not long. The advice has no key, because the simulated step does not contain
    the cause.
    """
    times = _step_times(result, workload)
    if times is None or not times.is_the_scripts:
        return []
    mean_ns = times.median_ns + times.gain_ns
    moved_ns, how = moved(times.cause, times.gain_ns, mean_ns, free_cores(workload.metadata))
    gain_ns = moved_ns or times.gain_ns
    whole_ns = times.gain_ns if gain_ns < times.gain_ns else 0
    what, steps = times.text.removesuffix("."), _MEAN_CAPTURED_STEP if times.is_captured else MEAN_STEP
    return [
        Advice(what, how, gain_ns, gain_ns / mean_ns, "", False, "host", times.cause, 0,
               place=times.place, whole_ns=whole_ns, steps=steps)
    ]  # fmt: skip


def _page_faults(result: Result, workload: Workload) -> list[Advice]:
    """Return advice on page faults, unless they take little time.

    The gain is the measured time of the faults. The advice has no key, because the faults occur
    inside operators.
    """
    times = _step_times(result, workload)
    if times is None or times.fault_ns < _MIN_FAULTS * times.median_ns:
        return []
    what = f"Page faults: the process gets {count_text(times.faults, 'new page')} of memory in each step"
    share = times.fault_ns / times.median_ns
    how = REMEDIES[_PAGE_FAULTS]
    return [Advice(what, how, times.fault_ns, share, "", False, "host", _PAGE_FAULTS, 0, steps=MEDIAN_STEP)]


def _usual_delays(result: Result, workload: Workload) -> list[Advice]:
    """Return advice on the median unprofiled step's waits for a processor, unless they are short.

    The gain is measured. The advice has no key, because the shown step hardly waits.
    """
    times, delays = _step_times(result, workload), run_delays(workload.metadata)
    usual_ns = delays[0] // captured_steps(workload.metadata) if delays else 0
    if times is None or usual_ns < _MIN_FAULTS * times.median_ns:
        return []
    usual_ns = min(usual_ns, times.median_ns)  # several threads may wait at once
    what, share = HOST_CAUSES[DELAYED], usual_ns / times.median_ns
    how = REMEDIES[DELAYED]
    return [Advice(what, how, usual_ns, share, "", False, "host", DELAYED, 0, steps=MEDIAN_STEP)]


def _bound_by(after: Result, workload: Workload) -> str:
    """Describe the bound of a replay: the kind of work and its share of the step; "" without a path."""
    if not 0 < after.num_nodes <= _MAX_PATH_NODES:
        return ""
    kinds = breakdown_columns(critical_path(after, workload), "kind")
    if not len(kinds["key"]):
        return ""
    label = KINDS.get(str(kinds["key"][0]), str(kinds["key"][0])).lower()
    return f"{label} ({share_text(float(kinds['share'][0]))})"


def _longest(path: CriticalPath, one: Candidate) -> tuple[int, int, str]:
    """Return the rank, node id and source location of the longest path segment of a candidate."""
    segments = path.columns
    rows = one.rows[segments["node_id"][one.rows] >= 0]
    if not len(rows):
        return -1, -1, ""
    row = int(rows[np.argmax(segments["duration_ns"][rows])])
    return int(segments["rank"][row]), int(segments["node_id"][row]), str(segments["place"][row])


def _without_covered(
    items: Sequence[tuple[Candidate, Advice]], path: CriticalPath
) -> list[tuple[Candidate, Advice]]:
    """Drop advice on faster kernels and on single small collectives that better advice covers.

    Advice on a function is better than advice on an operator to which the function makes most of its calls.
    Advice on small collectives does not replace advice that avoids some of the collectives, such as one
    communication per step.
    """
    kept: list[tuple[Candidate, Advice]] = []
    functions = [other for other, _ in items if other.remedy == "function"]
    for one, item in items:
        if one.remedy == "compute" and _is_called_by(functions, one, path):
            continue
        # Work includes its waits for a processor, so advice on waits does not cover it.
        covering = {other.remedy for other, _ in kept if _shared(one, other, path) > _COVERED} - {DELAYED}
        is_covered = one.remedy in ("compute", "wait", "operators") and len(covering) > 0
        is_covered |= one.remedy in ("communication", "latency", INSIDE_CALLS) and "small" in covering
        if not is_covered:
            kept.append((one, item))
    return kept


def _shared(one: Candidate, other: Candidate, path: CriticalPath) -> float:
    """Return the path time that two candidates share, as a fraction of the shorter candidate's time."""
    durations = path.columns["duration_ns"]
    shorter_ns = min(durations[one.rows].sum(), durations[other.rows].sum())
    return _common_ns(one, other, path) / max(1, int(shorter_ns))


def _is_called_by(functions: Sequence[Candidate], one: Candidate, path: CriticalPath) -> bool:
    """Return whether one of *functions* covers more than half of the path time of *one*."""
    return any(2 * _common_ns(one, other, path) > one.path_ns for other in functions)


def _common_ns(one: Candidate, other: Candidate, path: CriticalPath) -> int:
    common = np.intersect1d(one.rows, other.rows, assume_unique=True)
    return int(path.columns["duration_ns"][common].sum())


def _with_overlaps(items: Sequence[tuple[Candidate, Advice]], path: CriticalPath) -> Iterator[Advice]:
    for place, (one, item) in enumerate(items):
        earlier = [other.what for other, _ in items[:place] if _shared(one, other, path) > _MIN_SHARE]
        yield replace(item, overlaps="; ".join(earlier))


def _contributor(found: Sequence[Candidate]) -> Candidate | None:
    """Return the largest named candidate, or the largest candidate if named candidates are far smaller."""
    ordered = sorted((one for one in found if one.remedy != "skew"), key=lambda one: -one.path_ns)
    for one in ordered:
        if one.is_named and one.path_ns >= _NAMED_SHARE * ordered[0].path_ns:
            return one
    return ordered[0] if ordered else None


def _halves(path: CriticalPath, simulate: Simulate | None, result: Result) -> dict[str, int]:
    """Return the gains in ns of halving computation, and of halving the two largest kinds on the path."""
    kinds = [str(key) for key in breakdown_columns(path, "kind")["key"][:2]]
    chosen = [kind for kind in dict.fromkeys([*kinds, "compute"]) if kind not in ("idle", "wait")]
    halved = {kind: replayed(simulate, (Target("kind", kind), 2.0)) for kind in chosen}
    return {
        kind: result.makespan_ns - after.makespan_ns for kind, after in halved.items() if after is not None
    }


def replayed(simulate: Simulate | None, *changes: tuple[Target, float]) -> Result | None:
    """Return the replay of the step with *changes*; None without *simulate*, or if the replay fails."""
    try:
        return None if simulate is None else simulate(changes)
    except ChakrascopeError:
        return None


def _slow(
    collectives: Columns, messages: Columns | None, link_bytes_per_ns: float, metadata: Mapping[str, Any]
) -> set[str]:
    """Return the names of communications on the path far below the network's bandwidth.

    If the network is unknown, the rate of the fastest communication replaces the bandwidth.
    """
    keys = [collectives[name] for name in ("operation", "size_bytes", "group")]
    fastest = {
        collective_label(metadata, *key): rate
        for key, rate in _largest(collectives["bus_bytes_per_ns"], *keys).items()
    }
    if messages is not None:
        fastest |= _largest(messages["bytes_per_ns"], messages["name"])
    carried = link_bytes_per_ns or max([_MIN_RATE, *fastest.values()])
    return {name for name, rate in fastest.items() if rate < _SLOW * carried}


def _largest(values: npt.NDArray[np.float64], *keys: npt.NDArray[Any]) -> dict[Any, float]:
    """Return the maximum of the non-negative *values* for each key (see `coded`)."""
    numbers, names = coded(*keys)
    largest = np.zeros(len(names))
    np.maximum.at(largest, numbers, values)
    return dict(zip(names, largest.tolist(), strict=True))


def link_bytes_per_ns(network: Mapping[str, Any] | None) -> float:
    """Return the bandwidth of a link of the slowest dimension of *network* in bytes/ns, 0 if unknown."""
    rates = (network or {}).get("bandwidth") or [0.0]
    return float(min(rates)) * 2**30 / 10**9
