"""Convert production logs to a workload: the logged collectives, and the time between them.

A production log contains no operators. The time of a rank between two collectives is one node with the length
of the gap in the log. An operation waits for all operations that had ended before it began, and for earlier
operations of its group.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ...errors import TraceError, UsageError
from ...support import duration_text
from .._columns import united
from ..chakra import (
    COMM_LANE,
    GAP,
    MESSAGE_LANE,
    EdgeKind,
    GraphBuilder,
    NodeType,
    Workload,
    check_prefix,
    communication,
    deadlocks,
)
from ..linking import LoggedMessage, MatchedCollective, MatchedLogs, match_logs, troubles_of
from ..readers.logs import UNKNOWN, LoggedOp, Logs, ranks_text, read_logs
from ._rank_graph import RankGraph, with_uneven_splits
from ._stand_ins import FROM_LOGS, STAND_INS

_WAITS = (
    "logs contain no dependencies: an operation waits for those that ended before it began, and the "
    "collectives of a group run in order"
)
_NO_WAITS = (
    "the times of the logs contradict each other: the only dependencies are those between the collectives of "
    "a group"
)
_NEVER_NS = 2**62
_GAPS = "the time between logged collectives counts as computation, one node per gap; it was not profiled"
_BACK_TO_BACK = "the logs have no times: the collectives follow each other without computation"
_NO_ENDS = (
    "the logs have no end times: a collective is assumed to end when the last rank has enqueued it; later "
    "communication counts as computation"
)
_LATE_ENDS = (
    "the logs have the times at which the host enqueued collectives and a thread noticed their ends, up to "
    "100 ms late"
)


class _Item(msgspec.Struct):
    """An operation of one rank: its record, the record's index, node columns, and times."""

    op: LoggedOp
    place: int
    columns: dict[str, Any]
    begin_ns: int = 0
    end_ns: int = 0


def convert_logs(
    targets: Sequence[str | Path],
    output: str | Path | None = None,
    *,
    back_to_back: bool = False,
    cut_unfinished: bool = False,
) -> Workload:
    """Convert the logs at *targets* (files, folders or archives) to a workload, and write it at *output*.

    Logs without times become a workload only with *back_to_back*, which leaves out computation.
    *cut_unfinished* omits collectives that did not complete, which occur in the dump of a running job. Raises
    `UsageError` for logs without times. Raises `TraceError` for ranks that disagree about a collective, for a
    collective that did not complete, or for ranks without a log whose work is unknown.
    """
    if output is not None:
        check_prefix(output)
    matched = match_logs(read_logs(targets))
    _refuse(matched, cut_unfinished=cut_unfinished)
    timed = matched.logs.has_times
    if not timed and not back_to_back:
        raise UsageError(
            f"{matched.logs.place} has durations of collectives, but no start times, which is enough to "
            "calibrate a network, but not to build a step. Next: print the collectives with `chakrascope "
            "diagnose`, or add --back-to-back to make a workload without computation between collectives."
        )
    workload = _workload(matched, timed=timed and not back_to_back)
    if output is not None:
        workload.save(output)
    return workload


def _refuse(matched: MatchedLogs, *, cut_unfinished: bool) -> None:
    """Raise `TraceError` if the matched logs do not suffice for a workload."""
    logs = matched.logs
    used = {op.group for log in logs.ranks.values() for op in log.ops}
    for group in sorted(used & logs.short):
        raise TraceError(
            f"{logs.place}: the logs do not list all ranks of {logs.label(group)[:80]}: they list "
            f"{ranks_text(logs.groups[group])} of at least {logs.sizes[group]} ranks. Next: add the logs of "
            "all ranks."
        )
    for trouble in troubles_of(matched):
        if trouble.is_unfinished and cut_unfinished:
            continue
        advice = trouble.remedy
        if trouble.is_unfinished:
            advice += (
                " If the logs were taken while the job was running, --cut-unfinished leaves out incomplete "
                "collectives."
            )
        raise TraceError(f"{logs.place}: {trouble.cause} {advice}")
    if not matched.agreed() and not matched.messages:
        raise TraceError(
            f"{logs.place} has no collective that all of its ranks logged: each log ends before the others "
            "begin, or the logs belong to different jobs. Next: take the logs of all ranks at the same time."
        )


