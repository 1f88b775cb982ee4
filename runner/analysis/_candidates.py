"""What takes the time of a step, added up: one collective over its sizes, one operator over its shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...converter import Workload
from ...converter.building import (
    GAP,
    HOST_BEFORE,
    HOST_END,
    HOST_UNRECORDED,
    SPIN,
    computed_on_host,
    is_usually_late,
)
from ...converter.chakra import HOST_CAUSES
from ...support import bytes_text, count_text, duration_text
from ...support.table import Columns
from .._framed import coded, sums_by
from .._result import Result
from .._traits import about_backend
from ._critical_path import CriticalPath
from ._fusion import FUSIBLE, chains_of_nodes
from ._host_time import DIFFUSE_CAUSES, STALL_TIMES, typical_host_ns
from ._labels import short_name
from ._operator_rates import OperatorRate, Reach, joined_rates, operator_rates, reaches_of
from ._path_facts import NodeFacts, copy_direction
from ._remedies import REMEDIES
from ._what_if import Excess, Target, excess_of_ranks

__all__ = ["HALF", "Candidate", "candidates"]

Ints = npt.NDArray[np.int64]

HALF = 2.0
"""How many times as fast necessary work is made, where no evidence tells how fast it could be."""
_GONE = math.inf
_MOST_OF_IT = 2 / 3
_MOST_SKEW_NODES = 3_000_000  # of larger workloads ranks are not compared, which reads every node
_LATE_RANKS = 2
# A loop in a script calls an operator at least so often, and most of its operators are shorter than that.
_LOOP_CALLS, _SHORT_NS = 100, 50_000
# A fused optimizer reads parameter, gradient and two moments, and writes all but the gradient, in one pass;
# operators on whole tensors read two and write one each.
_FUSED_STREAMS, _OPERATOR_STREAMS, _MOST_FUSED = 7, 3, 10.0
_SYNCHRONISATION = "synchronisation"
_LOOP_CAUSES = (*DIFFUSE_CAUSES, _SYNCHRONISATION)
_DELAYED = "descheduled"  # whatever ran then
# Operators that only wait for others, whatever a trace takes them for.
_WAITING = re.compile(r"^(c10d|gloo|nccl)(::|:)|synchronize|\bwait\b", re.IGNORECASE)
_DIRECTIONS = {
    "HtoD": "from host to device", "DtoH": "from device to host", "DtoD": "within devices",
    "PtoP": "between devices", "HtoH": "within the host", "Memset": "(memory sets)",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Candidate:
    """Something that may bound the step: *what* in words, a *target* to simulate *times* as fast.

    *remedy* is a key of `REMEDIES`; *how* replaces its sentence. *rows* are its segments of the critical
    path, *path_ns* their time, and *bound_ns* the most that the change can gain. *is_named* tells one thing
    from the sum of many. Where *is_advised* is false, nothing is known that would help.
    """

    what: str
    kind: str
    cause: str
    remedy: str
    target: Target
    times: float
    rows: Ints
    path_ns: int
    bound_ns: int
    is_named: bool = True
    how: str = ""
    is_advised: bool = True


def candidates(
    path: CriticalPath, result: Result, workload: Workload, is_slow: Callable[[str], bool]
) -> list[Candidate]:
    """Return what may bound the step, the largest bound first.

    *is_slow* says whether a communication, as the path names it, is far from the network's bandwidth.
    """
    segments = path.columns
    if not len(segments["rank"]):
        return []
    rows_of = {str(kind): np.flatnonzero(segments["kind"] == kind) for kind in set(segments["kind"].tolist())}
    nothing = np.zeros(0, np.int64)
    late = _late(workload)
    computed, hosted = (rows_of.get(kind, nothing) for kind in ("compute", "host"))
    # Operators of a host are slowed by too much else, such as page faults, to compare them.
    rates = [] if computed_on_host(workload) else operator_rates(workload.metadata)
    reaches = reaches_of(joined_rates(rates)) if rates else {}
    loops = dict(_loops(segments, np.union1d(computed, hosted)))
    looped = np.isin(hosted, np.concatenate([nothing, *loops.values()]))
    looped &= segments["cause"][hosted] != _DELAYED
    found = [
        *(_with_evidence(one, rates, reaches, segments) for one in _computations(segments, computed)),
        *_fusible(path, workload, computed),
        *_optimizer(segments, computed, hosted),
        *(_loop(segments, place, own) for place, own in loops.items()),
        *_communications(segments, rows_of.get("communication", nothing), result, is_slow),
        *_copies(segments, rows_of.get("copy", nothing)),
        *_remote_memory(segments, rows_of.get("memory", nothing)),
        *_synchronisations(path, workload, rows_of.get("sync", nothing), _uncomputed_ns(result)),
        *_host(path, workload, hosted[~looped]),
    ]
    found = [_on_its_rank(one, path, late) for one in found] + [*_late_ranks(path, late[:_LATE_RANKS])]
    return sorted(found, key=lambda one: (-one.bound_ns, one.what))


def _sum(segments: Columns, rows: Ints) -> int:
    return int(segments["duration_ns"][rows].sum())


def _groups(rows: Ints, labels: npt.NDArray[Any]) -> Iterator[tuple[str, Ints]]:
    """Yield each label with its rows."""
    numbers, names = coded(labels)
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(1, len(names)))
    for name, part in zip(names, np.split(order, ends), strict=False):
        yield str(name), rows[part]


def _scaled(segments: Columns, what: str, kind: str, target: Target, rows: Ints, **more: Any) -> Candidate:
    """Return the candidate that takes half of its time."""
    path_ns = _sum(segments, rows)
    facts: dict[str, Any] = {"cause": "", "remedy": kind} | more
    bound_ns = round(path_ns * (1 - 1 / HALF))
    return Candidate(
        what, kind, facts.pop("cause"), facts.pop("remedy"), target, HALF, rows, path_ns, bound_ns, **facts
    )


def _computations(segments: Columns, rows: Ints) -> Iterator[Candidate]:
    """Yield operators over all of their shapes; a kernel where it takes most of its operators' time."""
    names, operators = segments["name"], segments["operator"]
    kernels = dict(_groups(rows, names[rows]))
    for operator, own in _groups(rows, operators[rows]):
        ns = _sum(segments, own)
        top, top_ns = _largest(segments, own, "name")
        everywhere_ns = _sum(segments, kernels[top])
        remedy = "wait" if _WAITING.search(operator) else "unlogged" if operator == GAP else "compute"
        what, target = short_name(operator) or "Computation without a name", Target("operator", operator)
        if top != operator and top_ns >= _MOST_OF_IT * ns:
            if everywhere_ns > ns:
                continue  # a kernel of several operators
            what += f" ({'mostly ' * (top_ns < ns)}kernel {short_name(top)})"
            target = target if top_ns < ns else Target("kernel", top)
        yield _scaled(segments, what, "compute", target, own, remedy=remedy)
    for kernel, own in kernels.items():
        owners = set(operators[own].tolist())
        if len(owners) > 1:
            what = f"Kernel {short_name(kernel)} of {count_text(len(owners), 'operator')}"
            yield _scaled(segments, what, "compute", Target("kernel", kernel), own)


