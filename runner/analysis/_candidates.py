"""Find what contributes to step time, such as a collective at all sizes or an operator at all shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from ...converter import Workload
from ...converter.building import class_of, computed_on_host, lacks_bfloat16, plain_name
from ...converter.chakra import BUFFERS, DELAYED, GAP, HOST_BEFORE, HOST_CAUSES
from ...converter.kernels import kernel_pattern
from ...support import bytes_text, count_text, duration_text
from ...support.table import CodedColumns, Columns, Ints
from .._framed import coded, sums_by
from .._result import Result
from .._traits import about_backend
from ._accumulation import accumulation
from ._advised import HOST_REMEDIES, REMEDIES, copy_remedy
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
    scaled,
    sum_ns,
    training_functions,
    where,
)
from ._critical_path import CriticalPath
from ._host_candidates import (
    barriers,
    collective_loops,
    host_work,
    loop,
    loops,
    loops_beside_work,
    object_exchanges,
    synchronisations,
)
from ._host_time import DIFFUSE_CAUSES, INSIDE_CALLS, LOOP_CALLS
from ._labels import function_of, is_forward, lowered, numberless, short_name, within
from ._memory_traffic import (
    FUSIBLE,
    REPEATED,
    chains_of_nodes,
    marked_nodes,
    operators_in,
    repeated_copies,
)
from ._operators import OperatorRate, Reach, joined_rates, operator_rates, reach_in_tf32, reaches_of
from ._path_facts import NodeFacts, copy_direction
from ._placed_work import PlacedWork, everything_in
from ._what_if import Excess, Target, late_ranks

_MIN_FUNCTION = 0.1  # minimum fraction of the step for a function to be a candidate
_LATE_RANKS = 2
_MANY, _SMALL_BYTES = 25, 64 << 10  # collectives on the path that take a fixed time for their size
_IN_PRECISION = {"double": "double precision", "bfloat16": "bfloat16"}
_NO_FUNCTIONS = frozenset({"", *BUFFERS.values()})
# A fused optimizer reads parameter, gradient and two moments, and writes all of these except the gradient, in
# one pass. An operator on whole tensors reads two and writes one.
_FUSED_STREAMS, _OPERATOR_STREAMS, _MAX_FUSED = 7, 3, 10.0
# The source location of an optimizer that the script implements, and the remedies that fuse its passes.
_OWN_STEP = re.compile(r"\.step \(")
_OWN_OPTIMIZER = "torch.compile of its step, an optimizer of torch.optim (fused=True), or lower precision"
_FEWER_CALLS = "fewer and larger calls of the module or its operators, such as one call for the whole batch"
# Operators that only copy. They compute nothing, so that they can disappear.
_COPIES = ("copy_", "clone", "contiguous", "_to_copy")
# Operators that only wait, even if the trace calls this computation.
_WAITING = re.compile(r"^(c10d|gloo|nccl)(::|:)|synchronize|\bwait\b", re.IGNORECASE)
# Operations of communication kernels that wait for other ranks and move hardly any data.
_WITHOUT_DATA = ("barrier", "notify", "signal", "wait")
_BEFORE_ZEROING = (f"{HOST_BEFORE}aten::zero_", f"{HOST_BEFORE}aten::_foreach_zero_")
_DIRECTIONS = {
    "HtoD": "from host to device", "DtoH": "from device to host", "DtoD": "within devices",
    "PtoP": "between devices", "HtoH": "within the host", "Memset": "(memory sets)",
}  # fmt: skip


def candidates(
    path: CriticalPath, result: Result, workload: Workload, is_slow: Callable[[str], bool]
) -> list[Candidate]:
    """Return the candidates for what bounds the step, the largest first.

    *is_slow* takes the name of a communication on the path, and returns whether its rate is far
    below the network's bandwidth.
    """
    segments = path.columns
    if not len(segments["rank"]):
        return []
    rows_of = dict(grouped(np.arange(len(segments["rank"])), segments["kind"]))
    nothing = np.zeros(0, np.int64)
    late, work = late_ranks(workload), PlacedWork(segments, workload.metadata)
    computed, hosted = (rows_of.get(kind, nothing) for kind in ("compute", "host"))
    in_barriers, communicated = barriers(segments, rows_of.get("communication", nothing))
    exchanged, hosted, communicated = object_exchanges(segments, hosted, communicated, work)
    # Page faults and other effects slow down host operators, so their rates cannot be compared.
    rates = [] if computed_on_host(workload) else operator_rates(workload.metadata)
    reaches = reaches_of(joined_rates(rates)) if rates else {}
    calls = hosted[segments["cause"][hosted] == INSIDE_CALLS]
    of_loops = dict(loops(segments, _union(computed, hosted), work))
    in_loops = np.concatenate([nothing, *of_loops.values()])
    looped = np.isin(hosted, in_loops)
    looped &= segments["cause"][hosted] != DELAYED
    computations = _computations(segments, computed, work, on_host=computed_on_host(workload))
    precise = [*_precisions(path, workload, computed)]
    found = [
        *(_with_evidence(one, rates, reaches, segments) for one in computations),
        *_fusible(path, workload, _union(computed, hosted[segments["cause"][hosted] == DELAYED])),
        *precise,
        *_dense_gradients(segments, computed),
        *_repeated(path, workload, np.union1d(computed, rows_of.get("copy", nothing))),
        *(_module(segments, computed, hosted) if not rates else ()),  # with rates, advice names operators
        *_functions(segments, _outside(in_loops, segments), reaches),
        *_optimizer(segments, computed, hosted, precise),
        *(loop(segments, place, own) for place, own in of_loops.items()),
        *loops_beside_work(path, workload, _union(computed, hosted), in_loops),
        *in_barriers,
        *exchanged,
        *_communications(segments, communicated, computed, calls, result=result, is_slow=is_slow),
        *_small_collectives(path, workload, communicated, computed, calls),
        *collective_loops(segments, communicated),
        *accumulation(path, workload, communicated),
        *_copies(segments, rows_of.get("copy", nothing)),
        *_remote_memory(segments, rows_of.get("memory", nothing)),
        *synchronisations(path, workload, rows_of.get("sync", nothing), _uncomputed_ns(result)),
        *host_work(path, workload, hosted[~looped], work),
    ]
    found = [_on_its_rank(one, path, late) for one in found] + [*_late_ranks(path, late[:_LATE_RANKS])]
    return sorted(found, key=lambda one: (-one.bound_ns, one.what))


def _union(one: Ints, other: Ints) -> Ints:
    """Return the union of two disjoint sets of rows, in ascending order."""
    return np.sort(np.concatenate([one, other]), kind="stable")


def _computations(
    segments: CodedColumns, rows: Ints, work: PlacedWork, *, on_host: bool
) -> Iterator[Candidate]:
    """Yield a candidate per operator at all shapes, and one per kernel that several operators launch."""
    names, operators = segments["name"], segments["operator"]
    kernels = dict(grouped(rows, names[rows]))
    for operator, own in grouped(rows, operators[rows]):
        ns = sum_ns(segments, own)
        top, top_ns = largest(segments, own, "name")
        everywhere_ns = sum_ns(segments, kernels[top])
        remedy = "wait" if _WAITING.search(operator) else "unlogged" if operator == GAP else "compute"
        what, target = short_name(operator) or "Computation without a name", Target("operator", operator)
        if top != operator and top_ns >= MAJORITY * ns:
            if everywhere_ns > ns:
                continue  # kernels of several operators are separate candidates
            what += f" ({'mostly ' * (top_ns < ns)}kernel {short_name(top)})"
            target = target if top_ns < ns else Target("kernel", top)
        if largest(segments, own, "phase")[0] not in CALLED_PHASES:
            what += in_place(segments, own)
        kind = class_of(plain_name(operator))
        how = HOST_REMEDIES.get(kind, HOST_REMEDIES[""]) if on_host and remedy == "compute" else ""
        is_copy = bool(how) and plain_name(operator) in _COPIES
        whole, every = work.whole(target, own) if on_host else (target, own)
        if whole != target:
            worked = every[segments["cause"][every] != DELAYED]
            if ns < NEARLY_ALL * sum_ns(segments, worked):
                what = f"{everything_in(whole)}{ESPECIALLY}{short_name(operator)}"
            how = f"{REMEDIES['function']}; or {how}" if how else ""
        one = scaled(segments, what, "compute", whole, every, remedy=remedy, how=how)
        yield replace(one, times=GONE, bound_ns=one.path_ns) if is_copy else one
    for kernel, own in kernels.items():
        owners = set(operators[own].tolist())
        if len(owners) > 1:
            what = f"Kernel {short_name(kernel)} of {count_text(len(owners), 'operator')}"
            yield scaled(segments, what, "compute", Target("kernel", kernel), own)


def _with_evidence(
    one: Candidate, rates: Sequence[OperatorRate], reaches: Mapping[str, Reach], segments: Columns
) -> Candidate:
    """Add the evidence from operator rates to a candidate of computation.

    If the rate is known and no operator of similar size is faster, the candidate is not advised.
    """
    operators = set(segments["operator"][one.rows].tolist())
    if one.remedy != "compute" or operators.isdisjoint(rate.operator for rate in rates):
        return one
    reach = None
    if len(operators) == 1:
        operator, kernels = operators.pop(), set(segments["name"][one.rows].tolist())
        tf32 = reach_in_tf32((rate for rate in rates if rate.operator == operator), kernels)
        known = [found for found in (reaches.get(operator), tf32) if found is not None]
        reach = max(known, key=lambda found: found.times, default=None)
    if reach is None:
        return replace(one, is_advised=False)
    bound_ns = round(one.path_ns * (1 - 1 / reach.times))
    return replace(one, times=reach.times, bound_ns=bound_ns, how=reach.how)


def _fusible(path: CriticalPath, workload: Workload, rows: Ints) -> Iterator[Candidate]:
    """Yield one candidate for all fusible chains of operators, because torch.compile fuses them all."""
    segments = path.columns
    programs = path.program_of_rank[segments["rank"][rows]].astype(np.int64)
    places, chained = chains_of_nodes(workload, programs, segments["node_id"][rows])
    own = rows[places]
    if not len(own):
        return
    what = f"{count_text(len(np.unique(chained.chain)), 'chain')} of "
    what += count_text(int(np.count_nonzero(chained.moved_bytes)), "elementwise operator")
    what += f"{ESPECIALLY}{largest(segments, own, 'operator')[0]}{in_place(segments, own)}"
    saved, moved = (bytes_text(int(one.sum())) for one in (chained.saved_bytes, chained.moved_bytes))
    how = f"{REMEDIES['fusion']}: {saved} of {moved} need not be moved"
    path_ns = sum_ns(segments, own)
    target, bound_ns = Target("fusion", FUSIBLE), max(0, path_ns - int(chained.fused_ns.sum()))
    yield Candidate(what, "compute", "", "fusion", target, GONE, own, path_ns, bound_ns, how=how)


def _repeated(path: CriticalPath, workload: Workload, rows: Ints) -> Iterator[Candidate]:
    """Yield one candidate for casting or copying data that the step has already cast or copied."""
    segments = path.columns
    programs = path.program_of_rank[segments["rank"][rows]].astype(np.int64)
    own = rows[marked_nodes(workload, programs, segments["node_id"][rows], repeated_copies)]
    if not len(own):
        return
    what = "Repeated casts and copies of unchanged data"
    what += f"{ESPECIALLY}{largest(segments, own, 'operator')[0]}{in_place(segments, own)}"
    kind, path_ns = largest(segments, own, "kind")[0], sum_ns(segments, own)
    yield Candidate(what, kind, "", "repeated", Target("repeated", REPEATED), GONE, own, path_ns, path_ns)


def _precisions(path: CriticalPath, workload: Workload, rows: Ints) -> Iterator[Candidate]:
    """Yield one candidate for each precision in which all operators are slower than in single precision.

    Double precision takes twice the time. Processors without units for bfloat16 emulate it.
    """
    segments = path.columns
    programs = path.program_of_rank[segments["rank"][rows]].astype(np.int64)
    for precision in [*_IN_PRECISION][: 1 + lacks_bfloat16(workload.metadata)]:
        marked = partial(operators_in, precision)
        own = rows[marked_nodes(workload, programs, segments["node_id"][rows], marked)]
        if len(own):
            what = f"{count_text(len(own), 'operator')} in {_IN_PRECISION[precision]}"
            what += f"{ESPECIALLY}{short_name(largest(segments, own, 'operator')[0])}"
            what += in_place(segments, own)
            remedy = "precision" if precision == "double" else precision
            yield scaled(segments, what, "compute", Target("precision", precision), own, remedy=remedy)


def _dense_gradients(segments: CodedColumns, computed: Ints) -> Iterator[Candidate]:
    """Yield each embedding whose gradient takes longer to set to zero than to compute.

    A dense gradient has all rows of the table, and a batch uses few of these rows.
    """
    own = computed[segments["phase"][computed] == "backward"]
    is_dense = segments["operator"].passes("aten::embedding_dense_backward".__eq__)
    is_zeroed = segments["operator"].passes(("aten::fill_", "aten::zero_", "aten::zeros").__contains__)
    for name in sorted(set(segments["module"][own[is_dense[own]]].tolist()) - {""}):
        inside = computed[segments["module"][computed].passes(within(name))]
        zeroed_ns, dense_ns = (sum_ns(segments, inside[flags[inside]]) for flags in (is_zeroed, is_dense))
        path_ns = sum_ns(segments, inside)
        if zeroed_ns >= 2 * dense_ns and zeroed_ns + dense_ns >= MAJORITY * path_ns:
            what = f"The dense gradient of the embedding {name}, which is zero except in a few rows"
            target = Target("module", name)
            yield Candidate(what, "compute", "", "sparse", target, GONE, inside, path_ns, path_ns)


def _module(segments: CodedColumns, computed: Ints, hosted: Ints) -> Iterator[Candidate]:
    """Yield the innermost module with most computation, if it contains at most half of all modules.

    If there is no such module, modules whose names differ only in numbers are combined.
    """
    modules = segments["module"]
    times = sums_by(segments["duration_ns"][computed], modules[computed])
    times.pop("", None)
    least_ns = MAJORITY * sum_ns(segments, computed)
    found = _modules_with(times, least_ns) or _modules_with(times, least_ns, numberless)
    for name in sorted(found, key=len)[-1:]:
        rows = _union(computed, hosted[segments["cause"][hosted] != DELAYED])
        rows = rows[modules[rows].passes(within(name))]
        operator, _ = largest(segments, rows, "operator")
        is_it = modules[rows].passes(lambda module, of=name: of in (module, numberless(module)))
        ran = rows[is_it & (segments["phase"][rows] == "forward")]
        calls = np.bincount(coded(modules[ran], segments["operator"][ran])[0])
        is_loop = int(calls.max(initial=0)) >= LOOP_CALLS
        what = f"{name} (module{'s' * ('*' in name)}{', in a loop' * is_loop})"
        what += f"{ESPECIALLY}{short_name(operator)}"
        how = _FEWER_CALLS * is_loop
        yield scaled(segments, what, "compute", Target("module", name), rows, remedy="module", how=how)


def _modules_with(times: Mapping[Any, int], least_ns: float, named: Callable[[str], str] = str) -> list[str]:
    """Return the modules that take *least_ns* or more and contain at most half of the modules in *times*.

    *named* maps modules to the names by which they are grouped.
    """
    inside: dict[str, list[int]] = {}
    for module, own_ns in times.items():
        for outer in accumulate(named(str(module)).split("."), "{}.{}".format):
            inside.setdefault(outer, []).append(int(own_ns))
    return [name for name, own in inside.items() if sum(own) >= least_ns and 2 * len(own) <= len(times)]


def _outside(loops: Ints, segments: CodedColumns) -> Ints:
    """Return the rows of computation, communication and host work that are not in *loops*."""
    mine = segments["kind"].passes(("compute", "communication", "host").__contains__)
    mine &= ~segments["cause"].passes((DELAYED, "optimizer").__contains__)
    mine[loops] = False
    return np.flatnonzero(mine)


def _functions(segments: CodedColumns, rows: Ints, reaches: Container[str]) -> Iterator[Candidate]:
    """Yield each function of the script that takes much of a step without a single main cause.

    If a function calls the backward pass, only its operators count, and they must take most of the step.
    There is no advice on such a function itself, because the step needs it, and its source location includes
    the backward pass. An operator of *reaches*, which is known to be slow, is the main cause of a function
    even if the function also calls others.
    """
    training = training_functions(segments)
    if not training:
        return  # if the training function is unknown, one function may do all the work
    kinds, is_computed = segments["kind"], segments["kind"] == "compute"
    everywhere_ns = sums_by(segments["duration_ns"][is_computed], segments["operator"][is_computed])
    worked, functions = segments["cause"] != DELAYED, segments["place"].mapped(function_of)
    worked_ns = int(segments["duration_ns"][worked].sum())
    called = segments["phase"].passes(CALLED_PHASES.__contains__)
    rows = rows[~called[rows] | ~functions[rows].passes(training.__contains__)]
    for function, everything in grouped(rows, functions[rows]):
        if function in training:
            yield from _lines(segments, everything, _MIN_FUNCTION * worked_ns)
        computed, hosted = (everything[kinds[everything] == kind] for kind in ("compute", "host"))
        own, least = (computed, 0.5) if function in training else (everything, _MIN_FUNCTION)
        path_ns = sum_ns(segments, own)
        if path_ns <= least * worked_ns or function in _NO_FUNCTIONS or is_forward(function):
            continue
        # A function with less work also waits less for a processor.
        delayed = np.flatnonzero(~worked & (functions == function) & (function not in training))
        caused = hosted[segments["cause"][hosted] != "dispatch"]
        if own is everything and sum_ns(segments, caused) >= MAJORITY * path_ns:
            yield from _host_function(segments, function, _union(everything, delayed), caused)
            continue
        if not len(computed):
            continue
        computes = sum_ns(segments, computed) >= NEARLY_ALL * path_ns
        operator, most_ns = largest(segments, computed, "operator")
        most_of = MAJORITY if function in training or operator in reaches else NEARLY_ALL
        is_operator = most_ns >= max(most_of * path_ns, NEARLY_ALL * int(everywhere_ns[operator]))
        messages = everything[kinds[everything] == "communication"]
        is_single = any(
            len(part) and largest(segments, part, column)[1] >= MAJORITY * path_ns
            for part, column in ((hosted, "cause"), (messages, "collective"))
        )
        if not is_operator and not is_single:
            what = f"Operators called by {function}{ESPECIALLY}{short_name(operator)}"
            if not computes:
                operator, _ = largest(segments, _union(computed, messages), "operator")
                what = f"Everything in {function}{ESPECIALLY}{short_name(operator)}"
            target, is_advised = Target("place", function), function not in training
            every = _union(own, delayed)
            yield scaled(segments, what, "compute", target, every, remedy="function", is_advised=is_advised)


def _lines(segments: Columns, rows: Ints, least_ns: float) -> Iterator[Candidate]:
    """Yield each line of *rows* that takes *least_ns* or more, mostly host work of several causes."""
    for line, everything in grouped(rows, segments["place"][rows]):
        hosted = everything[segments["kind"][everything] == "host"]
        caused = hosted[segments["cause"][hosted] != "dispatch"]
        path_ns = sum_ns(segments, everything)
        if path_ns > least_ns and sum_ns(segments, caused) >= MAJORITY * path_ns:
            yield from _host_function(segments, line, everything, caused)


def _host_function(segments: Columns, function: str, rows: Ints, caused: Ints) -> Iterator[Candidate]:
    """Yield *function*, or a line, if it is mostly host work of several causes without a main cause."""
    path_ns = sum_ns(segments, rows)
    times = sums_by(segments["duration_ns"][caused], segments["cause"][caused])
    first, *others = sorted(times, key=times.__getitem__, reverse=True)
    if others and times[first] < MAJORITY * path_ns:
        one, other = (HOST_CAUSES.get(cause, "Host work") for cause in (first, others[0]))
        what, target = f"{one} and {lowered(other)} in {function}", Target("place", function)
        yield Candidate(what, "host", first, first, target, GONE, rows, path_ns, path_ns)


def _optimizer(
    segments: CodedColumns, computed: Ints, hosted: Ints, precise: Sequence[Candidate]
) -> Iterator[Candidate]:
    """Yield one candidate for the optimizer: its operators, and the host work between them.

    The operators are left out if one of them takes most of the optimizer's time, or if most of them belong
    to a candidate of *precise*, such as operators in double precision.
    """
    own = computed[segments["phase"][computed] == "optimizer"]
    kernel, kernel_ns = largest(segments, own, "name") if len(own) else ("", 0)
    known_ns = max((sum_ns(segments, own[np.isin(own, one.rows)]) for one in precise), default=0)
    if (
        max(kernel_ns, known_ns) >= MAJORITY * sum_ns(segments, own)
        or len(set(segments["operator"][own].tolist())) < 2
    ):
        own = own[:0]  # these operators are a separate candidate
    rows = _union(own, hosted[segments["cause"][hosted] == "optimizer"])
    if not len(rows):
        return
    path_ns, target = sum_ns(segments, rows), Target("cause", "optimizer")
    zeroed_ns = sum_ns(segments, _zeroing(segments, rows))
    if not len(own) and zeroed_ns >= MAJORITY * path_ns:
        what = f"{HOST_CAUSES['optimizer']}, mostly setting gradients to zero{in_place(segments, rows)}"
        times = path_ns / (path_ns - zeroed_ns) if zeroed_ns < path_ns else GONE
        yield Candidate(what, "host", "optimizer", "zero_grad", target, times, rows, path_ns, zeroed_ns)
        return
    times, what, how = HALF, f"{HOST_CAUSES['optimizer']}{where(segments, rows)}", ""
    if len(own):
        calls = np.unique(coded(segments["name"][own])[0], return_counts=True)[1]
        passes = len(own) / float(np.median(calls))
        times = min(max(HALF, passes * _OPERATOR_STREAMS / _FUSED_STREAMS), _MAX_FUSED)
        what = f"The optimizer{in_place(segments, rows)}{ESPECIALLY}{short_name(kernel)}"
        how = _OWN_OPTIMIZER if _OWN_STEP.search(what) else ""
        target = Target("phase", "optimizer")
    kind, bound_ns = "compute" if len(own) else "host", round(path_ns * (1 - 1 / times))
    yield Candidate(what, kind, "optimizer", "optimizer", target, times, rows, path_ns, bound_ns, how=how)


def _zeroing(segments: CodedColumns, rows: Ints) -> Ints:
    """Return the host work among *rows* that sets existing tensors to zero, outside an optimizer's step.

    New tensors of zeros also call `aten::zero_`, but inside another operator. The host work before an
    outermost operator names this operator.
    """
    operators = segments["operator"]
    is_before = operators.passes(lambda name: name.startswith(HOST_BEFORE))
    outermost = np.maximum.accumulate(np.where(is_before, np.arange(len(is_before)), 0))[rows]
    is_zeroing = operators[outermost].passes(_BEFORE_ZEROING.__contains__)
    is_zeroing &= segments["rank"][outermost] == segments["rank"][rows]
    own_step = segments["place"][rows].passes(lambda place: _OWN_STEP.search(place) is not None)
    zeroing: Ints = rows[is_zeroing & ~own_step]
    return zeroing


def _communications(
    segments: CodedColumns,
    rows: Ints,
    computed: Ints,
    calls: Ints,
    *,
    result: Result,
    is_slow: Callable[[str], bool],
) -> Iterator[Candidate]:
    """Yield candidates of communication: collectives, sends with receives, kernels of unknown messages.

    A collective includes the copies to and from its buffers, which are proportional to its bytes,
    and the host time, among *calls*, of the operators that issue it.
    """
    labels = segments["collective"]
    types = labels[rows].mapped(_type_of)
    kernels = types == ""
    for name, own in grouped(rows[kernels], segments["name"][rows[kernels]]):
        what, target = f"Communication kernel {short_name(name)}", Target("kernel", name)
        pattern = kernel_pattern(name)
        remedy = "wait" if pattern and pattern.operation in _WITHOUT_DATA else "communication"
        yield scaled(segments, what, "communication", target, own, remedy=remedy)
    for name, own in grouped(rows[~kernels], types[~kernels]):
        sums = sums_by(segments["duration_ns"][own], labels[own])
        sizes = f" of {count_text(len(sums), 'size or group', 'sizes and groups')}" if len(sums) > 1 else ""
        what = f"Sends and receives{sizes}" if name == "send_recv" else f"{next(iter(sums))}"
        if name != "send_recv" and len(sums) > 1:
            mostly, most_ns = largest(segments, own, "collective")
            most = mostly.removeprefix(f"{name} of ") if most_ns >= MAJORITY * sum_ns(segments, own) else ""
            what = f"{name}{sizes}" + f", mostly {most}" * bool(most)
        what += in_place(segments, own)
        target = Target("collective", name)
        if name == "broadcast" and largest(segments, own, "module")[0] == "DistributedDataParallel":
            what, path_ns = f"{what}: buffers of the model in each forward pass", sum_ns(segments, own)
            yield Candidate(what, "communication", "", "buffers", target, GONE, own, path_ns, path_ns)
            continue
        slow_ns = sum(ns for label, ns in sums.items() if is_slow(str(label)))
        slow = slow_ns > sum_ns(segments, own) / 2
        if slow and about_backend(result.backend).network:
            target = _slowest_dimension(result) or target
        remedy = "latency" if slow else "communication"
        copies = computed[segments["place"][computed] == BUFFERS.get(name, name)]
        # Operators that issue messages may wait for the peer, so the what-if leaves out their time.
        issuing = set(segments["operator"][own].tolist()) - {""} if name != "send_recv" else set()
        inside = calls[segments["operator"][calls].passes(issuing.__contains__)]
        copied = "parameters" if name == "all_gather" else "gradients"
        what += f", including copies of {copied}" * bool(len(copies))
        every = _union(_union(own, copies), inside)
        yield scaled(segments, what, "communication", target, every, remedy=remedy)


def _small_collectives(
    path: CriticalPath, workload: Workload, rows: Ints, computed: Ints, calls: Ints
) -> Iterator[Candidate]:
    """Yield one candidate for all communication, if it is mostly many small collectives of several types.

    *rows* are communication. The candidate includes the copies to and from buffers, and the host time in
    communication *calls*.
    """
    segments = path.columns
    facts = NodeFacts(workload, segments["rank"][rows].astype(np.int64), segments["node_id"][rows])
    types = segments["collective"][rows].mapped(_type_of)
    small = facts.numbers("comm_size_bytes") <= _SMALL_BYTES
    small &= ~types.passes(("", "send_recv").__contains__)
    names = sorted(set(types[small].tolist()))
    nodes = np.unique(np.column_stack([segments[name][rows[small]] for name in ("rank", "node_id")]), axis=0)
    if (
        len(names) < 2
        or len(nodes) < _MANY
        or sum_ns(segments, rows[small]) < MAJORITY * sum_ns(segments, rows)
    ):
        return
    copies = computed[segments["place"][computed].passes({*BUFFERS.values()}.__contains__)]
    every = np.sort(np.concatenate([rows, copies, calls]))
    what = f"{len(nodes)} small collectives ({', '.join(names)})"
    kind, path_ns = "communication", sum_ns(segments, every)
    yield Candidate(what, kind, "", "small", Target("kind", kind), GONE, every, path_ns, path_ns)


def _type_of(label: str) -> str:
    """Return the type of a communication, ``send_recv`` for sends and receives."""
    kind = label.partition(" of ")[0]
    return "send_recv" if kind in ("send", "recv") else kind


def _slowest_dimension(result: Result) -> Target | None:
    latencies: Mapping[str, Any] = result.provenance.get("network", {})
    values = list(latencies.get("latency") or [])
    return Target("latency", str(int(np.argmax(values)))) if values else None


def _copies(segments: CodedColumns, rows: Ints) -> Iterator[Candidate]:
    for direction, own in grouped(rows, segments["name"][rows].mapped(copy_direction)):
        words = _DIRECTIONS.get(direction)
        what = f"Copies {words}, {direction}" if words else f"Copies: {direction}"
        operator, _ = largest(segments, own, "operator")
        what += f" ({operator})" if operator not in segments["name"][own] else ""
        how = copy_remedy(direction, segments["name"][own])
        yield scaled(segments, what, "copy", Target("copy", direction), own, how=how)


def _remote_memory(segments: Columns, rows: Ints) -> Iterator[Candidate]:
    for name, own in grouped(rows, segments["operator"][rows]):
        what = f"Remote memory: {name}" if name else "Remote memory"
        yield scaled(segments, what, "memory", Target("operator", name), own)


def _uncomputed_ns(result: Result) -> int:
    """Return an upper bound of gains in ns: the time without computation on the busiest rank."""
    return max(0, result.makespan_ns - int(result.columns("ranks")["compute_ns"].max(initial=0)))


def _on_its_rank(one: Candidate, path: CriticalPath, late: Sequence[Excess]) -> Candidate:
    """Name the late rank in a candidate that causes most of that rank's excess."""
    if not late:
        return one
    segments = path.columns
    ranks = np.unique(segments["rank"][one.rows])
    excess = next((other for other in late if ranks.tolist() == [other.rank]), None)
    if excess is None:
        return one
    columns = (segments[name][one.rows].tolist() for name in ("kind", "cause", "operator"))
    if sum(excess.work.get(work, 0) for work in set(zip(*columns, strict=True))) < MAJORITY * one.path_ns:
        return one
    return replace(one, what=f"{one.what}, only on rank {excess.rank}")


def _late_ranks(path: CriticalPath, found: Sequence[Excess]) -> Iterator[Candidate]:
    """Yield a candidate per late rank: the work that exceeds its peers' most."""
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
        label = lowered(label)
        more = f"{label or name} in {late.place}" if late.place else f"{label}: {name}" if label else name
        what = f"Rank {late.rank} is late: {duration_text(late.total_ns)} more work than its peers"
        what += f", {duration_text(ns)} of it {more}" if len(late.work) > 1 else f" in {more}"
        bound_ns = min(late.total_ns, path.makespan_ns)
        target = Target("skew", str(late.rank))
        yield Candidate(what, kind, cause, "skew", target, GONE, rows, sum_ns(segments, rows), bound_ns)