def _workload(matched: MatchedLogs, *, timed: bool) -> Workload:
    logs = matched.logs
    used = {found.group for found in matched.agreed()} | {found.group for found in matched.messages}
    number_of = _group_numbers(logs, used)
    items = _items(matched, number_of)
    notes = list(logs.notes) + _cuts(matched)
    if timed:
        notes += [_GAPS, _WAITS, *_intervals(matched, items), _clock_note(matched)]
        begins = {rank: min((item.begin_ns for item in own), default=0) for rank, own in items.items()}
        together = matched.clocks.source != "nothing"
        window = {rank: min(begins.values()) if together else begins[rank] for rank in items}
        made = [_timed_graph(rank, own, window[rank], 0) for rank, own in items.items()]
        if deadlocks({one.rank: one.graph for one in made}):
            notes[notes.index(_WAITS)] = _NO_WAITS
            made = [_timed_graph(rank, own, window[rank], _NEVER_NS) for rank, own in items.items()]
    else:
        notes.append(_BACK_TO_BACK)
        made = [_chained_graph(rank, own) for rank, own in items.items()]
    notes += sorted({item.op.note for own in items.values() for item in own if item.op.note})
    groups = {number: logs.groups[group] for group, number in number_of.items() if number}
    graphs, uneven = with_uneven_splits(made, groups, logs.world_size)
    stands_in = _stand_in(logs, used) if len(graphs) < logs.world_size else ""
    notes += [stands_in] if stands_in else []
    accounting = {str(one.rank): one.accounting for one in made}
    return Workload(
        tuple(graph.as_rank(place) for place, graph in enumerate(graphs)),
        np.arange(logs.world_size, dtype=np.int32) % len(graphs),
        groups,
        {
            "captured": timed,
            "trace_set": Path(logs.place).name,
            "torch_version": "",
            FROM_LOGS: logs.kind,
            **({STAND_INS: stands_in} if stands_in else {}),
            "steps": [0],
            "measured_step_ns": {rank: row["measured_step_ns"] for rank, row in accounting.items()}
            if timed
            else {},
            "accounting": accounting if timed else {},
            "assumptions": [*notes, *uneven],
        },
    )


def _group_numbers(logs: Logs, used: set[str]) -> dict[str, int]:
    """Return a unique number for each communicator; the first communicator of all ranks is number 0.

    Communicators of the same ranks remain separate, because the order of their collectives may differ.
    """
    everyone = tuple(range(logs.world_size))
    ordered = sorted(used, key=lambda group: (logs.groups[group] != everyone, logs.groups[group], group))
    first = 0 if ordered and logs.groups[ordered[0]] == everyone else 1
    return {group: number for number, group in enumerate(ordered, start=first)}


def _stand_in(logs: Logs, used: set[str]) -> str:
    """Return the assumption that the logged ranks represent all ranks; raises `TraceError` otherwise."""
    everyone = tuple(range(logs.world_size))
    if any(logs.groups[group] != everyone for group in used):
        absent = sorted(set(everyone) - logs.ranks.keys())
        raise TraceError(
            f"{logs.place} has no log of {ranks_text(absent)} of {logs.world_size}, and the ranks "
            "communicate in groups or pairs, so the other ranks cannot represent them. Add the missing logs."
        )
    return (
        f"the logs of {len(logs.ranks)} of {logs.world_size} ranks ({ranks_text(sorted(logs.ranks))}) "
        "represent the others, as if all had the same work"
    )


def _cuts(matched: MatchedLogs) -> list[str]:
    """Return notes on logged operations that the workload omits."""
    lost, late = sum(matched.before.values()), sum(matched.after.values())
    notes = []
    logs = matched.logs
    if logs.reader.keeps_newest and not all(log.from_the_start for log in logs.ranks.values()):
        notes.append(
            "a flight recorder keeps the newest operations: the beginning of the job is lost, and the "
            "workload begins with the first collective that all logs still have"
        )
    if lost:
        notes.append(f"{lost:,} records of collectives that some rank's log lacks were left out")
    if late:
        notes.append(f"{late:,} records of collectives after the end of some rank's log were left out")
    if matched.loose:
        notes.append(f"{matched.loose:,} sends and receives without a matching receive or send were left out")
    unfinished = sum(len(found.waiting) for found in matched.unfinished)
    if unfinished:
        notes.append(f"{unfinished:,} records of operations that had not completed were left out")
    return notes


