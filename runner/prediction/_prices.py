"""Compute times of operators on a chip, and of collectives and messages on a network, by formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...converter import CollectiveType
from ..chips import Chip, Costs, LinkCosts
from ..config import NetworkConfig, SystemConfig
from .models import DENSE_KERNELS, PRODUCTS, USUAL_HEAD, Exchange, Operator, Phase, Spread, phases

_MESH = "FullyConnected"
_AT_ONCE = 64  # limit of concurrent collectives: groups that share a link do not wait for each other


@dataclass(frozen=True)
class Links:
    """The links of a rank: ``within`` its node (dimension 0), and ``across`` nodes (the slowest dimension).

    Bandwidths are in bytes per ns, and latencies are in ns. With *meshed_within* or *meshed_across*, a rank
    has a separate link to each other rank, and all these links carry data at the same time.
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
        """Return the links of a rank in *network*."""
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
        """Return the bandwidth (bytes per ns) and the latency (ns) of links on *level*."""
        if level == "within":
            return self.within_bytes_per_ns, self.within_latency_ns
        return self.across_bytes_per_ns, self.across_latency_ns

    def transfer_ns(self, step: Phase, where: Spread) -> tuple[float, float]:
        """Return the ns that the bytes and the hops of a phase take, in a ring or (on a mesh) in one step."""
        members = where.inside if step.level == "within" else where.nodes
        if members < 2:
            return 0.0, 0.0
        speed, latency = self.figures(step.level)
        if self.meshed_within if step.level == "within" else self.meshed_across:
            # A rank on a mesh sends to and receives from all other ranks at once.
            rounds = 2 if step.kind is CollectiveType.ALL_REDUCE else 1
            part = step.size_bytes / (1 if step.kind is CollectiveType.ALL_GATHER else members)
            return rounds * part / speed, rounds * latency
        if step.kind is CollectiveType.ALL_TO_ALL:  # a rank sends one message after another
            return (members - 1) * step.size_bytes / members / speed, (members - 1) * latency
        steps = (members - 1) * (2 if step.kind is CollectiveType.ALL_REDUCE else 1)
        part = step.size_bytes if step.kind is CollectiveType.ALL_GATHER else step.size_bytes / members
        return steps * part / speed, steps * latency


def reached_network(network: NetworkConfig, costs: Costs) -> NetworkConfig:
    """Return *network* with the bandwidths that collectives attain according to *costs*.

    Explicit links get the smaller share, because the network does not state which links leave a node. A
    packet-level network is unchanged, because packet-level models include the losses of bandwidth.
    """
    smaller = min(costs.within_node.share, costs.across_nodes.share)
    links = tuple(link._replace(bandwidth=link.bandwidth * smaller) for link in network.links)
    shares = [costs.within_node.share] + [costs.across_nodes.share] * (network.dimensions - 1)
    bandwidth = tuple(value * share for value, share in zip(network.bandwidth, shares, strict=True))
    return replace(network, bandwidth=bandwidth, links=links, where=f"The network '{network.name}'")


def costs_on(network: NetworkConfig, costs: Costs) -> Costs:
    """Return *costs* for *network*, without the chip's link costs if the network has an `efficiency`."""
    if network.efficiency is None:
        return costs
    return replace(costs, within_node=LinkCosts(), across_nodes=LinkCosts())


def needs_every_rank(network: NetworkConfig) -> bool:
    """Return whether *network* has message or collective costs, for which all ranks must be simulated."""
    part = network.efficiency
    return part is not None and replace(part, wire=1.0) != type(part)()


def predicted_system(topology: Sequence[str]) -> SystemConfig:
    """Return the configuration of the communication library for the dimensions of *topology*.

    The library uses rings, and direct exchange on a mesh. Each collective is a single chunk, without delays
    in addition to the fitted costs.
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
        # In an all-to-all, each rank sends one message at a time, at the speed of one link instead of all
        # links together.
        all_to_all_implementation=tuple("direct" if each == _MESH else "oneDirect1" for each in topology),
        name="predicted",
    )


FLASH_BACKWARD = 0.75
"""The speed of fused attention's backward pass, relative to its forward pass.

FlashAttention-2 reaches 0.8 to 0.85 on A100 and H100, and kernels in Triton reach less.
"""
_EXPONENTIALS_PER_S = 4e12  # NVIDIA's chips since Volta: 16 per clock cycle and multiprocessor
# The share of the memory bandwidth that copies and Adam on the host attain. STREAM's triad attains 330 to 350
# of 409.6 GB/s on two EPYC Milan, and 650 to 780 of 921.6 GB/s on two Genoa (Microsoft's figures of HBv3 and
# HBv4).
_REACHED = 0.8


@dataclass(frozen=True)
class ChipPrices:
    """Times in ns of operators on *chip* in a *precision*, by *costs*, and of transfers on *links*."""

    chip: Chip
    costs: Costs
    precision: str
    links: Links

    @property
    def host_ns(self) -> float:
        """The host's time in ns to start a pass over a layer."""
        return self.costs.host_ns

    @property
    def step_ns(self) -> float:
        """The fixed overhead of a step in ns."""
        return self.costs.step_ns

    def operator_ns(self, operator: Operator) -> float:
        """Return the time of *operator* in ns."""
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
        """Return the start-up time (ns) of a collective with the placement *where*, before its transfer."""
        return (self.costs.within_node if where.nodes == 1 else self.costs.across_nodes).latency_ns

    def slowed_ns(self, exchange: Exchange, where: Spread) -> float:
        """Return the time (ns) by which a concurrent collective prolongs computation."""
        total, parts = 0.0, 0
        for step in phases(exchange.kind, exchange.size_bytes, where, exchange.routing):
            parts += where.inside * where.nodes
            share = (self.costs.within_node if step.level == "within" else self.costs.across_nodes).share
            total += self.links.transfer_ns(step, where)[0] / share
        if exchange.overlapped and exchange.kind is not CollectiveType.ALL_TO_ALL:
            return total * self.costs.exposed_tensors + parts * self.costs.part_ns
        return total * self.costs.exposed


def flash_prices(chip: Chip, costs: Costs, precision: str) -> tuple[float, float]:
    """Return the time of fused attention per operation, and of its softmax per score, in ns.

    The share of the peak in *costs* is valid for heads of the usual size. Smaller heads are slower on chips
    on which the throughput of exponentials limits attention. The time of attention is the root of the sum of
    squares of two times: for operations and for exponentials. Heads of size 64 attain 0.62 of the speed on
    B200, 0.80 on H100 and 0.97 on A100. Separately measured kernels attain 0.60 to 0.69 on B200, B300, GB200
    and GB300, and 0.76 to 0.82 on H100 (ai-dynamo/aiconfigurator 095f58a).
    """
    scarce = chip.peak(chip.precision) / (4 * USUAL_HEAD * _EXPONENTIALS_PER_S)
    softmax = 2 * math.hypot(0.5, scarce) / math.hypot(1, scarce) - 1
    usual_ns = 1e9 / chip.flops_per_s(costs, "attention", precision)
    return (1 - softmax) * usual_ns, softmax * 4 * USUAL_HEAD * usual_ns


def host_prices(chip: Chip) -> tuple[float, float]:
    """Return the ns that a host copy and Adam on the host take per byte; both are 0 without a host."""
    if chip.host is None:
        return 0.0, 0.0
    memory = chip.host.memory_bytes_per_s
    return 1e9 / (_REACHED * min(chip.host.link_bytes_per_s, memory)), 1e9 / (_REACHED * memory)
