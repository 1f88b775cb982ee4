"""Slack: how much later each node of a result could end before the whole step would take longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ... import errors
from ...converter import Graph, NodeType, Workload
from ...errors import BackendError
from ...support.table import Columns, frame_of
from .._result import Result
from ..engine import lower_room
from ._schedule import Ints, Schedule, among

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["longest_with_slack", "slack", "slack_columns", "slack_shares", "slack_table"]

_LATEST = np.iinfo(np.int64).max // 4
_Waits = tuple[npt.NDArray[Any], npt.NDArray[Any], Ints]


def slack(result: Result, workload: Workload) -> pd.DataFrame:
    """Return ``rank, node_id, slack_ns``: how much later each node could end without delaying the last one.

    A row per executed node of *result*, whose programs are *workload*'s, in their order. Everything else
    keeps its duration and its place: what depends on a node, or follows it on its lane, comes later by as
    much as no gap takes up. A collective ends as long after the arrival it waited for as it did; other ranks
    may arrive until then. Nodes of the critical path have 0. Raises `BackendError` if the result has no
    nodes, or not this workload's.
    """
    found = slack_columns(result, workload)["slack_ns"]
    places = result.table("nodes").read(["rank", "node_id"])
    ordered = np.empty_like(found)
    ordered[np.lexsort((places["node_id"], places["rank"]))] = found
    return frame_of(places | {"slack_ns": ordered})


def slack_columns(result: Result, workload: Workload) -> Columns:
    """Return ``rank, node_id, start_ns, end_ns, slack_ns`` in order of rank and node id; raises as `slack`.

    It reads the result rank by rank, and holds about 200 bytes per node.
    """
    if not result.num_nodes:
        raise BackendError(
            f"The result of '{result.backend}' has no node times, so no node's slack is known; use another "
            "backend, such as 'analytical-unaware'."
        )
    schedule = Schedule(result, workload)
    found = _least_gap(schedule, _Events(schedule, result.columns("collectives")), workload)
    return {
        "rank": schedule.ranks(),
        "node_id": schedule.node_id,
        "start_ns": schedule.start,
        "end_ns": schedule.end,
        "slack_ns": found,
    }


class _Events:
    """What happens: each row of a schedule starts and ends, and ranks wait for each other.

    The end of a row is the event *end*, its start that before if the row is *apart*, and else the same: a
    computation has one event, as its end moves with its start. So the events of a rank stand together. Behind
    those of all rows are the instants for which ends of a collective waited. *waits* (before, after, gap, in
    order of the first) are those of communication: after comes at least so long after before, and has *gap*
    to spare.
    """

    def __init__(self, schedule: Schedule, collectives: Columns) -> None:
        self.schedule = schedule
        self.apart = schedule.type >= NodeType.COMM_SEND
        self.apart[schedule.others] = True
        self.end: Ints = np.arange(len(schedule)) + np.cumsum(self.apart)
        self.of_rows = len(schedule) + int(self.apart.sum())
        self._pieces: list[_Waits] = []
        self._add_communication()
        self.instants = self._add_arrivals(collectives)
        self.count = self.of_rows + len(self.instants)
        before, after, gap = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
        order = np.argsort(before, kind="stable")
        self.waits = (before[order].astype(np.int32), after[order].astype(np.int32), gap[order])
        self._pieces.clear()

    def starts(self, rows: Ints) -> Ints:
        """Return the event that is the start of each row."""
        found: Ints = self.end[rows] - self.apart[rows]
        return found

    def _add(self, before: Ints, after: Ints, gap: Ints) -> None:
        self._pieces.append(_held_up(before, after, gap))

    def _origins(self, rows: Ints) -> Ints:
        """Return for each of *rows* the row whose start triggered its end: another row, or itself."""
        others, origins = self.schedule.others, self.schedule.origins
        place = among(others, rows)
        found: Ints = rows.copy()
        found[place >= 0] = origins[place[place >= 0]]
        return found

    def _add_communication(self) -> None:
        """Let communication end after its own start, and after the arrivals of others that it waited for."""
        plan = self.schedule
        rows = np.flatnonzero(self.apart)
        origin = self._origins(rows)
        needed = np.clip(plan.start[origin], plan.start[rows], plan.end[rows])
        # What is received is waited for, and takes the receiver no time of its own.
        received = (plan.type[rows] == NodeType.COMM_RECV) & (origin != rows)
        spare = np.where(received, plan.end[rows], needed) - plan.start[rows]
        self._add(self.starts(rows), self.end[rows], spare)
        other = origin != rows
        none_to_spare = np.zeros(int(other.sum()), np.int64)
        self._add(self.starts(origin[other]), self.end[rows[other]], none_to_spare)

    def _add_arrivals(self, collectives: Columns) -> Ints:
        """Let every rank of a collective arrive until the arrival that an end waited for.

        Of each collective, the arrivals waited for are a chain of events in order of time, with the time
        between two as the gap: so the waits grow with the ranks and not with their square. Returns when they
        are.
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
        """Return the events in order of time, and of rows.

        Of one instant ends come first, then what takes no time, then starts.
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
        order: npt.NDArray[np.int32] = np.lexsort((group, times)).astype(np.int32)
        return order


def _held_up(before: npt.NDArray[Any], after: npt.NDArray[Any], gap: Ints) -> _Waits:
    """Return the waits without those whose events ran the other way round: they hold nothing up."""
    kept = gap >= 0
    return (before, after, gap) if kept.all() else (before[kept], after[kept], gap[kept])


def _distinct(number: Ints, time: Ints) -> tuple[Ints, Ints]:
    """Return the different pairs of both in order, as two rows, and which of them each pair is."""
    order = np.lexsort((time, number))
    pairs = np.stack([number[order], time[order]])
    new = np.append(True, (pairs[:, 1:] != pairs[:, :-1]).any(axis=0))[: len(order)]
    place = np.empty(len(order), np.int64)
    place[order] = np.cumsum(new) - 1
    return pairs[:, new], place


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


def _waits_of_rank(events: _Events, graph: Graph, low: int, high: int) -> list[_Waits]:
    """Return what waits within a rank, rows *low* to *high*: programs and lanes have an order.

    Mostly a lane's order is in the program too, and what set a node off in either: each counts once.
    """
    plan, own = events.schedule, slice(low, high)
    start, end, cause = plan.start[own], plan.end[own], plan.cause[own]
    before = _before_on_lane(plan, own)
    sources, targets = (
        among(plan.node_id[own], np.asarray(graph.edge_columns[name], np.int64)) for name in ("src", "dst")
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
        _held_up(ends[sources], starts[targets], start[targets] - end[sources]),
        _held_up(ends[before[laned]], starts[laned], start[laned] - end[before[laned]]),
    ]


def _before_on_lane(plan: Schedule, own: slice) -> Ints:
    """Return which row of a rank ran before each on its lane, -1 for none."""
    lane = plan.lane[own]
    laned = np.flatnonzero(lane >= 0)
    order = laned[np.lexsort((plan.end[own][laned], plan.start[own][laned], lane[laned]))]
    same = lane[order[1:]] == lane[order[:-1]]
    before = np.full(len(lane), -1, np.int64)
    before[order[1:][same]] = order[:-1][same]
    return before


def _by_event(events: _Events, workload: Workload) -> tuple[Ints, npt.NDArray[np.int32], Ints]:
    """Return all waits by the event before: where those of each begin, what waits, and the gaps."""
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
    """Return *parts* as one, and let go of them."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def _sorted(
    events: _Events, own: list[_Waits], begin: int, stop: int
) -> tuple[Ints, npt.NDArray[np.int32], Ints]:
    """Return how much waits for each event from *begin* to *stop*, then that in order, and its gaps."""
    shared = slice(*np.searchsorted(events.waits[0], [begin, stop]))
    pieces = [*own, (events.waits[0][shared], events.waits[1][shared], events.waits[2][shared])]
    before, after, gap = (np.concatenate(column) for column in zip(*pieces, strict=True))
    order = np.argsort(before, kind="stable")
    return np.bincount(before - begin, minlength=stop - begin), after[order].astype(np.int32), gap[order]


