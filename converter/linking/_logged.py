"""Find the records of one collective, or of a send and its receive, in the production logs of all ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ...errors import TraceError
from ..chakra import NodeType
from ..readers.logs import UNKNOWN, LoggedOp, Logs
from ._clocks import Clocks, clocks_of

__all__ = ["LoggedMessage", "MatchedCollective", "MatchedLogs", "Mismatch", "Unfinished", "match_logs"]

_Series = tuple[str, str]


class MatchedCollective(msgspec.Struct, frozen=True):
    """One collective as all its logged ranks have it, by rank."""

    group: str
    series: str
    sequence: int
    ops: dict[int, LoggedOp]

    @property
    def first(self) -> LoggedOp:
        """The record of its lowest rank."""
        return self.ops[min(self.ops)]


class LoggedMessage(msgspec.Struct, frozen=True):
    """A send and its receive, between global ranks; *number* counts those between the two."""

    group: str
    source: int
    target: int
    number: int
    send: LoggedOp
    receive: LoggedOp


class Mismatch(msgspec.Struct, frozen=True):
    """A collective on which ranks disagree: what each says it is, by rank."""

    group: str
    sequence: int
    says: dict[int, str]


class Unfinished(msgspec.Struct, frozen=True):
    """A collective, or a message of one rank, that did not complete.

    *waiting* are the ranks that issued it, *missing* those that never did, *unlogged* those without a log.
    *last* is the last collective of the group that each missing rank issued.
    """

    group: str
    sequence: int
    name: str
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    unlogged: tuple[int, ...]
    last: dict[int, str]
    timed_out: bool
    is_message: bool = False


class MatchedLogs(msgspec.Struct, frozen=True):
    """The logs of a job with the records of each operation put together.

    *collectives* are those that every logged rank of their group has; *before* counts, by group, the records
    of collectives that some rank's log lost or never had, and *after* those that some rank's log ends before.
    *loose* counts sends and receives without their other half.
    """

    logs: Logs
    collectives: list[MatchedCollective]
    messages: list[LoggedMessage]
    mismatches: list[Mismatch]
    unfinished: list[Unfinished]
    clocks: Clocks
    before: dict[str, int]
    after: dict[str, int]
    loose: int = 0

    def agreed(self) -> list[MatchedCollective]:
        """Return the collectives that completed on all their ranks, as far as the logs tell."""
        return [
            found for found in self.collectives if all(op.completed is not False for op in found.ops.values())
        ]


def match_logs(logs: Logs) -> MatchedLogs:
    """Match the records of all ranks; raises `TraceError` where one log has the same collective twice."""
    series = _by_series(logs)
    collectives: list[MatchedCollective] = []
    unfinished: list[Unfinished] = []
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    for (group, name), by_rank in series.items():
        last = min(max(ops, default=-1) for ops in by_rank.values())
        for sequence in sorted({number for ops in by_rank.values() for number in ops}):
            ops = {rank: own[sequence] for rank, own in by_rank.items() if sequence in own}
            if len(ops) == len(by_rank):
                collectives.append(MatchedCollective(group, name, sequence, ops))
            elif _ended_early(ops, sequence, last):
                after[group] += len(ops)
            elif any(op.completed is False for op in ops.values()):
                pass  # told as unfinished
            else:
                before[group] += len(ops)
            if any(op.completed is False for op in ops.values()):
                unfinished.append(_unfinished(logs, group, sequence, ops, by_rank))
    collectives.sort(key=lambda found: _moment(found.first))
    messages, loose = _messages(logs)
    unfinished += _unfinished_messages(logs)
    return MatchedLogs(
        logs,
        collectives,
        messages,
        [clash for found in collectives if (clash := _mismatch(found)) is not None],
        unfinished,
        clocks_of(logs, [found.ops for found in collectives if not found.first.rooted]),
        dict(before),
        dict(after),
        loose,
    )


def _moment(op: LoggedOp) -> int:
    return op.created_ns if op.created_ns != UNKNOWN else op.started_ns


def _by_series(logs: Logs) -> dict[_Series, dict[int, dict[int, LoggedOp]]]:
    """Return the collectives by series, logged rank and sequence; ranks without any have an empty mapping."""
    found: dict[_Series, dict[int, dict[int, LoggedOp]]] = {}
    for rank, log in logs.ranks.items():
        for op in log.ops:
            if not op.is_collective:
                continue
            key = op.group, op.series
            if key not in found:
                found[key] = {member: {} for member in logs.groups[op.group] if member in logs.ranks}
            own = found[key].setdefault(rank, {})
            if op.sequence in own:
                raise TraceError(
                    f"{log.place} (rank {rank}) has {op.name} {op.sequence} of {logs.label(op.group)[:80]} "
                    "twice: it holds more than one job, or was copied onto itself. Give one job's log."
                )
            own[op.sequence] = op
    return found


def _ended_early(ops: Mapping[int, LoggedOp], sequence: int, last: int) -> bool:
    """Return whether other ranks' logs only end before *sequence*, which those that have it completed."""
    return sequence > last >= 0 and all(op.completed is not False for op in ops.values())


