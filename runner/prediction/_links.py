"""What collectives and messages take on a network of dimensions, without simulating it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...converter import CollectiveType
from ...converter.generate.models import Phase, Spread
from ..chips import Costs
from ..config import NetworkConfig, SystemConfig

__all__ = ["Links", "predicted_system", "reached_network"]

_AT_ONCE = 64  # collectives of different groups share a link, and none waits for another


@dataclass(frozen=True)
class Links:
    """The links of a rank: those ``within`` its node, dimension 0, and ``across`` nodes, the slowest beyond.

    Bandwidths are bytes per ns, latencies ns.
    """

    node_size: int
    within_bytes_per_ns: float
    across_bytes_per_ns: float
    within_latency_ns: float
    across_latency_ns: float

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
        )

    def figures(self, level: str) -> tuple[float, float]:
        """Return bandwidth and latency on *level*."""
        if level == "within":
            return self.within_bytes_per_ns, self.within_latency_ns
        return self.across_bytes_per_ns, self.across_latency_ns

    def transfer_ns(self, step: Phase, where: Spread) -> tuple[float, float]:
        """Return what a phase takes in a ring: the time of its bytes, and of its hops."""
        members = where.inside if step.level == "within" else where.nodes
        if members < 2:
            return 0.0, 0.0
        speed, latency = self.figures(step.level)
        if step.kind is CollectiveType.ALL_TO_ALL:  # one message after the other
            return (members - 1) * step.size_bytes / members / speed, (members - 1) * latency
        steps = (members - 1) * (2 if step.kind is CollectiveType.ALL_REDUCE else 1)
        part = step.size_bytes if step.kind is CollectiveType.ALL_GATHER else step.size_bytes / members
        return steps * part / speed, steps * latency


def reached_network(network: NetworkConfig, costs: Costs) -> NetworkConfig:
    """Return *network* with the bandwidths that collectives reach on it, by *costs*.

    Links of its own get the smaller share, as they do not say whether they leave a node; a packet-level
    network is left as it is, because it models what costs the bandwidth.
    """
    smaller = min(costs.within_node.share, costs.across_nodes.share)
    links = tuple(link._replace(bandwidth=link.bandwidth * smaller) for link in network.links)
    shares = [costs.within_node.share] + [costs.across_nodes.share] * (network.dimensions - 1)
    bandwidth = tuple(value * share for value, share in zip(network.bandwidth, shares, strict=True))
    return replace(network, bandwidth=bandwidth, links=links, where=f"The network '{network.name}'")


def predicted_system(dimensions: int) -> SystemConfig:
    """Return the communication library: rings, each collective whole, no delay beside what costs say."""
    return SystemConfig(
        scheduling_policy="LIFO",
        collective_optimization="localBWAware",
        preferred_dataset_splits=1,
        active_chunks_per_dimension=_AT_ONCE,
        endpoint_delay=0,
        local_reduction_delay=0,
        all_reduce_implementation=("ring",) * dimensions,
        all_gather_implementation=("ring",) * dimensions,
        reduce_scatter_implementation=("ring",) * dimensions,
        # One message at a time from each rank to each other: as fast as its link, not as all of them.
        all_to_all_implementation=("oneDirect1",),
        name="predicted",
    )
