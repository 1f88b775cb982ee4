"""Slack: the time by which each node of a result could end later without delaying the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ... import errors
from ...converter import Graph, NodeType, Workload
from ...errors import BackendError
from ...support.table import Columns, Ints, frame_of, positions
from .._result import Result
from .._traits import DEFAULT_BACKEND
from ..engine import lower_room
from ._path_walk import measured_waits
from ._schedule import Schedule

if TYPE_CHECKING:
    import pandas as pd

_LATEST = np.iinfo(np.int64).max // 4
_Waits = tuple[npt.NDArray[Any], npt.NDArray[Any], Ints]


def slack(result: Result, workload: Workload) -> pd.DataFrame:
    """Return ``rank, node_id, slack_ns``: how much later each node can end without delaying the step.

    There is a row per executed node of *result*, a simulation or replay of *workload*, in the
    result's order. Durations and the order of nodes stay the same. A node that depends on a delayed
    node, or follows it on its lane, is delayed by the part that gaps do not absorb. The time of a
    collective after the last required arrival is unchanged, and ranks may arrive until then. In a
    measured result, no rank may take longer than the longest. Nodes on the critical path have no
    slack. Raises `BackendError` if the result has no nodes, or nodes that the workload lacks.
    """
    values = slack_columns(result, workload)["slack_ns"]
    places = result.table("nodes").read(["rank", "node_id"])
    ordered = np.empty_like(values)
    ordered[np.lexsort((places["node_id"], places["rank"]))] = values
    return frame_of(places | {"slack_ns": ordered})


def slack_columns(result: Result, workload: Workload) -> Columns:
    """Return ``rank, node_id, start_ns, end_ns, slack_ns`` as in `slack`, sorted by rank and node id.

    The result is read rank by rank; the computation needs about 200 bytes per node.
    """
    if not result.num_nodes:
        raise BackendError(
            f"The result of '{result.backend}' has no node times, so slack is unknown. Next: use another "
            f"backend, such as '{DEFAULT_BACKEND}'."
        )
    sync, repeats = measured_waits(result, workload)
    schedule = Schedule(result, workload, sync)
    events = _Events(schedule, result.columns("collectives"), measured=sync is not None, repeats=repeats)
    gaps = _least_gap(schedule, events, workload)
    ranks = schedule.ranks()
    shift_ns = schedule.shift_ns[ranks]
    return {
        "rank": ranks,
        "node_id": schedule.node_id,
        "start_ns": schedule.start - shift_ns,
        "end_ns": schedule.end - shift_ns,
        "slack_ns": gaps,
    }


class _Events:
    """The start and end events of a schedule's rows, and the waits between events.

    *end* is each row's end event. For a row that is *apart*, the previous event is its start. Other rows have
    only an end event, because the end of a computation moves with its start. A rank's events are contiguous,
    and after all rows come events for the arrivals that collectives waited for. *waits* (before, after, gap;
    sorted by before) are the waits of communication: event *before* may happen *gap* later without delaying
    event *after*. If the step *repeats*, a rank that begins the step late was still running the previous
    step.
    """

    def __init__(self, schedule: Schedule, collectives: Columns, *, measured: bool, repeats: bool) -> None:
        self.schedule = schedule
        self._measured = measured
        self.apart = schedule.type >= NodeType.COMM_SEND
        self.apart[schedule.others] = True
        self.end: Ints = np.arange(len(schedule)) + np.cumsum(self.apart)
        self.of_rows = len(schedule) + int(self.apart.sum())
        self._pieces: list[_Waits] = []
        self._add_communication()
        if repeats:
            self._add_preceding_step()
        self.instants = self._add_arrivals(collectives)
        self.count = self.of_rows + len(self.instants)
        before, after, gap = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
        order = np.argsort(before, kind="stable")
        self.waits = (before[order].astype(np.int32), after[order].astype(np.int32), gap[order])
        self._pieces.clear()

    def starts(self, rows: Ints) -> Ints:
        """Return the start event of each node in *rows*."""
        return self.end[rows] - self.apart[rows]

    def _add(self, before: Ints, after: Ints, gap: Ints) -> None:
        self._pieces.append(_ordered_waits(before, after, gap))

    def _origins(self, rows: Ints) -> Ints:
        """Return the row whose start triggered the end of each of *rows*."""
        others, origins = self.schedule.others, self.schedule.origins
        place = positions(others, rows)
        result: Ints = rows.copy()
        result[place >= 0] = origins[place[place >= 0]]
        return result

    def _add_communication(self) -> None:
        """Let communication end after its own start, and after the arrivals it waited for on other ranks."""
        plan = self.schedule
        rows = np.flatnonzero(self.apart)
        origin = self._origins(rows)
        needed = np.clip(plan.start[origin], plan.start[rows], plan.end[rows])
        # A simulated receive takes no time on the receiver; a measured receive takes its duration without
        # the wait.
        received = (plan.type[rows] == NodeType.COMM_RECV) & (origin != rows) & (not self._measured)
        spare = np.where(received, plan.end[rows], needed) - plan.start[rows]
        self._add(self.starts(rows), self.end[rows], spare)
        other = origin != rows
        none_to_spare = np.zeros(int(other.sum()), np.int64)
        self._add(self.starts(origin[other]), self.end[rows[other]], none_to_spare)

    def _add_preceding_step(self) -> None:
        """Let late ranks start their first nodes after the last node of the step before."""
        plan = self.schedule
        for rank, (low, high) in plan.bounds.items():
            if plan.shift_ns[rank] > 0:
                own = slice(low, high)
                last = low + int(np.lexsort((-plan.node_id[own], plan.start[own], plan.end[own]))[-1])
                first = low + np.flatnonzero(plan.cause[own] < 0)
                ends = np.full(len(first), self.end[last])
                self._add(ends, self.starts(first), np.zeros(len(first), np.int64))

    def _add_arrivals(self, collectives: Columns) -> Ints:
        """Let the ranks of a collective arrive by the last arrival that its end waited for.

        The awaited arrivals form a chain of events in order of time, with the time between two as
        the gap, so that there are only as many waits as ranks. Returns the times of these arrivals.
        """
        plan = self.schedule
        rows = plan.rows(collectives["rank"], collectives["node_id"])
        number = collectives["collective"][rows >= 0]
        rows = rows[rows >= 0]
        needed = np.minimum(plan.start[self._origins(rows)], plan.end[rows])
        chain, place = _distinct(number, needed)
        first = self.of_rows
        linked = np.flatnonzero(chain[0][:-1] == chain[0][1:])
        self._add(first + linked, first + linked + 1, chain[1][linked + 1] - chain[1][linked])
        self._add(first + place, self.end[rows], np.zeros(len(rows), np.int64))
        at, inside = _next_in_chain(chain, number, plan.start[rows])
        spare = chain[1][at[inside]] - plan.start[rows[inside]]
        self._add(self.starts(rows[inside]), first + at[inside], spare)
        instants: Ints = chain[1]
        return instants

    def in_order(self) -> npt.NDArray[np.int32]:
        """Return the events sorted by time.

        At the same time, ends come first, then events without duration, then starts.
        """
        plan = self.schedule
        times, group = np.empty(self.count, np.int64), np.full(self.count, 2, np.int8)
        instant = plan.start == plan.end
        times[self.end] = np.where(self.apart, plan.end, plan.start)
        group[self.end] = np.where(instant, 1, np.where(self.apart, 0, 2))
        rows = np.flatnonzero(self.apart)
        times[self.starts(rows)] = plan.start[rows]
        group[self.starts(rows)] = np.where(instant[rows], 1, 2)
        times[self.of_rows :] = self.instants
        return np.lexsort((group, times)).astype(np.int32)


def _ordered_waits(before: npt.NDArray[Any], after: npt.NDArray[Any], gap: Ints) -> _Waits:
    """Drop waits between events that ran in the opposite order, which cause no delay."""
    kept = gap >= 0
    return (before, after, gap) if kept.all() else (before[kept], after[kept], gap[kept])


def _distinct(number: Ints, time: Ints) -> tuple[Ints, Ints]:
    """Return the sorted distinct (number, time) pairs as two rows, and the index of each pair."""
    order = np.lexsort((time, number))
    pairs = np.stack([number[order], time[order]])
    new = np.append(True, (pairs[:, 1:] != pairs[:, :-1]).any(axis=0))[: len(order)]
    place = np.empty(len(order), np.int64)
    place[order] = np.cumsum(new) - 1
    return pairs[:, new], place


def _next_in_chain(chain: Ints, number: Ints, time: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the first event from *time* on in the chain of each *number*, and whether there is one."""
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


