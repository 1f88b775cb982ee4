"""Summary figures of a network: distances, switches, bisection bandwidth, and accelerators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ._fabric import FabricLink
from ._network import NetworkConfig
from ._network_fabric import fabric_of
from ._presets import list_presets
from ._symmetry import distances
from ._system import SystemConfig

_MAX_CUT_LINKS = 20_000
_MAX_STEPS = 8_000_000  # limit on ranks times links when searching from every rank


@dataclass(frozen=True)
class NetworkFacts:
    """Counts and distances of a network, without its failed links.

    *tiers* counts switches by their distance in links from the nearest rank. *diameter_links* and
    *diameter_ns* are the largest distance between two ranks, or None if there are too many pairs.
    *halves_bytes_per_ns* is the bandwidth from the first half of the ranks to the second, or None
    if there are too many links. *unreachable* counts the pairs of ranks without a path.
    """

    ranks: int
    switches: int
    links: int
    parallel: int
    tiers: tuple[int, ...]
    rates: tuple[tuple[float, int], ...]
    diameter_links: int | None
    diameter_ns: float | None
    halves_bytes_per_ns: float | None
    unreachable: int


def network_links(network: NetworkConfig) -> tuple[Sequence[FabricLink], list[str]]:
    """Return the links that packet-level backends see in *network*, and the names of the linked devices.

    Devices are numbered with the ranks first, then the switches. Raises `ConfigError` for a network
    without links.
    """
    fabric = fabric_of(network).hosts_first()
    ranks = len(fabric.hosts)
    names = list(network.devices) or [f"rank {rank}" for rank in range(ranks)]
    names += [f"switch {number}" for number in range(len(names), fabric.nodes)]
    return fabric.links, names


def network_facts(network: NetworkConfig) -> NetworkFacts:
    """Compute the summary figures of *network*; raises `ConfigError` for a network without links."""
    links, names = network_links(network)
    ranks = network.num_ranks
    pairs = Counter((min(link.a, link.b), max(link.a, link.b)) for link in links)
    rates = Counter(link.rate_bps for link in links)
    hops: int | None = None
    latency: float | None = None
    lost = 0
    if ranks * len(links) <= _MAX_STEPS:
        hops, latency, lost = 0, 0.0, 0
        for source, row in distances(ranks, links):
            for other, way in enumerate(row):
                if way is None:
                    lost += other > source
                elif way.hops > hops or (way.hops == hops and way.most_ps / 1000 > latency):
                    hops, latency = way.hops, way.most_ps / 1000
    return NetworkFacts(
        ranks=ranks,
        switches=len(names) - ranks,
        links=len(links),
        parallel=sum(count > 1 for count in pairs.values()),
        tiers=_tiers(ranks, links),
        rates=tuple((rate / 8e9, count) for rate, count in sorted(rates.items(), reverse=True)),
        diameter_links=hops,
        diameter_ns=latency,
        halves_bytes_per_ns=_between_halves(ranks, links),
        unreachable=lost,
    )


def _tiers(ranks: int, links: Sequence[FabricLink]) -> tuple[int, ...]:
    """Return how many switches are 1, 2, ... links away from the nearest rank."""
    around: dict[int, set[int]] = {}
    for link in links:
        around.setdefault(link.a, set()).add(link.b)
        around.setdefault(link.b, set()).add(link.a)
    seen = set(range(ranks))
    front, tiers = seen, []
    while front:
        front = {other for node in front for other in around.get(node, ())} - seen
        seen |= front
        if front:
            tiers.append(len(front))
    return tuple(tiers)


def _between_halves(ranks: int, links: Sequence[FabricLink]) -> float | None:
    """Return the maximum flow from the first half of the ranks to the second, in bytes per ns."""
    if ranks < 2 or len(links) > _MAX_CUT_LINKS:
        return None
    import networkx as nx  # noqa: PLC0415 - slow to import, and no simulation needs it

    graph = nx.DiGraph()
    for link in links:
        for a, b in ((link.a, link.b), (link.b, link.a)):
            before = graph.get_edge_data(a, b, {"capacity": 0})["capacity"]
            graph.add_edge(a, b, capacity=before + link.rate_bps)
    half = ranks // 2
    for rank in range(ranks):
        graph.add_edge(*(("source", rank) if rank < half else (rank, "sink")))
    flow = nx.maximum_flow_value(graph, "source", "sink")
    return float(flow) / 8e9


# The accelerator of a system preset, and the prefix of its network presets; other presets fit several chips.
_ACCELERATORS = {
    "roofline-a100": ("A100", "dgx-a100-"),
    "roofline-gb200": ("GB200", "gb200-"),
    "roofline-h100": ("H100", "hgx-h100-"),
    "roofline-mi300x": ("MI300X", "mi300x-"),
    "roofline-tpu-v2": ("TPU v2", "tpu-v2-"),
    "roofline-v100": ("V100", "dgx-2-"),
}
_CHIP = ("peak-perf", "local-mem-bw")


def accelerators_of(network: Mapping[str, Any], system: Mapping[str, Any]) -> list[str]:
    """Return the names of the accelerators that *network* and *system* match.

    A network is matched by topology and bandwidth of its innermost dimension, and a system by its
    peak rates, so files derived from a preset are recognised. The list is empty if nothing matches.
    """
    links, chips = _known_hardware()
    try:
        link = (network["topology"][0], float(network["bandwidth"][0]))
    except (IndexError, KeyError, TypeError, ValueError):
        link = ("", 0.0)
    names = [links.get(link, ""), chips.get(tuple(system.get(key) for key in _CHIP), "")]
    return [name for name in dict.fromkeys(names) if name]


@lru_cache(1)
def _known_hardware() -> tuple[dict[tuple[str, float], str], dict[tuple[Any, ...], str]]:
    links, chips = {}, {}
    for preset, (name, start) in _ACCELERATORS.items():
        system = SystemConfig.preset(preset).to_dict()
        chips[tuple(system[key] for key in _CHIP)] = name
        for node in list_presets("network"):
            if node.startswith(start):
                network = NetworkConfig.preset(node)
                links[network.topology[0], network.bandwidth[0]] = name
    return links, chips
