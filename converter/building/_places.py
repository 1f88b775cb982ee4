"""Assign each piece of a host thread's time to a line of the script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

from .._columns import which
from ..readers import PHASES, Ops, Pieces
from ._cause_rules import is_engine_range, is_python_operator
from ._host_causes import DISPATCH_NS, HostCauses

_ACCUMULATION = "torch::autograd::AccumulateGrad"


def places_of(ops: Ops, pieces: Pieces, causes: HostCauses) -> list[str]:
    """Return the source location of each piece in the script, or "" if it is unknown."""
    middles = (pieces.start_ns + pieces.end_ns) // 2
    called, of_starts = causes.call_places(middles), causes.places(ops.start_ns)
    places = _with_lines(ops, pieces, causes, causes.called_or_sampled(middles))
    places = _between_calls(ops, pieces, called, places)
    places = _with_gradients(ops, pieces, of_starts, places, causes.hooks)
    return _with_hooks(ops, pieces, causes, places) if causes.hooks and len(ops) else places


def _with_lines(ops: Ops, pieces: Pieces, causes: HostCauses, places: Sequence[str]) -> list[str]:
    """Return *places*; operators outside marked calls, and short gaps before them, get the marked line.

    An operator that runs a function of the script keeps a place in this function.
    """
    called = causes.call_places(ops.start_ns)
    lines = [not call and line for call, line in zip(called, causes.line_places(ops.start_ns), strict=True)]
    names = ops.trace.names(ops.name)
    is_short = pieces.end_ns - pieces.start_ns < DISPATCH_NS
    issued = np.where((pieces.op < 0) & is_short, pieces.next_op, pieces.op).tolist()
    return [
        (op >= 0 and not is_python_operator(names[op], place) and lines[op]) or place
        for op, place in zip(issued, places, strict=True)
    ]


def _between_calls(ops: Ops, pieces: Pieces, called: Sequence[str], places: list[str]) -> list[str]:
    """Return *places*; work between two marked calls of a function gets the location of the first call.

    Known locations are kept. *called* has the source location of the marked call around each piece. Modules,
    the backward pass and the optimizer between two calls show that the second call does not follow in the
    same run of the function.
    """
    forward = PHASES.index("forward")
    inside = [op < 0 or (not ops.module[op] and ops.phase[op] == forward) for op in pieces.op.tolist()]
    filled, last = list(places), -1
    for piece, place in enumerate(called):
        if not place and not inside[piece]:
            last = -1
        elif place:
            if last >= 0 and function_at(place) == function_at(called[last]):
                for between in range(last + 1, piece):
                    filled[between] = places[between] or called[last]
            last = piece
    return filled


def function_at(place: str) -> str:
    """Return the function and file of a source location *place*, without the line."""
    return place.rpartition(":")[0]


def _with_gradients(
    ops: Ops, pieces: Pieces, of_starts: Sequence[str], places: list[str], hooks: Sequence[str]
) -> list[str]:
    """Return *places*; each gradient and its dispatch get the source location of the forward operator.

    *of_starts* is the source location at the start of each operator. Python code of a gradient keeps its own
    location. Gradients that are not accumulated get the location of the call that asks for them, except the
    locations *hooks*.
    """
    sequences = ops.trace.events.sequence[ops.event].tolist()
    is_engine = which(ops.trace.texts, is_engine_range)[ops.name].tolist() if len(ops) else []
    # By sequence number, which backward operators repeat. Operators without gradients have the number of the
    # next operator with gradients, so the last forward operator counts.
    is_backward = (ops.phase == PHASES.index("backward")).tolist()
    owners = {
        sequence: place
        for sequence, place, is_gradient in zip(sequences, of_starts, is_backward, strict=True)
        if sequence >= 0 and not is_gradient
    }
    if not any(owners.values()):
        return places
    callers = _callers(ops, of_starts, is_engine, hooks)
    of_ops: list[str] = []
    for op, (sequence, parent) in enumerate(zip(sequences, ops.parent.tolist(), strict=True)):
        around = of_ops[parent] if parent >= 0 else ""
        of_ops.append(callers.get(op) or owners.get(sequence, "") if is_engine[op] else around)
    next_ops = np.where(pieces.end_ns - pieces.start_ns < DISPATCH_NS, pieces.next_op, -1)
    of_pieces = [
        of_ops[op] if op >= 0 else of_ops[following] if following >= 0 else ""
        for op, following in zip(pieces.op.tolist(), next_ops.tolist(), strict=True)
    ]
    names = [ops.trace.texts[ops.name[op]] if op >= 0 else "" for op in pieces.op.tolist()]
    return [
        place if is_python_operator(name, place) else owner or place
        for name, owner, place in zip(names, of_pieces, places, strict=True)
    ]


def _callers(
    ops: Ops, of_starts: Sequence[str], is_engine: Sequence[bool], hooks: Sequence[str]
) -> dict[int, str]:
    """Return the source location of `torch.autograd.grad` for each gradient that such a call computes.

    A backward pass of the parameters accumulates gradients; the gradients of `torch.autograd.grad` are
    results of the call. A sample may be late, so the most frequent location in a pass counts.
    """
    outermost = [*np.flatnonzero(ops.parent < 0).tolist(), len(ops)]
    passes = []
    for is_backward, group in groupby(pairwise(outermost), lambda bounds: is_engine[bounds[0]]):
        if is_backward:
            starts, ends = zip(*group, strict=True)
            passes.append(slice(starts[0], ends[-1]))
    accumulates = which(ops.trace.texts, _ACCUMULATION.__eq__)[ops.name]
    called = [
        max(Counter(filter(_may_call, of_starts[own])).items(), key=itemgetter(1), default=("", 0))[0]
        for own in passes
    ]
    trained = {place for own, place in zip(passes, called, strict=True) if accumulates[own].any()}
    others = trained.union(hooks, [""]) if trained else called
    return {
        op: place
        for own, place in zip(passes, called, strict=True)
        if place not in others
        for op in range(own.start, own.stop)
    }


def _may_call(place: str) -> bool:
    """Return whether *place* is known and not in the backward pass of a `torch.autograd.Function`."""
    return place != "" and not place.partition(" (")[0].endswith(".backward")


def _with_hooks(ops: Ops, pieces: Pieces, causes: HostCauses, places: list[str]) -> list[str]:
    """Return *places*; all operators of a hook get the hook's source location, but gradients do not.

    Autograd calls the hooks of a parameter before it accumulates the parameter's gradient.
    """
    names = [ops.trace.texts[name] for name in ops.name.tolist()]
    called = [False] * len(names)  # ranges of accumulations that call hooks
    accumulated = [False] * len(names)
    in_hook: list[bool | None] = []  # None: unknown
    for name, parent in zip(names, ops.parent.tolist(), strict=True):
        around = names[parent] if parent >= 0 else ""
        is_hook = in_hook[parent] if parent >= 0 else None
        if is_engine_range(around) and around.endswith(f": {name}"):
            accumulated[parent], is_hook = True, False
        elif around.endswith(_ACCUMULATION) and is_engine_range(around) and not accumulated[parent]:
            called[parent] = is_hook = True
        in_hook.append(is_hook)
    for op in np.flatnonzero(called).tolist():
        in_hook[op] = True
    found = []
    for op, place in zip(pieces.op.tolist(), places, strict=True):
        is_hook, is_hooks = in_hook[op] if op >= 0 else None, place in causes.hooks
        of_hook = place if is_hooks else causes.hooks[0]
        found.append(of_hook if is_hook else "" if is_hooks and is_hook is False else place)
    return found