def _with_evidence(
    one: Candidate, rates: Sequence[OperatorRate], reaches: Mapping[str, Reach], segments: Columns
) -> Candidate:
    """Return computation with what is known of its operator's rate.

    Where the rates of operators are known and none of about its size is faster, there is no advice on it.
    """
    operators = set(segments["operator"][one.rows].tolist())
    if one.remedy != "compute" or operators.isdisjoint(rate.operator for rate in rates):
        return one
    reach = reaches.get(operators.pop()) if len(operators) == 1 else None
    if reach is None:
        return replace(one, is_advised=False)
    bound_ns = round(one.path_ns * (1 - 1 / reach.times))
    return replace(one, times=reach.times, bound_ns=bound_ns, how=reach.how)


def _fusible(path: CriticalPath, workload: Workload, computed: Ints) -> Iterator[Candidate]:
    """Yield the chains of operators that could be fused, as one: torch.compile fuses them all."""
    segments = path.columns
    programs = path.program_of_rank[segments["rank"][computed]]
    rows, chained = chains_of_nodes(workload, programs, segments["node_id"][computed])
    own = computed[rows]
    if not len(own):
        return
    what = f"{count_text(len(np.unique(chained.chain)), 'chain')} of "
    what += count_text(len(own), "elementwise operator")
    what += f", most for {_largest(segments, own, 'operator')[0]}{_place(segments, own)}"
    saved, moved = (bytes_text(int(one.sum())) for one in (chained.saved_bytes, chained.moved_bytes))
    how = f"{REMEDIES['fusion']}: {saved} of {moved} need not be moved"
    path_ns = _sum(segments, own)
    target, bound_ns = Target("fusion", FUSIBLE), max(0, path_ns - int(chained.fused_ns.sum()))
    yield Candidate(what, "compute", "", "fusion", target, _GONE, own, path_ns, bound_ns, how=how)


