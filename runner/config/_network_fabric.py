"""Compile a network configuration, whether links or dimensions, to a fabric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import ConfigError
from ._fabric import (
    NO_CONTROL,
    RATES,
    ROUTER_SPEEDUP,
    SETTINGS,
    THRESHOLDS,
    Dimension,
    Fabric,
    FabricLink,
    parse_rate_bps,
)
from ._failures import Failure, fail_links
from ._network import GIB, NetworkConfig
from ._packet import Clos

# The simulated time (ns) at which ASTRA-sim starts counting the time of LINK_DOWN.
_LINK_DOWN_FROM_NS = 2_000_000_000
# Settings of a network made from dimensions: ASTRA-sim's sample configuration, scaled to the network's rates.
_OWN_DEFAULTS: dict[str, Any] = {
    "ALPHA_RESUME_INTERVAL": 1.0,
    "BUFFER_SIZE": 32,
    "CC_MODE": NO_CONTROL,
    "EWMA_GAIN": 0.00390625,
    "FAST_RECOVERY_TIMES": 1,
    "GLOBAL_T": 0,
    "L2_ACK_INTERVAL": 1,
    "L2_CHUNK_SIZE": 4000,
    "MI_THRESH": 0,
    "MULTI_RATE": 0,
    "RP_TIMER": 900.0,
    "VAR_WIN": 1,
}
# The thresholds in ASTRA-sim's sample: (bit/s, KMIN in kB, KMAX in kB, PMAX).
_SAMPLE_ECN = (
    (25e9, 100, 400, 0.2),
    (40e9, 200, 800, 0.2),
    (100e9, 400, 1600, 0.2),
    (200e9, 600, 2400, 0.2),
    (400e9, 800, 3200, 0.2),
)


def fabric_of(network: NetworkConfig) -> Fabric:
    """Return the fabric of *network*, from its links if it has any, otherwise from its dimensions.

    The fabric's `changes` are the failures that begin or end during a simulation, including ASTRA-sim's
    LINK_DOWN. Raises `ConfigError` for invalid failures and for fewer hosts than ranks.
    """
    part = network.packet
    settings = {key: default for key, (_, default) in SETTINGS.items()}
    given = {} if part is None else dict(part.settings)
    if part is not None and part.topology is not None:
        fabric = _failing(network, part.topology, given)
    else:
        fabric = _translate(network, given)
        settings |= _OWN_DEFAULTS | _scaled_ecn(fabric)
    settings |= given
    settings |= {key: parse_rate_bps(settings[key], key) for key in RATES}
    default_loss = settings["ERROR_RATE_PER_LINK"]
    links = tuple(link._replace(loss=link.loss or default_loss) for link in fabric.links)
    fabric = replace(fabric, links=links if default_loss else fabric.links, settings=settings)
    if "BUFFER_SIZE" not in given and (part is None or part.topology is None):
        fabric = fabric.with_room()
    if len(fabric.hosts) < network.num_ranks:
        raise ConfigError(
            f"The packet-level part of the network '{network.name}' has {len(fabric.hosts)} hosts but "
            f"the network has {network.num_ranks} ranks; add hosts, or correct the logical dimensions."
        )
    return fabric


def written_out(network: NetworkConfig) -> tuple[Fabric, tuple[Failure, ...]]:
    """Return the fabric of *network* with all links intact, and its failures in terms of these links.

    The packet settings are derived for the network with failures.
    """
    whole = replace(fabric_of(replace(network, failures=())), settings=fabric_of(network).settings)
    part, dimensions = network.packet, _dimensions(network)
    clos = None if part is None else part.fabric
    listed = part is not None and part.topology is not None
    if listed or (clos is None and network.links) or not _has_routers(dimensions, clos):
        return whole, network.failures
    moved = (_behind_routers(failure, whole, network.num_ranks) for failure in network.failures)
    return whole, tuple(one for some in moved for one in some)


def _translate(network: NetworkConfig, given: Mapping[str, Any]) -> Fabric:
    """Return the fabric of the network's links, or of its dimensions if it has none."""
    clos = None if network.packet is None else network.packet.fabric
    if clos is not None or not network.links:
        dimensions = _dimensions(network)
        routers = network.num_ranks if _has_routers(dimensions, clos) else 0
        return _failing(network, _fabric_of_dimensions(dimensions, clos), given, routers)
    nodes = max(network.num_ranks, *(1 + max(link.a, link.b) for link in network.links))
    links = tuple(
        FabricLink(link.a, link.b, round(link.bandwidth * GIB * 8), round(link.latency * 1000))
        for link in network.links
    )
    fabric = Fabric(nodes, tuple(range(network.num_ranks, nodes)), links)
    fabric.check(f"The network '{network.name}'")
    return _failing(network, fabric, given)


