"""Levels of a network that a calibration can distinguish, and rank pairs that are faster than their level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...support import bandwidth_text, count_text
from ._records import MESSAGE, Records

_SAME_HOST, _SAME_LEAF, _OTHER_LEAF = "same host", "same leaf", "other leaf"
_OTHER_HOST, _ALL = "other host", "all ranks"


@dataclass(frozen=True)
class Level:
    """A network dimension with *count* units below each switch.

    *units* contains each rank's unit at this level, such as its host. *above* contains the group of units
    that the level joins.
    """

    name: str
    count: int
    units: tuple[int, ...]
    above: tuple[int, ...]

    def joins(self, members: Sequence[int]) -> bool:
        """Return whether *members* differ only at this level: they are in different units of one switch."""
        below = [self.units[rank] for rank in members]
        return len({self.above[rank] for rank in members}) == 1 and len(set(below)) == len(below)


def levels_of(records: Records) -> tuple[list[Level], str]:
    """Return the network levels, innermost first, and the reason for missing levels ("" if none).

    Like network dimensions, levels require the same number of consecutive ranks on each host, and the same
    number of consecutive hosts below each leaf switch.
    """
    ranks = range(records.num_ranks)
    everyone = (0,) * records.num_ranks
    own = tuple(ranks)
    hosts, leaves = _units(records.hosts, ranks), _units(records.leaves, ranks)
    if hosts is None:
        return [Level(_ALL, records.num_ranks, own, everyone)], "the records do not tell the ranks' hosts"
    names = [(_SAME_HOST, hosts)]
    if leaves is not None:
        names += [(_SAME_LEAF, leaves), (_OTHER_LEAF, everyone)]
    else:
        names += [(_OTHER_HOST, everyone)]
    levels, below = [], own
    for name, above in names:
        sizes = _even(below, above)
        if sizes is None:
            flat = Level(_ALL, records.num_ranks, own, everyone)
            return [flat], "the hosts do not have as many ranks each, in a row, as dimensions would"
        if sizes > 1:
            levels.append(Level(name, sizes, below, above))
        below = above
    why = "" if leaves is not None or max(hosts) == 0 else "nothing says which hosts share a leaf switch"
    return levels or [Level(_ALL, records.num_ranks, own, everyone)], why


def _units(named: Mapping[int, str], ranks: range) -> tuple[int, ...] | None:
    """Return the number of each rank's unit in order of appearance, or None if a rank has no unit name."""
    if any(rank not in named for rank in ranks):
        return None
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(named[rank], len(numbers)) for rank in ranks)


def _even(below: Sequence[int], above: Sequence[int]) -> int | None:
    """Return the number of units *below* per unit *above*; None if it varies or units are not consecutive."""
    if list(below) != sorted(below) or list(above) != sorted(above):
        return None
    inside: dict[int, set[int]] = {}
    for unit, outer in zip(below, above, strict=True):
        inside.setdefault(outer, set()).add(unit)
    sizes = {len(units) for units in inside.values()}
    ranks = {sum(1 for unit in below if unit == one) for one in set(below)}
    return sizes.pop() if len(sizes) == 1 and len(ranks) == 1 else None


_ALIKE = 1.25  # the factor by which equal rates may differ
_MOST_NAMED = 6
_Pair = tuple[int, ...]


def without_faster_pairs(records: Records, levels: list[Level]) -> tuple[Records, list[str]]:
    """Return *records* without messages of rank pairs that are faster than their level, and remarks.

    Faster pairs are removed, because a dimension has one bandwidth, and collectives of all ranks wait for the
    slowest pair.
    """
    faster: set[_Pair] = set()
    sentences = []
    for level in levels:
        paces = {pair: pace for pair, pace in _paces(records).items() if level.joins(pair)}
        slowest = max(paces.values(), default=0.0)
        quick = {pair for pair, pace in paces.items() if pace * _ALIKE < slowest}
        if not quick:
            continue
        faster |= quick
        slow = sorted(set(paces) - quick, key=lambda pair: (-paces[pair], pair))
        named = "; ".join(
            f"{_name(records, pair)} {bandwidth_text(1 / paces[pair])}" for pair in slow[:_MOST_NAMED]
        )
        more = f" and {count_text(len(slow) - _MOST_NAMED, 'more pair')}" if len(slow) > _MOST_NAMED else ""
        sentences.append(
            f"One bandwidth for '{level.name}': its pairs differ. The slowest: {named}{more}; the fastest "
            f"reaches {bandwidth_text(1 / min(paces.values()))}. The bandwidth of the slowest was written, "
            "for which collectives of all ranks wait; messages between the others are faster than it says."
        )
    if not faster:
        return records, []
    transfers = tuple(
        transfer
        for transfer in records.transfers
        if transfer.calls[0].operation != MESSAGE or tuple(sorted(transfer.members)) not in faster
    )
    return replace(records, transfers=transfers), sentences


def _paces(records: Records) -> dict[_Pair, float]:
    """Return the marginal ns per byte between two ranks, for pairs with messages of two sizes."""
    times: dict[_Pair, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for transfer in records.transfers:
        if len(transfer.calls) == 1 and transfer.calls[0].operation == MESSAGE:
            times[tuple(sorted(transfer.members))][transfer.calls[0].size_bytes].append(transfer.transfer_ns)
    paces = {}
    for pair, sizes in times.items():
        if len(sizes) < 2:
            continue
        small, large = sorted(sizes)[-2:]
        pace = float(np.median(sizes[large]) - np.median(sizes[small])) / (large - small)
        if pace > 0:
            paces[pair] = pace
    return paces


def _name(records: Records, pair: _Pair) -> str:
    return " - ".join(
        f"rank {rank} ({records.hosts[rank]})" if rank in records.hosts else f"rank {rank}" for rank in pair
    )