def _optimizer(segments: Columns, computed: Ints, hosted: Ints) -> Iterator[Candidate]:
    """Yield the optimizer as one: its operators, unless one is most of it, and the host work between them."""
    own = computed[segments["phase"][computed] == "optimizer"]
    kernel, kernel_ns = _largest(segments, own, "name") if len(own) else ("", 0)
    if kernel_ns >= _MOST_OF_IT * _sum(segments, own) or len(set(segments["operator"][own].tolist())) < 2:
        own = own[:0]  # that operator has a candidate of its own
    rows = np.union1d(own, hosted[segments["cause"][hosted] == "optimizer"])
    if not len(rows):
        return
    times, what = HALF, f"{HOST_CAUSES['optimizer']}{_where(segments, rows)}"
    if len(own):
        calls = np.unique(coded(segments["name"][own])[0], return_counts=True)[1]
        passes = len(own) / float(np.median(calls))
        times = min(max(HALF, passes * _OPERATOR_STREAMS / _FUSED_STREAMS), _MOST_FUSED)
        what = f"The optimizer{_where(segments, rows)}, most for {short_name(kernel)}"
    path_ns = _sum(segments, rows)
    kind, bound_ns = "compute" if len(own) else "host", round(path_ns * (1 - 1 / times))
    target = Target("phase", "optimizer")
    yield Candidate(what, kind, "optimizer", "optimizer", target, times, rows, path_ns, bound_ns)


def _loops(segments: Columns, rows: Ints) -> Iterator[tuple[str, Ints]]:
    """Yield places at which a script calls short operators over and over, with all that runs there."""
    phases, causes = segments["phase"][rows], segments["cause"][rows]
    worked = segments["cause"] != _DELAYED
    everything = sums_by(segments["duration_ns"][worked], segments["place"][worked])
    delayed = rows[causes == _DELAYED]
    rows = rows[~np.isin(phases, ["backward", "optimizer"]) & np.isin(causes, _LOOP_CAUSES)]
    placed = rows[segments["place"][rows] != ""]
    for place, own in _groups(placed, segments["place"][placed]):
        if _sum(segments, own) < _MOST_OF_IT * int(everything[place]):
            continue  # the loop is not all that the line does
        called = own[~_is_gap(segments, own)]
        if len(called) < _LOOP_CALLS or np.median(segments["duration_ns"][called]) > _SHORT_NS:
            continue
        if np.bincount(coded(segments["operator"][called])[0]).max() >= _LOOP_CALLS:
            yield place, np.union1d(own, delayed[segments["place"][delayed] == place])


def _is_gap(segments: Columns, rows: Ints) -> npt.NDArray[np.bool_]:
    """Return which of *rows* are host work between operators."""
    names = segments["name"][rows].tolist()
    is_named = np.array([name.startswith(HOST_BEFORE) for name in names], bool)
    gaps: npt.NDArray[np.bool_] = is_named & (segments["kind"][rows] == "host")
    return gaps


