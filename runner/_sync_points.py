"""Put the ranks of a measured run on one clock, and find the waits between ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..converter import CollectiveType, Graph, NodeType, Workload
from ..converter.chakra import DEVICE_LANE
from ..support import count_text, duration_text
from ..support.table import Columns, Ints, positions
from ._framed import rows_coded, turns
from ._result import Result

_ROUNDS = 8
_LATEST_NS = 2**61
_ROOTED = [CollectiveType.BROADCAST, CollectiveType.REDUCE, CollectiveType.GATHER, CollectiveType.SCATTER]
_MEMBERS = ("rank", "node_id", "start_ns", "end_ns", "point", "is_message", "may_leave")
_MESSAGE = ("comm_src", "comm_dst", "comm_tag", "comm_size_bytes", "group")


@dataclass(frozen=True, eq=False)
class SyncPoints:
    """The members of the collectives and messages of a measured run, one member per row.

    The members of one *point* are the nodes *node_id* of some *rank*. *wait_ns* is the time from a member's
    arrival to the arrival of the member in row *last*. A member that left before the last arrival, such as
    the sender of a buffered message, has -1. Waits shorter than *spread_ns*, by which the ends of members
    differ, are uncertain. *begin_ns* is the start of each rank on one clock, and *finish_ns* is the duration
    of each rank. *clocks* describes how the clocks of the ranks were put on one clock.
    """

    rank: Ints
    node_id: Ints
    point: Ints
    wait_ns: Ints
    last: Ints
    spread_ns: Ints
    begin_ns: Ints
    finish_ns: Ints
    clocks: str

    @classmethod
    def of(cls, result: Result, workload: Workload) -> SyncPoints:
        """Return the sync points of *result*, which is a replay of the measured times of *workload*."""
        finish_ns = result.columns("ranks")["finish_ns"].astype(np.int64)
        members = _joined([_of_calls(result.columns("collectives")), *_messages(result, workload)])
        members = _as_recorded(members, result, workload)
        began_ns = _began(workload, len(finish_ns))
        ahead = _clock_offsets(members, began_ns)
        wait_ns, last, spread_ns = _waits(members, ahead)
        rank, node_id, point = (members[name] for name in ("rank", "node_id", "point"))
        begin_ns = ahead.max(initial=0) - ahead
        clocks = _clocks(members, ahead, are_known=bool(began_ns.any()))
        return cls(rank, node_id, point, wait_ns, last, spread_ns, begin_ns, finish_ns, clocks)

    def waits_of(self, rank: int, node_ids: Ints) -> Ints:
        """Return the wait in ns of each of *node_ids* (ascending) of *rank*; 0 outside sync points."""
        waits = np.zeros(len(node_ids), np.int64)
        own = np.flatnonzero(self.rank == rank)
        places, own = _places(node_ids, self.node_id[own], own)
        waits[places] = np.maximum(self.wait_ns[own], 0)
        return waits

    def awaited_by(self, rank: int, node_ids: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the indices of the *node_ids* (ascending) that certainly waited, and the awaited nodes.

        The second and the third array contain the rank and the node of the last arrival.
        """
        own = np.flatnonzero((self.rank == rank) & (self.wait_ns > self.spread_ns))
        places, own = _places(node_ids, self.node_id[own], own)
        return places, self.rank[self.last[own]], self.node_id[self.last[own]]


