"""Fabrics of regular networks: of dimensions, and Clos networks with a given oversubscription."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError, did_you_mean
from ._fabric import Fabric, FabricLink
from ._values import shown

__all__ = ["ROUTER_SPEEDUP", "Clos", "Dimension", "fabric_of_dimensions", "has_routers"]

_KEYS = ("hosts_per_leaf", "leaves_per_pod", "oversubscription")


@dataclass(frozen=True)
class Clos:
    """Two tiers, or three with *leaves_per_pod*, of links as fast as the hosts' links.

    Each leaf joins *hosts_per_leaf* hosts, and has that number divided by *oversubscription* uplinks, one to
    each spine. With pods, each pod has its own spines, and each spine has *leaves_per_pod* divided by
    *oversubscription* uplinks to cores, which join the pods.
    """

    hosts_per_leaf: int
    leaves_per_pod: int = 0
    oversubscription: int = 1

    @classmethod
    def from_mapping(cls, data: Any, where: str) -> Clos:
        """Return the Clos network that *data* describes; raises `ConfigError` if it cannot be built."""
        if not isinstance(data, Mapping):
            raise ConfigError(f"{where}: 'fabric' must map {', '.join(_KEYS)} to numbers, not {shown(data)}.")
        for key, value in data.items():
            if key not in _KEYS:
                raise ConfigError(f"{where}: 'fabric' has no key '{key}'{did_you_mean(str(key), _KEYS)}")
            if type(value) is not int or not 1 <= value <= 65_000:
                raise ConfigError(
                    f"{where}: '{key}' of 'fabric' must be a whole number above 0, not {shown(value)}."
                )
        if "hosts_per_leaf" not in data:
            raise ConfigError(f"{where}: 'fabric' needs 'hosts_per_leaf'.")
        clos = cls(**data)
        for key in ("hosts_per_leaf", "leaves_per_pod"):
            if getattr(clos, key) % clos.oversubscription:
                raise ConfigError(
                    f"{where}: '{key}' ({getattr(clos, key)}) of 'fabric' must be a multiple of "
                    f"'oversubscription' ({clos.oversubscription})."
                )
        return clos

    def links(self, hosts: Sequence[int], first_switch: int) -> tuple[list[tuple[int, int]], int]:
        """Return the pairs of nodes to join, and the first number that is not a switch of the network."""
        leaf_count = -(-len(hosts) // self.hosts_per_leaf)
        leaves = range(first_switch, first_switch + leaf_count)
        pairs = [(host, leaves[place // self.hosts_per_leaf]) for place, host in enumerate(hosts)]
        spines_each = self.hosts_per_leaf // self.oversubscription
        if leaf_count == 1:
            return pairs, leaves.stop
        pods = self._pods(leaves)
        free = leaves.stop
        spines = [range(free + pod * spines_each, free + (pod + 1) * spines_each) for pod in range(len(pods))]
        free += len(pods) * spines_each
        for members, above in zip(pods, spines, strict=True):
            pairs += [(leaf, spine) for leaf in members for spine in above]
        if len(pods) == 1:
            return pairs, free
        cores_each = self.leaves_per_pod // self.oversubscription
        for above in spines:
            for place, spine in enumerate(above):
                pairs += [(spine, free + place * cores_each + core) for core in range(cores_each)]
        return pairs, free + spines_each * cores_each

    def _pods(self, leaves: range) -> list[range]:
        size = self.leaves_per_pod or len(leaves)
        return [leaves[start : start + size] for start in range(0, len(leaves), size)]


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