def _items(matched: MatchedLogs, number_of: dict[str, int]) -> dict[int, list[_Item]]:
    """Return the operations of each logged rank, in a common order of all ranks."""
    items: dict[int, list[_Item]] = {rank: [] for rank in matched.logs.ranks}
    logged = matched.logs.ranks.items()
    positions = {id(op): (rank, at) for rank, log in logged for at, op in enumerate(log.ops)}
    place = {number: at for number, (_, at) in positions.items()}
    ordered: list[tuple[tuple[int, int], MatchedCollective | LoggedMessage]] = [
        (min(positions[id(op)] for op in found.ops.values()), found) for found in matched.agreed()
    ]
    ordered += [
        (min(positions[id(found.send)], positions[id(found.receive)]), found) for found in matched.messages
    ]
    for _, found in sorted(ordered, key=lambda pair: pair[0]):
        if isinstance(found, MatchedCollective):
            for rank, op in found.ops.items():
                items[rank].append(_Item(op, place[id(op)], _collective(op, number_of[found.group])))
        else:
            for rank, op in ((found.source, found.send), (found.target, found.receive)):
                items[rank].append(_Item(op, place[id(op)], _message(found, op)))
    return items


def _collective(op: LoggedOp, group: int) -> dict[str, Any]:
    columns = communication(NodeType.COMM_COLL, op.collective, max(1, op.size_bytes), group=group)
    return columns | {"name": op.name, "operator": op.name, "stream": COMM_LANE + group}


def _message(found: LoggedMessage, op: LoggedOp) -> dict[str, Any]:
    sends = op.node_type == NodeType.COMM_SEND
    other = found.target if sends else found.source
    columns = communication(op.node_type, None, max(1, found.send.size_bytes), peer=other, tag=found.number)
    return columns | {
        "name": f"send to {other}" if sends else f"receive from {other}",
        "operator": columns["name"],
        "comm_src": found.source,
        "comm_dst": found.target,
        "stream": MESSAGE_LANE + 2 * other + int(sends),
    }


def _intervals(matched: MatchedLogs, items: dict[int, list[_Item]]) -> list[str]:
    """Set the begin and end of each operation on a common clock, and return the assumptions."""
    ahead = matched.clocks.ahead_ns
    last_entry = {
        id(op): max(o.created_ns - ahead[rank] for rank, o in found.ops.items())
        for found in matched.agreed()
        for op in found.ops.values()
    }
    comparable = matched.clocks.source != "nothing" or len(items) == 1
    notes: set[str] = set()
    for rank, own in items.items():
        ended: dict[str, int] = {}
        for item in sorted(own, key=lambda item: (item.op.created_ns, item.place)):
            op = item.op
            item.begin_ns = (op.created_ns if op.started_ns == UNKNOWN else op.started_ns) - ahead[rank]
            if op.duration_ns != UNKNOWN:
                if op.started_ns == UNKNOWN:  # operations run in sequence on the group's stream
                    item.begin_ns = max(item.begin_ns, ended.get(op.group, item.begin_ns))
                item.end_ns = item.begin_ns + op.duration_ns
            elif op.ended_ns != UNKNOWN:
                item.end_ns = max(item.begin_ns, op.ended_ns - ahead[rank])
                if matched.logs.reader.has_late_ends:
                    notes.add(_LATE_ENDS)
            else:
                latest = last_entry.get(id(op), item.begin_ns) if comparable else item.begin_ns
                item.end_ns = item.begin_ns if op.rooted else max(item.begin_ns, latest)
                notes.add(_NO_ENDS)
            ended[op.group] = item.end_ns
        own.sort(key=lambda item: (item.begin_ns, item.place))
    return sorted(notes)