def _places(node_ids: Ints, chosen: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the indices of *chosen* ids in ascending *node_ids*, and the *rows* of the ids in *node_ids*."""
    places = positions(node_ids, chosen)
    return places[places >= 0], rows[places >= 0]


def arrivals_on_one_clock(calls: Columns) -> Ints:
    """Return the start times of the measured collectives *calls*, on one clock for all ranks."""
    members = _of_calls(calls)
    return members["start_ns"] - _clock_offsets(members)[members["rank"]]


def with_measured_waits(calls: Columns) -> Columns:
    """Return *calls* with the time until the last rank's arrival counted as wait instead of transfer."""
    members = _of_calls(calls)
    wait_ns = np.maximum(_waits(members, _clock_offsets(members))[0], 0)
    return calls | {"wait_ns": wait_ns, "transfer_ns": calls["end_ns"] - calls["start_ns"] - wait_ns}


def _waits(members: Columns, ahead: Ints) -> tuple[Ints, Ints, Ints]:
    """Return each member's wait in ns, the row of the last arrival, and the spread of the ends in ns."""
    ranks, points = members["rank"], members["point"]
    arrivals, leaves = members["start_ns"] - ahead[ranks], members["end_ns"] - ahead[ranks]
    last = _last_of(arrivals, ranks, points)[points]
    has_left = members["may_leave"] & (leaves < arrivals[last])
    wait_ns = np.where(has_left, -1, np.minimum(arrivals[last], leaves) - arrivals)
    return wait_ns, last, np.where(members["is_message"] | members["may_leave"], 0, _spreads(leaves, points))


def _of_calls(calls: Columns) -> Columns:
    members = {name: calls[name].astype(np.int64) for name in ("rank", "node_id", "start_ns", "end_ns")}
    return members | {
        "point": calls["collective"].astype(np.int64),
        "is_message": np.zeros(len(calls["rank"]), bool),
        "may_leave": np.isin(calls["comm_type"], _ROOTED),
    }


def _messages(result: Result, workload: Workload) -> list[Columns]:
    """Return the sends and receives of *result* as members; the k-th send matches the k-th receive."""
    chosen = {
        rank: rows
        for rank, program in enumerate(np.asarray(workload.program_of_rank).tolist())
        if len(rows := _sends_and_receives(workload.graphs[program]))
    }
    parts = []
    for rank, columns in result.table("nodes").by_rank(
        ["node_id", "start_ns", "end_ns"], chosen.__contains__
    ):
        nodes, rows = workload.graph_of(rank).node_columns, chosen[rank]
        order = np.argsort(columns["node_id"], kind="stable")
        places, rows = _places(columns["node_id"][order], np.asarray(nodes["node_id"])[rows], rows)
        facts = {name: np.asarray(nodes[name])[rows].astype(np.int64) for name in ("type", *_MESSAGE)}
        sends = facts["type"] == NodeType.COMM_SEND
        facts["comm_src"] = np.where(sends, rank, facts["comm_src"])
        facts["comm_dst"] = np.where(sends, facts["comm_dst"], rank)
        facts |= {name: column[order][places].astype(np.int64) for name, column in columns.items()}
        parts.append(facts | {"rank": np.full(len(rows), rank)})
    if not parts:
        return []
    ends = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return [_matched(ends)]


def _sends_and_receives(graph: Graph) -> Ints:
    return np.flatnonzero(np.isin(graph.node_columns["type"], [NodeType.COMM_SEND, NodeType.COMM_RECV]))


def _matched(ends: Columns) -> Columns:
    """Return the members of messages that have both a send and a receive in *ends*."""
    order = np.lexsort((ends["node_id"], ends["start_ns"], ends["type"]))
    ends = {name: column[order] for name, column in ends.items()}
    turn = turns(ends["type"], *(ends[name] for name in _MESSAGE))
    points, firsts = rows_coded(turn, *(ends[name] for name in _MESSAGE))
    both = np.bincount(points, minlength=len(firsts))[points] == 2
    members = {name: ends[name][both] for name in ("rank", "node_id", "start_ns", "end_ns")}
    return members | {
        "point": np.unique(points[both], return_inverse=True)[1].reshape(-1),
        "is_message": np.ones(int(both.sum()), bool),
        "may_leave": ends["type"][both] == NodeType.COMM_SEND,
    }


def _as_recorded(members: Columns, result: Result, workload: Workload) -> Columns:
    """Return *members* at their times in the traces, before the cost of recording was removed."""
    figures: Any = workload.metadata.get("accounting")

    def is_shortened(rank: int) -> bool:
        own = figures.get(str(rank)) if isinstance(figures, dict) else None
        return isinstance(own, dict) and bool(own.get("profiler_ns"))

    shifts = np.zeros(len(members["rank"]), np.int64)
    for rank, columns in result.table("nodes").by_rank(["node_id", "start_ns"], is_shortened):
        nodes = workload.graph_of(rank).node_columns
        recorded = np.asarray(nodes["measured_start_ns"])
        rows = np.flatnonzero((np.asarray(nodes["type"]) == NodeType.COMP) & (recorded >= 0))
        order = np.argsort(columns["node_id"], kind="stable")
        places, rows = _places(columns["node_id"][order], np.asarray(nodes["node_id"])[rows], rows)
        starts = columns["start_ns"][order][places].astype(np.int64)
        in_time = np.argsort(starts, kind="stable")
        own = np.flatnonzero(members["rank"] == rank)
        last = np.searchsorted(starts[in_time], members["start_ns"][own], side="right") - 1
        later = (recorded[rows] - starts)[in_time]
        shifts[own] = np.where(last >= 0, later[last], 0) if len(later) else 0
        # The host may run far ahead of a device. Communications on a device have separate times in the trace.
        places, own = _places(np.asarray(nodes["node_id"]), members["node_id"][own], own)
        on_device = (np.asarray(nodes["stream"])[places] >= DEVICE_LANE) & (recorded[places] >= 0)
        places, own = places[on_device], own[on_device]
        shifts[own] = recorded[places] - members["start_ns"][own]
    return members | {name: members[name] + shifts for name in ("start_ns", "end_ns")}


def _joined(parts: list[Columns]) -> Columns:
    """Return the members of all *parts*, with distinct point numbers."""
    first = 0
    numbered = []
    for part in parts:
        numbered.append(part | {"point": part["point"] + first})
        first += int(part["point"].max(initial=-1)) + 1
    return {name: np.concatenate([part[name] for part in numbered]) for name in _MEMBERS}


def _began(workload: Workload, ranks: int) -> Ints:
    """Return the start time of each rank by its clock, relative to rank 0; zeros if it is unknown."""
    stated: Any = workload.metadata.get("began_ns")
    own = [stated.get(str(rank)) if isinstance(stated, dict) else None for rank in range(ranks)]
    if not all(type(ns) is int and abs(ns) < _LATEST_NS for ns in own):
        return np.zeros(ranks, np.int64)
    began_ns = np.array(own, np.int64)
    relative: Ints = began_ns - began_ns[:1].sum()
    return relative


def _clock_offsets(members: Columns, began_ns: Ints | None = None) -> Ints:
    """Return the offset of each rank's clock from a common clock, in ns.

    All ranks leave a collective together. The offset of a rank is therefore the median delay of its
    collectives' ends relative to the median rank. Ranks without a common collective began at *began_ns*,
    unless a message between them would be received before it was sent.
    """
    ahead = np.zeros(int(members["rank"].max(initial=-1)) + 1, np.int64) if began_ns is None else -began_ns
    together = np.flatnonzero(~members["is_message"])
    ranks, points = members["rank"][together], members["point"][together]
    ends = members["end_ns"][together]
    for _ in range(_ROUNDS):  # one round is enough if all collectives have all ranks
        left = ends - ahead[ranks]
        change = _medians(left - _medians(left, points)[points], ranks, len(ahead))
        ahead += change
        if not change.any():
            break
    return ahead - _too_early(members, ahead, _classes(ranks, points, len(ahead)))


def _clocks(members: Columns, ahead: Ints, *, are_known: bool) -> str:
    """Return how the clocks of ranks were aligned to the offsets *ahead*, as the end of a sentence.

    *are_known* is true if the traces contain the starts of the ranks by their own clocks.
    """
    together = np.flatnonzero(~members["is_message"])
    ranks, points = members["rank"][together], np.unique(members["point"][together], return_inverse=True)[1]
    if len(together) and not _classes(ranks, points.reshape(-1), len(ahead)).any():
        spreads_ns = _spreads(members["end_ns"][together] - ahead[ranks], points.reshape(-1))
        count = count_text(int(points.max()) + 1, "collective")
        spread = duration_text(int(np.median(spreads_ns)))
        return f"aligned at the ends of {count}, with a remaining difference of {spread} (median)"
    if are_known:
        return "as recorded between ranks without a common collective, as their offset is unknown"
    return "unknown: ranks without a common collective are assumed to begin the step together"


def _classes(ranks: Ints, points: Ints, count: int) -> Ints:
    """Return, for each rank, the lowest rank that shares its clock through common collectives."""
    lowest = np.arange(count)
    while len(points):
        of_points = np.full(int(points.max()) + 1, count)
        np.minimum.at(of_points, points, lowest[ranks])
        before = lowest.copy()
        np.minimum.at(lowest, ranks, of_points[points])
        if (before == lowest).all():
            break
    return lowest


def _too_early(members: Columns, ahead: Ints, classes: Ints) -> Ints:
    """Return the least delay of each rank (ns), from messages that were received before they were sent."""
    later = np.zeros(len(ahead), np.int64)
    rows = np.flatnonzero(members["is_message"])
    rows = rows[np.lexsort((members["may_leave"][rows], members["point"][rows]))]
    received, sent = rows[::2], rows[1::2]  # only the sender of a message may leave before the last arrival
    sender, receiver = members["rank"][sent], members["rank"][received]
    took = members["end_ns"][received] - ahead[receiver] - members["start_ns"][sent] + ahead[sender]
    for _ in range(_ROUNDS):
        missing = -(took + later[receiver] - later[sender])
        change = np.zeros(len(ahead), np.int64)
        np.maximum.at(change, classes[receiver], np.where(classes[receiver] != classes[sender], missing, 0))
        if not change.any():
            break
        later += change[classes]
    return later


def _last_of(arrivals: Ints, ranks: Ints, points: Ints) -> Ints:
    """Return the row of the last arrival at each sync point; on a tie, the row of the lowest rank."""
    order = np.lexsort((-ranks, arrivals))
    last = np.zeros(int(points.max(initial=-1)) + 1, np.int64)
    last[points[order]] = order  # the row written last remains for each point
    return last


def _spreads(values: Ints, points: Ints) -> Ints:
    """Return, for each row, the range (maximum minus minimum) of the *values* of its sync point."""
    most = np.full(int(points.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    least = np.full(len(most), np.iinfo(np.int64).max)
    np.maximum.at(most, points, values)
    np.minimum.at(least, points, values)
    spreads: Ints = (most - least)[points]
    return spreads


def _medians(values: Ints, keys: Ints, count: int | None = None) -> Ints:
    """Return the lower median of the values of each key below *count*; 0 for a key without values."""
    order = np.lexsort((values, keys))
    counts = np.bincount(keys, minlength=count or 0)
    firsts = np.cumsum(counts) - counts
    middle = np.append(values[order], 0)[np.minimum(firsts + (counts - 1) // 2, len(values))]
    return np.where(counts > 0, middle, 0)