def _waits_of_rank(events: _Events, graph: Graph, low: int, high: int) -> list[_Waits]:
    """Return the waits within a rank (rows *low* to *high*) from its program and its lanes.

    A wait that both the program and a lane impose counts once.
    """
    plan, own = events.schedule, slice(low, high)
    start, end, cause = plan.start[own], plan.end[own], plan.cause[own]
    before = _before_on_lane(plan, own)
    sources, targets = (
        positions(plan.node_id[own], np.asarray(graph.edge_columns[name], np.int64))
        for name in ("src", "dst")
    )
    ran = (sources >= 0) & (targets >= 0) & (before[targets] != sources)
    sources, targets = sources[ran], targets[ran]
    explained = before == cause
    explained[targets[cause[targets] == sources]] = True
    caused = np.flatnonzero((cause >= 0) & ~(explained & (start == end[cause])))
    laned = np.flatnonzero(before >= 0)
    ends = events.end[own].astype(np.int32)
    starts = ends - events.apart[own]
    return [
        (ends[cause[caused]], starts[caused], np.zeros(len(caused), np.int64)),
        _ordered_waits(ends[sources], starts[targets], start[targets] - end[sources]),
        _ordered_waits(ends[before[laned]], starts[laned], start[laned] - end[before[laned]]),
    ]


