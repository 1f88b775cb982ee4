"""The graph of a rank that drives a device: host threads, streams, and everything that ties them together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .device_costs import work_costs
from .device_links import Launch, Linked, data_edges, link
from .device_streams import StreamSlot, stream_slots
from .device_sync import coinciding_waits, stream_waits
from .graph import CollectiveType, EdgeKind, Graph, NodeType, edge_array
from .host_lanes import Lane, bursts, host_lanes
from .host_nodes import Draft, HostNodes, Mark, host_nodes
from .host_trace import HostTrace
from .host_waits import host_waits
from .kineto import DeviceTrace
from .nccl import DeviceComm
from .order import execution_order
from .replay import replay
from .window import Window

__all__ = ["DEVICE_LANE", "device_graph"]

# Host threads are lanes 0, 1, ...; stream s of device d is lane DEVICE_LANE x (d + 1) + s.
DEVICE_LANE = 1000
# The sends and receives of one kernel run beside each other: each has a lane this much above the last one's.
_BESIDE = 1_000_000


def device_graph(
    rank: int,
    trace: DeviceTrace,
    host: HostTrace,
    window: Window,
    *,
    groups: Mapping[str, tuple[int, ...]],
    world_size: int,
) -> Graph:
    """Return the graph of one rank whose operators issue work to a device.

    Every host thread is a chain of nodes, cut where it issues work or waits; every piece of device work is a
    node on the lane of its stream. The groups of its communications are in ``metadata["groups"]``, a list of
    rank lists that the ``group`` column counts from 1 on; 0 is all ranks.
    """
    span = (window.start_ns, window.end_ns)
    lanes = host_lanes(trace, *span)
    linked = link(trace, lanes, host, span, groups=groups, world_size=world_size)
    everyone = tuple(range(world_size))
    builder = _Builder(window, lanes, linked, everyone, work_costs(linked.launches, lanes, host))
    builder.add_hosts(trace)
    waits = stream_waits(linked.launches, trace, lanes, host)
    coinciding, held_ns = coinciding_waits(linked, waits)
    builder.add_works([*waits, *coinciding], held_ns, data_edges(linked.launches, lanes, host))
    return builder.graph(rank)


@dataclass
class _Builder:
    """A graph in the making: drafts, numbered only at the end, in order of their measured start."""

    window: Window
    lanes: Sequence[Lane]
    linked: Linked
    everyone: tuple[int, ...]
    costs: Sequence[tuple[int, int]]
    drafts: list[Draft] = field(default_factory=list)
    edges: list[tuple[int, int, int]] = field(default_factory=list)
    issuer: dict[int, int] = field(default_factory=dict)
    awaits: list[tuple[int, int]] = field(default_factory=list)
    works: list[list[int]] = field(default_factory=list)
    groups: dict[tuple[int, ...], int] = field(default_factory=dict)
    notes: set[str] = field(default_factory=set)
    wait_ns: int = 0
    gap_ns: int = 0

    def add_hosts(self, trace: DeviceTrace) -> None:
        """Append the host threads' nodes; those that wait for device work are tied to it in `add_works`."""
        launches = self.linked.launches
        marks: dict[int, list[Mark]] = {lane.number: [] for lane in self.lanes}
        for index, launch in enumerate(launches):
            marks[launch.lane].append(Mark(launch.cut_ns, launch.cut_ns, issues=(index,)))
        for wait in host_waits(self.linked, trace, self.lanes):
            marks[wait.lane].append(Mark(wait.start_ns, wait.resume_ns, awaits=wait.sources))
        main, *others = self.lanes
        points = sorted(
            {time for op in main.ops for time in (op.start_ns, op.end_ns)}
            | {mark.time_ns for mark in marks[0]}
        )
        handed: list[_Handover] = []
        free: list[tuple[int, int]] = []
        for lane in others:
            calls = [launch.call for launch in launches if launch.lane == lane.number]
            spans = bursts(lane, calls, points)
            nodes = host_nodes(lane, marks[lane.number], spans, first=len(self.drafts))
            self._take(nodes)
            for burst, (first, last) in zip(spans, nodes.bursts, strict=True):
                if burst.handed_over:
                    handed.append(_Handover(burst.start_ns, burst.end_ns, [first], [last]))
                else:
                    free.append((burst.start_ns, first))
        marks[0] += [handover.mark() for handover in _merged(handed)]
        begin = len(self.drafts)
        nodes = host_nodes(main, marks[0], (), first=begin)
        self._take(nodes)
        self.wait_ns = nodes.wait_ns
        starts = [draft.start_ns for draft in nodes.drafts]
        for time, number in free:
            before = bisect_right(starts, time) - 1
            if before >= 0:
                self.edges.append((begin + before, number, int(EdgeKind.PROGRAM_ORDER)))

    def _take(self, nodes: HostNodes) -> None:
        self.drafts += nodes.drafts
        self.edges += nodes.edges
        self.issuer.update(nodes.issuer)
        self.awaits += nodes.awaits

    def add_works(
        self,
        waits: Sequence[tuple[int, int]],
        held_ns: Mapping[int, int],
        data: Sequence[tuple[int, int]],
    ) -> None:
        """Append the device work in order of issue, with everything each piece waits for."""
        launches = self.linked.launches
        waited = _sources(waits, len(launches))
        written = _sources(data, len(launches))
        slots = stream_slots(self.linked, waited, held_ns)
        for index, (launch, slot) in enumerate(zip(launches, slots, strict=True)):
            ties = [(self.issuer[index], EdgeKind.COMM_ISSUE if launch.is_comm else EdgeKind.LAUNCH)]
            if slot.before is not None:
                ties += [(node, EdgeKind.STREAM_ORDER) for node in self.works[slot.before]]
            for source in waited[index]:
                ties += [(node, self._wait_kind(source)) for node in self.works[source]]
            if slot.gap_ns:
                self.gap_ns += slot.gap_ns
                latency = self._add(slot.start_ns, self._gap(launch, slot.gap_ns), ties)
                ties = [(latency, EdgeKind.STREAM_ORDER)]
            for source in set(written[index]).difference(waited[index]):
                ties += [(node, EdgeKind.DATA) for node in self.works[source]]
            operations, moved = self.costs[index]
            cost = {"num_ops": operations, "tensor_size_bytes": moved}
            self.works.append(
                [self._add(slot.start_ns, columns, ties) for columns in self._columns(launch, cost)]
            )
            self.notes.update(launch.notes)
        self._await_works(slots)

    def _await_works(self, slots: Sequence[StreamSlot]) -> None:
        """Let host nodes wait for the device work they waited for.

        What the graph's device is early by when the wait ends, the host takes to notice, so that latencies
        too short for a node do not add up over many waits.
        """
        last: dict[int, tuple[int, int]] = {}
        for source, node in self.awaits:
            kind = int(self._wait_kind(source))
            self.edges += [(work, node, kind) for work in self.works[source]]
            end = self.linked.launches[source].work.end_ns
            last[node] = max(last.get(node, (0, 0)), (end, slots[source].lag_ns))
        for node, (end, lag) in last.items():
            if end >= self.drafts[node].start_ns:
                self.drafts[node].columns["duration_ns"] += lag

    def _wait_kind(self, launch: int) -> EdgeKind:
        return EdgeKind.COMM_WAIT if self.linked.launches[launch].is_comm else EdgeKind.EVENT_SYNC

    def _add(self, start_ns: int, columns: dict[str, Any], ties: Sequence[tuple[int, int]]) -> int:
        number = len(self.drafts)
        self.drafts.append(Draft(start_ns, columns))
        self.edges += [(source, number, int(kind)) for source, kind in ties]
        return number

    def _columns(self, launch: Launch, cost: dict[str, int]) -> list[dict[str, Any]]:
        """Return the columns of the nodes that stand for *launch*: one, or one a send or receive."""
        work = launch.work
        columns = self._place(launch) | {
            "name": work.name,
            "type": NodeType.COMP,
            "duration_ns": work.end_ns - work.start_ns,
            "kind": "memory" if work.category != "kernel" else "compute",
        }
        if launch.is_comm:
            columns |= {"kind": "communication", "phase": "communication"}
        found = []
        for beside, comm in enumerate(launch.comms):
            ends = self._ends(comm)
            if ends is not None:
                lane = columns["stream"] + beside * _BESIDE
                found.append(columns | ends | {"comm_size_bytes": comm.size_bytes, "stream": lane})
        return found or [columns | cost]

    def _ends(self, comm: DeviceComm) -> dict[str, Any] | None:
        """Return the columns that say what *comm* is and with whom; None if it is with nobody else."""
        self.notes.update(comm.notes)
        ranks = comm.group_ranks or self.everyone
        if comm.collective is None:
            end = "comm_dst" if comm.node_type is NodeType.COMM_SEND else "comm_src"
            return {"type": comm.node_type, end: comm.peer, "comm_tag": comm.tag}
        if len(ranks) < 2:
            self.notes.add("collectives of a single rank are written as computation")
            return None
        if comm.collective is CollectiveType.BROADCAST:
            self.notes.add("broadcasts take their measured time on any network, as in ASTRA-sim")
        group = 0 if ranks == self.everyone else self.groups.setdefault(ranks, len(self.groups) + 1)
        name = comm.collective.name.lower()
        return {"type": comm.node_type, "comm_type": int(comm.collective), "group": group, "name": name}

    def _place(self, launch: Launch) -> dict[str, Any]:
        """Return the columns that say where *launch* runs and which operator and module it belongs to."""
        columns: dict[str, Any] = {"stream": _lane_of(launch)}
        if launch.op < 0:
            return columns
        op = self.lanes[launch.lane].ops[launch.op]
        return columns | {"operator": op.event.name, "module": op.module, "phase": op.phase}

    def _gap(self, launch: Launch, gap_ns: int) -> dict[str, Any]:
        """Return the columns of a gap before *launch*."""
        return self._place(launch) | {
            "name": f"device latency before {launch.work.name}",
            "type": NodeType.COMP,
            "duration_ns": gap_ns,
            "kind": "launch",
            "num_ops": 1,
            "tensor_size_bytes": 1,
        }

    def graph(self, rank: int) -> Graph:
        """Return the graph, its nodes numbered in order of start."""
        order = execution_order([draft.start_ns for draft in self.drafts], self.edges)
        new = np.empty(len(order), dtype=np.int64)
        new[order] = np.arange(len(order))
        edges = edge_array(self.edges)
        edges[:, :2] = new[edges[:, :2]]
        graph = Graph.build(rank, [self.drafts[number].columns for number in order], edges)
        starts = np.array([self.drafts[number].start_ns for number in order], dtype=np.int64)
        graph.nodes["node_id"] = np.arange(len(order))
        graph.nodes["measured_start_ns"] = starts - self.window.start_ns
        graph.nodes["step"] = self.window.steps_at(starts)
        graph.metadata["accounting"] = self._accounting(graph)
        graph.metadata["groups"] = [list(ranks) for ranks in self.groups]
        graph.metadata["notes"] = sorted(self.notes | self._carried_note())
        return graph

    def _accounting(self, graph: Graph) -> dict[str, int]:
        """Return where the measured step went; what the replay misses or overshoots is unexplained.

        The step is the host's, from boundary to boundary. If the device finishes after the host, it is the
        device's: from the end of what was issued before the step to the end of what was issued in it.
        """
        works = [launch.work for launch in self.linked.launches]
        late = max([work.end_ns for work in works], default=0) - self.window.end_ns
        carried = max([work.end_ns for work in self.linked.carried], default=0) - self.window.start_ns
        measured = self.window.end_ns - self.window.start_ns
        if late > 0:
            measured += late - max(0, carried)
        replayed = replay(graph).makespan_ns
        main = graph.nodes["stream"] == 0
        busy = {True: 0, False: 0}
        for launch in self.linked.launches:
            busy[launch.is_comm] += launch.work.end_ns - launch.work.start_ns
        return {
            "measured_step_ns": measured,
            "node_ns": int(graph.nodes.loc[main, "duration_ns"].sum()),
            "wait_ns": self.wait_ns,
            "device_compute_ns": busy[False],
            "device_comm_ns": busy[True],
            "device_latency_ns": self.gap_ns,
            "explained_ns": min(measured, replayed),
            "unexplained_ns": abs(measured - replayed),
        }

    def _carried_note(self) -> set[str]:
        if not self.linked.carried:
            return set()
        return {"device work issued before the first converted step is left out, although some ran in it"}


