"""Translate dimensions into hosts, switches and links."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ._clos import Clos
from ._fabric import Fabric, FabricLink

__all__ = ["ROUTER_SPEEDUP", "Dimension", "fabric_of_dimensions", "has_routers"]

# The links between ranks and routers of their own are that much faster than the others.
ROUTER_SPEEDUP = 8


@dataclass(frozen=True)
class Dimension:
    """A dimension: its shape (``Ring``, ``FullyConnected``, ``Switch``), size, and one of its links."""

    shape: str
    count: int
    rate_bps: int
    delay_ps: float


def has_routers(dimensions: Sequence[Dimension], clos: Clos | None = None) -> bool:
    """Return whether ranks need separate routers, because messages may have to pass other ranks."""
    ring = dimensions[0].shape == "Ring" and dimensions[0].count > 3 and clos is None
    return len(dimensions) > 1 or ring


def fabric_of_dimensions(dimensions: Sequence[Dimension], clos: Clos | None = None) -> Fabric:
    """Return a fabric equivalent to *dimensions*, which are fastest-varying first.

    A ``Switch`` dimension becomes one switch per group, ``FullyConnected`` a link per pair, ``Ring`` a link
    between neighbours, each with the dimension's rate and latency. Hosts do not forward. If a message may
    have to pass another rank (rings of more than three, several dimensions), each rank gets a router, behind
    links without latency that are eight times as fast as its fastest dimension. *clos* replaces the last
    dimension and joins all ranks, at that dimension's rate and latency.
    """
    counts = [dimension.count for dimension in dimensions]
    ranks = math.prod(counts)
    forwarding = has_routers(dimensions, clos)
    attach = [ranks + rank if forwarding else rank for rank in range(ranks)]
    next_switch = 2 * ranks if forwarding else ranks
    links: list[FabricLink] = []
    if forwarding:
        rate = ROUTER_SPEEDUP * max(dimension.rate_bps for dimension in dimensions)
        links += [FabricLink(rank, attach[rank], rate, 0) for rank in range(ranks)]
    for index, dimension in enumerate(dimensions):
        rate, delay_ps = dimension.rate_bps, round(dimension.delay_ps)
        if clos is not None and index == len(dimensions) - 1:
            pairs, next_switch = clos.links(attach, next_switch)
            links += [FabricLink(a, b, rate, delay_ps) for a, b in pairs]
            continue
        for group in _groups(counts, index):
            members = [attach[rank] for rank in group]
            if dimension.shape == "Switch":
                links += [FabricLink(node, next_switch, rate, delay_ps) for node in members]
                next_switch += 1
            else:
                links += [FabricLink(a, b, rate, delay_ps) for a, b in _pairs(dimension.shape, members)]
    return Fabric(next_switch, tuple(range(ranks, next_switch)), tuple(links))


def _groups(counts: Sequence[int], dimension: int) -> Iterator[list[int]]:
    """Yield the ranks of each group along *dimension*; dimension 0 varies fastest."""
    stride = math.prod(counts[:dimension])
    count = counts[dimension]
    for rank in range(math.prod(counts)):
        if (rank // stride) % count == 0:
            yield [rank + index * stride for index in range(count)]


def _pairs(shape: str, members: list[int]) -> list[tuple[int, int]]:
    if len(members) < 2:
        return []
    if shape == "FullyConnected":
        return [(a, b) for index, a in enumerate(members) for b in members[index + 1 :]]
    around = list(zip(members, [*members[1:], members[0]], strict=True))
    return around[:1] if len(members) == 2 else around
