"""The times of operators on a chip, and of collectives and messages on a network, without simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...converter import CollectiveType
from ..chips import Chip, Costs, LinkCosts
from ..config import NetworkConfig, SystemConfig
from .models import DENSE_KERNELS, PRODUCTS, USUAL_HEAD, Exchange, Operator, Phase, Spread, phases

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


FLASH_BACKWARD = 0.75
"""How fast the backward pass of fused attention computes, relative to its forward pass.

FlashAttention-2 has 0.8 to 0.85 on A100 and H100, kernels in Triton less.
"""
_EXPONENTIALS_PER_S = 4e12  # NVIDIA's chips since Volta: 16 a clock and multiprocessor
# The share of bandwidths that copies and Adam on the host reach: STREAM's triad has 330 to 350 of 409.6 GB/s
# on two EPYC Milan, and 650 to 780 of 921.6 GB/s on two Genoa (Microsoft's figures of HBv3 and HBv4).
_REACHED = 0.8


@dataclass(frozen=True)
class ChipPrices:
    """The prices of *costs* on *chip* in a *precision*, with *links*."""

    chip: Chip
    costs: Costs
    precision: str
    links: Links

    @property
    def host_ns(self) -> float:
        """The host's time to start a pass over a layer."""
        return self.costs.host_ns

    @property
    def step_ns(self) -> float:
        """The fixed overhead of a step."""
        return self.costs.step_ns

    def operator_ns(self, operator: Operator) -> float:
        """Return the time of *operator*."""
        costs, kind = self.costs, operator.kind
        memory = self.chip.memory_bytes_per_s / 1e9
        if kind == "overhead":
            return costs.layer_ns * operator.flops
        if kind == "launches":
            return costs.host_ns / DENSE_KERNELS * operator.flops
        if kind in {"copy", "host"}:
            return operator.moved_bytes * host_prices(self.chip)[kind == "host"]
        if kind in {"pointwise", "cast"}:
            return operator.moved_bytes / (memory * costs.pointwise)
        if kind in PRODUCTS:
            precision = self.precision if kind == "gemm" else self.chip.precision
            work = operator.flops / self.chip.flops_per_s(costs, "gemm", precision) * 1e9
            return work + operator.moved_bytes * costs.gemm_memory / memory
        if kind == "attention":
            return operator.flops / self.chip.flops_per_s(costs, "attention", self.precision) * 1e9
        flop_ns, score_ns = flash_prices(self.chip, costs, self.precision)
        work = operator.flops * flop_ns + operator.scores * score_ns
        return work / FLASH_BACKWARD if operator.name.endswith("gradient") else work

    def start_ns(self, where: Spread) -> float:
        """Return the time of a collective with this placement in addition to its transfer."""
        return (self.costs.within_node if where.nodes == 1 else self.costs.across_nodes).latency_ns

    def slowed_ns(self, exchange: Exchange, where: Spread) -> float:
        """Return the factor by which a concurrent collective slows computation."""
        total = 0.0
        for step in phases(exchange.kind, exchange.size_bytes, where, exchange.routing):
            share = (self.costs.within_node if step.level == "within" else self.costs.across_nodes).share
            total += self.links.transfer_ns(step, where)[0] / share
        is_product = exchange.overlapped and exchange.kind is not CollectiveType.ALL_TO_ALL
        return total * (self.costs.exposed_tensors if is_product else self.costs.exposed)


def flash_prices(chip: Chip, costs: Costs, precision: str) -> tuple[float, float]:
    """Return the ns of an operation of fused attention, and of the softmax of a score.

    The share of the peak by *costs* is that of heads of the usual size. Smaller ones are slower where
    exponentials are as scarce as operations, as the root of the sum of squares of both times: heads of 64
    have 0.62 of the speed on B200, 0.80 on H100 and 0.97 on A100. Kernels measured alone have 0.60 to 0.69
    on B200, B300, GB200 and GB300, and 0.76 to 0.82 on H100 (ai-dynamo/aiconfigurator 095f58a).
    """
    scarce = chip.peak(chip.precision) / (4 * USUAL_HEAD * _EXPONENTIALS_PER_S)
    softmax = 2 * math.hypot(0.5, scarce) / math.hypot(1, scarce) - 1
    usual_ns = 1e9 / chip.flops_per_s(costs, "attention", precision)
    return (1 - softmax) * usual_ns, softmax * 4 * USUAL_HEAD * usual_ns


def host_prices(chip: Chip) -> tuple[float, float]:
    """Return the ns a byte of copies between *chip* and its host, and of Adam on the host; 0 without one."""
    if chip.host is None:
        return 0.0, 0.0
    memory = chip.host.memory_bytes_per_s
    return 1e9 / (_REACHED * min(chip.host.link_bytes_per_s, memory)), 1e9 / (_REACHED * memory)