def _loop(segments: Columns, place: str, own: Ints) -> Candidate:
    """Return a loop of operators as one, with the host work between them."""
    worked = own[segments["cause"][own] != _DELAYED]
    path_ns, calls = _sum(segments, own), int((~_is_gap(segments, worked)).sum())
    cause, cause_ns = _largest(segments, worked, "cause")
    cause = cause if cause == _SYNCHRONISATION and cause_ns else "dispatch"
    what = f"{HOST_CAUSES[cause]} of {count_text(calls, 'short operator')} in {place}"
    target, remedy = Target("place", place), "operators" if cause == "dispatch" else cause
    return Candidate(what, "host", cause, remedy, target, _GONE, own, path_ns, path_ns)


def _largest(segments: Columns, rows: Ints, column: str) -> tuple[str, int]:
    sums = sums_by(segments["duration_ns"][rows], segments[column][rows])
    name = max(sums, key=sums.__getitem__)
    return str(name), int(sums[name])


def _communications(
    segments: Columns, rows: Ints, result: Result, is_slow: Callable[[str], bool]
) -> Iterator[Candidate]:
    """Yield collectives over all sizes and groups, sends with receives, and kernels of unknown messages."""
    labels = segments["collective"]
    types = np.array([text.partition(" of ")[0] for text in labels[rows].tolist()], object)
    types[np.isin(types, ["send", "recv"])] = "send_recv"
    kernels = types == ""
    for name, own in _groups(rows[kernels], segments["name"][rows[kernels]]):
        yield _scaled(
            segments, f"Communication kernel {short_name(name)}", "communication", Target("kernel", name), own
        )
    for name, own in _groups(rows[~kernels], types[~kernels]):
        sums = sums_by(segments["duration_ns"][own], labels[own])
        sizes = f" of {count_text(len(sums), 'size or group', 'sizes and groups')}" if len(sums) > 1 else ""
        what = f"Sends and receives{sizes}" if name == "send_recv" else f"{next(iter(sums))}"
        if name != "send_recv" and len(sums) > 1:
            largest, most_ns = _largest(segments, own, "collective")
            most = largest.removeprefix(f"{name} of ") if most_ns >= _MOST_OF_IT * _sum(segments, own) else ""
            what = f"{name}{sizes}" + f", mostly {most}" * bool(most)
        slow_ns = sum(ns for label, ns in sums.items() if is_slow(str(label)))
        slow = slow_ns > _sum(segments, own) / 2
        target = Target("collective", name)
        if slow and about_backend(result.backend).network:
            target = _slowest_dimension(result) or target
        remedy = "latency" if slow else "communication"
        yield _scaled(segments, what, "communication", target, own, remedy=remedy)


def _slowest_dimension(result: Result) -> Target | None:
    latencies: Mapping[str, Any] = result.provenance.get("network", {})
    values = list(latencies.get("latency") or [])
    return Target("latency", str(int(np.argmax(values)))) if values else None


def _copies(segments: Columns, rows: Ints) -> Iterator[Candidate]:
    directions = np.array([copy_direction(name) for name in segments["name"][rows].tolist()], object)
    for direction, own in _groups(rows, directions):
        words = _DIRECTIONS.get(direction)
        what = f"Copies {words}, {direction}" if words else f"Copies: {direction}"
        operator, _ = _largest(segments, own, "operator")
        what += f" ({operator})" if operator not in segments["name"][own] else ""
        yield _scaled(segments, what, "copy", Target("copy", direction), own)


def _remote_memory(segments: Columns, rows: Ints) -> Iterator[Candidate]:
    for name, own in _groups(rows, segments["operator"][rows]):
        what = f"Remote memory: {name}" if name else "Remote memory"
        yield _scaled(segments, what, "memory", Target("operator", name), own)


def _uncomputed_ns(result: Result) -> int:
    """Return how long the rank that computes most does not: computing it has to, however early."""
    return max(0, result.makespan_ns - int(result.columns("ranks")["compute_ns"].max(initial=0)))