def _before_on_lane(plan: Schedule, own: slice) -> Ints:
    """Return the previous row on each row's lane, -1 for the first."""
    lane = plan.lane[own]
    laned = np.flatnonzero(lane >= 0)
    order = laned[np.lexsort((plan.end[own][laned], plan.start[own][laned], lane[laned]))]
    same = lane[order[1:]] == lane[order[:-1]]
    before = np.full(len(lane), -1, np.int64)
    before[order[1:][same]] = order[:-1][same]
    return before


def _by_event(events: _Events, workload: Workload) -> tuple[Ints, npt.NDArray[np.int32], Ints]:
    """Return all waits grouped by the earlier event: first index per event, later events, gaps."""
    parts = []
    for rank, (low, high) in events.schedule.bounds.items():
        own = _waits_of_rank(events, workload.graph_of(rank), low, high)
        begin, stop = int(events.end[low] - events.apart[low]), int(events.end[high - 1]) + 1
        parts.append(_sorted(events, own, begin, stop))
    parts.append(_sorted(events, [], events.of_rows, events.count))
    counts, waiting, gaps = ([*column] for column in zip(*parts, strict=True))
    parts.clear()
    first = np.append(0, np.cumsum(np.concatenate(counts)))
    return first, _joined(waiting), _joined(gaps)


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Concatenate *parts*, freeing each one."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def _sorted(
    events: _Events, own: list[_Waits], begin: int, stop: int
) -> tuple[Ints, npt.NDArray[np.int32], Ints]:
    """Return the number of waits per event from *begin* to *stop*, the waiting events, and the gaps."""
    shared = slice(*np.searchsorted(events.waits[0], [begin, stop]))
    pieces = [*own, (events.waits[0][shared], events.waits[1][shared], events.waits[2][shared])]
    before, after, gap = (np.concatenate(column) for column in zip(*pieces, strict=True))
    order = np.argsort(before, kind="stable")
    return np.bincount(before - begin, minlength=stop - begin), after[order].astype(np.int32), gap[order]


def _least_gap(schedule: Schedule, events: _Events, workload: Workload) -> Ints:
    """Return the least sum of gaps on any path from each node's end to the end of the last node."""
    room = np.full(events.count, _LATEST)
    room[events.end] = schedule.room
    lower_room(errors, room, events.in_order(), *_by_event(events, workload))
    return room[events.end]


def slack_table(nodes: pd.DataFrame, slack_ns: pd.Series) -> pd.DataFrame:
    """Return *nodes* with their slack, least slack first, then longest duration.

    The table is empty if the slack is unknown.
    """
    if len(slack_ns) != len(nodes):
        nodes = nodes.head(0)
    table = _with_slack(nodes, slack_ns.to_numpy()[: len(nodes)])
    order = np.lexsort((-table["duration_ns"], table["slack_ns"]))
    ordered: pd.DataFrame = table.iloc[order].reset_index(drop=True)
    return ordered


def longest_with_slack(nodes: pd.DataFrame, slack_ns: pd.Series, count: int) -> pd.DataFrame:
    """Return the *count* longest *nodes* that have slack, as in :func:`slack_table`."""
    slack = slack_ns.to_numpy()
    spare = np.flatnonzero(slack > 0)
    length = (nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy())[spare]
    rows = spare[np.argsort(-length, kind="stable")[:count]]
    return _with_slack(nodes.iloc[rows].reset_index(drop=True), slack[rows])


def slack_shares(nodes: pd.DataFrame, slack_ns: pd.Series, within_ns: int) -> tuple[float, float]:
    """Return the fractions of the nodes' time that have no slack, and slack up to *within_ns*."""
    slack, length = slack_ns.to_numpy(), nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy()
    whole = max(1, int(length.sum()))
    return int(length[slack == 0].sum()) / whole, int(length[slack <= within_ns].sum()) / whole


def _with_slack(nodes: pd.DataFrame, slack_ns: Any) -> pd.DataFrame:
    facts = nodes[["rank", "node_id", "name", "kind", "module", "start_ns"]]
    table: pd.DataFrame = facts.assign(duration_ns=nodes["end_ns"] - nodes["start_ns"], slack_ns=slack_ns)
    return table
