"""The times of operators and collectives on a chip, from its costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...converter import CollectiveType
from ..chips import Chip, Costs
from ._links import Links
from .models import DENSE_KERNELS, PRODUCTS, USUAL_HEAD, Exchange, Operator, Spread, phases

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
