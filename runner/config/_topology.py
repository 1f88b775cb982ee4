"""Translate a network's dimensions into hosts, switches and links."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._fabric import Clos

if TYPE_CHECKING:
    from ._network import NetworkConfig

__all__ = ["PacketLink", "packet_topology"]

_INTERNAL_SPEEDUP = 8


@dataclass(frozen=True)
class PacketLink:
    """A full-duplex link between the nodes *a* and *b*; *loss* is the share of packets it loses."""

    a: int
    b: int
    rate_bps: int
    delay_ps: int
    loss: float = 0.0


def packet_topology(
    network: NetworkConfig, fabric: Clos | None = None
) -> tuple[int, tuple[int, ...], tuple[PacketLink, ...]]:
    """Return the number of nodes, the switches and the links of a packet network like *network*.

    A ``Switch`` dimension becomes one switch a group, ``FullyConnected`` a link a pair, ``Ring`` a link
    between neighbours, each with the dimension's rate and latency. Hosts do not forward: where a message may
    have to pass a rank that is not its own (rings of more than three, several dimensions), each rank gets a
    switch of its own behind links without latency that are eight times as fast as its fastest dimension.
    *fabric* takes the place of the last dimension and joins all ranks, at that dimension's rate and latency.
    """
    ranks = network.num_ranks
    ring = network.topology[0] == "Ring" and ranks > 3 and fabric is None
    forwarding = network.dimensions > 1 or ring
    attach = [ranks + rank if forwarding else rank for rank in range(ranks)]
    next_switch = 2 * ranks if forwarding else ranks
    links: list[PacketLink] = []
    if forwarding:
        rate = _INTERNAL_SPEEDUP * max(_rates(network))
        links += [PacketLink(rank, attach[rank], rate, 0) for rank in range(ranks)]
    for dimension, (shape, rate) in enumerate(zip(network.topology, _rates(network), strict=True)):
        delay_ps = round(network.latency[dimension] * 1000)
        if fabric is not None and dimension == network.dimensions - 1:
            pairs, next_switch = fabric.links(attach, next_switch)
            links += [PacketLink(a, b, rate, delay_ps) for a, b in pairs]
            continue
        for group in _groups(network, dimension):
            members = [attach[rank] for rank in group]
            if shape == "Switch":
                links += [PacketLink(node, next_switch, rate, delay_ps) for node in members]
                next_switch += 1
            else:
                links += [PacketLink(a, b, rate, delay_ps) for a, b in _pairs(shape, members)]
    return next_switch, tuple(range(ranks, next_switch)), tuple(links)


def _rates(network: NetworkConfig) -> list[int]:
    """Return the rate of each dimension in bit/s."""
    return [round(value * 8e9) for value in network.bandwidth_bytes_per_ns]


def _groups(network: NetworkConfig, dimension: int) -> Iterator[list[int]]:
    """Yield the ranks of each group along *dimension*; dimension 0 varies fastest."""
    stride = math.prod(network.npus_count[:dimension])
    count = network.npus_count[dimension]
    for rank in range(network.num_ranks):
        if (rank // stride) % count == 0:
            yield [rank + index * stride for index in range(count)]


def _pairs(shape: str, members: list[int]) -> list[tuple[int, int]]:
    if len(members) < 2:
        return []
    if shape == "FullyConnected":
        return [(a, b) for index, a in enumerate(members) for b in members[index + 1 :]]
    around = list(zip(members, [*members[1:], members[0]], strict=True))
    return around[:1] if len(members) == 2 else around
