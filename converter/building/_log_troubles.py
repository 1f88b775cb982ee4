"""Find errors in production logs: ranks that disagree, and collectives that did not complete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from ..linking import MatchedLogs, Mismatch, Unfinished
from ..readers.logs import UNKNOWN, Logs, ranks_text

__all__ = ["LogTrouble", "has_times", "troubles_of"]

_MOST = 10


class LogTrouble(msgspec.Struct, frozen=True):
    """One error: the problem, the remedy, and whether an operation did not complete."""

    cause: str
    remedy: str
    is_unfinished: bool = False


def has_times(logs: Logs) -> bool:
    """Return whether the logs tell when each operation was enqueued."""
    return all(op.created_ns != UNKNOWN for log in logs.ranks.values() for op in log.ops)


def troubles_of(matched: MatchedLogs) -> list[LogTrouble]:
    """Return the errors, likely causes first; at most ten of a kind."""
    mismatches = sorted(matched.mismatches, key=lambda found: (found.group, found.sequence))
    return [
        *(_disagreement(matched.logs, found) for found in mismatches[:_MOST]),
        *list(_hangs(matched))[:_MOST],
    ]


def _disagreement(logs: Logs, found: Mismatch) -> LogTrouble:
    """Return the ranks' descriptions of one collective, as text."""
    saying: dict[str, list[int]] = defaultdict(list)
    for rank, description in found.says.items():
        saying[description].append(rank)
    described = [
        f"{ranks_text(ranks)} {'says' if len(ranks) == 1 else 'say'} {description}"
        for description, ranks in sorted(saying.items(), key=lambda pair: -len(pair[1]))
    ]
    return LogTrouble(
        f"Ranks disagree about collective {found.sequence} of {logs.label(found.group)[:80]}: "
        f"{'; '.join(described)}.",
        "They ran different code there, or the logs are of different runs; compare what these ranks did.",
    )


def _hangs(matched: MatchedLogs) -> Iterator[LogTrouble]:
    """Yield, for each group, the first operation that did not complete; later ones follow from it."""
    first: dict[tuple[str, bool], Unfinished] = {}
    for found in matched.unfinished:
        known = first.setdefault((found.group, found.is_message), found)
        if found.sequence < known.sequence:
            first[found.group, found.is_message] = found
    waits = {rank: found for found in first.values() for rank in found.waiting}
    # Those for whom others wait, and who wait for nobody, are the cause.
    for found in sorted(first.values(), key=lambda found: any(rank in waits for rank in found.missing)):
        yield LogTrouble(_hang(matched.logs, found, waits), _HANG_REMEDY, is_unfinished=True)


_HANG_REMEDY = "Look at what the ranks that are waited for did instead, such as their stacks."


def _hang(logs: Logs, found: Unfinished, waits: dict[int, Unfinished]) -> str:
    """Return the sentences on one operation that did not complete."""
    where = f"of {logs.label(found.group)[:80]}"
    what = f"{found.name} {where}" if found.is_message else f"{found.name} {found.sequence} {where}"
    timed_out = " and timed out" if found.timed_out else ""
    parts = [f"{what} did not complete{timed_out}: {ranks_text(found.waiting)} issued it"]
    if found.missing:
        parts.append(f"{ranks_text(found.missing)} never did")
    if found.unlogged:
        parts.append(f"there is no log of {ranks_text(found.unlogged)}")
    if not found.missing and not found.unlogged and not found.is_message:
        parts.append("so did all others, so the network or a rank's device holds it up")
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
