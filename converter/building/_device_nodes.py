"""Columns of the nodes of a rank with devices: pieces of host threads, and device work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ...errors import TraceError
from .._columns import Columns
from .._native import host_chain
from ..chakra import (
    DEVICE_LANE,
    HOST_BEFORE,
    HOST_END,
    HOST_UNRECORDED,
    LATENCY,
    NODE_COLUMNS,
    CollectiveType,
    GraphBuilder,
    NodeType,
    communication,
)
from ..linking import KERNEL, Bursts, Lane, Launches
from ..readers import PHASES, DeviceComm, DeviceTrace
from ._host_causes import HostCauses
from ._rank_graph import Group

# The offset between the lane numbers of a kernel's simultaneous sends and receives.
_LANE_DISTANCE = 1_000_000
# Columns with the kind, size and members of a communication.
_ENDS = ("type", "comm_type", "comm_size_bytes", "group", "comm_src", "comm_dst", "comm_tag")


class Marks(Columns, frozen=True):
    """Times at which a thread issues work, or blocks until *resume_ns*.

    *waits* means that the awaited work is in the graph. A stop in a call that returns at *return_ns* gets a
    separate node. For other stops, *return_ns* is -1.
    """

    time_ns: np.ndarray
    resume_ns: np.ndarray
    waits: np.ndarray
    return_ns: np.ndarray

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, bool, int]] = ()) -> Marks:
        """Return marks with the columns of *rows*."""
        time, resume, waits, returned = np.array([*rows], dtype=np.int64).reshape(-1, 4).T
        return cls(time, resume, waits.astype(bool), returned)

    @classmethod
    def at(cls, times_ns: np.ndarray) -> Marks:
        """Return marks at *times_ns* at which the thread does not stop."""
        return cls(times_ns, times_ns, np.zeros(len(times_ns), bool), np.full(len(times_ns), -1))


class HostNodes(msgspec.Struct, frozen=True):
    """The nodes of one thread: measured start, duration, and the piece that gives the name (-1: none).

    *stop* is the mark at which the thread stopped in the node's call (-1: none). For each mark, *issuer* is
    the node that issues the work, and *resumed* is the node after the wait (-1: no wait). *burst_first* and
    *burst_last* are the first and the last node of each burst. *wait_ns* is the time for which the thread was
    stopped.
    """

    start_ns: np.ndarray
    duration_ns: np.ndarray
    piece: np.ndarray
    stop: np.ndarray
    issuer: np.ndarray
    resumed: np.ndarray
    burst_first: np.ndarray
    burst_last: np.ndarray
    wait_ns: int


def host_nodes(lane: Lane, marks: Marks, bursts: Bursts | None = None) -> HostNodes:
    """Return the nodes of the host thread of *lane*, cut at *marks*.

    The thread works only in *bursts*; without bursts, the thread works all the time. The duration of a node
    is the time that the thread spent in the node. Time blocked at a mark belongs to no node.
    """
    stops = marks.waits | (marks.resume_ns > marks.time_ns) | (marks.return_ns >= 0)
    order = np.lexsort((stops, marks.time_ns))
    none = np.empty(0, dtype=np.int64)
    columns, wait_ns = host_chain(
        lane.pieces.start_ns,
        lane.pieces.end_ns,
        lane.pieces.op,
        marks.time_ns[order],
        marks.resume_ns[order],
        marks.return_ns[order],
        marks.waits[order].astype(np.uint8),
        none if bursts is None else bursts.start_ns,
        none if bursts is None else bursts.end_ns,
        len(lane.ops),
    )
    for name in ("issuer", "resumed"):
        in_order = columns[name]
        columns[name] = np.empty(len(order), dtype=np.int64)
        columns[name][order] = in_order
    own = columns["stop"] >= 0
    columns["stop"] = np.where(own, order[columns["stop"]] if len(order) else -1, -1)
    return HostNodes(**columns, wait_ns=wait_ns)


class WorkNodes(msgspec.Struct, frozen=True):
    """The nodes of each launch: *count* nodes from *first*, and possibly a *gap* node before (-1: none)."""

    first: np.ndarray
    count: np.ndarray
    gap: np.ndarray

    def entry(self) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each launch, the first node and the number of nodes that wait for its dependencies."""
        has_gap = self.gap >= 0
        return np.where(has_gap, self.gap, self.first), np.where(has_gap, 1, self.count)


