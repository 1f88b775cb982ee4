"""The node columns of a rank with devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ..chakra import NODE_COLUMNS, CollectiveType, Column, NodeType, TextColumn, communication
from ..linking import KERNEL, Lane, Launches
from ..readers import PHASES, DeviceComm, DeviceTrace
from ._conventions import DEVICE_LANE, HOST_BEFORE, HOST_END, HOST_UNRECORDED
from ._host_causes import HostCauses
from ._host_nodes import HostNodes

__all__ = ["NodeTable", "WorkNodes"]

# The sends and receives of one kernel run beside each other: each has a lane this much above the last one's.
_BESIDE = 1_000_000
# What a communication is, and with whom.
_ENDS = ("type", "comm_type", "comm_size_bytes", "group", "comm_src", "comm_dst", "comm_tag")


class WorkNodes(msgspec.Struct, frozen=True):
    """Which nodes stand for each launch: *count* from *first* on, and maybe a gap before (-1: none)."""

    first: np.ndarray
    count: np.ndarray
    gap: np.ndarray

    def entry(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the first and the number of the nodes that wait for what each launch waits for."""
        has_gap = self.gap >= 0
        return np.where(has_gap, self.gap, self.first), np.where(has_gap, 1, self.count)


class NodeTable:
    """Nodes in the making, block by block, numbered from 0; texts become numbers at once."""

    def __init__(self, trace: DeviceTrace, everyone: tuple[int, ...]) -> None:
        self._trace, self._everyone = trace, everyone
        self._numbers: dict[str, int] = {}
        self._blocks: list[dict[str, np.ndarray]] = []
        self.size = 0
        self.groups: dict[tuple[int, ...], int] = {}
        self.notes: set[str] = set()
        self.splits: dict[int, tuple[int, ...]] = {}

    def numbers(self, texts: Sequence[str]) -> np.ndarray:
        """Return the table's number of each of *texts*, -1 for empty ones."""
        return np.array([self._text(text) if text else -1 for text in texts], dtype=np.int64)

    def add_host(self, lane: Lane, nodes: HostNodes, called: np.ndarray, causes: HostCauses) -> int:
        """Append the *nodes* of a host thread and return the number of the first.

        *called* numbers what a node waited for the device in (see `numbers`), -1 for none.
        """
        known = nodes.piece >= 0
        op = np.full(len(nodes.piece), -1, dtype=np.int64)
        next_op = op.copy()
        op[known] = lane.pieces.op[nodes.piece[known]]
        next_op[known] = lane.pieces.next_op[nodes.piece[known]]
        about = np.where(op >= 0, op, next_op)
        named = self._op_texts(lane, about)
        before = self._texts(lane.ops.name[next_op[about >= 0]], lambda text: HOST_BEFORE + text)
        name = np.full(len(op), self._text(HOST_END if len(lane.ops) else HOST_UNRECORDED))
        name[about >= 0] = before
        name[op >= 0] = named["operator"][op >= 0]
        named["operator"][op < 0] = self._text("")
        waited = called >= 0
        name[waited] = called[waited]
        end_ns = nodes.start_ns + nodes.duration_ns
        cause, place = causes.of_nodes(nodes.start_ns, end_ns, op < 0)
        return self._add(
            len(op),
            start_ns=nodes.start_ns,
            duration_ns=nodes.duration_ns,
            type=NodeType.COMP,
            stream=lane.number,
            is_cpu_op=True,
            kind=np.where(waited, self._text("sync"), self._text("host")),
            cause=np.where(waited, self._text("synchronisation"), [self._text(text) for text in cause]),
            place=np.array([self._text(text) for text in place], dtype=np.int64),
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
        gap_ns: np.ndarray,
        costs: np.ndarray,
    ) -> WorkNodes:
        """Append the nodes of the *launches*, which begin at *start_ns*, each after its gap if it has one."""
        told = {index: found for index in launches.comms if (found := self._told(launches.comms[index]))}
        count = np.ones(len(launches), dtype=np.int64)
        for index, ends in told.items():
            count[index] = len(ends)
        own = count + (gap_ns > 0)
        begin = np.cumsum(own) - own
        launch = np.repeat(np.arange(len(launches)), own)
        beside = np.arange(len(launch)) - begin[launch] - (gap_ns > 0)[launch]
        is_gap = beside < 0
        columns = self._places(launches, lanes, causes, launch)
        works = self._trace.works.take(launches.work)
        names = self._texts(works.name, str)[launch]
        names[is_gap] = self._texts(works.name[launch[is_gap]], lambda text: f"device latency before {text}")
        kinds = np.where(launches.category == KERNEL, self._text("compute"), self._text("copy"))
        kinds[launches.is_comm] = self._text("communication")
        columns["phase"][launches.is_comm[launch] & ~is_gap] = self._text("communication")
        columns |= {
            "name": names,
            "start_ns": start_ns[launch],
            "duration_ns": np.where(is_gap, gap_ns[launch], (launches.end_ns - launches.start_ns)[launch]),
            "kind": np.where(is_gap, self._text("idle"), kinds[launch]),
            "type": np.full(len(launch), int(NodeType.COMP)),
            "num_ops": np.where(is_gap, 1, costs[launch, 0]),
            "tensor_size_bytes": np.where(is_gap, 1, costs[launch, 1]),
        }
        gap = np.where(gap_ns > 0, self.size + begin, -1)
        nodes = WorkNodes(self.size + begin + (gap_ns > 0), count, gap)
        self._tell(columns, told, nodes.first - self.size)
        self._add(len(launch), **columns)
        return nodes

    def _places(
        self, launches: Launches, lanes: Sequence[Lane], causes: Sequence[HostCauses], launch: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return the columns that say where each *launch* runs, and for which operator and module."""
        queues = np.array(launches.queues, dtype=np.int64).reshape(-1, 2)
        lane_of = DEVICE_LANE * (np.maximum(0, queues[:, 0]) + 1) + queues[:, 1] % DEVICE_LANE
        columns = self._op_texts(lanes[0], np.full(len(launches), -1, dtype=np.int64))
        columns["place"] = np.full(len(launches), self._text(""), dtype=np.int64)
        for lane in lanes:
            mine = launches.lane == lane.number
            for name, values in self._op_texts(lane, launches.op[mine]).items():
                columns[name][mine] = values
            called = causes[lane.number].call_places(launches.call_start_ns[mine])
            columns["place"][mine] = [self._text(text) for text in called]
        for index, origin in launches.origins.items():
            for name in ("operator", "module", "phase"):
                columns[name][index] = self._text(getattr(origin, name))
        placed = {name: values[launch] for name, values in columns.items()}
        return placed | {"stream": lane_of[launches.queue][launch]}

    def _op_texts(self, lane: Lane, op: np.ndarray) -> dict[str, np.ndarray]:
        """Return operator, module and phase of each *op* of *lane*; what says nothing for -1."""
        known = op >= 0
        ops, found = lane.ops, {}
        for name, texts, numbers in (
            ("operator", self._trace.texts, ops.name),
            ("module", ops.modules, ops.module),
            ("phase", PHASES, ops.phase),
        ):
            found[name] = np.full(len(op), self._text(NODE_COLUMNS[name][1]))
            found[name][known] = self._texts(numbers[op[known]], str, texts)
        return found

    def _told(self, comms: Sequence[DeviceComm]) -> list[dict[str, Any]]:
        """Return the columns that say what *comms* are and with whom, those that are with somebody else."""
        return [found for comm in comms if (found := self._ends(comm)) is not None]

    def _ends(self, comm: DeviceComm) -> dict[str, Any] | None:
        """Return the columns that say what *comm* is and with whom; None if it is with nobody else."""
        self.notes.update(comm.notes)
        ranks = comm.group_ranks or self._everyone
        group = 0
        if comm.collective is not None:
            if len(ranks) < 2:
                self.notes.add("collectives of a single rank keep their measured time on any network")
                return None
            if comm.collective is CollectiveType.BROADCAST:
                self.notes.add("broadcasts take their measured time on any network, as in ASTRA-sim")
            if ranks != self._everyone:
                group = self.groups.setdefault(ranks, len(self.groups) + 1)
        columns = communication(
            comm.node_type, comm.collective, comm.size_bytes, group=group, peer=comm.peer, tag=comm.tag
        )
        ends = {name: value for name, value in columns.items() if name in _ENDS}
        if comm.collective is not None:
            ends["name"] = self._text(columns["name"])
        return ends | ({"splits": comm.splits} if comm.splits else {})

    def _tell(
        self,
        columns: dict[str, np.ndarray],
        told: Mapping[int, Sequence[Mapping[str, Any]]],
        first: np.ndarray,
    ) -> None:
        """Write into *columns* what the communications among the nodes are; each has a lane of its own."""
        size = len(columns["name"])
        for name in _ENDS[1:]:
            columns[name] = np.full(size, NODE_COLUMNS[name][1], dtype=np.int64)
        for index, nodes in told.items():
            for beside, ends in enumerate(nodes):
                at = first[index] + beside
                for name, value in ends.items():
                    if name == "splits":
                        self.splits[self.size + int(at)] = value
                    else:
                        columns[name][at] = value
                columns["stream"][at] += beside * _BESIDE
                columns["num_ops"][at] = columns["tensor_size_bytes"][at] = -1

    def _add(self, count: int, **columns: Any) -> int:
        """Append *count* nodes; scalars are the same for all."""
        first = self.size
        self._blocks.append({name: np.broadcast_to(value, count) for name, value in columns.items()})
        self.size += count
        return first

    def _text(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def _texts(
        self, numbers: np.ndarray, spelled: Callable[[str], str], texts: Sequence[str] | None = None
    ) -> np.ndarray:
        """Return the table's numbers of the trace's (or other) *texts* as they are *spelled* here."""
        source = self._trace.texts if texts is None else texts
        different, place = np.unique(numbers, return_inverse=True)
        known = [self._text(spelled(source[number])) for number in different.tolist()]
        return np.array(known, dtype=np.int64)[place.ravel()]

    def columns(self) -> dict[str, np.ndarray]:
        """Return all columns that are known of some node, with ``start_ns``; texts are numbers."""
        names = dict.fromkeys(name for block in self._blocks for name in block)
        return {name: np.concatenate([self._column(block, name) for block in self._blocks]) for name in names}

    def _column(self, block: Mapping[str, np.ndarray], name: str) -> np.ndarray:
        if name in block:
            return block[name]
        dtype, default = NODE_COLUMNS[name]
        count = len(block["start_ns"])
        return np.full(count, self._text(default) if dtype == "str" else default)

    def texts(self, numbers: np.ndarray) -> Column:
        """Return a column of texts from its numbers."""
        return TextColumn(numbers.astype(np.int32), list(self._numbers))
