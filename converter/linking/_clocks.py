"""Estimate the clock offsets between ranks from their collectives.

A synchronising collective ends at about the same time on all ranks, so the median difference of the ends is
the offset of the clocks. Without ends, the order bounds the offset from both sides: no rank enqueues the next
collective before the last rank has entered the previous one. An offset within the spread of its estimates
counts as zero.
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
    """*ahead_ns* is the offset of each rank's clock to that of the lowest rank.

    *known_from* is the source: the ends of collectives, the order in which they were enqueued, or nothing;
    then no clock is corrected, and differences between ranks are meaningless unless they share a clock.
    *spread_ns* is the largest deviation of a single collective.
    """

    ahead_ns: dict[int, int]
    known_from: Literal["ends", "order", "nothing"]
    spread_ns: int = 0

    @property
    def corrected(self) -> dict[int, int]:
        """The ranks with a clock offset, and the offsets."""
        return {rank: ahead for rank, ahead in self.ahead_ns.items() if ahead}


def clocks_of(logs: Logs, collectives: Sequence[_Ops]) -> Clocks:
    """Return the clocks of the ranks that share any of the synchronising *collectives*, in order of rank."""
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
    """Return the offset of the second rank's clock to the first's, and the spread."""
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
    """Return the same as `_by_ends`, without pairs that have no consistent order (asynchronous ones)."""
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
    """Return the offset of each clock to the lowest rank's, along pairs, and the largest spread."""
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