def _link_down(given: Mapping[str, Any], nodes: Sequence[int]) -> tuple[Failure, ...]:
    """Return ASTRA-sim's LINK_DOWN as a failure; *nodes* are the device numbers by node."""
    time_us, *ends = given.get("LINK_DOWN", (0, 0, 0))
    if not time_us:
        return ()
    if not all(0 <= node < len(nodes) for node in ends):
        raise ConfigError(
            f"LINK_DOWN must be a time in us, relative to 2 s, and the two nodes of a link, not "
            f"{time_us} {ends[0]} {ends[1]}; nodes are numbered from 0 to {len(nodes) - 1}."
        )
    devices = tuple(nodes[node] for node in ends)
    return (Failure(devices, at_ns=_LINK_DOWN_FROM_NS + 1000 * time_us),)


def _failing(network: NetworkConfig, whole: Fabric, given: Mapping[str, Any], routers: int = 0) -> Fabric:
    """Apply the failures to the fabric *whole*: remove or slow down links, now or at later times.

    Failures number the ranks first, then the switches. The first *routers* switches of the fabric
    are those of the ranks, at which the ranks' links end, and have no number in failures.
    """
    order = {node: device - routers for node, device in whole.device_of_node.items()}
    failures = network.failures + _link_down(given, [order[node] for node in range(whole.nodes)])
    if not failures:
        return whole

    ends = [(order[link.a], order[link.b]) for link in whole.links]
    if routers:
        ends = [pair if min(pair) >= 0 else (-1, -1) for pair in ends]
    links, changes = fail_links(failures, whole.links, ends, f"The network '{network.name}'")
    return replace(whole, links=links, changes=changes)


def _behind_routers(failure: Failure, whole: Fabric, ranks: int) -> list[Failure]:
    """Renumber the devices of *failure* for the fabric *whole*, in which each rank has a router.

    A rank's links end at its router. The link between the two cannot fail, so a failed rank means
    all other links of its router.
    """
    devices = tuple(device + ranks for device in failure.devices)
    if len(devices) > 1 or devices[0] >= 2 * ranks:
        return [failure.of(devices, failure.count)]
    (router,) = devices
    ends = [(a, b) for a, b, *_ in whole.hosts_first().links if router in (a, b) and min(a, b) >= ranks]
    peers = Counter(a + b - router for a, b in ends[: failure.count])
    return [failure.of((router, peer), count) for peer, count in peers.items()]


def _dimensions(network: NetworkConfig) -> list[Dimension]:
    columns = zip(
        network.topology, network.npus_count, network.bandwidth_bytes_per_ns, network.latency, strict=True
    )
    return [
        Dimension(shape, count, round(rate * 8e9), latency * 1000) for shape, count, rate, latency in columns
    ]


def _scaled_ecn(fabric: Fabric) -> dict[str, Any]:
    """Return ASTRA-sim's sample marking thresholds, scaled to every link rate of *fabric*."""
    changed = {change.rate_bps for change in fabric.changes} - {0}
    rates = sorted({link.rate_bps for link in fabric.links} | changed)
    marks = {rate: _interpolate(float(rate)) for rate in rates}
    return {key: {rate: marks[rate][place] for rate in rates} for place, key in enumerate(THRESHOLDS)}


def _interpolate(rate: float) -> tuple[float, float, float]:
    if rate <= _SAMPLE_ECN[0][0] or rate >= _SAMPLE_ECN[-1][0]:
        base, low, high, probability = _SAMPLE_ECN[0] if rate <= _SAMPLE_ECN[0][0] else _SAMPLE_ECN[-1]
        return round(low * rate / base), round(high * rate / base), probability
    above = next(index for index, entry in enumerate(_SAMPLE_ECN) if entry[0] >= rate)
    left, right = _SAMPLE_ECN[above - 1], _SAMPLE_ECN[above]
    share = (rate - left[0]) / (right[0] - left[0])
    return (
        round(left[1] + share * (right[1] - left[1])),
        round(left[2] + share * (right[2] - left[2])),
        left[3],
    )


def _has_routers(dimensions: Sequence[Dimension], clos: Clos | None = None) -> bool:
    """Return whether ranks need routers because messages may have to pass through other ranks."""
    ring = dimensions[0].shape == "Ring" and dimensions[0].count > 3 and clos is None
    return len(dimensions) > 1 or ring


def _fabric_of_dimensions(dimensions: Sequence[Dimension], clos: Clos | None = None) -> Fabric:
    """Return a fabric equivalent to *dimensions*, which start with the fastest-varying.

    A ``Switch`` dimension becomes one switch per group, a ``FullyConnected`` dimension one link per
    pair of ranks, and a ``Ring`` links between neighbours, all with the dimension's rate and latency. Hosts
    do not forward, so where messages may have to pass through ranks (rings of more than three,
    several dimensions), each rank gets a router, over a link without latency and eight times as
    fast as the fastest dimension. *clos* replaces the last dimension: it joins all ranks by links
    of that rate and latency.
    """
    counts = [dimension.count for dimension in dimensions]
    ranks = math.prod(counts)
    forwarding = _has_routers(dimensions, clos)
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
    """Yield each group of ranks that differ only in *dimension*; dimension 0 varies fastest."""
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
