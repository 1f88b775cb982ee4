"""How far the clocks of the ranks are apart, from what collectives themselves enforce.

A collective that synchronises ends at about the same moment on all ranks: the median difference of its ends
is that of the clocks. Where logs have no ends, nobody can enqueue the next collective before the last rank
has entered the one before, which bounds the difference from both sides. A difference that cannot be told
from the spread of what it follows from is taken as none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median, quantiles
from typing import Literal

import msgspec

from ..readers.logs import UNKNOWN, LoggedOp, Logs

__all__ = ["Clocks", "clocks_of"]

_FEWEST = 3
_Ops = Mapping[int, LoggedOp]


class Clocks(msgspec.Struct, frozen=True):
    """*ahead_ns* is how far the clock of each rank is ahead of that of the lowest one.

    *known_from* says what it follows from: the ends of collectives, the order in which they were enqueued, or
    nothing, and then no clock is corrected and differences between ranks mean nothing unless one clock drives
    all. *spread_ns* is how far single collectives differ from it, at worst.
    """

    ahead_ns: dict[int, int]
    known_from: Literal["ends", "order", "nothing"]
    spread_ns: int = 0

    @property
    def corrected(self) -> dict[int, int]:
        """The ranks whose clock differs, with how far."""
        return {rank: ahead for rank, ahead in self.ahead_ns.items() if ahead}


def clocks_of(logs: Logs, collectives: Sequence[_Ops]) -> Clocks:
    """Return the clocks of the ranks that share any of the synchronising *collectives*, by rank in order."""
    ended = [ops for ops in collectives if all(op.ended_ns != UNKNOWN for op in ops.values())]
    entered = [ops for ops in collectives if all(op.created_ns != UNKNOWN for op in ops.values())]
    for known_from, found in (("ends", _by_ends(ended)), ("order", _by_order(entered))):
        ahead, spread = _from_lowest(found)
        if found and ahead.keys() == logs.ranks.keys():
            return Clocks(ahead, known_from, spread)  # type: ignore[arg-type]  # one of the two
    return Clocks(dict.fromkeys(logs.ranks, 0), "nothing")


def _pairs(collectives: Sequence[_Ops]) -> dict[tuple[int, int], list[_Ops]]:
    """Return the collectives that the lowest rank of their group shares with each other rank."""
    found: dict[tuple[int, int], list[_Ops]] = {}
    for ops in collectives:
        lowest = min(ops)
        for rank in ops:
            if rank != lowest:
                found.setdefault((lowest, rank), []).append(ops)
    return found


def _by_ends(collectives: Sequence[_Ops]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return how far the second rank's clock is ahead of the first's, and the spread."""
    found = {}
    for (one, other), shared in _pairs(collectives).items():
        if len(shared) < _FEWEST:
            continue
        apart = sorted(ops[other].ended_ns - ops[one].ended_ns for ops in shared)
        low, _, high = quantiles(apart, n=4, method="inclusive")
        ahead, spread = round(median(apart)), round(high - low)
        found[one, other] = (ahead, spread) if abs(ahead) > spread else (0, max(spread, abs(ahead)))
    return found


def _by_order(collectives: Sequence[_Ops]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return as `_by_ends`; pairs that show no consistent order (asynchronous ones) are absent."""
    found = {}
    for (one, other), shared in _pairs(collectives).items():
        if len(shared) < _FEWEST:
            continue
        inorder = sorted(shared, key=lambda ops: ops[one].created_ns)
        most = min(after[other].created_ns - before[one].created_ns for before, after in pairwise(inorder))
        least = -min(after[one].created_ns - before[other].created_ns for before, after in pairwise(inorder))
        if least > most:
            continue
        ahead = 0 if least <= 0 <= most else (least + most) // 2
        found[one, other] = ahead, (most - least) // 2
    return found


def _from_lowest(found: Mapping[tuple[int, int], tuple[int, int]]) -> tuple[dict[int, int], int]:
    """Return how far each clock is ahead of the lowest rank's, along pairs; and the worst spread."""
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
