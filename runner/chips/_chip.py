"""Chips in shipped or user files: peaks, memory, and the operator costs of each software stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import yaml

from ...errors import ConfigError, did_you_mean
from ...support import write_file
from ...support.documents import read_yaml, yaml_mapping
from ..config import Shipped, typed_fields

LOW_PRECISIONS: Mapping[str, float] = {"fp8": 1.0, "mxfp8": 1 + 1 / 32, "nvfp4": 1 / 2 + 1 / 16}
"""Bytes of an operand of a matmul, with the scales of its blocks.

All other work of the step, including attention and the last matmul, is in half precision.
"""


_USABLE = 0.95  # the share of a chip's memory that a plan can use


@dataclass(frozen=True)
class LinkCosts:
    """The costs of collectives on a kind of link: a *share* of its bandwidth, after *latency_ns*."""

    share: float = 1.0
    latency_ns: float = 0.0


@dataclass(frozen=True)
class Host:
    """A chip's share of its host, in bytes per second: of its link in each direction, and of host memory."""

    link_bytes_per_s: float
    memory_bytes_per_s: float


@dataclass(frozen=True)
class Fit:
    """The measurements behind fitted costs, and the errors of the fit.

    * *data* names the measurements. *rows* is the number of measurements, and *families* is the number of
      model families or recipes.
    * Errors are relative to the measurement. *mean*, *median* and *worst* are the errors of the fitted rows.
      *unseen_mean* and *unseen_median* are the errors of families that were left out of the fit in turn.
    * The measured time was *low* to *high* times the prediction in nine of ten rows of families that were
      left out of the fit. *inside* is the coverage of these intervals, each fitted without the family of the
      row.
    * *utilisation* is the median utilisation: the operations that the model requires, as a share of the peak.
    * No measurement had more ranks than *most_ranks*, or a layer with fewer forward operations per rank and
      micro-batch than *least_layer_flops*.
    * Links within a node and between nodes had *within_bytes_per_s* and *across_bytes_per_s* (None: no row
      had several nodes).
    * *covers* lists optional features that some rows had, by their names in `predict`.

    For costs without a fit, *data* is their source, and *rows* is 0. Costs that were copied from another chip
    keep the figures of that chip's fit.
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
    within_bytes_per_s: float | None = None
    across_bytes_per_s: float | None = None
    least_layer_flops: float | None = None
    covers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Costs:
    """The costs of classes of operators on a chip with one software stack.

    * *gemm* and *attention* are shares of the peak by precision (``default`` for other precisions), and
      *pointwise* is a share of the memory bandwidth.
    * *gemm_memory* is a share of the time to move a matmul's operands once. The share of *gemm_memory* is
      added to the time of the matmul's operations, so that thin matmuls are slow.
    * *layer_ns* is the additional time of each layer and pass (kernel launches and software). *host_ns* is
      the host's time for a layer and pass, in parallel to the chip. *step_ns* is a fixed time per step.
    * *exposed* is the share of an overlapped collective's time that is added to the computation.
      *tensor_exposed* is this share for collectives of tensor parallelism between the parts of a matmul
      (default: *exposed*). A matmul has one part per rank, and each part adds *part_ns*.
    * *within_node* and *across_nodes* are the costs of collectives on the links of a node and between nodes.

    The other fields are defaults of the software: *fused_attention*, *overlap* of gradients with the backward
    pass, *sequence_parallel* regions, *tensor_overlap* of the collectives of tensor parallelism with matmuls,
    a *sharded_optimizer* (ZeRO 1), the size of reduced gradients as *grad_bytes*, and PyTorch's own operators
    (*eager*).
    """

    gemm: Mapping[str, float]
    attention: Mapping[str, float]
    pointwise: float
    gemm_memory: float = 0.5
    layer_ns: float = 0.0
    host_ns: float = 0.0
    step_ns: float = 0.0
    exposed: float = 0.0
    tensor_exposed: float | None = None
    part_ns: float = 0.0
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

    @property
    def exposed_tensors(self) -> float:
        """The share of a tensor-parallel collective's time that is added to overlapped computation."""
        return self.exposed if self.tensor_exposed is None else self.tensor_exposed

    def share(self, kind: str, precision: str) -> float:
        """Return the share of the peak that *kind* (``gemm``, ``attention``) reaches in *precision*.

        A low precision without a separate share has the share of FP8.
        """
        shares: Mapping[str, float] = getattr(self, kind)
        similar = "fp8" if precision in LOW_PRECISIONS else "default"
        return shares.get(precision, shares.get(similar, shares["default"]))