def _mismatch(found: MatchedCollective) -> Mismatch | None:
    says = {rank: op.agrees for rank, op in found.ops.items()}
    return Mismatch(found.group, found.sequence, says) if len(set(says.values())) > 1 else None


def _unfinished(
    logs: Logs,
    group: str,
    sequence: int,
    ops: Mapping[int, LoggedOp],
    by_rank: Mapping[int, Mapping[int, LoggedOp]],
) -> Unfinished:
    """Return who waits in a collective that did not complete, and for whom."""
    missing = tuple(rank for rank in sorted(by_rank) if rank not in ops)
    last = {}
    for rank in missing:
        own = by_rank[rank]
        last[rank] = f"{own[max(own)].name} {max(own)}" if own else ""
    name = Counter(op.name for op in ops.values()).most_common(1)[0][0]
    return Unfinished(
        group,
        sequence,
        name,
        tuple(sorted(rank for rank, op in ops.items() if op.completed is False)),
        missing,
        tuple(sorted(set(logs.groups[group]) - set(by_rank))),
        last,
        any(op.timed_out for op in ops.values()),
    )


def _unfinished_messages(logs: Logs) -> Iterator[Unfinished]:
    for rank, log in logs.ranks.items():
        for op in log.ops:
            if not op.is_collective and op.completed is False:
                other = _peer(logs, op)
                name = f"{op.name.split(' ')[0]} {'to' if op.node_type == NodeType.COMM_SEND else 'from'}"
                yield Unfinished(
                    op.group,
                    op.sequence,
                    f"{name} rank {other}" if other is not None else op.name,
                    (rank,),
                    (),
                    (other,) if other is not None and other not in logs.ranks else (),
                    {},
                    op.timed_out,
                    is_message=True,
                )


def _peer(logs: Logs, op: LoggedOp) -> int | None:
    """Return the global rank of a message's other end; None if the logs do not tell."""
    members = logs.groups[op.group]
    return members[op.peer] if 0 <= op.peer < len(members) and op.group not in logs.short else None


def _messages(logs: Logs) -> tuple[list[LoggedMessage], int]:
    """Return sends with their receives, and how many have no other half.

    Those of a pair are matched in order: from the first if both logs begin with the job, else from the last.
    """
    ends: dict[tuple[str, int, int], tuple[list[LoggedOp], list[LoggedOp]]] = defaultdict(lambda: ([], []))
    loose = 0
    for rank, log in logs.ranks.items():
        for op in log.ops:
            if op.is_collective or op.completed is False:
                continue
            other = _peer(logs, op)
            if other is None:
                loose += 1
            elif op.node_type == NodeType.COMM_SEND:
                ends[op.group, rank, other][0].append(op)
            else:
                ends[op.group, other, rank][1].append(op)
    found: list[LoggedMessage] = []
    for (group, source, target), (sends, receives) in ends.items():
        pairs = min(len(sends), len(receives))
        loose += len(sends) + len(receives) - 2 * pairs
        whole = all(rank in logs.ranks and logs.ranks[rank].from_the_start for rank in (source, target))
        chosen = (
            (_first(sends, pairs), _first(receives, pairs))
            if whole
            else (
                sends[len(sends) - pairs :],
                receives[len(receives) - pairs :],
            )
        )
        found += [
            LoggedMessage(group, source, target, number, send, receive)
            for number, (send, receive) in enumerate(zip(*chosen, strict=True))
        ]
    return found, loose


def _first(ops: Sequence[LoggedOp], count: int) -> Sequence[LoggedOp]:
    return ops[:count]
