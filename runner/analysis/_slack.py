"""Slack: how much later each node of a result could end before the whole step would take longer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ... import errors
from ...converter import NodeType, Workload
from ...errors import BackendError
from .._result import Result
from ..engine import lower_room

__all__ = ["slack"]

Ints = npt.NDArray[np.int64]

_LATEST = np.iinfo(np.int64).max // 4


def slack(result: Result, workload: Workload) -> pd.DataFrame:
    """Return ``rank, node_id, slack_ns``: how much later each node could end without delaying the last one.

    A row per executed node of *result*, whose programs are *workload*'s, in their order. Everything else
    keeps its duration and its place: what depends on a node, or follows it on its lane, comes later by as
    much as no gap takes up. A collective ends as long after the arrival it waited for as it did; other ranks
    may arrive until then. Nodes of the critical path have 0. Raises `BackendError` if the result has no
    nodes, or not this workload's.
    """
    if result.nodes.empty:
        raise BackendError(
            f"The result of '{result.backend}' has no node times, so no node's slack is known; use another "
            "backend, such as 'analytical-unaware'."
        )
    schedule = _Schedule(result, workload)
    waits = _Waits(schedule)
    waits.add_program_order(workload)
    waits.add_lane_order()
    waits.add_communication(result.collectives)
    table: pd.DataFrame = result.nodes[["rank", "node_id"]].reset_index(drop=True)
    table["slack_ns"] = _least_gap(schedule, waits)
    return table


class _Schedule:
    """When every node ran and on which lane, in columns; nodes are known by their row."""

    def __init__(self, result: Result, workload: Workload) -> None:
        nodes = result.nodes
        self.rank = nodes["rank"].to_numpy(np.int64)
        self.node_id = nodes["node_id"].to_numpy(np.int64)
        self.start = nodes["start_ns"].to_numpy(np.int64)
        self.end = nodes["end_ns"].to_numpy(np.int64)
        ordered = np.sort(self.node_id)  # np.unique would hash them, which takes three times as long
        self._ids = ordered[np.append(True, ordered[1:] != ordered[:-1])]
        keys = self._keys(self.rank, self.node_id)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        self.cause = self.rows(self.rank, nodes["cause_node"].to_numpy(np.int64))
        self.origin = self.rows(
            nodes["origin_rank"].to_numpy(np.int64), nodes["origin_node"].to_numpy(np.int64)
        )
        semantics = result.provenance.get("options", {}).get("semantics", "astra-sim")
        self.type, self.lane = self._facts(workload, semantics)

    def __len__(self) -> int:
        return len(self.rank)

    def rows(self, ranks: Ints, node_ids: Ints) -> Ints:
        """Return the row of each node, -1 for those that were not executed."""
        keys = self._keys(ranks, node_ids)
        place = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        found: Ints = np.where(self._sorted[place] == keys, self._order[place], -1)
        return found

    def _keys(self, ranks: Ints, node_ids: Ints) -> Ints:
        """Return one number for each node; -1 for ids that no executed node has."""
        place = np.minimum(np.searchsorted(self._ids, node_ids), len(self._ids) - 1)
        keys: Ints = np.where(self._ids[place] == node_ids, ranks * len(self._ids) + place, -1)
        return keys

    def _facts(self, workload: Workload, semantics: str) -> tuple[Ints, Ints]:
        """Return the type of each node and its lane: one node at a time runs on each; -1 is no lane."""
        types = np.full(len(self), -1, np.int64)
        lanes = np.full(len(self), -1, np.int64)
        for program, graph in enumerate(workload.graphs):
            table = graph.node_columns
            ids, kinds = (np.asarray(table[name], np.int64) for name in ("node_id", "type"))
            lane = np.asarray(table["stream"], np.int64) if semantics == "trace" else _slots(table)
            for rank in np.flatnonzero(workload.program_of_rank == program):
                rows = self.rows(np.full(len(ids), rank), ids)
                executed = rows >= 0
                types[rows[executed]] = kinds[executed]
                lanes[rows[executed]] = lane[executed]
        if (types < 0).any():
            row = int(np.argmin(types))
            raise BackendError(
                f"The result holds node {self.node_id[row]} of rank {self.rank[row]}, but the workload does "
                "not: they do not belong together; pass the workload that was simulated."
            )
        lanes[types == NodeType.COMM_RECV] = -1
        return types, lanes


def _slots(nodes: Mapping[str, Any]) -> Ints:
    """Return the slot of each node in ASTRA-sim's resource model: CPU, accelerator or communication."""
    slots: Ints = np.where(
        np.asarray(nodes["is_cpu_op"]), 0, np.where(np.asarray(nodes["type"]) == NodeType.COMP, 1, 2)
    )
    return slots