def _synchronisations(
    path: CriticalPath, workload: Workload, rows: Ints, most_ns: int
) -> Iterator[Candidate]:
    """Yield synchronisations by operator, with the device's work before each, which it waited for.

    The device has that work to do without them, too: they hold up *most_ns* at most.
    """
    segments = path.columns
    device = np.isin(segments["kind"], ["compute", "communication", "copy", "idle"])
    ended, instant = _instant_synchronisations(path, workload, device)
    calls = np.append(segments["name"][rows], instant["name"])
    for operator, group in _groups(
        np.arange(len(calls)), np.append(segments["operator"][rows], instant["operator"])
    ):
        own = rows[group[group < len(rows)]]
        call = _largest(segments, own, "name")[0] if len(own) else str(calls[group[0]])
        resumed = np.append(rows, ended)[group]
        waited = [row for sync in resumed.tolist() for row in _run_before(device, sync)]
        awaited = np.unique(np.array(waited, np.int64))
        what = f"Synchronisation {call}" + (f" in {operator}" if operator != call else "")
        own_ns, awaited_ns = _sum(segments, own), _sum(segments, awaited)
        if own_ns > awaited_ns > 0 and not call.startswith(SPIN):
            what += f", {duration_text(own_ns)} of it after the last device work that it waits for"
        elif len(awaited) and not call.startswith(SPIN):
            what += f", which waits for {_device_work(segments, awaited)}"
        every = np.union1d(own, awaited)
        path_ns = min(_sum(segments, every), own_ns + most_ns)
        bound_ns = min(path_ns, most_ns)
        target = Target("sync", operator)
        cause = "synchronisation"
        yield Candidate(what, "sync", cause, "sync", target, _GONE, every, path_ns, bound_ns)