class DeviceNodes(GraphBuilder):
    """The nodes of host threads and of device work, block by block; measured starts are Unix nanoseconds."""

    def __init__(self, trace: DeviceTrace, everyone: tuple[int, ...]) -> None:
        super().__init__()
        self._trace, self._everyone = trace, everyone
        self.groups: dict[Group, int] = {}
        self.notes: set[str] = set()
        self.splits: dict[int, tuple[int, ...]] = {}

    def numbers(self, texts: Sequence[str]) -> np.ndarray:
        """Return the number of each text of *texts* in the text table, -1 for empty texts."""
        return np.array([self.text(text) if text else -1 for text in texts], dtype=np.int64)

    def add_host(self, lane: Lane, nodes: HostNodes, called: np.ndarray, causes: HostCauses) -> int:
        """Append the *nodes* of a host thread, and return the number of the first node.

        *called* is the number of the call in which a node waited for the device (see `numbers`), or -1 if the
        node did not wait in a call.
        """
        known = nodes.piece >= 0
        op = np.full(len(nodes.piece), -1, dtype=np.int64)
        next_op = op.copy()
        op[known] = lane.pieces.op[nodes.piece[known]]
        next_op[known] = lane.pieces.next_op[nodes.piece[known]]
        about = np.where(op >= 0, op, next_op)
        named = self._op_texts(lane, about)
        before = self.texts(lane.ops.name[next_op[about >= 0]], self._trace.texts, HOST_BEFORE.__add__)
        name = np.full(len(op), self.text(HOST_END if len(lane.ops) else HOST_UNRECORDED))
        name[about >= 0] = before
        name[op >= 0] = named["operator"][op >= 0]
        named["operator"][op < 0] = self.text("")
        waited = called >= 0
        name[waited] = called[waited]
        end_ns = nodes.start_ns + nodes.duration_ns
        cause, place = causes.of_nodes(nodes.start_ns, end_ns, op < 0)
        return self.add_columns(
            len(op),
            measured_start_ns=nodes.start_ns,
            duration_ns=nodes.duration_ns,
            type=NodeType.COMP,
            stream=lane.number,
            is_cpu_op=True,
            kind=np.where(waited, self.text("sync"), self.text("host")),
            cause=np.where(waited, self.text("synchronisation"), self.numbers_of(cause)),
            place=np.array(self.numbers_of(place), dtype=np.int64),
            name=name,
            **named,
        )

    def add_works(
        self,
        launches: Launches,
        lanes: Sequence[Lane],
        causes: Sequence[HostCauses],
        *,
        start_ns: np.ndarray,
        busy_ns: np.ndarray,
        gap_ns: np.ndarray,
        costs: np.ndarray,
    ) -> WorkNodes:
        """Append a node per launch, and before it a gap node if its *gap_ns* is above 0."""
        ends_of = {index: found for index, comms in launches.comms.items() if (found := self._ends(comms))}
        count = np.ones(len(launches), dtype=np.int64)
        for index, ends in ends_of.items():
            count[index] = len(ends)
        own = count + (gap_ns > 0)
        begin = np.cumsum(own) - own
        launch = np.repeat(np.arange(len(launches)), own)
        beside = np.arange(len(launch)) - begin[launch] - (gap_ns > 0)[launch]
        is_gap = beside < 0
        columns = self._places(launches, lanes, causes, launch)
        works = self._trace.works.take(launches.work)
        names = self.texts(works.name, self._trace.texts)[launch]
        names[is_gap] = self.texts(works.name[launch[is_gap]], self._trace.texts, LATENCY.__add__)
        kinds = np.where(launches.category == KERNEL, self.text("compute"), self.text("copy"))
        kinds[launches.is_comm] = self.text("communication")
        columns["phase"][launches.is_comm[launch] & ~is_gap] = self.text("communication")
        columns |= {
            "name": names,
            "measured_start_ns": start_ns[launch],
            "duration_ns": np.where(is_gap, gap_ns[launch], busy_ns[launch]),
            "kind": np.where(is_gap, self.text("idle"), kinds[launch]),
            "type": np.full(len(launch), int(NodeType.COMP)),
            "num_ops": np.where(is_gap, 1, costs[launch, 0]),
            "tensor_size_bytes": np.where(is_gap, 1, costs[launch, 1]),
        }
        gap = np.where(gap_ns > 0, self.size + begin, -1)
        nodes = WorkNodes(self.size + begin + (gap_ns > 0), count, gap)
        self._write_ends(columns, ends_of, nodes.first - self.size)
        self.add_columns(len(launch), **columns)
        return nodes

    def _places(
        self, launches: Launches, lanes: Sequence[Lane], causes: Sequence[HostCauses], launch: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return the columns of each *launch*'s lane, operator and module."""
        lane_of = _lanes_of(launches.queues)
        columns = self._op_texts(lanes[0], np.full(len(launches), -1, dtype=np.int64))
        columns["place"] = np.full(len(launches), self.text(""), dtype=np.int64)
        for lane in lanes:
            mine = launches.lane == lane.number
            for name, values in self._op_texts(lane, launches.op[mine]).items():
                columns[name][mine] = values
            called = causes[lane.number].call_places(launches.call_start_ns[mine])
            columns["place"][mine] = self.numbers_of(called)
        for index, origin in launches.origins.items():
            for name in ("operator", "module", "phase"):
                columns[name][index] = self.text(getattr(origin, name))
        placed = {name: values[launch] for name, values in columns.items()}
        return placed | {"stream": lane_of[launches.queue][launch]}

    def _op_texts(self, lane: Lane, op: np.ndarray) -> dict[str, np.ndarray]:
        """Return operator, module and phase of each *op* of *lane*; the texts are empty for an *op* of -1."""
        known = op >= 0
        ops, found = lane.ops, {}
        for name, texts, numbers in (
            ("operator", self._trace.texts, ops.name),
            ("module", ops.modules, ops.module),
            ("phase", PHASES, ops.phase),
        ):
            found[name] = np.full(len(op), self.text(NODE_COLUMNS[name][1]))
            found[name][known] = self.texts(numbers[op[known]], texts)
        return found

    def _ends(self, comms: Sequence[DeviceComm]) -> list[dict[str, Any]]:
        """Return the communication columns of *comms*; omit communications with a single member."""
        return [columns for comm in comms if (columns := self._ends_of(comm)) is not None]

    def _ends_of(self, comm: DeviceComm) -> dict[str, Any] | None:
        """Return the communication columns of *comm*, or None if *comm* has no other members."""
        self.notes.update(comm.notes)
        ranks = comm.group_ranks or self._everyone
        group = 0
        if comm.collective is not None:
            if len(ranks) < 2:
                self.notes.add("collectives of a single rank keep their measured time on any network")
                return None
            if comm.collective is CollectiveType.BROADCAST:
                self.notes.add("broadcasts take their measured time on any network, as in ASTRA-sim")
            group = self.groups.setdefault((ranks, comm.group_label), len(self.groups) + 1)
        columns = communication(
            comm.node_type, comm.collective, comm.size_bytes, group=group, peer=comm.peer, tag=comm.tag
        )
        ends = {name: value for name, value in columns.items() if name in _ENDS}
        if comm.collective is not None:
            ends["name"] = self.text(columns["name"])
        return ends | ({"splits": comm.splits} if comm.splits else {})

    def _write_ends(
        self,
        columns: dict[str, np.ndarray],
        ends_of: Mapping[int, Sequence[Mapping[str, Any]]],
        first: np.ndarray,
    ) -> None:
        """Fill the communication columns of nodes in *columns*; each communication has a separate lane."""
        size = len(columns["name"])
        for name in _ENDS[1:]:
            columns[name] = np.full(size, NODE_COLUMNS[name][1], dtype=np.int64)
        for index, nodes in ends_of.items():
            for beside, ends in enumerate(nodes):
                at = first[index] + beside
                for name, value in ends.items():
                    if name == "splits":
                        self.splits[self.size + int(at)] = value
                    else:
                        columns[name][at] = value
                columns["stream"][at] += beside * _LANE_DISTANCE
                columns["num_ops"][at] = columns["tensor_size_bytes"][at] = -1


def _lanes_of(queues: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return a lane for each of *queues* (device, stream): the stream's number, or the next free lane.

    Raises `TraceError` if a device has more streams than available lanes.
    """
    taken: set[int] = set()
    lanes = []
    for device, stream in queues:
        block = DEVICE_LANE * (max(0, device) + 1)
        places = ((stream + step) % DEVICE_LANE for step in range(DEVICE_LANE))
        lane = next((block + place for place in places if block + place not in taken), None)
        if lane is None:
            raise TraceError(
                f"Device {device} of the trace has more than {DEVICE_LANE:,} streams with work. Next: "
                "convert a shorter part of the trace (--step)."
            )
        taken.add(lane)
        lanes.append(lane)
    return np.array(lanes, dtype=np.int64)