class _Waits:
    """What has to wait for what: event *before* comes at least so long before *after*, with *gap* to spare.

    The end of a node is the event of its row's number, the start is ``starts[row]``. Computations have one
    event for both, as one moves with the other. Where ranks wait for each other there are more events.
    """

    def __init__(self, schedule: _Schedule) -> None:
        self.schedule = schedule
        rows = np.arange(len(schedule))
        self.apart = (schedule.origin >= 0) & (schedule.origin != rows) | (
            schedule.type >= NodeType.COMM_SEND
        )
        self.starts: Ints = np.where(self.apart, len(rows) + np.cumsum(self.apart) - 1, rows)
        self.events = len(rows) + int(self.apart.sum())
        self.times = [np.where(self.apart, schedule.end, schedule.start), schedule.start[self.apart]]
        self._pieces: list[tuple[Ints, Ints, Ints]] = []

    def add(self, before: Ints, after: Ints, gap: Ints) -> None:
        """Add waits; those whose events ran the other way round hold nothing up."""
        kept = gap >= 0
        self._pieces.append((before[kept], after[kept], gap[kept]))

    def columns(self) -> tuple[Ints, Ints, Ints]:
        """Return all waits: before, after and gap."""
        before, after, gap = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
        return before, after, gap

    def add_program_order(self, workload: Workload) -> None:
        """Let nodes start after what they depend on, and after what set them off."""
        plan = self.schedule
        for program, graph in enumerate(workload.graphs):
            sources, targets = (np.asarray(graph.edge_columns[name], np.int64) for name in ("src", "dst"))
            for rank in np.flatnonzero(workload.program_of_rank == program):
                ranks = np.full(len(sources), rank)
                self._follow(plan.rows(ranks, sources), plan.rows(ranks, targets))
        caused = np.flatnonzero(plan.cause >= 0)
        self.add(plan.cause[caused], self.starts[caused], np.zeros(len(caused), np.int64))

    def add_lane_order(self) -> None:
        """Let nodes start after the one before them on their lane."""
        plan = self.schedule
        laned = np.flatnonzero(plan.lane >= 0)
        keys = (plan.node_id[laned], plan.end[laned], plan.start[laned], plan.lane[laned], plan.rank[laned])
        order = laned[np.lexsort(keys)]
        first, second = order[:-1], order[1:]
        same = (plan.rank[first] == plan.rank[second]) & (plan.lane[first] == plan.lane[second])
        self._follow(first[same], second[same])

    def _follow(self, first: Ints, second: Ints) -> None:
        ran = (first >= 0) & (second >= 0)
        first, second = first[ran], second[ran]
        self.add(first, self.starts[second], self.schedule.start[second] - self.schedule.end[first])

    def add_communication(self, collectives: pd.DataFrame) -> None:
        """Let communication end after its own start, and after the arrivals of others that it waited for."""
        plan = self.schedule
        rows = np.flatnonzero(self.apart)
        origin = np.where(plan.origin[rows] >= 0, plan.origin[rows], rows)
        needed = np.clip(plan.start[origin], plan.start[rows], plan.end[rows])
        # What is received is waited for, and takes the receiver no time of its own.
        received = (plan.type[rows] == NodeType.COMM_RECV) & (origin != rows)
        spare = np.where(received, plan.end[rows], needed) - plan.start[rows]
        self.add(self.starts[rows], rows, spare)
        other = origin != rows
        self.add(self.starts[origin[other]], rows[other], np.zeros(int(other.sum()), np.int64))
        self._add_arrivals(collectives)

    def _add_arrivals(self, collectives: pd.DataFrame) -> None:
        """Let every rank of a collective arrive until the arrival that an end waited for.

        Of each collective, the arrivals waited for are a chain of events in order of time, with the time
        between two as the gap: so the waits grow with the ranks and not with their square.
        """
        plan = self.schedule
        rows = plan.rows(collectives["rank"].to_numpy(np.int64), collectives["node_id"].to_numpy(np.int64))
        number = collectives["collective"].to_numpy(np.int64)[rows >= 0]
        rows = rows[rows >= 0]
        origin = np.where(plan.origin[rows] >= 0, plan.origin[rows], rows)
        needed = np.minimum(plan.start[origin], plan.end[rows])
        chain, place = np.unique(np.stack([number, needed]), axis=1, return_inverse=True)
        first, self.events = self.events, self.events + chain.shape[1]
        self.times.append(chain[1])
        linked = np.flatnonzero(chain[0][:-1] == chain[0][1:])
        self.add(first + linked, first + linked + 1, chain[1][linked + 1] - chain[1][linked])
        self.add(first + place.ravel(), rows, np.zeros(len(rows), np.int64))
        at, inside = _next_in_chain(chain, number, plan.start[rows])
        self.add(
            self.starts[rows[inside]], first + at[inside], chain[1][at[inside]] - plan.start[rows[inside]]
        )


