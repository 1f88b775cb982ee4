"""The contents of a chip file: peaks, memory, and the operator costs of each software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import ConfigError, did_you_mean

__all__ = ["LOW_PRECISIONS", "Chip", "Costs", "Fit", "Host", "LinkCosts"]

LOW_PRECISIONS: Mapping[str, float] = {"fp8": 1.0, "mxfp8": 1 + 1 / 32, "nvfp4": 1 / 2 + 1 / 16}
"""Bytes of an operand of a matrix product, with the scales of its blocks.

Everything else of such a step, attention and the last product too, is in half precision.
"""


@dataclass(frozen=True)
class LinkCosts:
    """The performance of collectives on a kind of link: a *share* of its bandwidth, after *latency_ns*."""

    share: float = 1.0
    latency_ns: float = 0.0


@dataclass(frozen=True)
class Host:
    """A chip's part of its host: its link's bytes per second each way, and those of the host's memory."""

    link_bytes_per_s: float
    memory_bytes_per_s: float


@dataclass(frozen=True)
class Fit:
    """What costs were fitted on, and how far from it they are.

    *data* names the measurements, *rows* and *families* (sizes of a model, or recipes) how many there were.
    Errors are relative to the measurement: *mean*, *median* and *worst* of what was fitted, *unseen_mean* and
    *unseen_median* of families left out of the fit in turn with all their rows. Nine of ten rows of every
    such family took *low* to *high* times what was predicted; *inside* is the share of rows in the ranges of
    costs fitted without their family. *utilisation* is the median share of the peak that the rows reached by
    the operations a model needs. No row had more than *most_ranks*, or a layer of fewer forward operations a
    rank and micro-batch than *least_layer_flops*. *covers* names what some of the rows had that not every job
    has, as `predict` names it. Costs that were fitted on nothing say in *data* where they come from, and have
    0 *rows*; those of another chip keep the figures of its fit.
    """

    data: str
    rows: int = 0
    families: int | None = None
    mean: float | None = None
    median: float | None = None
    worst: float | None = None
    unseen_mean: float | None = None
    unseen_median: float | None = None
    low: float | None = None
    high: float | None = None
    inside: float | None = None
    utilisation: float | None = None
    most_ranks: int | None = None
    least_layer_flops: float | None = None
    covers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Costs:
    """What classes of operators cost on a chip with one software.

    *gemm* and *attention* are shares of the peak, by precision (``default`` for those not named),
    *pointwise* of the memory bandwidth. *gemm_memory* is how much of the time to move the operands of a
    matrix product once comes on top of its operations, so that thin ones are slow. *layer_ns* is what
    each layer takes in each pass in addition (kernel launches and the software around them), *host_ns*
    the host's time for it, in parallel to the chip. *step_ns* is once a step. *exposed* is the share of an
    overlapped collective that slows the computation down by as much. *within_node* and
    *across_nodes* are what collectives reach on the links of a node and between nodes. The software by
    itself has *fused_attention*, *overlap* of gradients with the backward pass, *sequence_parallel*
    regions, *tensor_overlap* of their collectives with matrix products, a *sharded_optimizer* (ZeRO 1),
    reduces gradients of *grad_bytes*, and runs PyTorch's own operators (*eager*).
    """

    gemm: Mapping[str, float]
    attention: Mapping[str, float]
    pointwise: float
    gemm_memory: float = 0.5
    layer_ns: float = 0.0
    host_ns: float = 0.0
    step_ns: float = 0.0
    exposed: float = 0.0
    within_node: LinkCosts = LinkCosts()
    across_nodes: LinkCosts = LinkCosts()
    fused_attention: bool = True
    overlap: bool = True
    sequence_parallel: bool = True
    tensor_overlap: bool = False
    sharded_optimizer: bool = False
    grad_bytes: int = 4
    eager: bool = False
    fit: Fit = Fit("assumed")

    def share(self, kind: str, precision: str) -> float:
        """Return the share of the peak that *kind* (``gemm``, ``attention``) reaches in *precision*.

        A low precision without a share of its own has that of FP8.
        """
        shares: Mapping[str, float] = getattr(self, kind)
        similar = "fp8" if precision in LOW_PRECISIONS else "default"
        return shares.get(precision, shares.get(similar, shares["default"]))


@dataclass(frozen=True)
class Chip:
    """A chip: *peak_flops* per second by precision, memory, and *costs* by software.

    *source* names where the peaks come from. *precision* is the default of training. *devices* are the names
    that traces give it. *host* is that of the usual node, for CPU offload. Without measured steps of its own,
    it has the costs of the shipped chip that *like* names for the software.
    """

    name: str
    title: str
    source: str
    peak_flops: Mapping[str, float]
    memory_bytes: int
    memory_bytes_per_s: float
    precision: str
    costs: Mapping[str, Costs]
    devices: tuple[str, ...] = ()
    like: Mapping[str, str] = field(default_factory=dict)
    host: Host | None = None

    def peak(self, precision: str) -> float:
        """Return the operations per second in *precision*; raises `ConfigError` for one it has not."""
        if precision not in self.peak_flops:
            raise ConfigError(
                f"The chip '{self.name}' has no peak for the precision '{precision}'"
                f"{did_you_mean(precision, self.peak_flops)}"
            )
        return self.peak_flops[precision]

    def flops_per_s(self, costs: Costs, kind: str, precision: str) -> float:
        """Return the operations per second that *kind* (``gemm``, ``attention``) reaches by *costs*."""
        if kind == "attention" and precision in LOW_PRECISIONS:
            precision = self.precision
        return self.peak(precision) * costs.share(kind, precision)

    def costs_of(self, software: str) -> Costs:
        """Return what operators cost with *software*; raises `ConfigError` for one that has no costs."""
        if software not in self.costs:
            raise ConfigError(
                f"The chip '{self.name}' has no costs for the software '{software}'"
                f"{did_you_mean(software, self.costs)}"
            )
        return self.costs[software]
