"""Match records of collectives and messages in the logs of all ranks; find errors and clock offsets.

A synchronising collective ends at about the same time on all ranks, so the median difference of the ends is
the offset of the clocks. If the logs contain no ends, the order of records gives bounds of the offset: no
rank enqueues the next collective before the last rank has entered the previous collective. An offset within
the spread of its estimates counts as zero.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median, quantiles
from typing import Literal

import msgspec

from ...errors import TraceError
from ..chakra import NodeType
from ..readers.logs import UNKNOWN, LoggedOp, Logs, ranks_text

_Series = tuple[str, str]
_MAX_SHIFT = 8  # maximum number of messages by which one log of a pair ends before the other log
_FEWEST = 3
_Ops = Mapping[int, LoggedOp]
_MOST = 10


class MatchedCollective(msgspec.Struct, frozen=True):
    """The records of one collective on all its logged ranks, by rank."""

    group: str
    series: str
    sequence: int
    ops: dict[int, LoggedOp]

    @property
    def first(self) -> LoggedOp:
        """The record of the collective on its lowest rank."""
        return self.ops[min(self.ops)]


class LoggedMessage(msgspec.Struct, frozen=True):
    """A send and its receive between global ranks; *number* counts the messages between the two ranks."""

    group: str
    source: int
    target: int
    number: int
    send: LoggedOp
    receive: LoggedOp


class Unfinished(msgspec.Struct, frozen=True):
    """A collective, or a message of one rank, that did not complete.

    *waiting* are the ranks that issued the operation. *missing* are the ranks that did not issue the
    operation. *unlogged* are the ranks without a log. *last* is the last collective that each missing rank
    issued in the group.
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
    """The logs of a job with matched records.

    *collectives* are the collectives that every logged rank of their group recorded. *mismatches* are the
    collectives that ranks describe differently. *before* counts, by group, the records of collectives that
    the log of some rank lacks. *after* is the number of records of collectives after the end of some log.
    *loose* is the number of sends and receives without a counterpart.
    """

    logs: Logs
    collectives: list[MatchedCollective]
    messages: list[LoggedMessage]
    mismatches: list[MatchedCollective]
    unfinished: list[Unfinished]
    clocks: Clocks
    before: dict[str, int]
    after: dict[str, int]
    loose: int = 0

    def agreed(self) -> list[MatchedCollective]:
        """Return the collectives that completed on all their logged ranks."""
        return [
            found for found in self.collectives if all(op.completed is not False for op in found.ops.values())
        ]


def match_logs(logs: Logs) -> MatchedLogs:
    """Match the records of all ranks; raises `TraceError` if one log has the same collective twice."""
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
                pass  # a collective that some rank did not enter is reported as unfinished
            else:
                before[group] += len(ops)
            if any(op.completed is False for op in ops.values()):
                unfinished.append(_unfinished(logs, group, sequence, ops, by_rank))
    collectives.sort(key=lambda found: _moment(found.first))
    clocks = clocks_of(logs, [found.ops for found in collectives if not found.first.rooted])
    messages, loose = _messages(logs, clocks)
    unfinished += _unfinished_messages(logs)
    return MatchedLogs(
        logs,
        collectives,
        messages,
        [found for found in collectives if len({op.agrees for op in found.ops.values()}) > 1],
        unfinished,
        clocks,
        dict(before),
        dict(after),
        loose,
    )


def _moment(op: LoggedOp) -> int:
    return op.created_ns if op.created_ns != UNKNOWN else op.started_ns


def _by_series(logs: Logs) -> dict[_Series, dict[int, dict[int, LoggedOp]]]:
    """Return the collectives by series, logged rank and sequence; every logged rank has a mapping."""
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
                    "twice: the log contains more than one job, or was appended to itself. Next: give the "
                    "log of one job."
                )
            own[op.sequence] = op
    return found


def _ended_early(ops: Mapping[int, LoggedOp], sequence: int, last: int) -> bool:
    """Return whether *sequence* completed on its logged ranks, and all other logs end before *sequence*."""
    return sequence > last >= 0 and all(op.completed is not False for op in ops.values())


def _unfinished(
    logs: Logs,
    group: str,
    sequence: int,
    ops: Mapping[int, LoggedOp],
    by_rank: Mapping[int, Mapping[int, LoggedOp]],
) -> Unfinished:
    """Return the waiting ranks and the missing ranks of a collective that did not complete."""
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
    """Return the global rank of the peer of the message *op*, or None if unknown."""
    members = logs.groups[op.group]
    return members[op.peer] if 0 <= op.peer < len(members) and op.group not in logs.short else None


def _messages(logs: Logs, clocks: Clocks) -> tuple[list[LoggedMessage], int]:
    """Return the matched sends and receives, and the number of unmatched sends and receives."""
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
        whole = all(rank in logs.ranks and logs.ranks[rank].from_the_start for rank in (source, target))
        offset_ns = clocks.ahead_ns.get(target, 0) - clocks.ahead_ns.get(source, 0)
        known = None if clocks.source == "nothing" else offset_ns
        pairs = _in_order(sends, receives, 0) if whole else _aligned(sends, receives, known)
        loose += len(sends) + len(receives) - 2 * len(pairs)
        found += [
            LoggedMessage(group, source, target, number, send, receive)
            for number, (send, receive) in enumerate(pairs)
        ]
    return found, loose


