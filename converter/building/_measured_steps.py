"""Measure the steps of a run: their durations, recurring long steps with causes, and free CPU cores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any, NamedTuple

import numpy as np

from ...tracer import Evidence, RankEntry, read_evidence
from ..chakra import COLLECTING, DELAYED
from ._callers import callers_of
from ._cause_rules import ACTIVITIES
from ._places import function_at
from ._rank_graph import waited_less
from ._sampled_causes import SampledCauses
from ._step_times import (
    BFLOAT16,
    CORES,
    MATTERS,
    RANK_DELAYS,
    REPEATED,
    RUN_DELAYS,
    SEVERAL,
    STEP_TIMES,
    TIMES,
    WORKER_WAIT,
    StepTimes,
)

# Minimum number of steps for a distribution, and number of first steps to omit because they allocate and
# compile.
_FEWEST, _FIRST = 6, 3
# Minimum multiple of the median of a long step. Time spent waiting for a processor does not count, because
# the script does not cause this time.
_LONG = 1.5
# Long steps are periodic if at least this share of their excess time is at the positions of a period, and at
# least this share of these positions has long steps.
_REGULAR = 0.8
# Maximum probability that long steps in a random order fit any of the tried periods.
_BY_CHANCE = 0.02
# Long steps count as consecutive if they form fewer groups than in a random order, by this number of standard
# deviations (Wald-Wolfowitz test).
_IN_A_ROW = -1.64
# Minimum share of a step of a compared phase. All phases are longer by a similar factor if the relative
# excess of each phase is at least _ALIKE times the relative excess of the step.
_PHASES = ("loader_ns", "forward_ns", "backward_ns", "optimizer_ns")
_PHASE_SHARE, _ALIKE = 0.1, 0.5
# Maximum time of a function in other steps, as a share of its time in long steps, if only long steps call it.
_ELSEWHERE = 0.1
_STARTING = "process_start"
# Causes that almost all steps contain, so only their source location can distinguish long steps.
_EVERYWHERE = ("", "python", "dispatch")
# Minimum share of the additional time of long steps that their cause explains.
_PART = 0.25
# Maximum number of ranks to read. Ranks of a job take steps together, so some ranks represent all ranks.
_MAX_RANKS = 16
_FIRST_STEADY = 3  # number of the first steady step; earlier steps allocate, compile and start workers
_MIN_NS = 100_000_000  # the kernel counts CPU time in hundredths of a second


class _Step(NamedTuple):
    """One step of one rank: rows in the evidence, duration, and run delay."""

    rank: int
    begin: int
    end: int
    took_ns: int
    delay_ns: int

    @property
    def own_ns(self) -> int:
        """The duration of the step without the wait for a processor."""
        return self.took_ns - self.delay_ns


def measured_steps(entries: Sequence[RankEntry], folder: Path) -> dict[str, Any]:
    """Return the workload's metadata on the steps of a run, on the processors, and on the script's functions.

    If too few steps ran without the profiler, captured steps are described if the script makes some of them
    long.
    """
    evidence = {
        entry.rank: read_evidence(folder / entry.evidence) for entry in entries[:_MAX_RANKS] if entry.evidence
    }
    slowest = _slowest(evidence)
    if len(slowest) >= _FEWEST + _FIRST:
        slowest = {index: slowest[index] for index in sorted(slowest)[_FIRST:]}
    about = _units(evidence) | callers_of(evidence.values())
    if len(slowest) < _FEWEST:
        return _captured(entries, evidence) | about
    times, long = _distribution(slowest, evidence)
    is_told = times.every > 0 or times.is_the_scripts
    usual = [step for index, step in slowest.items() if not (is_told and index in long)]

    def mean_of(counter: str, cause: str = "") -> int:
        is_whole = cause == times.cause and not times.every  # one cause of both long and other steps
        return _mean_counted([*slowest.values()] if is_whole else usual, evidence, counter)

    has_workers = any(loader.workers for own in evidence.values() for loader in own.loaders)
    faults, system_ns = mean_of("faults"), mean_of("system_ns")
    fault_ns = max(own.page_fault_ns for own in evidence.values())
    times = times._replace(
        collection_ns=mean_of("gc_ns", COLLECTING),
        worker_wait_ns=mean_of("loader_ns", WORKER_WAIT) if has_workers else 0,
        compilation_ns=mean_of("compile_ns", "compilation"),
        faults=faults,
        fault_ns=min(faults * fault_ns, system_ns),
    )
    late = waited_less(evidence) if len(evidence) == len(entries) else {}
    cores = cores_of_ranks(entries, evidence)
    delays = {"median": round(median(step.delay_ns for step in slowest.values()))}
    delays |= {str(index): step.delay_ns for index, step in _slowest(evidence, recorded=True).items()}
    by_rank = {str(rank): _slowest({rank: own}).values() for rank, own in evidence.items()}
    of_ranks = {rank: round(median(one.delay_ns for one in own)) for rank, own in by_rank.items() if own}
    return {STEP_TIMES: times._asdict(), RUN_DELAYS: delays, RANK_DELAYS: of_ranks, **late, **cores, **about}


def _captured(entries: Sequence[RankEntry], evidence: Mapping[int, Evidence]) -> dict[str, Any]:
    """Return metadata on the captured steps if they are enough, and if the script makes some of them long.

    The first steps are left out, as among unprofiled steps.
    """
    numbers = {step.index for entry in entries for step in entry.steps}
    recorded = _slowest(evidence, recorded=True)
    steps = {index: one for index, one in recorded.items() if index in numbers and index >= _FIRST}
    if len(steps) < _FEWEST:
        return {}
    times, _ = _distribution(steps, evidence, recorded=True)
    return {STEP_TIMES: times._replace(is_captured=1)._asdict()} if times.is_the_scripts else {}


def _distribution(
    steps: Mapping[int, _Step], evidence: Mapping[int, Evidence], *, recorded: bool = False
) -> tuple[StepTimes, set[int]]:
    """Return the distribution of *steps* with the cause of the long steps, and the numbers of these."""
    times, long = _times(steps)
    if not times.every and _are_consecutive(long, sorted(steps)) and _alike(long, steps, evidence):
        return StepTimes(*times[:5]), set()  # only the machine was slower for a while
    if times.matters:
        working = _slowest(evidence, recorded=recorded, working=True)
        times = _explained(times, long, {index: working[index] for index in steps}, evidence)
    return times, long


def _mean_counted(steps: Sequence[_Step], evidence: Mapping[int, Evidence], counter: str) -> int:
    """Return the mean growth of *counter* per step of *steps*, or 0 if it was not read or was reset.

    `torch._dynamo.reset` resets the time of compilation. A step that accounts for more than all other steps
    together is left out of the mean, because one step says little about the run: it may contain the
    collection of the profiler's objects.
    """
    columns = {rank: getattr(own.steps, counter) for rank, own in evidence.items()}
    if not all(columns.values()):
        return 0
    pairs = [(columns[step.rank][step.begin], columns[step.rank][step.end]) for step in steps]
    if not pairs or not all(0 <= begin <= end for begin, end in pairs):
        return 0
    grown: list[int] = sorted(end - begin for begin, end in pairs)
    return round(mean(grown[:-1] if 2 * grown[-1] > sum(grown) and len(grown) > 1 else grown))


def _slowest(
    evidence: Mapping[int, Evidence], *, recorded: bool = False, working: bool = False
) -> dict[int, _Step]:
    """Return the *recorded* or unprofiled steps by number, each on the rank with the longest duration.

    If *working* is true, waits for collectives do not count, because the cause is on the rank for which the
    other ranks waited.
    """
    slowest: dict[int, tuple[int, _Step]] = {}
    for rank, own in evidence.items():
        steps = own.steps
        waited = steps.collective_ns if working else []
        delays = _delays(own)
        for index, begin, end in steps.steps():
            took = steps.time_ns[end] - steps.time_ns[begin]
            key = took - (waited[end] - waited[begin] if waited else 0)
            if bool(steps.recorded[end]) == recorded and (index not in slowest or key > slowest[index][0]):
                slowest[index] = key, _Step(rank, begin, end, took, min(delays[end] - delays[begin], took))
    return {index: step for index, (_, step) in slowest.items()}


def _delays(evidence: Evidence) -> list[int]:
    """Return the run delay (ns) until each row.

    Between steps of less than a millisecond, the tracer does not read it. The steps between two readings
    share its growth in proportion to the time in which the thread did not run.
    """
    steps = evidence.steps
    idle = np.maximum.accumulate(np.subtract(steps.time_ns, steps.cpu_ns))
    read = np.flatnonzero(np.greater_equal(steps.delay_ns, 0))
    if not len(read):
        return [0] * len(steps)
    grown = np.interp(idle - idle[0], idle[read] - idle[0], np.take(steps.delay_ns, read))
    delays: list[int] = np.rint(grown).astype(np.int64).tolist()
    return delays


def _times(steps: Mapping[int, _Step]) -> tuple[StepTimes, set[int]]:
    """Return the distribution of *steps*, and the numbers of the long steps."""
    taken = {index: step.took_ns for index, step in steps.items()}
    own = {index: step.own_ns for index, step in steps.items()}
    usual = median(own.values())
    long = {index for index, ns in own.items() if ns > _LONG * usual}
    every, first = _period({index: own[index] - usual for index in long}, sorted(steps))
    if every:
        long = {index for index in long if index % every == first}
    all_ns = sorted(taken.values())
    p90 = round(quantiles(all_ns, n=10)[-1])
    spread = StepTimes(len(all_ns), all_ns[0], round(median(all_ns)), p90, all_ns[-1])
    if len(long) < SEVERAL or _mean_excess(own, long) < MATTERS * usual:
        return spread, set()
    long_ns = round(mean(taken[index] for index in long))
    gain_ns = round(_mean_excess(taken, long))
    return spread._replace(long_count=len(long), every=every, long_ns=long_ns, gain_ns=gain_ns), long


def _are_consecutive(long: Collection[int], steps: Sequence[int]) -> bool:
    """Return whether *long* steps form far fewer groups of consecutive *steps* than random steps would."""
    few, count = len(long), len(steps)
    if few < TIMES or few >= count:
        return False
    groups = sum(step in long and before not in long for before, step in pairwise([-1, *steps]))
    usual = few * (count - few + 1) / count
    variance = usual * (few - 1) * (count - few) / (count * (count - 1))
    return groups - usual < _IN_A_ROW * sqrt(variance)


def _alike(long: Collection[int], steps: Mapping[int, _Step], evidence: Mapping[int, Evidence]) -> bool:
    """Return whether all phases of the *long* steps are longer by about the same factor.

    Additional work of the script would make only one phase longer.
    """
    columns = {rank: [getattr(own.steps, name) for name in _PHASES] for rank, own in evidence.items()}
    if any(not column for own in columns.values() for column in own):
        return False  # the capture did not record the times of phases
    spent: dict[bool, list[list[int]]] = {True: [], False: []}
    for index, step in steps.items():
        phases = [column[step.end] - column[step.begin] for column in columns[step.rank]]
        spent[index in long].append([step.took_ns, *phases])
    longer, usual = ([mean(column) for column in zip(*spent[side], strict=True)] for side in (True, False))
    excess, *of_phases = [
        one / other - 1 for one, other in zip(longer, usual, strict=True) if other >= _PHASE_SHARE * usual[0]
    ]
    return len(of_phases) > 1 and min(of_phases) >= _ALIKE * excess


def _mean_excess(values: Mapping[int, int], long: Collection[int]) -> float:
    """Return the mean of *values* over all steps, minus their mean over the steps that are not *long*."""
    others = [value for index, value in values.items() if index not in long]
    return mean(values.values()) - mean(others) if long and others else 0.0


def _period(excess: Mapping[int, float], steps: Sequence[int]) -> tuple[int, int]:
    """Return the period of long steps in *steps* and the remainder of the period, or zeros without a period.

    *excess* is the additional time of each long step. Long steps outside the period are tolerated if their
    excess is comparatively small.
    """
    periods = range(2, (len(steps) + 1) // 2)
    tried = sum(min(every, len(steps) - 2 * every) for every in periods)  # positions with three steps
    for every in periods:
        by_place: Counter[int] = Counter()
        for index, longer in excess.items():
            by_place[index % every] += round(longer)
        first, longer_ns = by_place.most_common(1)[0] if excess else (0, 0)
        count = sum(index % every == first for index in excess)
        due = sum(index % every == first for index in steps)
        if count < max(TIMES, _REGULAR * due) or longer_ns < _REGULAR * sum(excess.values()):
            continue
        if tried * _chance(count, due, len(excess), len(steps)) < _BY_CHANCE:
            return every, first
    return 0, 0


def _chance(count: int, due: int, long: int, steps: int) -> float:
    """Return the probability that *long* random steps of *steps* include *count* or more *due* steps."""
    total = _log_ways(steps, long)
    return sum(
        math.exp(_log_ways(due, some) + _log_ways(steps - due, long - some) - total)
        for some in range(max(count, long - (steps - due)), min(due, long) + 1)
    )


def _log_ways(steps: int, chosen: int) -> float:
    """Return the logarithm of the number of ways to choose so many *steps*; `math.comb` is slow for many."""
    return math.lgamma(steps + 1) - math.lgamma(chosen + 1) - math.lgamma(steps - chosen + 1)


def _explained(
    times: StepTimes, long: Collection[int], steps: Mapping[int, _Step], evidence: Mapping[int, Evidence]
) -> StepTimes:
    """Return *times* with the cause of the *long* steps, if one cause has most of their additional time."""
    spent = _spent(steps, evidence)
    excess: Counter[tuple[str, str]] = Counter()
    visits: Counter[tuple[bool, str]] = Counter()  # excess time of the steps that run each function
    chains: dict[bool, Counter[tuple[str, ...]]] = {True: Counter(), False: Counter()}
    for index, step in steps.items():
        sign, count = (1, len(long)) if index in long else (-1, len(steps) - len(long))
        chains[index in long] += spent[index].chains
        for function in {function_at(place) for _, place in spent[index].causes}:
            visits[index in long, function] += max(1, step.took_ns - times.median_ns)
        for key, taken in spent[index].causes.items():
            excess[key] += round(sign * taken / count)
    causes: Counter[str] = Counter()
    for (cause, _), taken in excess.items():
        causes[cause] += taken
    longer_ns = times.long_ns - times.median_ns
    parts: tuple[str, ...] = ()
    if causes[_STARTING] >= _PHASE_SHARE * longer_ns:  # new workers take long until their first batch
        causes[_STARTING] += causes.pop(WORKER_WAIT, 0)
        parts = (WORKER_WAIT,)
    # Without a period, the machine may be the cause, independent of the running code.
    counted = [one for one in (COLLECTING, DELAYED) if causes[one] >= longer_ns / 2 and not times.every]
    owning = [one for one in ACTIVITIES if causes[one] >= longer_ns / 2][:1]
    took = {index: step.took_ns for index, step in steps.items()}
    delays = {index: step.delay_ns for index, step in steps.items()}
    if owning and counted == [DELAYED] and _disproportionate_ns(delays, took, long) < longer_ns / 2:
        counted = []  # on a busy machine, run delays grow with the work
    sampled = [one for one in causes if one != DELAYED or not times.every]
    cause = max(counted or owning or sampled, key=causes.__getitem__, default="")
    if causes[cause] < _PART * longer_ns:
        return times
    placed = [key for key in excess if key[0] == cause and key[1]]
    place = max(placed, key=excess.__getitem__, default=("", ""))[1] if cause not in counted else ""
    function = function_at(place)
    least_ns = _REGULAR * sum(steps[index].took_ns - times.median_ns for index in long)
    is_distinct = bool(function) and not visits[False, function] and visits[True, function] >= least_ns
    caller = ""
    if function and visits[False, function]:
        caller = _caller_of_long_steps(chains, len(long) * longer_ns / 2)
    if caller:
        own = {index: one.under(function_at(caller)) for index, one in spent.items()}
    elif cause in _EVERYWHERE:
        own = {index: one.causes[cause, place] for index, one in spent.items()}
    else:
        own = {index: one.of(cause, *parts) for index, one in spent.items()}
    is_certain = times.every > 0 or cause in (*REPEATED, COLLECTING, DELAYED)
    seen = {index: ns for index, ns in own.items() if ns or spent[index].chains}
    tried = sum(ns > 0 for ns in excess.values())
    grown_ns = longer_ns if cause == DELAYED else _disproportionate_ns(own, took, long)
    if grown_ns < _PART * longer_ns or not (is_certain or _is_usual(seen, long, longer_ns, tried)):
        return times  # the machine was slower, whatever the steps ran
    return times._replace(cause=cause, place=caller or place, is_distinct=int(is_distinct))


class _Spent(NamedTuple):
    """The time (ns) that a step spent for each pair of cause and place, and in each call chain."""

    causes: Counter[tuple[str, str]]
    chains: Counter[tuple[str, ...]]

    def of(self, *causes: str) -> int:
        """Return the time of *causes* in all places."""
        return sum(ns for (cause, _), ns in self.causes.items() if cause in causes)

    def under(self, function: str) -> int:
        """Return the time of *function*, including the functions that it calls."""
        return sum(ns for chain, ns in self.chains.items() if function in map(function_at, chain))


def _spent(steps: Mapping[int, _Step], evidence: Mapping[int, Evidence]) -> dict[int, _Spent]:
    """Return the sampled and counted times of *steps* by number."""
    sampled = {rank: SampledCauses(own) for rank, own in evidence.items()}
    has_workers = any(loader.workers for own in evidence.values() for loader in own.loaders)
    loading = WORKER_WAIT if has_workers else "input_pipeline"
    found: dict[int, _Spent] = {}
    for index, step in steps.items():
        own, by_cause = evidence[step.rank].steps, sampled[step.rank]
        times = own.time_ns[step.begin], own.time_ns[step.end]
        one = found[index] = _Spent(by_cause.times(*times), by_cause.chains(*times))
        one.causes[DELAYED, ""] += step.delay_ns
        if min(own.gc_ns[step.begin], own.gc_ns[step.end]) >= 0:
            one.causes[COLLECTING, ""] += own.gc_ns[step.end] - own.gc_ns[step.begin]
        if min(own.loader_ns[step.begin], own.loader_ns[step.end]) >= 0:
            loaded_ns = own.loader_ns[step.end] - own.loader_ns[step.begin]
            one.causes[loading, ""] += max(0, loaded_ns - one.of(loading))
    return found


def _disproportionate_ns(own: Mapping[int, int], taken: Mapping[int, int], long: Collection[int]) -> float:
    """Return by how much the mean of *own* times in *long* steps exceeds its share of the other steps.

    If a machine is slower for a while, all work takes longer in proportion.
    """
    others = taken.keys() - long
    own_ns, usual_ns = (mean(own[index] for index in part) for part in (long, others))
    long_ns, step_ns = (mean(taken[index] for index in part) for part in (long, others))
    return own_ns - usual_ns * long_ns / step_ns


def _is_usual(seen: Mapping[int, int], long: Collection[int], longer_ns: int, tried: int) -> bool:
    """Return whether a cause is in more of the *long* steps than chance explains after *tried* causes.

    *seen* are the times of the cause in each step with samples. Scattered steps may have any cause in common.
    """
    usual = [ns for index, ns in seen.items() if index not in long]
    least_ns = (mean(usual) if usual else 0) + _PART * longer_ns
    due = {index for index, ns in seen.items() if ns >= least_ns}
    sampled = len(seen) - len(usual)
    return tried * _chance(len(due.intersection(long)), len(due), sampled, len(seen)) < _BY_CHANCE


def _caller_of_long_steps(chains: Mapping[bool, Counter[tuple[str, ...]]], least_ns: float) -> str:
    """Return the outermost source location that nearly only long steps run, or "" if there is none.

    *chains* are the sampled times of the script's call chains in long and in other steps, callers first. The
    function must take at least *least_ns* of the long steps.
    """
    spent = {side: Counter[str]() for side in chains}
    for side, own in chains.items():
        for chain, taken in own.items():
            spent[side].update(dict.fromkeys(map(function_at, chain), taken))
    distinct = {one for one, taken in spent[True].items() if spent[False][one] < _ELSEWHERE * taken}
    found: Counter[str] = Counter()
    for chain, taken in chains[True].items():
        found.update({next((one for one in chain if function_at(one) in distinct), ""): taken})
    found.pop("", None)
    place, taken = found.most_common(1)[0] if found else ("", 0)
    return place if taken >= least_ns else ""


def cores_of_ranks(entries: Sequence[RankEntry], evidence: Mapping[int, Evidence]) -> dict[str, Any]:
    """Return metadata on the CPU cores of each rank in unprofiled steps, if known.

    Ranks of one host share its cores with the workers of their data loaders. Ranks without *evidence* are
    assumed to be as busy as the other ranks. Cores that other processes use do not count as free.
    """
    hosts = {entry.rank: entry.hostname for entry in entries}
    spans = {rank: list(_spans(own)) for rank, own in evidence.items()}
    rates = {
        rank: tuple(sum(column) / sum(durations) for column in rest)
        for rank, own in spans.items()
        if own
        for durations, *rest in [tuple(zip(*own, strict=True))]
        if sum(durations) >= _MIN_NS
    }
    used: dict[str, float] = {}
    for host, ranks in Counter(hosts.values()).items():
        each = [busy + _workers(evidence[rank]) for rank, (busy, _) in rates.items() if hosts[rank] == host]
        used[host] = ranks * mean(each or [0.0])
    cores = {}
    for rank, (_, idle) in rates.items():
        own = evidence[rank]
        busy = max(0.0, min(used[hosts[rank]], own.cores - idle))
        usable = min(own.cores, own.quota_cores or math.inf)
        cores[str(rank)] = [usable, busy, max(0.0, min(idle, usable - busy))]
    return {CORES: cores} if cores else {}


def _units(evidence: Mapping[int, Evidence]) -> dict[str, Any]:
    """Return metadata on the processors' units for bfloat16, if known and equal on all ranks."""
    units = {own.bfloat16 for own in evidence.values()}
    return {BFLOAT16: units.pop()} if len(units) == 1 and None not in units else {}


def _workers(evidence: Evidence) -> int:
    return sum(loader.workers for loader in evidence.loaders)


def _spans(evidence: Evidence) -> Iterator[tuple[int, int, int]]:
    """Yield intervals of unprofiled steps: duration, busy time and idle time of cores (ns)."""
    steps = evidence.steps
    begin = before = -1
    for row, idle_ns in enumerate(steps.idle_ns):
        if steps.recorded[row] or steps.index[row] == before or steps.index[row] < _FIRST_STEADY:
            begin = -1
        before = steps.index[row]
        if idle_ns < 0:
            continue
        if begin >= 0:
            columns = (steps.time_ns, steps.process_cpu_ns, steps.idle_ns)
            took, busy, idle = (column[row] - column[begin] for column in columns)
            yield took, busy, idle
        begin = row
