"""Recognise the fat tree of two or three tiers in a list of links, as HTSim takes it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...config import NetworkConfig, network_wires

__all__ = ["Tier", "tree_of_links"]

_MOST_TIERS = 3


@dataclass(frozen=True)
class Tier:
    """The switches of a tier: how many links each has down and up (0: none).

    *rate_bps* and *delay_ps* are those of the links down.
    """

    down: int
    up: int
    rate_bps: int
    delay_ps: int


def tree_of_links(network: NetworkConfig) -> tuple[list[Tier], int] | str:
    """Return the tiers of *network* from below and the ranks of a pod, or why its links are no such tree."""
    wires, _ = network_wires(network)
    ranks = network.num_ranks
    around: dict[int, Counter[int]] = defaultdict(Counter)
    for wire in wires:
        around[wire.a][wire.b] += 1
        around[wire.b][wire.a] += 1
    if any(sum(around[rank].values()) != 1 for rank in range(ranks)):
        return "every rank must have one link"
    tier_of = _tiers(ranks, around)
    count = max(tier_of.values())
    if count > _MOST_TIERS:
        return f"there are {count} tiers of switches, and {_MOST_TIERS} is the most"
    figures: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for wire in wires:
        low, high = sorted((tier_of[wire.a], tier_of[wire.b]))
        if high != low + 1:
            return "links must join one tier with the next"
        figures[high].add((wire.rate_bps, wire.delay_ps))
    tiers = []
    for tier in range(1, count + 1):
        shapes = {_shape(around[node], tier, tier_of) for node, own in tier_of.items() if own == tier}
        if len(shapes) > 1 or len(figures[tier]) > 1:
            return f"the switches of tier {tier - 1}, or their links, are not alike"
        down, up, parallel = shapes.pop()
        if parallel:
            return "parallel links have no place in it"
        rate_bps, delay_ps = figures[tier].pop()
        tiers.append(Tier(down, up, rate_bps, delay_ps))
    if count == 1:  # HTSim knows no fewer than two tiers: one link leads up, and nobody takes it
        rate_bps, delay_ps = tiers[0].rate_bps, tiers[0].delay_ps
        return [Tier(ranks, 1, rate_bps, delay_ps), Tier(1, 0, rate_bps, delay_ps)], ranks
    return _in_pods(ranks, around, tier_of, tiers)


def _tiers(ranks: int, around: Mapping[int, Counter[int]]) -> dict[int, int]:
    """Return how far every device is from the nearest rank, which is its tier."""
    tier_of = dict.fromkeys(range(ranks), 0)
    front = list(tier_of)
    while front:
        following = []
        for node in front:
            for other in around[node]:
                if other not in tier_of:
                    tier_of[other] = tier_of[node] + 1
                    following.append(other)
        front = following
    return tier_of


def _shape(near: Counter[int], tier: int, tier_of: Mapping[int, int]) -> tuple[int, int, bool]:
    """Return how many links a switch of *tier* has down and up, and whether some of them are parallel."""
    down = sum(count for other, count in near.items() if tier_of[other] < tier)
    return down, sum(near.values()) - down, any(count > 1 for count in near.values())


def _in_pods(
    ranks: int, around: Mapping[int, Counter[int]], tier_of: Mapping[int, int], tiers: Sequence[Tier]
) -> tuple[list[Tier], int] | str:
    """Return *tiers* and the ranks of a pod, if ranks are in order and each tier reaches all it has to."""
    below = {rank: {rank} for rank in range(ranks)}
    for tier in range(1, len(tiers) + 1):
        for node in (node for node, own in tier_of.items() if own == tier):
            below[node] = set().union(*(below[other] for other in around[node] if tier_of[other] < tier))
    leaf = tiers[0].down
    pod = ranks if len(tiers) < _MOST_TIERS else len(next(below[n] for n, own in tier_of.items() if own == 2))
    sizes = (leaf, pod, ranks)
    for node, members in below.items():
        size = sizes[min(tier_of[node], len(sizes)) - 1]
        if tier_of[node] and members != set(range(min(members), min(members) + size)):
            return "leaves and pods must hold ranks in the order of their numbers, and all alike"
        if tier_of[node] and min(members) % size:
            return "leaves and pods must hold ranks in the order of their numbers, and all alike"
    return list(tiers), pod