@dataclass(frozen=True)
class Chip:
    """A chip: *peak_flops* per second by precision, memory, and *costs* by software stack.

    * *source* names the origin of the peaks. *precision* is the default precision for training.
    * *devices* are the names of the chip in traces.
    * *network* is the preset of the chip's usual node (``""``: none), and *host* is the host of this node,
      for CPU offload.
    * *products* are the shares of the peaks that large matmuls reach when measured in isolation, by
      precision. *attention_share* is this share for fused attention in half precision.
    * *like* maps a software stack to a shipped chip. A chip without measured steps has the costs of the chip
      in *like*, with the shares of matmuls and attention scaled by the shares measured in isolation.
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
    products: Mapping[str, float] = field(default_factory=dict)
    attention_share: float | None = None
    network: str = ""

    @property
    def usable_bytes(self) -> int:
        """The memory that a plan can use; fragments of the allocator and buffers of NCCL take the rest."""
        return round(self.memory_bytes * _USABLE)

    def peak(self, precision: str) -> float:
        """Return the operations per second in *precision*, or raise `ConfigError` if the chip lacks it."""
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
        """Return the costs of operators with *software*, or raise `ConfigError` without such costs."""
        if software not in self.costs:
            raise ConfigError(
                f"The chip '{self.name}' has no costs for the software '{software}'"
                f"{did_you_mean(software, self.costs)}"
            )
        return self.costs[software]

    def costs_like(self, other: Chip, software: str) -> Costs:
        """Return the costs of *software* on *other*, with matmuls and attention as fast as on this chip.

        A low precision that was not measured on *other* has the cost of FP8 there.
        """
        costs = other.costs_of(software)
        gemm = dict(costs.gemm)
        for key, share in self.products.items():
            like = key if key in other.products else "fp8"
            if like in other.products and like in costs.gemm:
                gemm[key] = min(1.0, costs.gemm.get(key, costs.gemm[like]) * share / other.products[like])
        attention = dict(costs.attention)
        if self.attention_share and other.attention_share:
            ratio = self.attention_share / other.attention_share
            attention = {key: min(1.0, share * ratio) for key, share in attention.items()}
        return replace(costs, gemm=gemm, attention=attention)


_OTHER_NAMES = {"a100": "a100-80", "a100-80gb": "a100-80", "a100-40gb": "a100-40", "h100-80gb": "h100"}
_CHIPS = Shipped("chip", Path(__file__).with_name("chips.yml"), other_names=_OTHER_NAMES)


def list_chips() -> list[str]:
    """Return the names of the chips that ship with the package, sorted."""
    return _CHIPS.names()


def find_chip(name: str | Path) -> Chip:
    """Return the chip with this name or file, or raise `ConfigError` with the closest name."""
    if _CHIPS.means(name):
        full_name = _CHIPS.full_name(str(name))
        return _shipped_chip(full_name, _CHIPS.text(full_name))
    file = Path(name)
    return _unchanged_chip(file, file.stat().st_mtime_ns) if file.is_file() else load_chip(file)


@cache
def _shipped_chip(name: str, text: str) -> Chip:
    where = f"The chip '{name}'"
    return _chip(name, yaml_mapping(text, where), where)


@lru_cache(64)
def _unchanged_chip(file: Path, _changed: int) -> Chip:
    """Return the chip in *file*, which is read once as long as its modification time stays the same."""
    return load_chip(file)


def chip_of_device(device: str) -> Chip | None:
    """Return the shipped chip with the device name *device* in traces, or None if there is none."""
    # Files without the name are not parsed, because that takes longer than everything else here.
    chips = (find_chip(name) for name in list_chips() if device and device in _CHIPS.text(name))
    return next((chip for chip in chips if device in chip.devices), None)


def load_chip(path: str | Path) -> Chip:
    """Read a chip file, or raise `ConfigError` for keys that are unknown, missing or out of range."""
    file = Path(path)
    return _chip(file.stem, read_yaml(file, "chip file"), str(file))


def _chip(name: str, given: Mapping[str, Any], where: str) -> Chip:
    values = typed_fields(Chip, {"costs": {}, **given}, where, without=("name",))
    chip = Chip(name=name, **values)
    _check_numbers(chip, where, above_0=True)
    for precision, peak in chip.peak_flops.items():
        _check(peak, f"{where}: 'peak_flops' of {precision}", above_0=True)
    for precision, share in chip.products.items():
        _check(share, f"{where}: 'products' of {precision}", above_0=True, most=1.0)
    if chip.attention_share:
        _check(chip.attention_share, f"{where}: 'attention_share'", most=1.0)
    if chip.host is not None:
        _check_numbers(chip.host, f"{where}: host", above_0=True)
    for software, costs in chip.costs.items():
        _check_costs(costs, f"{where}: costs of {software}")
    chip.peak(chip.precision)
    like = {software: other for software, other in chip.like.items() if software not in chip.costs}
    borrowed = {software: _costs_like(chip, other, software) for software, other in like.items()}
    return replace(chip, like=like, costs={**borrowed, **chip.costs})


def save_chip(chip: Chip, path: str | Path) -> None:
    """Write *chip* to a file that `load_chip` reads."""
    write_file(path, chip_text(chip), parents=True)


def chip_text(chip: Chip) -> str:
    """Return the content of the chip file of *chip*."""
    data = asdict(chip)
    data.pop("name")
    data["costs"] = {name: costs for name, costs in data.pop("costs").items() if name not in chip.like}
    for costs in data["costs"].values():
        costs["fit"] = {key: value for key, value in costs["fit"].items() if value is not None}
        costs["fit"]["covers"] = list(costs["fit"]["covers"])
    data["devices"] = list(data["devices"])
    for key in ("host", "products", "attention_share", "network"):
        if not data[key]:
            del data[key]
    return yaml.safe_dump(data, sort_keys=False, width=110, allow_unicode=True)


def _costs_like(chip: Chip, other: str, software: str) -> Costs:
    """Return the costs of *software* on the shipped chip *other*, for a *chip* without measured steps."""
    costs = chip.costs_like(find_chip(other), software)
    data = f"shares of peaks as on {other} with {software}, not fitted to steps of this chip"
    return replace(costs, fit=replace(costs.fit, data=data, rows=0))


def _check_costs(costs: Costs, where: str) -> None:
    for key in ("gemm", "attention"):
        shares = getattr(costs, key)
        if "default" not in shares:
            raise ConfigError(f"{where}: '{key}' needs a share called 'default'; add it.")
        for name, share in shares.items():
            _check(share, f"{where}: '{key}' of {name}", above_0=True, most=1.0)
    _check(costs.pointwise, f"{where}: 'pointwise'", above_0=True, most=1.0)
    _check(costs.exposed, f"{where}: 'exposed'", most=1.0)
    _check(costs.exposed_tensors, f"{where}: 'tensor_exposed'", most=1.0)
    if costs.grad_bytes not in (2, 4):
        raise ConfigError(f"{where}: 'grad_bytes' must be 2 or 4, not {costs.grad_bytes}.")
    _check_numbers(costs, where)
    _check_numbers(costs.fit, f"{where}: fit")
    for key in ("within_node", "across_nodes"):
        links = getattr(costs, key)
        _check_numbers(links, f"{where}: {key}")
        _check(links.share, f"{where}: {key}: 'share'", above_0=True, most=1.0)


def _check_numbers(values: Any, where: str, *, above_0: bool = False) -> None:
    """Raise `ConfigError` for a number that is out of range among the fields of a dataclass."""
    for item in fields(values):
        value = getattr(values, item.name)
        if isinstance(value, (int, float)):
            _check(value, f"{where}: '{item.name}'", above_0=above_0)


def _check(value: float, where: str, *, above_0: bool = False, most: float | None = None) -> None:
    if value < 0 or (above_0 and value == 0) or (most is not None and value > most):
        limit = "above 0" if above_0 else "of 0 or more"
        limit += "" if most is None else f" and at most {most:g}"
        raise ConfigError(f"{where} must be a number {limit}, not {value!r}; correct the value.")
