"""Find the operators of a CUDA graph's kernels in a capture trace, because launches do not name them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from .._columns import groups_of, which
from ..readers import CATEGORIES, PHASES, DeviceTrace, Ops, Threads, cut_pieces
from ._host_lanes import Lane

# A piece of device work: its category, and the name of the kernel ("" for copies, and for unknown kernels).
_Piece = tuple[int, str]
# Minimum share of matched kernels. Nearly all kernels match the graph's own capture, and only a few match the
# capture of another graph.
_MIN_MATCHED = 0.5
_ALLOCATION = "aten::empty"
KERNEL, MEMCPY, _MEMSET = (CATEGORIES.index(category) for category in ("kernel", "memcpy", "memset"))


class Origin(NamedTuple):
    """The operator that issued a piece of device work when its graph was captured.

    *arguments* are the operator's arguments as spelled in the capture trace, or "" without arguments. *call*
    is the number of the operator in the capture trace. *allocated* are the shapes of tensors that the
    operator itself allocated.
    """

    operator: str
    module: str
    phase: str
    arguments: str
    call: int
    allocated: tuple[tuple[int, ...], ...] = ()


class CapturedGraph(msgspec.Struct, frozen=True):
    """The contents of a captured graph in order of calls; calls outside operators have no operator."""

    pieces: tuple[_Piece, ...]
    origins: tuple[Origin | None, ...]

    @property
    def is_named(self) -> bool:
        """Whether kernels have names; ROCm traces name the kernels of a capture, but CUDA traces do not."""
        return any(name for _, name in self.pieces)


def captured_graphs(trace: DeviceTrace) -> list[CapturedGraph]:
    """Return the graphs captured in *trace*, in order, without truncated captures.

    Calls whose work the device executed during the capture are not part of a graph.
    """
    calls = trace.calls
    issues = which(trace.texts, _is_captured)[calls.name]
    issues &= ~np.isin(calls.correlation, trace.works.correlation[trace.works.correlation > 0])
    # A runtime call may make a driver call with the same correlation, so only the first call is used.
    first = np.unique(calls.correlation, return_index=True)[1]
    repeated = calls.correlation > 0
    repeated[first] = False
    issuing = np.flatnonzero(issues & ~repeated)
    threads, graphs = Threads(trace), []
    for start, end in _captures(trace):
        inside = issuing[(calls.start_ns[issuing] >= start) & (calls.start_ns[issuing] < end)]
        origins: dict[int, Origin | None] = {}
        for thread, places in groups_of(calls.thread[inside]).items():
            own = inside[places]
            events = np.flatnonzero(trace.events.thread == thread)
            ops = threads.operators(events, start, end)
            around = Lane(0, thread, ops, cut_pieces(ops, start, end)).ops_at(calls.start_ns[own])
            found = [_origin(ops, op) if op >= 0 else None for op in around.tolist()]
            origins.update(zip(own.tolist(), found, strict=True))
        if len(inside):
            pieces = [_piece(trace, call) for call in inside.tolist()]
            graphs.append(CapturedGraph(tuple(pieces), tuple(origins[call] for call in inside.tolist())))
    return graphs


def _is_captured(name: str) -> bool:
    """Return whether a call called *name* adds device work to a graph under capture."""
    if "Memcpy" in name or "Memset" in name:
        return True
    return "Launch" in name and "Graph" not in name and "Host" not in name


def _captures(trace: DeviceTrace) -> list[tuple[int, int]]:
    """Return the intervals of captures: from each begin call to the next end call of the same thread."""
    calls = trace.calls
    begins = np.flatnonzero(which(trace.texts, lambda text: "BeginCapture" in text)[calls.name])
    ends = np.flatnonzero(which(trace.texts, lambda text: "EndCapture" in text)[calls.name])
    found: list[tuple[int, int]] = []
    for begin in begins.tolist():
        start = int(calls.end_ns[begin])
        if found and int(calls.start_ns[begin]) < found[-1][1]:  # this driver call is part of a runtime call
            continue
        later = ends[(calls.thread[ends] == calls.thread[begin]) & (calls.start_ns[ends] >= start)]
        if len(later):
            found.append((start, int(calls.start_ns[later[0]])))
    return found


def _origin(ops: Ops, op: int) -> Origin:
    module, phase = ops.modules[int(ops.module[op])], PHASES[int(ops.phase[op])]
    trace, event = ops.trace, int(ops.event[op])
    arguments = int(trace.events.arguments[event])
    spelled = trace.arguments[arguments] if arguments >= 0 else ""
    return Origin(ops[op].name, module, phase, spelled, event, allocated_shapes(ops, op))


def allocated_shapes(ops: Ops, op: int) -> tuple[tuple[int, ...], ...]:
    """Return the recorded shapes of the tensors that operator *op* itself allocates, in order."""
    last = int(np.searchsorted(ops.start_ns, ops.end_ns[op]))
    children = op + 1 + np.flatnonzero(ops.parent[op + 1 : last] == op)
    allocations = ops.trace.events.take(ops.event[children])
    named = zip(ops.trace.names(allocations.name), allocations.arguments.tolist(), strict=True)
    spelled = [ops.trace.arguments[place] for name, place in named if name == _ALLOCATION and place >= 0]
    return tuple(filter(None, map(_allocated, spelled)))


def _allocated(spelled: str) -> tuple[int, ...]:
    """Return the shape that an allocation with arguments *spelled* requests, or () if unreadable."""
    try:
        _, _, values = msgspec.json.decode(spelled, type=list[list[Any]])
        return msgspec.json.decode(values[0], type=tuple[int, ...])
    except (IndexError, TypeError, ValueError, msgspec.MsgspecError):
        return ()


def _piece(trace: DeviceTrace, call: int) -> _Piece:
    """Return the piece of device work that the call *call* adds to a graph."""
    name = trace.texts[int(trace.calls.name[call])]
    if "Memcpy" in name:
        return MEMCPY, ""
    if "Memset" in name:
        return _MEMSET, ""
    return KERNEL, trace.texts[int(trace.calls.kernel[call])]


def launches_graphs(trace: DeviceTrace) -> bool:
    """Return whether *trace* contains a launch of a graph."""
    return any(map(_launches_graph, trace.texts))


def _launches_graph(name: str) -> bool:
    return "GraphLaunch" in name


def is_graph_launch(trace: DeviceTrace, call: np.ndarray) -> np.ndarray:
    """Return whether each *call* (a number of `Launches`) launches a graph."""
    is_call = (call >= 0) & (call < len(trace.calls))
    launches = which(trace.texts, _launches_graph)
    found = np.zeros(len(call), dtype=bool)
    found[is_call] = launches[trace.calls.name[call[is_call]]]
    return found


def graph_origins(
    trace: DeviceTrace, work: np.ndarray, call: np.ndarray, graphs: Sequence[CapturedGraph]
) -> dict[int, Origin]:
    """Return the origins of the work issued by launches of captured *graphs*, by index into *work*.

    *work* are indices into the trace's works, in order of issue. *call* are the issuing calls. If several
    captures fit a launch, the capture with the fewest launches is chosen, and on a tie the first capture.
    This choice fits models that launch their parts in the order of capture.
    """
    of_graph = np.flatnonzero(is_graph_launch(trace, call))
    fitting: dict[tuple[_Piece, ...], dict[int, list[tuple[int, int]]]] = {}
    used: Counter[int] = Counter()
    origins: dict[int, Origin] = {}
    for rows in groups_of(call[of_graph]).values():
        places = of_graph[rows]
        works = trace.works.take(work[places])
        names = zip(works.category.tolist(), trace.names(works.name), strict=True)
        pieces = tuple((category, name if category == KERNEL else "") for category, name in names)
        if pieces not in fitting:
            fitting[pieces] = _fitting(pieces, graphs)
        if not fitting[pieces]:
            continue
        best = min(fitting[pieces], key=lambda number: (used[number], number))
        used[best] += 1
        for place, captured in fitting[pieces][best]:
            if (origin := graphs[best].origins[captured]) is not None:
                origins[int(places[place])] = origin
    return origins


def _fitting(pieces: tuple[_Piece, ...], graphs: Sequence[CapturedGraph]) -> dict[int, list[tuple[int, int]]]:
    """Return the numbers of the graphs that best fit a launch of *pieces*, with the matched pairs."""
    matches = {number: _matched(pieces, graph) for number, graph in enumerate(graphs)}
    fits = {
        number: (len(match), -len(graphs[number].pieces))
        for number, match in matches.items()
        if match and len(match) >= _MIN_MATCHED * len(pieces)
    }
    best = max(fits.values(), default=None)
    return {number: matches[number] for number, fit in fits.items() if fit == best}


def _matched(pieces: Sequence[_Piece], graph: CapturedGraph) -> list[tuple[int, int]]:
    """Match the *pieces* of a launch with pieces of *graph*: the n-th pieces with a kernel name match.

    If the capture does not name kernels, the n-th kernels match if the launch and the capture have equally
    many kernels.
    """
    if not graph.is_named:
        pieces = [(category, "") for category, _ in pieces]
        if Counter(pieces) != Counter(graph.pieces):
            return []
    captured: dict[_Piece, list[int]] = defaultdict(list)
    for place, piece in enumerate(graph.pieces):
        captured[piece].append(place)
    seen: Counter[_Piece] = Counter()
    found = []
    for place, piece in enumerate(pieces):
        if seen[piece] < len(captured.get(piece, ())):
            found.append((place, captured[piece][seen[piece]]))
            seen[piece] += 1
    return found