def _instant_synchronisations(
    path: CriticalPath, workload: Workload, device: npt.NDArray[np.bool_]
) -> tuple[Ints, Mapping[str, npt.NDArray[np.object_]]]:
    """Return the synchronisations on the path that returned as soon as the device was done.

    They take no time, so that they have no segment: the rows are those of the host's work after each.
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
    """Return what the longest of *rows* is: a collective, copies by direction, or an operator."""
    working = rows[segments["kind"][rows] != "idle"]
    rows = working if len(working) else rows
    row = int(rows[np.argmax(segments["duration_ns"][rows])])
    collective, operator = str(segments["collective"][row]), str(segments["operator"][row])
    if collective:
        return collective.partition(" of ")[0]
    if segments["kind"][row] == "copy":
        return f"copies {copy_direction(str(segments['name'][row]))} ({operator})"
    return short_name(operator)


def _run_before(device: npt.NDArray[np.bool_], row: int) -> range:
    """Return the rows of the device that stand in front of *row* without a gap."""
    first = row
    while first > 0 and device[first - 1]:
        first -= 1
    return range(first, row)


def _host(path: CriticalPath, workload: Workload, rows: Ints) -> Iterator[Candidate]:
    """Yield causes over their operators, stalls and places by name, and the dispatch that remains."""
    segments = path.columns
    causes, places = segments["cause"][rows], segments["place"][rows]
    diffuse = np.isin(causes, DIFFUSE_CAUSES)
    special = ~diffuse & (causes != "optimizer")
    for cause, own in _groups(rows[special], causes[special]):
        path_ns, label = _sum(segments, own), HOST_CAUSES.get(cause, cause)
        what, target = f"{label}{_where(segments, own)}", Target("cause", cause)
        yield Candidate(what, "host", cause, cause, target, _GONE, own, path_ns, path_ns)
    placed = diffuse & (places != "") & (causes == "python")
    for place, own in _groups(rows[placed], places[placed]):
        path_ns = _sum(segments, own)
        cause, _ = _largest(segments, own, "cause")
        what, target = f"{HOST_CAUSES.get(cause, 'Host work')} in {place}", Target("host", place)
        yield Candidate(what, "host", cause, "python", target, _GONE, own, path_ns, path_ns)
    yield from _diffuse(path, workload, rows[diffuse & ~placed])


def _diffuse(path: CriticalPath, workload: Workload, rows: Ints) -> Iterator[Candidate]:
    segments = path.columns
    programs = path.program_of_rank[segments["rank"][rows]]
    typical = {int(one): typical_host_ns(workload.graphs[int(one)]) for one in set(programs.tolist())}
    usual = np.array([typical[one] for one in programs.tolist()], np.int64)
    durations = segments["duration_ns"][rows]
    long = durations > STALL_TIMES * usual
    for name, own in _groups(rows[long], segments["operator"][rows[long]]):
        path_ns = _sum(segments, own)
        bound_ns = path_ns - int(usual[np.isin(rows, own)].sum())
        is_gap = name.startswith(HOST_BEFORE) or name in {HOST_END, HOST_UNRECORDED}
        what = f"Host stall: {name}" if is_gap else f"Host stall in {name}"
        cause = str(segments["cause"][own[0]])
        what += f"{_place(segments, own)}"
        yield Candidate(what, "host", cause, "stall", Target("stall", name), _GONE, own, path_ns, bound_ns)
    own = rows[~long]
    if len(own):
        on_device = any("idle" in graph.node_columns["kind"].texts for graph in workload.graphs)
        on_device = on_device or bool((segments["kind"] == "copy").any())
        name, ns = _largest(segments, own, "operator")
        what = HOST_CAUSES["dispatch"] + f", most for {name} ({duration_text(ns)})" * (
            len(set(segments["operator"][own])) > 1
        )
        remedy = "launches" if on_device else "operators"
        target = Target("host", "dispatch")
        yield _scaled(segments, what, "host", target, own, cause="dispatch", remedy=remedy, is_named=False)


def _where(segments: Columns, rows: Ints) -> str:
    """Return where most of the *rows* lie: function, file and line, or the operator or annotation."""
    place, place_ns = _largest(segments, rows, "place")
    if place and place_ns * 2 > _sum(segments, rows):
        return f" in {place}"
    name, _ = _largest(segments, rows, "operator")
    return f": {name}" if name else ""


def _place(segments: Columns, rows: Ints) -> str:
    """Return the module and the function that hold most of the *rows*, as far as they are known."""
    module, place = (_largest(segments, rows, column)[0] for column in ("module", "place"))
    return f" of {module}" * bool(module) + f", {place}" * bool(place)


def _late(workload: Workload) -> list[Excess]:
    """Return the ranks that take longer than their peers in most steps; none of too large workloads."""
    if sum(graph.num_nodes for graph in workload.graphs) > _MOST_SKEW_NODES:
        return []
    found = excess_of_ranks(workload)
    return [one for one in found if is_usually_late(workload.metadata, one.rank, one.total_ns)]


def _on_its_rank(one: Candidate, path: CriticalPath, late: Sequence[Excess]) -> Candidate:
    """Return a candidate with its rank named if it is most of what that rank does longer than its peers."""
    segments = path.columns
    ranks = np.unique(segments["rank"][one.rows])
    excess = next((other for other in late if ranks.tolist() == [other.rank]), None)
    if excess is None:
        return one
    first = int(one.rows[np.argmax(segments["duration_ns"][one.rows])])
    kind, cause, operator = (str(segments[name][first]) for name in ("kind", "cause", "operator"))
    if excess.work.get((kind, cause, operator), 0) < _MOST_OF_IT * one.path_ns:
        return one
    return replace(one, what=f"{one.what}, on rank {excess.rank} alone")


def _late_ranks(path: CriticalPath, found: Sequence[Excess]) -> Iterator[Candidate]:
    """Yield ranks that take longer than their peers, with the work that differs most."""
    segments = path.columns
    for late in found:
        kind, cause, name = late.largest
        ns = late.work[late.largest]
        own = np.flatnonzero(segments["rank"] == late.rank)
        keys = zip(*(segments[column][own].tolist() for column in ("kind", "cause", "operator")), strict=True)
        rows = own[np.array([key in late.work for key in keys], bool)] if len(own) else own
        longest = int(segments["duration_ns"][rows].max(initial=0))
        label = HOST_CAUSES.get(cause, "")
        if label and cause in DIFFUSE_CAUSES and 2 * longest > ns:
            label = "Host stall"
        more = f"{label}: {name}" if label else name
        what = f"Rank {late.rank} is late: {duration_text(late.total_ns)} more work than its peers"
        what += f", {duration_text(ns)} of it {more}" if len(late.work) > 1 else f" in {more}"
        bound_ns = min(late.total_ns, path.makespan_ns)
        target = Target("skew", str(late.rank))
        yield Candidate(what, kind, cause, "skew", target, _GONE, rows, _sum(segments, rows), bound_ns)
