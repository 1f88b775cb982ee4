"""Build the graph of a rank that computes on the host: a chain of nodes with their communications."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...errors import TraceError
from ...tracer import Evidence
from .._columns import which
from ..chakra import (
    COMM_LANE,
    HOST_BEFORE,
    HOST_END,
    MESSAGE_LANE,
    CollectiveType,
    EdgeKind,
    Graph,
    GraphBuilder,
    NodeType,
    communication,
    replay,
)
from ..readers import (
    COMM_OPS,
    PHASES,
    Communication,
    DeviceTrace,
    Events,
    HostTrace,
    Ops,
    Pieces,
    RankTraces,
    Threads,
    communications,
    cut_pieces,
    issuing,
    lost_communications,
    with_inferred_groups,
)
from ._cause_rules import OPERATORS, is_compiled_region, is_engine_range, is_python_operator
from ._costs import counted_operators, operator_cost
from ._dependencies import (
    Gaps,
    buffers_of,
    data_dependencies,
    uses_of,
    wait_pieces,
    with_issue_times,
    with_message_ends,
)
from ._host_causes import DISPATCH_NS, MIN_NS, HostCauses, Part
from ._operator_table import host_operators
from ._overhead import cost_of_recording, costs_by_phase, without_recording
from ._places import places_of
from ._rank_graph import Group, OpenRank, RankGraph, arrivals, flights_of
from ._repeated import of_records, repeated_copies, shared_inputs
from ._sampled_causes import host_causes
from ._sections import clock_phases
from ._steps import Window

LEFT_OUT = (
    "communications issued by threads other than the training thread, as in PowerSGD's hook, are "
    "left out: no network changes their time"
)
# The namespaces of operators that start or await communications, and that compute nothing.
_COMM_LIBRARIES = ("c10d::", "c10d_functional::", "_c10d_functional::", "_c10d_functional_autograd::")
# If a later piece of an operator is shorter than this, it is added to the operator's first piece instead of
# becoming a node.
_MERGED_BELOW_NS = 2_000


def host_graph(
    opened: OpenRank,
    trace: DeviceTrace,
    host: HostTrace,
    window: Window,
    *,
    groups: dict[str, tuple[int, ...]],
    world_size: int,
    evidence: Evidence | None,
) -> RankGraph:
    """Return the graph of a rank that computes on the host instead of a device."""
    traces = opened.traces
    own = _busiest_thread(trace.events, window)
    ops = Threads(trace).operators(own, window.start_ns, window.end_ns)
    rank = traces.rank if opened.stated_rank < 0 else opened.stated_rank
    if not len(ops):
        raise TraceError(
            f"{traces.device_path}: rank {rank} ran no operator in the chosen step, but "
            f"{int(trace.events.is_operator.sum()):,} outside of it. {_why_outside(opened)}"
        )
    _refuse_lost_communications(traces, ops)
    comms = communications(ops, host, groups, flights_of(traces), opened.last_entries)
    comms, notes = with_inferred_groups(comms, rank, groups, world_size)
    everyone = tuple(range(world_size))
    own_groups = sorted({(comm.group_ranks or everyone, comm.group_label) for comm in comms})
    ids = {group: number for number, group in enumerate(own_groups, start=1)}
    ids |= {((), label): number for (ranks, label), number in ids.items() if ranks == everyone}
    causes = host_causes(trace, own, ops, window, evidence)
    assembled = _assembled(traces.rank, window, ops, comms, host, group_ids=ids, causes=causes)
    left_out = _left_out(trace.events, own, window, trace.texts)
    result = replace(
        assembled,
        groups=own_groups,
        notes=[*assembled.notes, *notes, *_unknown(ops, comms), *left_out],
        arrivals=arrivals(trace, own, opened.steps),
    )
    events = trace.events.take(own)
    cost_ns = cost_of_recording(evidence, events, window.steps)
    phases = clock_phases(ops, events.start_ns, window.steps)
    costs = costs_by_phase(cost_ns, evidence, phases, window.steps)
    return without_recording(result, {0: events}, window, {0: costs})


def _why_outside(opened: OpenRank) -> str:
    """Return the remedy for a step without operators."""
    if opened.traces.steps:
        return (
            "The clocks of the trace and of the manifest may disagree. Next: choose another step or capture "
            "again."
        )
    capture = "Choose another step (--step), or capture" if len(opened.steps) > 1 else "Capture"
    return f"{capture} whole steps, with CPU activities on."


def _left_out(events: Events, own: np.ndarray, window: Window, texts: Sequence[str]) -> list[str]:
    """Return a note if threads other than the thread of the events *own* communicate in the window."""
    inside = (events.start_ns >= window.start_ns) & (events.start_ns < window.end_ns)
    inside[own] = False
    return [LEFT_OUT] if (inside & which(texts, COMM_OPS.__contains__)[events.name]).any() else []


def _unknown(ops: Ops, comms: Sequence[Communication]) -> list[str]:
    """Return notes on communications among *ops* with unknown properties."""
    if len(issuing(ops)) == len(comms):
        return []
    return [
        "the traces lack the sizes of some communications: these communications count as computation "
        "with their measured time, which no network changes"
    ]


def _refuse_lost_communications(traces: RankTraces, ops: Ops) -> None:
    """Raise `TraceError` if operators communicate in ways that the graph cannot represent."""
    lost = lost_communications(ops)
    if lost:
        raise TraceError(
            f"{traces.device_path}: rank {traces.rank} communicates by {', '.join(lost)}, which chakrascope "
            "does not recognise, so the graph would lack this communication. Next: use another collective in "
            "the script, or report the operator."
        )


def _busiest_thread(events: Events, window: Window) -> np.ndarray:
    """Return the events of the thread that ran the most operators in *window*."""
    inside = events.is_operator & (events.start_ns >= window.start_ns) & (events.start_ns < window.end_ns)
    threads, first, count = np.unique(events.thread[inside], return_index=True, return_counts=True)
    if not len(threads):
        return np.empty(0, dtype=np.int64)
    busiest = threads[np.lexsort((first, -count))[0]]
    return np.flatnonzero(events.thread == busiest)


# The causes of parts of an operator in which the operator works or waits for a processor.
_OWN_WORK = ("", "descheduled")


class _Piece(NamedTuple):
    """One piece of the host thread: the row of `Pieces` at index *place*."""

    place: int
    start_ns: int
    end_ns: int
    op: int
    next_op: int


@dataclass
class _Builder:
    """A graph under construction, with the end of each node in the replay.

    *names*, *modules* and *phases* describe operators. *works_of_op* contains the computing nodes of
    operators, and *costs* contains the costs of pieces. *computes* marks the pieces in which an operator
    computes. *places* are the source locations of the pieces in the script. *buffers* has the label of each
    operator that copies to or from a collective's buffer, and "" for other operators. The last item of
    *buffers* is "", for pieces outside operators.
    """

    window: Window
    ops: Ops
    costs: dict[int, tuple[int, int]]
    names: list[str]
    modules: list[str]
    phases: list[str]
    causes: HostCauses
    computes: list[bool]
    buffers: list[str]
    places: list[str]
    built: GraphBuilder = field(default_factory=GraphBuilder)
    node_of_op: dict[int, int] = field(default_factory=dict)
    works_of_op: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    start_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    last_host: int = -1
    last_op: int = -1
    last_comm: dict[int, int] = field(default_factory=dict)
    message_lanes: dict[tuple[NodeType, int, int], int] = field(default_factory=dict)
    splits: dict[int, tuple[int, ...]] = field(default_factory=dict)
    wait_ns: int = 0

    def add(
        self, node: dict[str, Any], start_ns: int, measured_start_ns: int, waits: Mapping[int, EdgeKind]
    ) -> int:
        """Append *node*, which waits for *waits* and starts at *start_ns* in the replay; return its id."""
        self.start_ns.append(start_ns)
        self.end_ns.append(start_ns + node["duration_ns"])
        node["measured_start_ns"] = measured_start_ns - self.window.start_ns
        return self.built.add(node, waits)

    def graph(self, rank: int) -> Graph:
        """Return the graph of *rank* with the final durations of its nodes."""
        durations = np.array(self.end_ns, np.int64) - np.array(self.start_ns, np.int64)
        starts = self.built.column("measured_start_ns") + self.window.start_ns
        return self.built.graph(rank, duration_ns=durations, step=self.window.steps_at(starts))

    def host_end_ns(self) -> int:
        return self.end_ns[self.last_host] if self.last_host >= 0 else 0

    def add_host(self, piece: _Piece, begin_ns: int, waits: Sequence[int]) -> None:
        """Append the parts of *piece* after *begin_ns*; the first part waits for the nodes *waits*."""
        if self.computes[piece.place]:
            self._add_part(piece, begin_ns, Part(piece.end_ns, "", self.places[piece.place]), waits)
            return
        for part in self._parts(piece, begin_ns):
            self._add_part(piece, begin_ns, part, waits)
            begin_ns, waits = part.end_ns, ()

    def _parts(self, piece: _Piece, begin_ns: int) -> Sequence[Part]:
        if piece.op >= 0:
            name, place = self.names[piece.op], self.places[piece.place]
            parts = self.causes.of_operator(name, begin_ns, piece.end_ns)
            if place and not is_engine_range(name):  # a gradient keeps the forward operator's location
                own = (*_OWN_WORK, OPERATORS.get(name, ""))
                parts = [
                    one._replace(place=place) if one.cause in own or not one.place else one for one in parts
                ]
            if piece.place in self.costs and all(part.cause == "descheduled" for part in parts):
                # The operator did its work, although the thread had a processor only for a part of the time.
                done_ns = begin_ns + MIN_NS
                rest = [part for part in parts if part.end_ns > done_ns]
                parts = [Part(done_ns if rest else piece.end_ns, "", parts[0].place), *rest]
            return parts
        before, after = (self.names[op] if op >= 0 else "" for op in (self.last_op, piece.next_op))
        parts = self.causes.of_gap(begin_ns, piece.end_ns, before, after)
        place = self.places[piece.place]
        return [
            part._replace(place=place) if place and (not part.place or part.cause == "dispatch") else part
            for part in parts
        ]

    def _add_part(self, piece: _Piece, begin_ns: int, part: Part, waits: Sequence[int]) -> None:
        ready = before = self.host_end_ns()
        if waits:
            ready = max(before, *(self.end_ns[comm] for comm in waits))
            self.wait_ns += ready - before
        node = self._host_node(piece, part)
        node["duration_ns"] = part.end_ns - begin_ns
        after = dict.fromkeys(waits, EdgeKind.COMM_WAIT) if waits else {}
        if self.last_host >= 0:
            after[self.last_host] = EdgeKind.PROGRAM_ORDER
        number = self.last_host = self.add(node, ready, begin_ns, after)
        if piece.op >= 0:
            self.last_op = piece.op
            self.node_of_op.setdefault(piece.op, number)
            if node["kind"] == "compute":
                self.works_of_op[piece.op].append(number)

    def extend_host(self, piece: _Piece) -> bool:
        """Add a short later *piece* of an operator to the newest node; return False if it needs a node."""
        if piece.op not in self.node_of_op or piece.end_ns - piece.start_ns >= _MERGED_BELOW_NS:
            return False
        self.end_ns[self.last_host] += piece.end_ns - piece.start_ns
        return True

    def _host_node(self, piece: _Piece, part: Part) -> dict[str, Any]:
        about, cause = piece.op if piece.op >= 0 else piece.next_op, part.cause
        node: dict[str, Any] = {"type": NodeType.COMP, "stream": 0, "num_ops": 1, "tensor_size_bytes": 1}
        place = self.buffers[piece.op] or part.place
        if place:
            node["place"] = place
        if about >= 0:
            node["module"], node["phase"] = self.modules[about], self.phases[about]
        if piece.op < 0:
            node["name"] = f"{HOST_BEFORE}{self.names[about]}" if about >= 0 else HOST_END
            node["kind"], node["cause"] = "host", cause
            return node
        name = node["name"] = node["operator"] = self.names[about]
        if not cause:
            node["num_ops"], node["tensor_size_bytes"] = self.costs.pop(piece.place, (1, 1))
        if cause in ("", "descheduled") and name.startswith(_COMM_LIBRARIES):
            cause = "communication_call"
        elif not cause and is_python_operator(name, part.place):
            cause = "python"
        node["kind"] = "host" if cause else "compute"
        if cause:
            node["cause"] = cause
        return node

    def add_comm(self, comm: Communication, group: int, place: str) -> int:
        """Append *comm*, issued by the newest host node, with the duration that leads to its measured end.

        The source location *place* is used if the script issues *comm* directly, outside modules and the
        backward pass.
        """
        spec, lane = comm.spec, self._lane(comm, group)
        before = self.last_comm.get(lane)
        start = max(self.host_end_ns(), self.end_ns[before] if before is not None else 0)
        end = min(comm.end_ns, self.window.end_ns) - self.window.start_ns
        columns = communication(
            spec.node_type, spec.collective, comm.size_bytes, group=group, peer=comm.peer, tag=comm.tag
        )
        columns |= {
            "duration_ns": max(1, end - start),
            "stream": lane,
            "operator": self.names[comm.op],
            "module": self.modules[comm.op],
        }
        if place and not self.modules[comm.op] and self.phases[comm.op] == "forward":
            columns["place"] = place
        after = {self.last_host: EdgeKind.COMM_ISSUE}
        if before is not None:
            after[before] = EdgeKind.STREAM_ORDER
        number = self.add(columns, start, comm.issued_ns, after)
        if comm.splits:
            self.splits[number] = comm.splits
        if spec.node_type is not NodeType.COMM_RECV:
            self.last_comm[lane] = number
        return number

    def _lane(self, comm: Communication, group: int) -> int:
        if comm.spec.collective is not None:
            return COMM_LANE + group
        key = (comm.spec.node_type, group, comm.peer)
        return self.message_lanes.setdefault(key, MESSAGE_LANE + len(self.message_lanes))


def _assembled(
    rank: int,
    window: Window,
    ops: Ops,
    comms: Sequence[Communication],
    host: HostTrace,
    *,
    group_ids: Mapping[Group, int],
    causes: HostCauses,
) -> RankGraph:
    """Return the graph of one rank; *causes* explain the time of its thread outside operators.

    The host thread is a chain of nodes: the self time of each operator, and the gaps between operators. A
    communication depends on the node that issued it, and ends at its measured time. The node that waited for
    a communication depends on the communication. The measured wait belongs to no node.
    """
    pieces = cut_pieces(ops, window.start_ns, window.end_ns)
    comms, pieces = with_issue_times(comms, ops, pieces)
    gaps = Gaps.of(comms, ops, pieces)
    comms = with_message_ends(comms, ops, pieces, gaps)
    waits = _waits(ops, comms, pieces, host, gaps)
    comms = _ended_by_waits(comms, waits, pieces)
    builder = _builder(window, ops, _costs(ops, pieces, host), pieces, causes)
    issued = {comm.op: index for index, comm in enumerate(comms)}
    issuing_piece = {
        op: place
        for place, (op, end_ns) in enumerate(zip(pieces.op.tolist(), pieces.end_ns.tolist(), strict=True))
        if op in issued and end_ns <= comms[issued[op]].issued_ns
    }
    node_of_comm: dict[int, int] = {}
    columns = (pieces.start_ns, pieces.end_ns, pieces.op, pieces.next_op)
    for place, values in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        piece = _Piece(place, *values)
        waited = waits.get(place, [])
        if waited:
            done = max(comms[comm].end_ns for comm in waited)
            begin = min(max(piece.start_ns, done), piece.end_ns)
            builder.add_host(piece, begin, [node_of_comm[comm] for comm in waited if comm in node_of_comm])
        elif not builder.extend_host(piece):
            builder.add_host(piece, piece.start_ns, ())
        if issuing_piece.get(piece.op) == place:
            comm = issued[piece.op]
            group = group_ids[comms[comm].group_ranks, comms[comm].group_label]
            node_of_comm[comm] = builder.add_comm(comms[comm], group, builder.places[place])
    _tie_data(builder, ops, host)
    graph = builder.graph(rank)
    return RankGraph(
        graph,
        splits=builder.splits,
        accounting=_accounting(graph, window, builder.wait_ns),
        notes=_notes(comms),
        began_ns=window.start_ns,
        step_shares=window.own_times(),
        operators=host_operators(ops, counted_operators(ops), host),
        repeated=_repeated(builder, ops, host),
        shared_inputs=_shared_inputs(builder, ops, host),
    )


def _builder(
    window: Window, ops: Ops, costs: dict[int, tuple[int, int]], pieces: Pieces, causes: HostCauses
) -> _Builder:
    names = ops.trace.texts
    computes = pieces.op >= 0
    if len(ops):
        owners, is_long = ops.name[pieces.op], pieces.end_ns - pieces.start_ns >= DISPATCH_NS
        computes &= ~which(names, OPERATORS.__contains__)[owners]
        in_python = which(names, is_engine_range) | which(names, is_compiled_region)
        computes &= ~(in_python[owners] & is_long)
    computes &= ~causes.touched(pieces.start_ns, pieces.end_ns)
    return _Builder(
        window,
        ops,
        costs,
        names=ops.trace.names(ops.name),
        modules=[ops.modules[number] for number in ops.module.tolist()],
        phases=[PHASES[number] for number in ops.phase.tolist()],
        causes=causes,
        computes=computes.tolist(),
        buffers=[*buffers_of(ops), ""],
        places=places_of(ops, pieces, causes),
    )


def _costs(ops: Ops, pieces: Pieces, host: HostTrace) -> dict[int, tuple[int, int]]:
    """Return the costs of operators by piece; the longest piece of an operator gets its cost."""
    counted = counted_operators(ops)
    lengths = (pieces.end_ns - pieces.start_ns).tolist()
    bearers: dict[int, int] = {}
    for place, op in enumerate(pieces.op.tolist()):
        if op >= 0 and counted[op]:
            best = bearers.setdefault(op, place)
            if lengths[place] >= _MERGED_BELOW_NS and lengths[place] > lengths[best]:
                bearers[op] = place
    rows = host.rows(ops.record_id).tolist()
    kinds = host.kind.tolist()
    known: dict[int, tuple[int, int]] = {}
    costs: dict[int, tuple[int, int]] = {}
    for op, place in bearers.items():
        if rows[op] >= 0:
            kind = kinds[rows[op]]
            if kind not in known:
                known[kind] = operator_cost(host.kinds[kind])
            costs[place] = known[kind]
    return costs


def _waits(
    ops: Ops, comms: Sequence[Communication], pieces: Pieces, host: HostTrace, gaps: Gaps
) -> dict[int, list[int]]:
    """Return, by index of the piece, the indices of the communications for which the piece waited."""
    waits: dict[int, list[int]] = {}
    for index, place in enumerate(wait_pieces(comms, ops, pieces, uses_of(comms, ops, host), gaps)):
        if place is not None:
            waits.setdefault(place, []).append(index)
    return waits


def _ended_by_waits(
    comms: Sequence[Communication], waits: Mapping[int, Sequence[int]], pieces: Pieces
) -> list[Communication]:
    """Return *comms* with ends no later than the time at which the waiting thread continued."""
    known = list(comms)
    for place, awaited in waits.items():
        resumed_ns = int(pieces.end_ns[place])
        for index in awaited:
            known[index] = msgspec.structs.replace(comms[index], end_ns=min(comms[index].end_ns, resumed_ns))
    return known


def _tie_data(builder: _Builder, ops: Ops, host: HostTrace) -> None:
    """Make nodes wait for the nodes that wrote the data that they read."""
    node_of_op = np.full(len(ops), -1, dtype=np.int64)
    node_of_op[list(builder.node_of_op)] = list(builder.node_of_op.values())
    source, target = node_of_op[data_dependencies(ops, host)].T
    known = (source >= 0) & (source < target)
    builder.built.tie(source[known], target[known], EdgeKind.DATA)


def _repeated(builder: _Builder, ops: Ops, host: HostTrace) -> list[int]:
    """Return the nodes of copies that repeat an earlier copy."""
    repeated = np.flatnonzero(of_records(ops, repeated_copies([ops], host, builder.window)))
    return sorted(node for op in repeated.tolist() for node in builder.works_of_op.get(op, ()))


def _shared_inputs(builder: _Builder, ops: Ops, host: HostTrace) -> list[list[int]]:
    """Return pairs of nodes that read the same data, with the number of bytes."""
    counted = np.flatnonzero(counted_operators(ops))
    nodes = [builder.node_of_op.get(op, -1) for op in counted.tolist()]
    rows = shared_inputs(ops.record_id[counted], host).tolist()
    return [[nodes[a], nodes[b], size] for a, b, size in rows if min(nodes[a], nodes[b]) >= 0]


def _accounting(graph: Graph, window: Window, wait_ns: int) -> dict[str, int]:
    """Return the breakdown of the measured step; the difference to the replay is unexplained time."""
    times = replay(graph)
    on_host = graph.node_columns["stream"] < COMM_LANE
    measured = window.end_ns - window.start_ns
    replayed = int(times.end_ns[on_host].max(initial=0))
    return {
        "measured_step_ns": measured,
        "node_ns": int(graph.node_columns["duration_ns"][on_host].sum()),
        "wait_ns": wait_ns,
        "explained_ns": min(measured, replayed),
        "unexplained_ns": abs(measured - replayed),
    }


def _notes(comms: Sequence[Communication]) -> list[str]:
    """Return the assumptions about *comms*."""
    notes = {comm.spec.note for comm in comms if comm.spec.note}
    if any(comm.spec.collective is CollectiveType.BROADCAST for comm in comms):
        notes.add("broadcasts take their measured time on any network, as in ASTRA-sim")
    return sorted(notes)