def _in_order(
    sends: Sequence[LoggedOp], receives: Sequence[LoggedOp], shift: int
) -> list[tuple[LoggedOp, LoggedOp]]:
    """Return the pairs of send number i and receive number i + *shift*."""
    return list(zip(sends[max(0, -shift) :], receives[max(0, shift) :], strict=False))


def _aligned(
    sends: Sequence[LoggedOp], receives: Sequence[LoggedOp], apart_ns: int | None
) -> list[tuple[LoggedOp, LoggedOp]]:
    """Match sends and receives of logs with different beginnings or ends.

    The send and the receive of a message have equal sizes and are close in time. *apart_ns* is the offset of
    the receiver's clock, None if unknown. If neither size nor time is conclusive, the logs are matched from
    their ends.
    """
    from_end = len(receives) - len(sends)
    shifts = sorted(
        range(from_end - _MAX_SHIFT, from_end + _MAX_SHIFT + 1), key=lambda at: abs(at - from_end)
    )
    candidates = [pairs for shift in shifts if (pairs := _in_order(sends, receives, shift))]
    return min(candidates, key=lambda pairs: _cost(pairs, apart_ns), default=[])


def _cost(pairs: Sequence[tuple[LoggedOp, LoggedOp]], apart_ns: int | None) -> tuple[float, float]:
    """Return the share of *pairs* with different sizes, and the median distance of pairs in time (ns)."""
    wrong = sum(send.size_bytes != receive.size_bytes for send, receive in pairs) / len(pairs)
    if apart_ns is None or any(_moment(op) == UNKNOWN for pair in pairs for op in pair):
        return wrong, 0.0
    return wrong, median(abs(_end(receive) - apart_ns - _end(send)) for send, receive in pairs)


def _end(op: LoggedOp) -> int:
    """Return the logged end time of *op*, or its enqueue time plus its logged duration."""
    if op.ended_ns != UNKNOWN:
        return op.ended_ns
    return _moment(op) + max(0, op.duration_ns)


class Clocks(msgspec.Struct, frozen=True):
    """The clock offsets of ranks; *ahead_ns* is each rank's offset to the clock of the lowest rank.

    *source* is the origin of the offsets: the ends of collectives, the order of enqueueing, or ``nothing``.
    If it is ``nothing``, no clock is corrected, and time differences between ranks are meaningless unless the
    ranks share a clock. *spread_ns* is the largest deviation of a single collective.
    """

    ahead_ns: dict[int, int]
    source: Literal["ends", "order", "nothing"]
    spread_ns: int = 0

    @property
    def corrected(self) -> dict[int, int]:
        """The clock offsets (ns) of the ranks with an offset other than zero, by rank."""
        return {rank: ahead for rank, ahead in self.ahead_ns.items() if ahead}


def clocks_of(logs: Logs, collectives: Sequence[_Ops]) -> Clocks:
    """Return the clock offsets of all ranks, from the synchronising *collectives* that ranks share."""
    ended = [ops for ops in collectives if all(op.ended_ns != UNKNOWN for op in ops.values())]
    entered = [ops for ops in collectives if all(op.created_ns != UNKNOWN for op in ops.values())]
    for source, found in (("ends", _by_ends(ended)), ("order", _by_order(entered))):
        ahead, spread = _from_lowest(found)
        if found and ahead.keys() == logs.ranks.keys():
            return Clocks(ahead, source, spread)  # type: ignore[arg-type]  # one of the two
    return Clocks(dict.fromkeys(logs.ranks, 0), "nothing")


def _pairs(collectives: Sequence[_Ops]) -> dict[tuple[int, int], list[_Ops]]:
    """Return, by pair of lowest rank and other rank, their common collectives if there are enough."""
    found: dict[tuple[int, int], list[_Ops]] = {}
    for ops in collectives:
        lowest = min(ops)
        for rank in ops:
            if rank != lowest:
                found.setdefault((lowest, rank), []).append(ops)
    return {pair: shared for pair, shared in found.items() if len(shared) >= _FEWEST}