def _lane_of(launch: Launch) -> int:
    """Return the lane of the stream *launch* runs on."""
    device, stream = launch.queue
    return DEVICE_LANE * (max(0, device) + 1) + stream % DEVICE_LANE


def _sources(pairs: Sequence[tuple[int, int]], count: int) -> list[list[int]]:
    """Return the sources of each target among *pairs*, sorted, each once."""
    found: list[set[int]] = [set() for _ in range(count)]
    for source, target in pairs:
        found[target].add(source)
    return [sorted(sources) for sources in found]


@dataclass
class _Handover:
    """Bursts of other threads that the main thread starts and waits for at once."""

    start_ns: int
    end_ns: int
    first: list[int]
    last: list[int]

    def mark(self) -> Mark:
        return Mark(self.start_ns, self.end_ns, starts=tuple(self.first), after=tuple(self.last))


def _merged(handovers: Sequence[_Handover]) -> list[_Handover]:
    """Return *handovers* in order, those that overlap as one."""
    merged: list[_Handover] = []
    for one in sorted(handovers, key=lambda item: (item.start_ns, item.end_ns)):
        if merged and one.start_ns < merged[-1].end_ns:
            merged[-1].end_ns = max(merged[-1].end_ns, one.end_ns)
            merged[-1].first += one.first
            merged[-1].last += one.last
        else:
            merged.append(one)
    return merged
