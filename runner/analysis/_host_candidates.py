"""Candidates in host time: loops of short operators, known causes, stalls and synchronisations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...converter import Workload
from ...converter.building import (
    ACTIVITIES,
    class_of,
    computed_on_host,
    free_cores,
    is_compiled_region,
    plain_name,
)
from ...converter.chakra import (
    COLLECTING,
    DELAYED,
    FIRST_LAUNCH,
    HOST_BEFORE,
    HOST_CAUSES,
    HOST_END,
    HOST_UNRECORDED,
    SPIN,
)
from ...support import count_text, duration_text
from ...support.table import CodedColumns, Columns, Ints
from .._framed import coded, sums_by
from ._advised import REMEDIES, copy_remedy, moved
from ._candidate import (
    CALLED_PHASES,
    ESPECIALLY,
    GONE,
    HALF,
    MAJORITY,
    NEARLY_ALL,
    Candidate,
    grouped,
    in_place,
    largest,
    most_for,
    scaled,
    sum_ns,
    training_functions,
    training_places,
    where,
)
from ._critical_path import CriticalPath
from ._host_time import (
    DIFFUSE_CAUSES,
    INSIDE_CALLS,
    LOOP_CALLS,
    SHORT,
    SHORT_NS,
    least_stall_ns,
    short_loops,
    typical_host_ns,
)
from ._labels import function_of, is_forward, short_name
from ._memory_traffic import marked_nodes
from ._path_facts import NodeFacts, copy_direction
from ._placed_work import PlacedWork, everything_in, in_target
from ._what_if import Target

_SYNCHRONISATION, _OBJECTS = "synchronisation", "object_collective"
# Number of waiting operators per piece of Python code above which a loop spends its time waiting.
_PER_PYTHON = 100
_WORK = ("compute", "communication", "copy", "memory")
_COPYING = ("aten::copy_", "aten::_to_copy")
_LOOP_CAUSES = (*DIFFUSE_CAUSES, _SYNCHRONISATION)
# Causes that already include the work inside them, or whose place is not the cause.
_WHOLE_ENTRIES = (*ACTIVITIES, COLLECTING, DELAYED, FIRST_LAUNCH, INSIDE_CALLS)


def loops(segments: CodedColumns, rows: Ints, work: PlacedWork) -> Iterator[tuple[str, Ints]]:
    """Yield the lines and functions of a script that call short operators in a loop, with their rows.

    A function replaces its lines if only the function is a loop, or if several of its lines are loops.
    """
    phases, causes = segments["phase"][rows], segments["cause"][rows]
    delayed = rows[causes == DELAYED]
    # Host work before the first operator of a called phase may still belong to the loop before.
    is_its_own = ~np.isin(phases, CALLED_PHASES) | _is_gap(segments, rows)
    is_its_own |= ~segments["place"][rows].passes(training_places(segments).__contains__)
    rows = rows[is_its_own & np.isin(causes, _LOOP_CAUSES)]
    functions, joined = segments["place"].mapped(function_of), work.joined(rows)
    lines = dict(_loops_by(segments, rows, joined))
    counts = Counter(function_of(place) for place in lines)
    skipped = {"", *training_functions(segments), *(one for one, count in counts.items() if count == 1)}
    placed = rows[~functions[rows].passes(lambda one: one in skipped or is_forward(one))]
    whole = dict(_loops_by(segments, placed, functions))
    lines = {place: own for place, own in lines.items() if function_of(place) not in whole}
    for places, found in ((joined, lines), (functions, whole)):
        for place, own in found.items():
            yield place, np.union1d(own, delayed[places[delayed] == place])


def _loops_by(segments: CodedColumns, rows: Ints, places: Any) -> Iterator[tuple[str, Ints]]:
    """Yield each of *places* that is a loop, with its *rows*."""
    worked = segments["cause"] != DELAYED
    everything = sums_by(segments["duration_ns"][worked], places[worked])
    for place, own in grouped(rows, places[rows]):
        if place and _is_loop(segments, own, int(everything[place])):
            yield place, own


def _is_loop(segments: Columns, own: Ints, everything_ns: int) -> bool:
    """Return whether *own* are many short operators that take most of *everything_ns*."""
    if sum_ns(segments, own) < MAJORITY * everything_ns:
        return False  # much work of the line or function is outside the loop
    called = own[~_is_gap(segments, own)]
    if len(called) < LOOP_CALLS or 2 * sum_ns(segments, _long(segments, own)) > sum_ns(segments, own):
        return False
    return bool(np.bincount(coded(segments["operator"][called])[0]).max() >= LOOP_CALLS)


def _is_gap(segments: Columns, rows: Ints) -> npt.NDArray[np.bool_]:
    """Return a mask of those *rows* that are host work between operators."""
    names = segments["name"][rows].tolist()
    is_named = np.array([name.startswith(HOST_BEFORE) for name in names], bool)
    gaps: npt.NDArray[np.bool_] = is_named & (segments["kind"][rows] == "host")
    return gaps


def loop(segments: Columns, place: str, own: Ints) -> Candidate:
    """Return the candidate for a loop: its operators, and the host work between them."""
    worked = own[segments["cause"][own] != DELAYED]
    path_ns, calls = sum_ns(segments, own), int((~_is_gap(segments, worked)).sum())
    cause, cause_ns = largest(segments, worked, "cause")
    # Waiting operators are counted, because most of their time is recording overhead.
    causes = segments["cause"][worked]
    waits, between = (np.count_nonzero(causes == one) for one in (_SYNCHRONISATION, "python"))
    if cause == "python" and 2 * cause_ns > sum_ns(segments, worked) and _PER_PYTHON * between >= waits:
        what = f"{HOST_CAUSES[cause]} in {place}"
    else:
        cause = _SYNCHRONISATION if 2 * waits > len(worked) else "dispatch"
        what = f"{HOST_CAUSES[cause]} of {count_text(calls, 'short operator')} in {place}"
    target, remedy = Target("place", place), "operators" if cause == "dispatch" else cause
    # A forward pass is necessary: without the loop, its long operators remain.
    long_ns = sum_ns(segments, _long(segments, own)) if is_forward(function_of(place)) else 0
    times = path_ns / long_ns if long_ns else GONE
    return Candidate(what, "host", cause, remedy, target, times, own, path_ns, path_ns - long_ns)


def loops_beside_work(
    path: CriticalPath, workload: Workload, rows: Ints, in_loops: Ints
) -> Iterator[Candidate]:
    """Yield one candidate for all loops of short operators, if some are at lines that also do other work.

    The candidate has the loops among *rows* except *in_loops*, which have separate candidates. Its what-if
    target includes all loops.
    """
    segments = path.columns
    programs = path.program_of_rank[segments["rank"][rows]].astype(np.int64)
    nodes = segments["node_id"][rows]
    own = rows[marked_nodes(workload, programs, nodes, lambda graph, _: short_loops(graph))]
    calls = own[~_is_gap(segments, own)]
    path_ns, target = sum_ns(segments, own), Target("loops", SHORT)
    beside_ns = sum_ns(segments, np.setdiff1d(own, in_loops))
    if not len(calls) or beside_ns <= (1 - NEARLY_ALL) * path_ns:
        return
    what = f"{HOST_CAUSES['dispatch']} of {count_text(len(calls), 'short operator')} in loops"
    what += f"{in_place(segments, own)}{ESPECIALLY}{short_name(largest(segments, calls, 'operator')[0])}"
    how = REMEDIES["operators"]
    yield Candidate(what, "host", "dispatch", "loops", target, GONE, own, path_ns, path_ns, how=how)


def _long(segments: Columns, rows: Ints) -> Ints:
    """Return the *rows* of operators that are too long for a loop of small operators."""
    return rows[~_is_gap(segments, rows) & (segments["duration_ns"][rows] > SHORT_NS)]


def collective_loops(segments: Columns, rows: Ints) -> Iterator[Candidate]:
    """Yield a candidate per line of a script that issues many collectives, with all its work."""
    rows = rows[~np.isin(segments["phase"][rows], CALLED_PHASES) & (segments["place"][rows] != "")]
    for place, issued in grouped(rows, segments["place"][rows]):
        if len(issued) >= LOOP_CALLS:
            own = np.flatnonzero(segments["place"] == place)
            path_ns, target = sum_ns(segments, own), Target("place", place)
            what = f"{count_text(len(issued), 'collective')} one by one in {place}"
            kind, cause = "communication", "communication_call"
            yield Candidate(what, kind, cause, "latency", target, GONE, own, path_ns, path_ns)


def barriers(segments: CodedColumns, rows: Ints) -> tuple[list[Candidate], Ints]:
    """Return a candidate per place with barriers, and the communications of *rows* that are no barriers.

    If a line does hardly anything except waiting in barriers, all its time counts. Work before the first
    barrier of a step does not count, because other work may make a rank late.
    """
    operators = segments["operator"]
    is_barrier = operators[rows].passes(_is_barrier)
    everywhere = np.flatnonzero(operators.passes(_is_barrier))
    found = []
    for place, own in grouped(rows[is_barrier], segments["place"][rows[is_barrier]]):
        at_place = np.flatnonzero(segments["place"] == place)
        every = everywhere[segments["place"][everywhere] == place]
        target = Target("operator", str(operators[own[0]]))
        gaps = at_place[_is_gap(segments, at_place) | (segments["cause"][at_place] == DELAYED)]
        gaps = gaps[(gaps > every[0]) & (gaps < every[-1])]
        if place and sum_ns(segments, np.union1d(every, gaps)) >= NEARLY_ALL * sum_ns(segments, at_place):
            every, target = at_place, Target("place", place)
        path_ns = sum_ns(segments, every)
        what = count_text(len(own), "barrier") + f" in {place}" * bool(place)
        found.append(Candidate(what, "communication", "", "barrier", target, GONE, every, path_ns, path_ns))
    return found, rows[~is_barrier]


def object_exchanges(
    segments: CodedColumns, hosted: Ints, rows: Ints, work: PlacedWork
) -> tuple[list[Candidate], Ints, Ints]:
    """Return a candidate per place that exchanges Python objects, and the other *hosted* and other *rows*.

    A candidate includes the communications *rows* of the exchange, if the place does little else.
    """
    own = hosted[(segments["cause"][hosted] == _OBJECTS) & (segments["place"][hosted] != "")]
    found = []
    places = work.joined(own)
    for place, pickled in grouped(own, places[own]):
        sent, every = rows[places[rows] == place], np.flatnonzero(places == place)
        path_ns = sum_ns(segments, every)
        if len(sent) and sum_ns(segments, pickled) + sum_ns(segments, sent) >= MAJORITY * path_ns:
            what, target = f"{HOST_CAUSES[_OBJECTS]} in {place}", Target("place", place)
            found.append(Candidate(what, "host", _OBJECTS, _OBJECTS, target, GONE, every, path_ns, path_ns))
    used = np.concatenate([hosted[:0], *(one.rows for one in found)])
    return found, hosted[~np.isin(hosted, used)], rows[~np.isin(rows, used)]


def _is_barrier(operator: str) -> bool:
    return operator.rpartition(":")[2] in ("barrier", "monitored_barrier_")


def host_work(path: CriticalPath, workload: Workload, rows: Ints, work: PlacedWork) -> Iterator[Candidate]:
    """Yield candidates of host work: special causes, Python by place, stalls, remaining dispatch."""
    segments = path.columns
    causes, places = segments["cause"][rows], segments["place"][rows]
    diffuse = np.isin(causes, DIFFUSE_CAUSES)
    special = ~diffuse & (causes != "optimizer")
    for cause, everywhere in grouped(rows[special], causes[special]):
        label = HOST_CAUSES.get(cause, cause)
        found = work.of_cause(everywhere) if cause not in _WHOLE_ENTRIES else []
        if not found:  # any code may lose its processor
            at = "" if cause == DELAYED else where(segments, everywhere)
            found = [(at, Target("cause", cause), everywhere)]
        # Without a profiler, or after a warm-up, the first launch is short.
        is_advised = cause != FIRST_LAUNCH
        for at, target, every in found:
            path_ns = sum_ns(segments, every)
            one = Candidate(
                label + at, "host", cause, cause, target, GONE, every, path_ns, path_ns, is_advised=is_advised
            )
            yield _on_free_cores(one, path, workload)
    placed = diffuse & (places != "") & (causes == "python")
    yield from _python(segments, rows[placed], work)
    yield from _diffuse(path, workload, rows[diffuse & ~placed])


def _python(segments: CodedColumns, rows: Ints, work: PlacedWork) -> Iterator[Candidate]:
    """Yield Python between operators, *rows*, by function or line."""
    for target, own, every in work.by_place(rows):
        lines = set(segments["place"][own].tolist())
        if every is not None and (len(lines) > 1 or len(every) > len(own)):
            yield _python_at(segments, in_target(target, segments, own), target, own, every)
        else:
            line = lines.pop()
            yield _python_at(segments, f" in {line}", Target("host", line), own, own)


def _python_at(segments: Columns, place: str, target: Target, own: Ints, every: Ints) -> Candidate:
    """Return the candidate for Python code in rows *own*; *every* adds work that disappears with it.

    As in other candidates, a wait for a processor counts as part of the waiting work.
    """
    others = np.setdiff1d(every, own)
    causes, path_ns = segments["cause"][others], sum_ns(segments, every)
    other_ns = sum_ns(segments, others[~np.isin(causes, (DELAYED, COLLECTING))])
    is_mixed = sum_ns(segments, own) < NEARLY_ALL * (sum_ns(segments, own) + other_ns)
    label = HOST_CAUSES["python"]
    what = f"{label}{place}"
    if is_mixed:
        mostly = in_place(segments, own) if target.what == "function" else ""
        what = f"{everything_in(target)}, mostly {label}{mostly}"
    what += ", including the garbage collections that it triggers" * bool((causes == COLLECTING).any())
    return Candidate(what, "host", "python", "python", target, GONE, every, path_ns, path_ns)


def _on_free_cores(one: Candidate, path: CriticalPath, workload: Workload) -> Candidate:
    """Limit the gain of moving host work to the work that free cores can take over."""
    cores = free_cores(workload.metadata, set(path.columns["rank"][one.rows].tolist()))
    moved_ns, how = moved(one.cause, one.path_ns, path.makespan_ns, cores)
    if moved_ns == one.path_ns:
        return replace(one, how=how)
    times = one.path_ns / (one.path_ns - moved_ns) if moved_ns else HALF
    return replace(one, times=times, bound_ns=moved_ns or one.path_ns // 2, how=how, is_moved=moved_ns > 0)


def _diffuse(path: CriticalPath, workload: Workload, rows: Ints) -> Iterator[Candidate]:
    segments = path.columns
    programs = path.program_of_rank[segments["rank"][rows]]
    graphs = {int(one): workload.graphs[int(one)] for one in set(programs.tolist())}
    typical = {one: typical_host_ns(graph) for one, graph in graphs.items()}
    least = {one: least_stall_ns(graph) for one, graph in graphs.items()}
    usual = np.array([typical[one] for one in programs.tolist()], np.int64)
    long = segments["duration_ns"][rows] > np.array([least[one] for one in programs.tolist()], np.int64)
    on_device = _device_operators(workload)
    for name, own in grouped(rows[long], segments["operator"][rows[long]]):
        path_ns = sum_ns(segments, own)
        bound_ns = path_ns - int(usual[np.isin(rows, own)].sum())
        is_gap = name.startswith(HOST_BEFORE) or name in {HOST_END, HOST_UNRECORDED}
        what, remedy = f"Host stall: {name}" if is_gap else f"Host stall in {name}", "stall"
        if is_compiled_region(name):
            remedy = "compiled"
        elif name in on_device:
            remedy = "launch_stall"
        elif not is_gap and class_of(plain_name(name)):
            what, remedy = f"{name}, computed by the host", "host_operator"
        cause = str(segments["cause"][own[0]])
        module, _ = largest(segments, own, "module")
        what += f" of {module}" * bool(module) + in_place(segments, own)
        yield Candidate(what, "host", cause, remedy, Target("stall", name), GONE, own, path_ns, bound_ns)
    own = rows[~long]
    if len(own):
        name, ns = largest(segments, own, "operator")
        # Stalls are also listed by cause; with the same name, two times would be listed.
        is_all = set(segments["cause"][own]) == {"dispatch"}
        label = HOST_CAUSES["dispatch"] if is_all else "Dispatch and other short host work"
        example = f"{ESPECIALLY}{most_for(name)} ({duration_text(ns)})"
        what = label + " without stalls" * bool(long.any())
        what += example * (len(set(segments["operator"][own])) > 1)
        remedy = "operators" if computed_on_host(workload) else "launches"
        target = Target("host", "dispatch")
        yield scaled(segments, what, "host", target, own, cause="dispatch", remedy=remedy, is_named=False)


def _device_operators(workload: Workload) -> set[str]:
    """Return the operators that have work on a device or network."""
    found: set[str] = set()
    for graph in workload.graphs:
        operators = graph.node_columns["operator"]
        working = graph.node_columns["kind"].passes(_WORK.__contains__)
        found.update(operators.texts[number] for number in np.unique(operators.numbers[working]).tolist())
    return found


def synchronisations(path: CriticalPath, workload: Workload, rows: Ints, most_ns: int) -> Iterator[Candidate]:
    """Yield synchronisations by operator, with the device work that they waited for.

    The device does the same work without them, so removing them gains at most *most_ns*.
    """
    segments = path.columns
    device = np.isin(segments["kind"], ["compute", "communication", "copy", "idle"])
    ended, instant = _instant_synchronisations(path, workload, device)
    calls = np.append(segments["name"][rows], instant["name"])
    for operator, group in grouped(
        np.arange(len(calls)), np.append(segments["operator"][rows], instant["operator"])
    ):
        own = rows[group[group < len(rows)]]
        call = largest(segments, own, "name")[0] if len(own) else str(calls[group[0]])
        resumed = np.append(rows, ended)[group]
        waited = [row for sync in resumed.tolist() for row in _run_before(device, sync)]
        awaited = np.unique(np.array(waited, np.int64))
        what = f"Synchronisation {call}" + (f" in {operator}" if operator != call else "")
        own_ns, awaited_ns = sum_ns(segments, own), sum_ns(segments, awaited)
        if own_ns > awaited_ns > 0 and not call.startswith(SPIN):
            what += f", of which {duration_text(own_ns)} pass after the end of the awaited device work"
        elif len(awaited) and not call.startswith(SPIN):
            what += f", which waits for {_device_work(segments, awaited)}"
        every = np.union1d(own, awaited)
        path_ns = min(sum_ns(segments, every), own_ns + most_ns)
        bound_ns = min(path_ns, most_ns)
        target = Target("sync", operator)
        # Other calls after a copy, such as torch.cuda.synchronize(), are not made for the copy.
        is_its_call = "Memcpy" in call or operator in _COPYING
        is_copied = is_its_call and _are_copies(segments, resumed - 1, "HtoD")
        how = copy_remedy("HtoD", segments["name"][resumed - 1]) if is_copied else ""
        cause = "synchronisation"
        yield Candidate(what, "sync", cause, "sync", target, GONE, every, path_ns, bound_ns, how=how)


def _instant_synchronisations(
    path: CriticalPath, workload: Workload, device: npt.NDArray[np.bool_]
) -> tuple[Ints, Mapping[str, npt.NDArray[np.object_]]]:
    """Return the synchronisations that returned just as the device had finished.

    Synchronisations that take no time have no segment; the returned rows are the host work after each.
    """
    causes, ranks = path.causes, path.columns["rank"]
    resumed = ~device & (causes >= 0) & (causes != np.append(-1, path.columns["node_id"][:-1]))
    rows = np.flatnonzero(resumed & np.append(False, device[:-1]))
    facts = NodeFacts(workload, ranks[rows].astype(np.int64), causes[rows])
    is_sync = facts.texts("kind") == "sync"
    named = {name: facts.texts(name)[is_sync] for name in ("name", "operator")}
    operators = np.where(named["operator"] == "", named["name"], named["operator"])
    return rows[is_sync], {"name": named["name"], "operator": operators}


def _device_work(segments: Columns, rows: Ints) -> str:
    """Return the name of the longest of *rows*: a collective, copies by direction, or an operator."""
    working = rows[segments["kind"][rows] != "idle"]
    rows = working if len(working) else rows
    row = int(rows[np.argmax(segments["duration_ns"][rows])])
    collective, operator = str(segments["collective"][row]), str(segments["operator"][row])
    if collective:
        return collective.partition(" of ")[0]
    if segments["kind"][row] == "copy":
        return f"copies {copy_direction(str(segments['name'][row]))} ({operator})"
    return short_name(operator)


def _are_copies(segments: Columns, rows: Ints, direction: str) -> bool:
    """Return whether all *rows* are copies in *direction* (-1: before the path)."""
    if (rows < 0).any():
        return False
    names = segments["name"][rows]
    return bool((segments["kind"][rows] == "copy").all()) and {*map(copy_direction, names)} == {direction}


def _run_before(device: npt.NDArray[np.bool_], row: int) -> range:
    """Return the consecutive device rows that end right before *row*."""
    first = row
    while first > 0 and device[first - 1]:
        first -= 1
    return range(first, row)
