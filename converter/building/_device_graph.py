"""Build the graph of a rank with a device: host threads, streams, and the dependencies between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...tracer import Evidence
from .._columns import spans
from ..chakra import DEVICE_LANE, EdgeKind, Graph, consistent, execution_order, replay
from ..linking import (
    KERNEL,
    Bursts,
    CapturedGraph,
    Lane,
    Launches,
    Linked,
    bursts,
    data_edges,
    host_lanes,
    link,
    record_ids,
)
from ..readers import DeviceTrace, HostTrace
from ._costs import work_costs
from ._device_nodes import DeviceNodes, HostNodes, Marks, WorkNodes, host_nodes
from ._device_sync import StreamSlots, coinciding_waits, stream_slots, stream_waits
from ._host_causes import HostCauses
from ._host_waits import HostWait, host_waits
from ._operator_table import device_operators
from ._overhead import cost_of_recording, without_recording
from ._rank_graph import OpenRank, RankGraph
from ._repeated import of_records, repeated_copies, shared_inputs
from ._sampled_causes import host_causes
from ._steps import Extent, Window

# The maximum number of attempts to remove a part of the host's lead over the device. Each of the first
# attempts also removes the excess time of the previous attempt. The other attempts find the smallest
# sufficient part by bisection.
_TRIES, _HALVINGS = 6, 12
_CARRIED = "device work issued before the first converted step is left out, although some ran in the step"


def device_graph(
    opened: OpenRank,
    trace: DeviceTrace,
    host: HostTrace,
    window: Window,
    *,
    groups: Mapping[str, tuple[int, ...]],
    world_size: int,
    whole: bool,
    evidence: Evidence | None,
    captured: Sequence[CapturedGraph],
) -> RankGraph:
    """Return the graph of a rank with a device.

    If the window is a *whole* capture without marked steps, the step is the time from the first to the last
    work of the device.

    Every host thread is a chain of nodes. A new node begins when the thread issues work or waits. Every piece
    of device work is a node on the lane of its stream. The device work of a CUDA graph gets its operators
    from the graph's *captured* work. *evidence* contains the cost of recording the steps.
    """
    span = (window.start_ns, window.end_ns)
    lanes = host_lanes(trace, *span)
    linked = link(trace, lanes, host, span, groups=groups, world_size=world_size, captured=captured)
    nodes = DeviceNodes(trace, tuple(range(world_size)))
    extent = Extent.of(linked) if whole else None
    builder = _Builder(window, extent, lanes, linked, nodes, _causes(trace, lanes, window, evidence))
    builder.add_hosts(host_waits(linked, trace, lanes))
    waits = stream_waits(linked.launches, trace, lanes, host)
    coinciding, held_ns = coinciding_waits(linked, waits)
    costs = work_costs(trace, linked.launches, lanes, host)
    builder.add_works([*waits, *coinciding], held_ns, data_edges(linked.launches, lanes, host), costs)
    events = {lane.number: trace.events.take(trace.events.thread == lane.thread) for lane in lanes}
    cost_ns = cost_of_recording(evidence, events[0], window.steps)
    own = replace(
        builder.graph(opened.traces.rank, host),
        operators=device_operators(trace, linked.launches, lanes, host),
        chip=_chip(trace, linked.launches),
    )
    recording_ns = {number: np.full(len(one.start_ns), cost_ns) for number, one in events.items()}
    return without_recording(own, events, window, recording_ns)


def _chip(trace: DeviceTrace, launches: Launches) -> str:
    """Return the name of the device that ran most of the *launches*, or "" if unknown.

    The launches of ROCm may have device numbers that the trace does not list, because ROCm also counts CPUs.
    For such a number, the name is that of the listed devices if they are all equal.
    """
    counts = np.bincount(launches.queue, minlength=1)
    device = launches.queues[int(counts.argmax())][0] if launches.queues else -1
    names = {*trace.devices.values()}
    return trace.devices.get(device, names.pop() if len(names) == 1 and launches.queues else "")


def _causes(
    trace: DeviceTrace, lanes: Sequence[Lane], window: Window, evidence: Evidence | None
) -> list[HostCauses]:
    """Return the causes of each lane's host time; *evidence* applies to the main lane."""
    return [
        host_causes(
            trace,
            np.flatnonzero(trace.events.thread == lane.thread),
            lane.ops,
            window,
            evidence if lane.number == 0 else None,
        )
        for lane in lanes
    ]