def _clock_note(matched: MatchedLogs) -> str:
    clocks = matched.clocks
    if len(matched.logs.ranks) == 1:
        return "the log of one rank does not show skew"
    if clocks.source == "nothing":
        return (
            "the offsets of the ranks' clocks are unknown: each rank begins at its first collective, and "
            "measured times of different ranks cannot be compared"
        )
    source = "ends of collectives" if clocks.source == "ends" else "order of the collectives"
    moved = ", ".join(
        f"rank {rank} by {duration_text(ahead)}" for rank, ahead in list(clocks.corrected.items())[:8]
    )
    text = f"corrected by the {source}: {moved}" if moved else f"taken as equal, as the {source} allows"
    within = duration_text(clocks.spread_ns)
    return f"clocks of different hosts are not synchronised; these were {text} (within {within})"


def _operation(item: _Item, measured_ns: int) -> dict[str, Any]:
    """Return the columns for the node of operation *item*."""
    times = {"duration_ns": item.end_ns - item.begin_ns, "measured_start_ns": measured_ns}
    return {**item.columns, **times, "step": 0}


def _timed_graph(rank: int, items: Sequence[_Item], window_ns: int, sure_ns: int) -> RankGraph:
    """Return the graph of *rank*: the operations at their times, and a gap before each operation.

    An operation waits for another operation if it began at least *sure_ns* after the end of the other
    operation.
    """
    builder = GraphBuilder()
    tail: dict[int, EdgeKind] = {}
    running: list[tuple[int, int]] = []  # (end, node) of running operations
    last_of_group: dict[tuple[str, NodeType], int] = {}
    now, gaps_ns = window_ns, 0
    for item in items:
        over = [(end, node) for end, node in running if end + sure_ns <= item.begin_ns]
        running = [(end, node) for end, node in running if end + sure_ns > item.begin_ns]
        waits = {**tail, **{node: EdgeKind.COMM_WAIT for _, node in over}}
        resumed = max([now, *(end for end, _ in over)])
        if item.begin_ns > resumed:
            gap = _gap(item.begin_ns - resumed, resumed - window_ns)
            waits = {builder.add(gap, waits): EdgeKind.COMM_ISSUE}
            gaps_ns += item.begin_ns - resumed
        tail = dict.fromkeys(waits, EdgeKind.PROGRAM_ORDER)
        key = item.op.group, item.op.node_type
        if key in last_of_group and item.op.is_collective:
            waits = {last_of_group[key]: EdgeKind.STREAM_ORDER, **waits}
        node = builder.add(_operation(item, item.begin_ns - window_ns), waits)
        last_of_group[key] = node
        running.append((item.end_ns, node))
        now = max(now, item.begin_ns)
    end = max((item.end_ns for item in items), default=window_ns)
    times = np.array([(item.begin_ns, item.end_ns) for item in items], dtype=np.int64).reshape(-1, 2)
    busy = int(np.diff(united(times)).sum())
    accounting = {"measured_step_ns": end - window_ns, "communication_ns": busy, "not_profiled_ns": gaps_ns}
    return RankGraph(builder.graph(rank), accounting=accounting)


def _gap(length_ns: int, measured_ns: int) -> dict[str, Any]:
    return {
        "name": GAP,
        "operator": GAP,
        "type": NodeType.COMP,
        "kind": "compute",
        "step": 0,
        "duration_ns": length_ns,
        "measured_start_ns": measured_ns,
        "num_ops": 1,
        "tensor_size_bytes": 1,
    }


def _chained_graph(rank: int, items: Sequence[_Item]) -> RankGraph:
    """Return the graph of *rank* with its operations in sequence; sends and receives do not wait."""
    builder = GraphBuilder()
    tail: dict[int, EdgeKind] = {}
    messages: dict[int, EdgeKind] = {}
    for item in items:
        item.end_ns = item.begin_ns + max(0, item.op.duration_ns)
        if item.op.is_collective:
            node = builder.add(_operation(item, UNKNOWN), {**tail, **messages})
            tail, messages = {node: EdgeKind.PROGRAM_ORDER}, {}
        else:
            messages[builder.add(_operation(item, UNKNOWN), tail)] = EdgeKind.PROGRAM_ORDER
    return RankGraph(builder.graph(rank), accounting={"measured_step_ns": 0})