def _least_gap(schedule: Schedule, events: _Events, workload: Workload) -> Ints:
    """Return for each node the least sum of gaps on any way from its end to that of the last node."""
    room = np.full(events.count, _LATEST)
    room[events.end] = schedule.end.max() - schedule.end
    lower_room(errors, room, events.in_order(), *_by_event(events, workload))
    least: Ints = room[events.end]
    return least


def slack_table(nodes: pd.DataFrame, slack_ns: pd.Series) -> pd.DataFrame:
    """Return every one of *nodes* with its slack, the most critical and longest first.

    Nothing if the slack is not known, which is then as empty.
    """
    if len(slack_ns) != len(nodes):
        nodes = nodes.head(0)
    table = _with_slack(nodes, slack_ns.to_numpy()[: len(nodes)])
    order = np.lexsort((-table["duration_ns"], table["slack_ns"]))
    ordered: pd.DataFrame = table.iloc[order].reset_index(drop=True)
    return ordered


def longest_with_slack(nodes: pd.DataFrame, slack_ns: pd.Series, count: int) -> pd.DataFrame:
    """Return the *count* longest of *nodes* that have slack, as :func:`slack_table` does, longest first."""
    slack = slack_ns.to_numpy()
    spare = np.flatnonzero(slack > 0)
    length = (nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy())[spare]
    rows = spare[np.argsort(-length, kind="stable")[:count]]
    return _with_slack(nodes.iloc[rows].reset_index(drop=True), slack[rows])


def slack_shares(nodes: pd.DataFrame, slack_ns: pd.Series, within_ns: int) -> tuple[float, float]:
    """Return which parts of the time of *nodes* have no slack at all, and at most *within_ns*."""
    slack, length = slack_ns.to_numpy(), nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy()
    whole = max(1, int(length.sum()))
    return int(length[slack == 0].sum()) / whole, int(length[slack <= within_ns].sum()) / whole


def _with_slack(nodes: pd.DataFrame, slack_ns: Any) -> pd.DataFrame:
    facts = nodes[["rank", "node_id", "name", "kind", "module", "start_ns"]]
    table: pd.DataFrame = facts.assign(duration_ns=nodes["end_ns"] - nodes["start_ns"], slack_ns=slack_ns)
    return table