@dataclass
class _Builder:
    """A graph under construction; nodes get their final numbers at the end, in order of measured start.

    *issuer* is the node that issues each launch, and *busy_ns* the time that the launch adds to its stream.
    *awaits* lists pairs of a launch and the host node that waited for it.
    """

    window: Window
    extent: Extent | None
    lanes: Sequence[Lane]
    linked: Linked
    nodes: DeviceNodes
    causes: Sequence[HostCauses]
    issuer: np.ndarray = field(init=False)
    busy_ns: np.ndarray = field(init=False)
    awaits: list[tuple[int, int]] = field(default_factory=list)
    last_awaited: dict[int, tuple[int, int]] = field(default_factory=dict)
    wait_ns: int = 0
    gap_ns: int = 0
    ahead_ns: int = 0
    works: WorkNodes = field(init=False)

    def __post_init__(self) -> None:
        self.issuer = np.full(len(self.linked.launches), -1, dtype=np.int64)

    def add_hosts(self, waits: Sequence[HostWait]) -> None:
        """Append the nodes of the host threads; `add_works` adds the nodes' waits for device work."""
        launches = self.linked.launches
        main, *others = self.lanes
        own_waits = {lane.number: [wait for wait in waits if wait.lane == lane.number] for lane in self.lanes}
        points = np.unique(
            np.concatenate(
                [
                    main.ops.start_ns,
                    main.ops.end_ns,
                    launches.cut_ns[launches.lane == 0],
                    np.array([wait.start_ns for wait in own_waits[0]], dtype=np.int64),
                ]
            )
        )
        handovers: list[_Handover] = []
        free: list[tuple[int, int]] = []
        for lane in others:
            mine = launches.lane == lane.number
            working = bursts(lane, launches.call_start_ns[mine], launches.call_end_ns[mine], points)
            nodes, first = self._add_host(lane, own_waits[lane.number], Marks.of(), working)
            columns = (working.start_ns, working.end_ns, nodes.burst_first + first, nodes.burst_last + first)
            stretches = zip(*(column.tolist() for column in columns), working.is_awaited, strict=True)
            for start, end, begin, last, over in stretches:
                if over:
                    handovers.append(_Handover(start, end, [begin], [last]))
                else:
                    free.append((start, begin))
        merged = _merged(handovers)
        nodes, first = self._add_host(
            main, own_waits[0], Marks.of((one.start_ns, one.end_ns, True, -1) for one in merged), None
        )
        self.wait_ns = nodes.wait_ns
        place = len(nodes.issuer) - len(merged)
        for handover, issuer, resumed in zip(
            merged, nodes.issuer[place:].tolist(), nodes.resumed[place:].tolist(), strict=True
        ):
            self._tie([(first + issuer, begin) for begin in handover.first], EdgeKind.AUTOGRAD)
            self._tie([(last, first + resumed) for last in handover.last], EdgeKind.AUTOGRAD)
        for time, number in free:
            before = int(np.searchsorted(nodes.start_ns, time, side="right")) - 1
            if before >= 0:
                self._tie([(first + before, number)], EdgeKind.PROGRAM_ORDER)

    def _add_host(
        self, lane: Lane, waits: Sequence[HostWait], more: Marks, working: Bursts | None
    ) -> tuple[HostNodes, int]:
        """Append the nodes of the host thread *lane*; return them and the number of the first node."""
        launches = self.linked.launches
        issued = np.flatnonzero(launches.lane == lane.number)
        stops = Marks.of(
            (wait.start_ns, wait.resume_ns, bool(wait.sources), wait.return_ns) for wait in waits
        )
        causes = self.causes[lane.number]
        marks = Marks.at(launches.cut_ns[issued]).joined(stops, Marks.at(causes.boundaries()), more)
        nodes = host_nodes(lane, marks, working)
        called = self.nodes.numbers(["", *(wait.name for wait in waits)])
        called = called[np.maximum(nodes.stop - len(issued), -1) + 1]
        first = self.nodes.add_host(lane, nodes, called, causes)
        numbers = first + np.arange(len(nodes.start_ns))
        self.nodes.tie(numbers[:-1], numbers[1:], EdgeKind.PROGRAM_ORDER)
        self.issuer[issued] = first + nodes.issuer[: len(issued)]
        resumed = nodes.resumed[len(issued) : len(issued) + len(waits)].tolist()
        self.awaits += [
            (source, first + node)
            for wait, node in zip(waits, resumed, strict=True)
            for source in wait.sources
        ]
        return nodes, first

    def _tie(self, pairs: Sequence[tuple[int, int]], kind: EdgeKind) -> None:
        """Make the second node of each pair wait for the first node."""
        sources, targets = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        self.nodes.tie(sources, targets, kind)

    def add_works(
        self,
        waits: Iterable[tuple[int, int]],
        held_ns: Mapping[int, int],
        data: np.ndarray,
        costs: np.ndarray,
    ) -> None:
        """Append the device work in order of issue, with the dependencies of each piece of work."""
        launches = self.linked.launches
        waited = np.unique(np.array(list(waits), dtype=np.int64).reshape(-1, 2), axis=0)
        slots = stream_slots(self.linked, waited, held_ns, self._device_end_ns())
        self.gap_ns, self.busy_ns = int(slots.gap_ns.sum()), slots.busy_ns
        placed = {"start_ns": slots.start_ns, "busy_ns": slots.busy_ns, "gap_ns": slots.gap_ns}
        nodes = self.works = self.nodes.add_works(launches, self.lanes, self.causes, costs=costs, **placed)
        entry = nodes.entry()
        issues = np.where(launches.is_comm, EdgeKind.COMM_ISSUE, EdgeKind.LAUNCH)
        alone = np.ones(len(launches), dtype=np.int64)
        self._tie_nodes((self.issuer, alone), entry, issues)
        every = (nodes.first, nodes.count)
        later = np.flatnonzero(slots.before >= 0)
        self._tie_nodes(_some(every, slots.before[later]), _some(entry, later), EdgeKind.STREAM_ORDER)
        self._tie_nodes(_some(every, waited[:, 0]), _some(entry, waited[:, 1]), self._wait_kind(waited[:, 0]))
        late = np.flatnonzero(nodes.gap >= 0)
        self._tie_nodes((nodes.gap[late], alone[late]), _some(every, late), EdgeKind.STREAM_ORDER)
        fresh = data[~np.isin(data @ [len(launches), 1], waited @ [len(launches), 1])]
        self._tie_nodes(_some(every, fresh[:, 0]), _some(every, fresh[:, 1]), EdgeKind.DATA)
        self._await_works(slots, nodes)

    def _tie_nodes(
        self,
        sources: tuple[np.ndarray, np.ndarray],
        targets: tuple[np.ndarray, np.ndarray],
        kind: EdgeKind | np.ndarray,
    ) -> None:
        """Make each target node wait for each source node; the nodes are given by first number and count."""
        (source, own), (target, other) = sources, targets
        kinds = np.repeat(np.broadcast_to(np.asarray(kind, dtype=np.int64), len(source)), own * other)
        pair = spans(np.zeros(len(source), dtype=np.int64), own * other)
        width = np.repeat(other, own * other)
        first, second = np.repeat(source, own * other), np.repeat(target, own * other)
        self.nodes.tie(first + pair // width, second + pair % width, kinds)

    def _await_works(self, slots: StreamSlots, nodes: WorkNodes) -> None:
        """Make host nodes depend on the device work for which their threads waited.

        If the wait would end earlier in the graph than it was measured, the host node gets the difference as
        latency. As a result, latencies that are too short for a node do not accumulate over many waits.
        """
        pairs = np.array(self.awaits, dtype=np.int64).reshape(-1, 2)
        work, node = pairs[:, 0], pairs[:, 1]
        alone = np.ones(len(node), dtype=np.int64)
        self._tie_nodes(_some((nodes.first, nodes.count), work), (node, alone), self._wait_kind(work))
        ends, lags = self.linked.launches.end_ns[work].tolist(), slots.lag_ns[work].tolist()
        last: dict[int, tuple[int, int]] = {}
        for number, end, lag in zip(node.tolist(), ends, lags, strict=True):
            last[number] = max(last.get(number, (0, 0)), (end, lag))
        self.last_awaited = last

    def _wait_kind(self, launch: np.ndarray) -> np.ndarray:
        return np.where(self.linked.launches.is_comm[launch], EdgeKind.COMM_WAIT, EdgeKind.EVENT_SYNC)

    def graph(self, rank: int, host: HostTrace) -> RankGraph:
        """Return the graph of *rank* with nodes numbered in order of measured start."""
        starts, durations = (self.nodes.column(name) for name in ("measured_start_ns", "duration_ns"))
        for node, (end, lag) in self.last_awaited.items():
            if end >= starts[node]:
                durations[node] += lag
        if self.extent is not None:
            starts, durations = self.extent.cut(self.nodes.column("stream"), starts, durations)
        notes = {_CARRIED} if len(self.linked.carried) else set()
        edges, contradicted = consistent(starts, self.nodes.edges())
        if contradicted:
            notes.add(
                f"{contradicted} waits for the device are left out, because the awaited work ended later by "
                "the clocks of the trace"
            )
        order = execution_order(starts, edges)
        begin_ns = self.window.start_ns if self.extent is None else self.extent.start_ns
        graph = self.nodes.graph(
            rank,
            edges=edges,
            order=order,
            measured_start_ns=starts - begin_ns,
            duration_ns=durations,
            step=self.window.steps_at(self._issued(starts)),
        )
        shares, number = self._shares(), np.argsort(order)
        graph = self._in_time(graph, starts[order], shares)
        return RankGraph(
            graph,
            groups=list(self.nodes.groups),
            splits={int(number[node]): sizes for node, sizes in self.nodes.splits.items()},
            repeated=sorted(number[self._repeated(host)].tolist()),
            shared_inputs=self._shared_inputs(host, number),
            accounting=self._accounting(graph, shares),
            notes=sorted(self.nodes.notes | self.linked.launches.notes | notes),
            began_ns=int(begin_ns),
            step_shares=(shares - [0, begin_ns, begin_ns]).tolist(),
        )

    def _repeated(self, host: HostTrace) -> np.ndarray:
        """Return the device nodes of copies that repeat an earlier copy."""
        nodes, launches = self.works, self.linked.launches
        records = repeated_copies([lane.ops for lane in self.lanes], host, self.window)
        if not len(records):
            return np.empty(0, dtype=np.int64)
        chosen = np.zeros(len(launches), dtype=bool)
        for lane in self.lanes:
            mine = np.flatnonzero((launches.lane == lane.number) & (launches.op >= 0))
            chosen[mine] = of_records(lane.ops, records)[launches.op[mine]]
        works = np.flatnonzero(chosen & ~launches.is_comm)
        return spans(nodes.first[works], nodes.count[works])

    def _shared_inputs(self, host: HostTrace, number: np.ndarray) -> list[list[int]]:
        """Return pairs of nodes that read the same data, with its bytes; *number* renumbers the nodes."""
        nodes, launches = self.works, self.linked.launches
        records = record_ids(launches, self.lanes)
        works = np.flatnonzero((records >= 0) & ~launches.is_comm & (nodes.count > 0))
        works = works[np.argsort(launches.call_start_ns[works], kind="stable")]
        rows = shared_inputs(records[works], host)
        pairs = number[nodes.first[works[rows[:, :2]]]]
        listed: list[list[int]] = np.column_stack([pairs, rows[:, 2]]).tolist()
        return listed

    def _issued(self, starts: np.ndarray) -> np.ndarray:
        """Return the time at which the host issued each node; host nodes are issued at their start."""
        issued: np.ndarray = starts.copy()
        called, late = self.linked.launches.call_start_ns, self.works.gap >= 0
        issued[self.works.gap[late]] = called[late]
        issued[spans(self.works.first, self.works.count)] = np.repeat(called, self.works.count)
        return issued

    def _device_end_ns(self) -> int:
        """Return the end of the device work outside the graph; this work delays no node."""
        if self.extent is not None:
            return self.extent.start_ns
        return int(self.linked.carried.end_ns.max(initial=0)) if self.linked.overruns else 0

    def _shares(self) -> np.ndarray:
        """Return the time of each step (see `Window.shares`), or the device's extent for a whole capture."""
        if self.extent is not None:
            number = self.window.steps[0].index
            return np.array([(number, self.extent.start_ns, self.extent.end_ns)], dtype=np.int64)
        launches, carried = self.linked.launches, self.linked.carried
        busy_until_ns = int(carried.end_ns.max(initial=0))
        return self.window.shares(launches.call_start_ns, launches.end_ns, busy_until_ns)

    def _in_time(self, graph: Graph, starts: np.ndarray, shares: np.ndarray) -> Graph:
        """Return *graph* with the measured duration of its step, which other steps may have overlapped.

        The host and prefetching streams may begin a step while the device still works on the previous step.
        Device work that finished before the step's start on the device delays no later node. The part of the
        host's lead for which the device would have to wait is removed. The remaining lead overlaps the
        device's time, as measured.
        """
        start_ns, end_ns = int(shares[:, 1].min()), int(shares[:, 2].max())
        lead_ns, share_ns = start_ns - self.window.start_ns, end_ns - start_ns
        if self.extent is not None or lead_ns <= 0 or replay(graph).makespan_ns <= share_ns:
            return graph
        on_host = graph.node_columns["stream"] < DEVICE_LANE
        durations = graph.node_columns["duration_ns"]
        edges = np.column_stack([graph.edge_columns[name] for name in ("src", "dst", "kind")])
        done = ~on_host & (starts + durations <= start_ns)
        graph = graph.with_edges(edges[~(done[edges[:, 0]] & (starts[edges[:, 1]] >= start_ns))])
        least_ns, most_ns = 0, lead_ns  # bounds of the part of the host's lead that has to be removed
        ahead = graph
        for attempt in range(_TRIES + _HALVINGS):
            excess_ns = replay(ahead).makespan_ns - share_ns
            if excess_ns > 0:
                least_ns = self.ahead_ns + excess_ns
            else:
                most_ns = self.ahead_ns
            if least_ns >= most_ns or (attempt < _TRIES and excess_ns <= 0):
                break
            self.ahead_ns = least_ns if attempt < _TRIES else (least_ns + most_ns) // 2
            ahead = self._without_lead(graph, starts, self.ahead_ns)
        self.ahead_ns = most_ns
        return self._without_lead(graph, starts, most_ns) if most_ns else graph

    def _without_lead(self, graph: Graph, starts: np.ndarray, ahead_ns: int) -> Graph:
        """Return *graph* without the host's work in the first *ahead_ns* of the window."""
        durations = graph.node_columns["duration_ns"]
        left = np.clip(starts + durations - np.maximum(starts, self.window.start_ns + ahead_ns), 0, durations)
        on_host = graph.node_columns["stream"] < DEVICE_LANE
        return graph.with_columns(duration_ns=np.where(on_host, left, durations))

    def _accounting(self, graph: Graph, shares: np.ndarray) -> dict[str, int]:
        """Return the breakdown of the measured steps; the difference to the replay is unexplained.

        The steps last from the start of the first share to the end of the last share.
        """
        launches = self.linked.launches
        measured = int(shares[:, 2].max() - shares[:, 1].min())
        replayed = replay(graph).makespan_ns
        main = graph.node_columns["stream"] == 0
        busy, is_kernel = self.busy_ns, launches.category == KERNEL
        return {
            "measured_step_ns": measured,
            "node_ns": int(graph.node_columns["duration_ns"][main].sum()),
            "wait_ns": self.wait_ns,
            "host_ahead_ns": self.ahead_ns,
            "device_compute_ns": int(busy[is_kernel & ~launches.is_comm].sum()),
            "device_comm_ns": int(busy[launches.is_comm].sum()),
            "device_copy_ns": int(busy[~is_kernel].sum()),
            "device_latency_ns": self.gap_ns,
            "explained_ns": min(measured, replayed),
            "unexplained_ns": abs(measured - replayed),
        }


def _some(nodes: tuple[np.ndarray, np.ndarray], launches: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each of the given *launches*, its first node and its number of nodes."""
    return nodes[0][launches], nodes[1][launches]


@dataclass
class _Handover:
    """Bursts of other threads that the main thread starts and immediately waits for."""

    start_ns: int
    end_ns: int
    first: list[int]
    last: list[int]


def _merged(handovers: Sequence[_Handover]) -> list[_Handover]:
    """Return *handovers* in order; overlapping handovers are merged."""
    merged: list[_Handover] = []
    for one in sorted(handovers, key=lambda item: (item.start_ns, item.end_ns)):
        if merged and one.start_ns < merged[-1].end_ns:
            merged[-1].end_ns = max(merged[-1].end_ns, one.end_ns)
            merged[-1].first += one.first
            merged[-1].last += one.last
        else:
            merged.append(one)
    return merged
