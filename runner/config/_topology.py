"""Translate dimensions into hosts, switches and links."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ._fabric import Clos

__all__ = ["PacketDimension", "PacketLink", "PacketTopology", "has_routers", "packet_topology"]

_INTERNAL_SPEEDUP = 8


@dataclass(frozen=True)
class PacketLink:
    """A full-duplex link between the nodes *a* and *b*; *loss* is the share of packets it loses."""

    a: int
    b: int
    rate_bps: int
    delay_ps: int
    loss: float = 0.0


@dataclass(frozen=True)
class PacketTopology:
    """*nodes* numbered from 0, the *switches* among them, and the links; the other nodes are hosts."""

    nodes: int
    switches: tuple[int, ...]
    links: tuple[PacketLink, ...]


@dataclass(frozen=True)
class PacketDimension:
    """One dimension of a network: its *shape* is ``Ring``, ``FullyConnected`` or ``Switch``."""

    shape: str
    count: int
    rate_bps: int
    delay_ps: int


def has_routers(dimensions: Sequence[PacketDimension], fabric: Clos | None = None) -> bool:
    """Return whether ranks need separate routers, because messages may have to pass other ranks."""
    ring = dimensions[0].shape == "Ring" and dimensions[0].count > 3 and fabric is None
    return len(dimensions) > 1 or ring


def packet_topology(dimensions: Sequence[PacketDimension], fabric: Clos | None = None) -> PacketTopology:
    """Return a packet network equivalent to *dimensions*, which are fastest-varying first.

    A ``Switch`` dimension becomes one switch per group, ``FullyConnected`` a link per pair, ``Ring`` a link
    between neighbours, each with the dimension's rate and latency. Hosts do not forward. If a message may
    have to pass another rank (rings of more than three, several dimensions), each rank gets a router, behind
    links without latency that are eight times as fast as its fastest dimension. *fabric* replaces the last
    dimension and joins all ranks, at that dimension's rate and latency.
    """
    counts = [dimension.count for dimension in dimensions]
    ranks = math.prod(counts)
    forwarding = has_routers(dimensions, fabric)
    attach = [ranks + rank if forwarding else rank for rank in range(ranks)]
    next_switch = 2 * ranks if forwarding else ranks
    links: list[PacketLink] = []
    if forwarding:
        rate = _INTERNAL_SPEEDUP * max(dimension.rate_bps for dimension in dimensions)
        links += [PacketLink(rank, attach[rank], rate, 0) for rank in range(ranks)]
    for index, dimension in enumerate(dimensions):
        rate, delay_ps = dimension.rate_bps, dimension.delay_ps
        if fabric is not None and index == len(dimensions) - 1:
            pairs, next_switch = fabric.links(attach, next_switch)
            links += [PacketLink(a, b, rate, delay_ps) for a, b in pairs]
            continue
        for group in _groups(counts, index):
            members = [attach[rank] for rank in group]
            if dimension.shape == "Switch":
                links += [PacketLink(node, next_switch, rate, delay_ps) for node in members]
                next_switch += 1
            else:
                links += [PacketLink(a, b, rate, delay_ps) for a, b in _pairs(dimension.shape, members)]
    return PacketTopology(next_switch, tuple(range(ranks, next_switch)), tuple(links))


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
