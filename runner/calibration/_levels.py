"""The levels of a network that a calibration can distinguish: ranks of a host, hosts of a leaf, leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ._records import Records

__all__ = ["Level", "levels_of"]

_SAME_HOST, _SAME_LEAF, _OTHER_LEAF = "same host", "same leaf", "other leaf"
_OTHER_HOST, _ALL = "other host", "all ranks"


@dataclass(frozen=True)
class Level:
    """A dimension: *count* units below each switch, and the *unit* of each rank.

    *units* gives for each rank its unit at this level, and *above* the group of units that this level joins.
    """

    name: str
    count: int
    units: tuple[int, ...]
    above: tuple[int, ...]

    def joins(self, members: Sequence[int]) -> bool:
        """Return whether *members* differ at this level alone: each in another unit, below one switch."""
        below = [self.units[rank] for rank in members]
        return len({self.above[rank] for rank in members}) == 1 and len(set(below)) == len(below)


def levels_of(records: Records) -> tuple[list[Level], str]:
    """Return the levels of the ranks, innermost first, and why there are no more ("" if complete).

    As in dimensions, levels require the same number of consecutive ranks on each host, and of hosts below
    each leaf.
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
    """Return the number of each rank's unit in order of appearance; None if one has no name."""
    if any(rank not in named for rank in ranks):
        return None
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(named[rank], len(numbers)) for rank in ranks)


def _even(below: Sequence[int], above: Sequence[int]) -> int | None:
    """Return the number of units *below* in each one *above*; None unless equal and consecutive."""
    if list(below) != sorted(below) or list(above) != sorted(above):
        return None
    inside: dict[int, set[int]] = {}
    for unit, outer in zip(below, above, strict=True):
        inside.setdefault(outer, set()).add(unit)
    sizes = {len(units) for units in inside.values()}
    ranks = {sum(1 for unit in below if unit == one) for one in set(below)}
    return sizes.pop() if len(sizes) == 1 and len(ranks) == 1 else None