def _next_in_chain(chain: Ints, number: Ints, time: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the place of the first link of each *number* that is not before *time*, and if there is one."""
    order = np.lexsort(
        (
            np.concatenate([np.ones(chain.shape[1]), np.zeros(len(number))]),
            np.concatenate([chain[1], time]),
            np.concatenate([chain[0], number]),
        )
    )
    is_link = order < chain.shape[1]
    before = np.empty(len(order), np.int64)
    before[order] = np.cumsum(is_link)
    place = before[chain.shape[1] :]
    inside = place < chain.shape[1]
    inside[inside] = chain[0][place[inside]] == number[inside]
    return place, inside


def _least_gap(schedule: _Schedule, waits: _Waits) -> Ints:
    """Return for each node the least sum of gaps on any way from its end to that of the last node."""
    before, after, gap = waits.columns()
    room = np.full(waits.events, _LATEST)
    room[: len(schedule)] = schedule.end.max() - schedule.end
    order = _event_order(schedule, waits)
    place = np.empty(waits.events, np.int64)
    place[order] = np.arange(waits.events)
    by_source = np.argsort(place[before], kind="stable")
    source, target, gap = place[before][by_source], place[after][by_source], gap[by_source]
    first = np.searchsorted(source, np.arange(waits.events + 1))
    found = np.ascontiguousarray(room[order])
    lower_room(errors, found, first, target, gap)
    least: Ints = found[place[: len(schedule)]]
    return least


def _event_order(schedule: _Schedule, waits: _Waits) -> Ints:
    """Return the events in order of time; of one instant ends first, then what takes no time, then starts."""
    rows = np.arange(len(schedule))
    instant = schedule.start == schedule.end
    ends = np.where(instant, 1, np.where(waits.apart, 0, 2))
    starts = np.where(instant[waits.apart], 1, 2)
    others = waits.events - len(schedule) - len(starts)
    group = np.concatenate([ends, starts, np.full(others, 2)])
    within = np.concatenate([2 * rows + 1, 2 * rows[waits.apart], np.full(others, 2 * len(schedule))])
    order: Ints = np.lexsort((within, group, np.concatenate(waits.times)))
    return order
