"""Times of collectives and messages on a network of dimensions, without simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...converter import CollectiveType
from ..chips import Costs, LinkCosts
from ..config import NetworkConfig, SystemConfig
from .models import Phase, Spread

_MESH = "FullyConnected"
_AT_ONCE = 64  # collectives of different groups share a link, and none waits for another


@dataclass(frozen=True)
class Links:
    """The links of a rank: ``within`` its node (dimension 0), and ``across`` nodes (the slowest other).

    Bandwidths are bytes per ns, latencies ns. With *meshed_within* or *meshed_across*, a rank has a
    separate link to each other rank, and all carry data at the same time.
    """

    node_size: int
    within_bytes_per_ns: float
    across_bytes_per_ns: float
    within_latency_ns: float
    across_latency_ns: float
    meshed_within: bool = False
    meshed_across: bool = False

    @classmethod
    def of(cls, network: NetworkConfig) -> Links:
        """Return the links of *network*."""
        speed, latency = network.bandwidth_bytes_per_ns, network.latency
        return cls(
            network.npus_count[0],
            speed[0],
            min(speed[1:], default=speed[0]),
            latency[0],
            max(latency[1:], default=latency[0]),
            network.topology[0] == _MESH,
            all(each == _MESH for each in network.topology[1:] or network.topology),
        )

    def figures(self, level: str) -> tuple[float, float]:
        """Return bandwidth and latency on *level*."""
        if level == "within":
            return self.within_bytes_per_ns, self.within_latency_ns
        return self.across_bytes_per_ns, self.across_latency_ns

    def transfer_ns(self, step: Phase, where: Spread) -> tuple[float, float]:
        """Return the time of a phase in a ring, or in one step on a mesh: for its bytes and for its hops."""
        members = where.inside if step.level == "within" else where.nodes
        if members < 2:
            return 0.0, 0.0
        speed, latency = self.figures(step.level)
        if self.meshed_within if step.level == "within" else self.meshed_across:
            # To and from all others at once.
            rounds = 2 if step.kind is CollectiveType.ALL_REDUCE else 1
            part = step.size_bytes / (1 if step.kind is CollectiveType.ALL_GATHER else members)
            return rounds * part / speed, rounds * latency
        if step.kind is CollectiveType.ALL_TO_ALL:  # one message after the other
            return (members - 1) * step.size_bytes / members / speed, (members - 1) * latency
        steps = (members - 1) * (2 if step.kind is CollectiveType.ALL_REDUCE else 1)
        part = step.size_bytes if step.kind is CollectiveType.ALL_GATHER else step.size_bytes / members
        return steps * part / speed, steps * latency


def reached_network(network: NetworkConfig, costs: Costs) -> NetworkConfig:
    """Return *network* with the bandwidths that collectives reach on it according to *costs*.

    Explicit links have the smaller share, as it is unknown whether they leave a node. A packet-level
    network is unchanged, because it models the losses of bandwidth.
    """
    smaller = min(costs.within_node.share, costs.across_nodes.share)
    links = tuple(link._replace(bandwidth=link.bandwidth * smaller) for link in network.links)
    shares = [costs.within_node.share] + [costs.across_nodes.share] * (network.dimensions - 1)
    bandwidth = tuple(value * share for value, share in zip(network.bandwidth, shares, strict=True))
    return replace(network, bandwidth=bandwidth, links=links, where=f"The network '{network.name}'")


def costs_on(network: NetworkConfig, costs: Costs) -> Costs:
    """Return *costs* on *network*; the chip's shares do not apply with an own `efficiency`."""
    if network.efficiency is None:
        return costs
    return replace(costs, within_node=LinkCosts(), across_nodes=LinkCosts())


def needs_every_rank(network: NetworkConfig) -> bool:
    """Return whether all ranks must be simulated on *network*, as messages and collectives have costs."""
    part = network.efficiency
    return part is not None and replace(part, wire=1.0) != type(part)()


def predicted_system(topology: Sequence[str]) -> SystemConfig:
    """Return the communication library on dimensions of *topology*.

    It uses rings, and direct exchange on a mesh; each collective is one chunk, without a delay beyond the
    costs.
    """
    ways = tuple("direct" if each == _MESH else "ring" for each in topology)
    return SystemConfig(
        scheduling_policy="LIFO",
        collective_optimization="localBWAware",
        preferred_dataset_splits=1,
        active_chunks_per_dimension=_AT_ONCE,
        endpoint_delay=0,
        local_reduction_delay=0,
        all_reduce_implementation=ways,
        all_gather_implementation=ways,
        reduce_scatter_implementation=ways,
        # One message at a time from each rank to each other: as fast as its link, not as all of them.
        all_to_all_implementation=tuple("direct" if each == _MESH else "oneDirect1" for each in topology),
        name="predicted",
    )