def _by_ends(collectives: Sequence[_Ops]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return, by pair of ranks, the second clock's offset to the first clock, and the spread (ns)."""
    found = {}
    for (one, other), shared in _pairs(collectives).items():
        differences_ns = sorted(ops[other].ended_ns - ops[one].ended_ns for ops in shared)
        low, _, high = quantiles(differences_ns, n=4, method="inclusive")
        ahead, spread = round(median(differences_ns)), round(high - low)
        found[one, other] = (ahead, spread) if abs(ahead) > spread else (0, max(spread, abs(ahead)))
    return found


def _by_order(collectives: Sequence[_Ops]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return clock offsets like `_by_ends`, but from the order of enqueueing; omit inconsistent pairs."""
    found = {}
    for (one, other), shared in _pairs(collectives).items():
        inorder = sorted(shared, key=lambda ops: ops[one].created_ns)
        most = min(after[other].created_ns - before[one].created_ns for before, after in pairwise(inorder))
        least = -min(after[one].created_ns - before[other].created_ns for before, after in pairwise(inorder))
        if least > most:
            continue
        ahead = 0 if least <= 0 <= most else (least + most) // 2
        found[one, other] = ahead, (most - least) // 2
    return found


def _from_lowest(found: Mapping[tuple[int, int], tuple[int, int]]) -> tuple[dict[int, int], int]:
    """Return each clock's offset to the lowest rank's clock (summed along pairs) and the largest spread."""
    if not found:
        return {}, 0
    near: dict[int, list[tuple[int, int]]] = {}
    for (one, other), (ahead, _) in found.items():
        near.setdefault(one, []).append((other, ahead))
        near.setdefault(other, []).append((one, -ahead))
    lowest = min(near)
    ahead_of, todo = {lowest: 0}, [lowest]
    for rank in todo:
        for other, ahead in near[rank]:
            if other not in ahead_of:
                ahead_of[other] = ahead_of[rank] + ahead
                todo.append(other)
    return dict(sorted(ahead_of.items())), max(spread for _, spread in found.values())


class LogTrouble(msgspec.Struct, frozen=True):
    """One error in the logs: the problem, the remedy, and whether an operation did not complete."""

    cause: str
    remedy: str
    is_unfinished: bool = False


def troubles_of(matched: MatchedLogs) -> list[LogTrouble]:
    """Return the errors in matched logs, likely causes first; at most ten errors of a kind."""
    mismatches = sorted(matched.mismatches, key=lambda found: (found.group, found.sequence))
    return [
        *(_disagreement(matched.logs, found) for found in mismatches[:_MOST]),
        *list(_hangs(matched))[:_MOST],
    ]


def _disagreement(logs: Logs, found: MatchedCollective) -> LogTrouble:
    """Return the error about a collective that ranks describe differently."""
    ranks_of: dict[str, list[int]] = defaultdict(list)
    for rank, op in found.ops.items():
        ranks_of[op.agrees].append(rank)
    described = [
        f"{ranks_text(ranks)} {'has' if len(ranks) == 1 else 'have'} {description}"
        for description, ranks in sorted(ranks_of.items(), key=lambda pair: -len(pair[1]))
    ]
    return LogTrouble(
        f"Ranks disagree about collective {found.sequence} of {logs.label(found.group)[:80]}: "
        f"{'; '.join(described)}.",
        "These ranks ran different code at this point, or the logs come from different runs. Compare "
        "the code paths of these ranks.",
    )


def _hangs(matched: MatchedLogs) -> Iterator[LogTrouble]:
    """Yield the first uncompleted operation of each group; later operations are consequences."""
    first: dict[tuple[str, bool], Unfinished] = {}
    for found in matched.unfinished:
        known = first.setdefault((found.group, found.is_message), found)
        if found.sequence < known.sequence:
            first[found.group, found.is_message] = found
    waits = {rank: found for found in first.values() for rank in found.waiting}
    # The cause is a rank for which other ranks wait, and which does not wait for another rank.
    for found in sorted(first.values(), key=lambda found: any(rank in waits for rank in found.missing)):
        yield LogTrouble(_hang(matched.logs, found, waits), _HANG_REMEDY, is_unfinished=True)


_HANG_REMEDY = "Look at the stacks of the ranks that did not issue the operation."


def _hang(logs: Logs, found: Unfinished, waits: dict[int, Unfinished]) -> str:
    """Return the sentences of an error about one operation that did not complete."""
    where = f"of {logs.label(found.group)[:80]}"
    what = f"{found.name} {where}" if found.is_message else f"{found.name} {found.sequence} {where}"
    timed_out = " and timed out" if found.timed_out else ""
    parts = [f"{what} did not complete{timed_out}: {ranks_text(found.waiting)} issued it"]
    if found.missing:
        parts.append(f"{ranks_text(found.missing)} never did")
    if found.unlogged:
        parts.append(f"there is no log of {ranks_text(found.unlogged)}")
    if not found.missing and not found.unlogged and not found.is_message:
        parts.append("all other ranks issued it as well, so the network or a rank's device delays it")
    sentences = [", ".join(parts) + "."]
    for rank in found.missing[:_MOST]:
        if rank in waits:
            other = waits[rank]
            sentences.append(
                f"Rank {rank} waits in {other.name} {other.sequence} of {logs.label(other.group)[:80]}."
            )
        elif found.last.get(rank):
            sentences.append(f"Rank {rank} last issued {found.last[rank]} there.")
        else:
            sentences.append(f"Rank {rank} issued nothing there.")
    text = " ".join(sentences)
    return f"{text[0].upper()}{text[1:]}"
